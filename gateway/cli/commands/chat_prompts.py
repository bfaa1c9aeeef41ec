"""An agent's requests to a person, and the answers in typed lines. Pure."""

import json
from dataclasses import dataclass, field
from typing import Any

from gateway.protocol.text import visible_line

YES = frozenset({"y", "yes", "allow"})
ALWAYS = frozenset({"a", "always"})
NO = frozenset({"n", "no", "deny"})


@dataclass(slots=True)
class Permission:
    """May the agent use this tool?"""

    request_id: str
    tool: str
    tool_input: Any
    may_be_always: bool = False  # the agent offers not to ask again for this kind of thing

    def prompt(self) -> list[str]:
        wanted = (
            "" if self.tool_input in (None, {}) else f" with {visible_line(json.dumps(self.tool_input), longest=500)}"
        )
        return [
            f"The agent asks to use {self.tool}{wanted}",
            "Allow it? y/n, or a for always" if self.may_be_always else "Allow it? y/n",
        ]

    def answer(self, line: str) -> tuple[dict[str, Any] | None, str]:
        """The frame to send, or None and a hint."""
        word = line.lower()
        always = self.may_be_always and word in ALWAYS
        if not always and word not in YES | NO:
            return None, f"Please answer y{', a' if self.may_be_always else ''} or n (or /abort)"
        allow = always or word in YES
        frame = {"type": "permission_response", "requestId": self.request_id, "allow": allow}
        return {**frame, "behavior": "allow" if allow else "deny", **({"always": True} if always else {})}, ""


@dataclass(slots=True)
class Question:
    """One or more questions, answered one after the other, by number or in own words."""

    request_id: str
    questions: list[dict[str, Any]]
    answers: dict[str, str] = field(default_factory=dict)

    def prompt(self) -> list[str]:
        question = self.questions[len(self.answers)]
        lines = [visible_line(_text(question.get("question")))]
        for number, option in enumerate(_options(question), 1):
            about = visible_line(_text(option.get("description")))
            lines.append(f"  {number}. {visible_line(_text(option.get('label')))}" + (f" - {about}" if about else ""))
        several = "numbers with commas between" if question.get("multiSelect") else "a number"
        lines.append(
            f"Answer with {several}, or in your own words" if _options(question) else "Answer in your own words"
        )
        return lines

    def answer(self, line: str) -> tuple[dict[str, Any] | None, str]:
        question = self.questions[len(self.answers)]
        chosen = self._chosen(question, line)
        if chosen is None:
            return None, f"Please choose from 1 to {len(_options(question))}, or write an answer"
        self.answers[_text(question.get("question"))] = chosen
        if len(self.answers) < len(self.questions):
            return None, "\n".join(self.prompt())
        return {"type": "ask_user_answer", "requestId": self.request_id, "answers": dict(self.answers)}, ""

    @staticmethod
    def _chosen(question: dict[str, Any], line: str) -> str | None:
        options = _options(question)
        words = [word.strip() for word in line.split(",")] if question.get("multiSelect") else [line]
        if not options or not all(word.isascii() and word.isdecimal() for word in words):
            return line
        numbers = [int(word[:9]) for word in words]
        if not all(1 <= number <= len(options) for number in numbers):
            return None
        return ", ".join(_text(options[number - 1].get("label")) for number in numbers)


Ask = Permission | Question


def read_ask(kind: str, body: Any) -> Ask | None:
    """The request in an agent's frame or in its stored record; None if it cannot be answered."""
    if not isinstance(body, dict) or not isinstance(body.get("requestId"), str):
        return None
    if kind == "permission_request":
        offered = body.get("suggestions")
        tool = visible_line(_text(body.get("toolName")), longest=80)
        return Permission(body["requestId"], tool, body.get("toolInput"), isinstance(offered, list) and bool(offered))
    listed = body.get("questions")
    questions = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    # Answers are keyed by their question's text: of two equal questions the second could not be answered separately.
    distinct = {_text(each.get("question")): each for each in questions}
    return Question(body["requestId"], list(distinct.values())) if distinct else None


def _options(question: dict[str, Any]) -> list[dict[str, Any]]:
    listed = question.get("options")
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
