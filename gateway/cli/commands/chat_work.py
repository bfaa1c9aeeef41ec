"""An agent's work besides talking, in short lines for a chat: thoughts, plans, tools, changes and costs. Pure.

An agent's reports may have any shape: unreadable parts are skipped. All text is made visible and cut.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from gateway.protocol.text import visible_line

Styled = tuple[str, str]  # a line and its style, as the view knows them
SAY_MOST = ("command", "cmd", "file_path", "path", "pattern", "query", "url", "description", "prompt")
DONE = ("done", "complete", "completed")
ACTIVE = ("active", "running", "inprogress")
_SEPARATORS = re.compile(r"[\s_-]")
LONGEST = 100
MOST_THOUGHT = 400  # characters kept of one thought


class ChatWork:
    """Remembers the lines of one chat that were shown, so that none is shown twice."""

    def __init__(self) -> None:
        self._thought = ""
        self._who: tuple[str, ...] = ()
        self._steps: dict[str, str] = {}  # by kind, the last line
        self._usage: Mapping[str, Any] = {}

    def feed(self, kind: str, body: Any) -> list[Styled]:
        """The lines to show for this frame, or part of a message. A thought is shown when the next frame follows it."""
        said = body if isinstance(body, dict) else {}
        if kind == "thinking":
            self._thought += text(said.get("text", said.get("content")))[: MOST_THOUGHT - len(self._thought)]
            return []
        thought, self._thought = self._thought.strip(), ""
        before = [(f"thinks: {brief(thought)}", "note")] if thought else []
        return [*before, *self._lines(kind, said)]

    def _lines(self, kind: str, said: Mapping[str, Any]) -> Iterator[Styled]:
        match kind:
            case "tool_use":
                about = _brief_of(said.get("input"))
                yield f"uses {brief(str(said.get('name')), 80)}" + (f": {about}" if about else ""), "note"
            case "tool_result" if said.get("is_error") is True:
                yield f"it failed: {brief(_texts(said.get('content')))}", "warn"
            case "todo" | "plan":
                yield from self._progress(kind, said)
            case "file_change" if path := text(said.get("path")):
                yield f"{brief(text(said.get('action')) or 'changed', 20)} {brief(path, 200)}", "note"
            case "usage":
                self._usage = {**self._usage, **said}
            case "done":
                usage = said.get("usage")
                costs = {**self._usage, **(usage if isinstance(usage, dict) else {}), **_only(said, "costUsd")}
                self._usage, self._steps = {}, {}
                if words := usage_words(costs):
                    yield words, "note"
            case "agent_status":
                yield from self._status(said)

    def _progress(self, kind: str, said: Mapping[str, Any]) -> Iterator[Styled]:
        found = [(brief(words), state) for words, state in steps_of(said)]
        if not found:
            return
        done = sum(state == "done" for _, state in found)
        active = [words for words, state in found if state == "active"]
        now = active or [words for words, state in found if state != "done"]
        line = f"{'plan' if kind == 'plan' else 'to do'}: {done} of {len(found)} done" + (f"; {now[0]}" if now else "")
        if line != self._steps.get(kind):
            self._steps[kind] = line
            yield line, "note"

    def _status(self, said: Mapping[str, Any]) -> Iterator[Styled]:
        told = brief(text(said.get("message")) or text(said.get("error")), 200)
        match said.get("status"):
            case "memory_lost":
                yield "the agent has forgotten the conversation before this", "warn"
            case "retrying":
                of = f" (try {said.get('attempt')})" if type(said.get("attempt")) is int else ""
                yield f"its model did not answer; trying again{of}" + (f": {told}" if told else ""), "warn"
            case "notice" if told:
                yield told, "note"
        who = tuple(brief(text(said.get(name)), 80) for name in ("name", "version", "model"))
        if any(who) and who != self._who:
            self._who = who
            name, version, model = who
            yield "agent: " + ", ".join(each for each in (f"{name} {version}".strip(), model) if each), "note"


def usage_words(usage: Mapping[str, Any]) -> str:
    """The cost of an answer, as far as the agent reports it."""
    names = (("inputTokens", "in"), ("outputTokens", "out"), ("cacheReadTokens", "from the cache"))
    counts = [(usage.get(name), word) for name, word in names]
    tokens = ", ".join(f"{count:,} {word}" for count, word in counts if type(count) is int and count > 0)
    cost = usage.get("costUsd")
    dollars = f"${cost:.4f}" if isinstance(cost, int | float) and 0 < cost < 1e9 else ""
    return ", ".join(each for each in (f"tokens: {tokens}" if tokens else "", dollars) if each)


def brief(words: str, longest: int = LONGEST) -> str:
    """On one line, and no longer than that."""
    return visible_line(" ".join(words[: 4 * longest].split()), longest=longest)


def text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _brief_of(given: Any) -> str:
    if not isinstance(given, dict):
        return brief(text(given))
    for name in SAY_MOST:
        said = given.get(name)
        if isinstance(said, list) and all(isinstance(word, str) for word in said):
            said = " ".join(said)
        if isinstance(said, str) and said.strip():
            return brief(said)
    return ""


def _texts(content: Any) -> str:
    if isinstance(content, list):
        return " ".join(text(part.get("text")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else json.dumps(content, default=str)


def steps_of(said: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The words and the state (`done`, `active`, `open`) of each step of a `plan` or item of a `todo`, for any of the
    member names that agents use."""
    listed = next((given for name in ("steps", "items", "todos") if isinstance(given := said.get(name), list)), [])
    found = []
    for listed_step in listed:
        step = listed_step if isinstance(listed_step, dict) else {"content": listed_step}
        words = next((each for name in ("step", "content", "text", "title") if (each := text(step.get(name)))), "")
        if words:
            state = _SEPARATORS.sub("", text(step.get("status")).lower())
            found.append((words, "done" if state in DONE else "active" if state in ACTIVE else "open"))
    return found


def _only(said: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {name: said[name]} if name in said else {}
