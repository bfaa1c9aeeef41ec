"""opencode's protocol: what its events and answers contain, and how to answer it. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from sandbox.agents.core import Out
from sandbox.agents.json_lines import count, cut_text, items, members, read, text, word
from sandbox.agents.turn import Turn

OF_A_SESSION = {
    "message.updated",
    "message.part.updated",
    "message.part.delta",
    "session.status",
    "session.idle",
    "todo.updated",
}
SILENT = re.compile(
    r"server\.heartbeat|(plugin|catalog|reference|integration|lsp|mcp|vcs|project|installation|ide|tui|pty)\..*"
    r"|session\.(created|updated|deleted|diff|compacted)|message\.(removed|part\.removed)|file\.watcher\.updated"
    r"|command\.executed|config\.updated|models?-?dev\..*"
)
SESSION = re.compile(r"ses_[A-Za-z0-9_-]{1,120}")
NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")  # name of a request; it becomes part of a path
MISSED = {  # what to ask for after missed events; {} is the session
    "message": "/session/{}/message?limit=20",
    "permission": "/permission",
    "question": "/question",
}
MAX_ERROR = 2000
MAX_NAME = 256  # characters of the name of a message or a part; opencode's have 30


def session_of(name: str) -> str:
    """`name` if it can be a session's; else ""."""
    return name if SESSION.fullmatch(name) else ""


def list_of(body: bytes) -> list[dict[str, Any]]:
    """The objects in an answer that is a list."""
    return items(read(b'{"list":%b}' % body).get("list"))


def session_in(given: Mapping[str, Any]) -> str:
    return text(given.get("sessionID"))


def kept_name(value: Any) -> str:
    """The name of a message or a part, if it is short enough to remember; else ""."""
    name = text(value)
    return name if len(name) <= MAX_NAME else ""


def name_in(given: Mapping[str, Any]) -> str:
    """The name of a request."""
    name = text(given.get("id"))
    return name if NAME.fullmatch(name) else ""


def model_of(named: str) -> dict[str, Any]:
    """`provider/model`, in the form that a message uses."""
    provider, slash, model = named.partition("/")
    return {"model": {"providerID": provider, "modelID": model}} if slash else {}


def answer(asked: Mapping[str, Any], frame: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a permission or a question. A refusal without words would end the turn."""
    if asked["kind"] == "question":
        return {"answers": _answers(asked["questions"], frame.get("answers", frame.get("answer")))}
    if frame.get("allow") is True or frame.get("behavior") == "allow":
        return {"reply": "always" if frame.get("always") is True else "once"}
    if frame.get("interrupt") is True:
        return {"reply": "reject"}
    return {"reply": "reject", "message": text(frame.get("message")) or "The user said no."}


def _answers(questions: list[str], answers: Any) -> list[list[str]]:
    """One list for each question. A single answer counts for every question."""
    given = [answers.get(each) for each in questions] if isinstance(answers, dict) else [answers for _ in questions]
    return [[said for each in (one if isinstance(one, list) else [one]) if (said := word(each))] for one in given]


def result(call: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a tool. Attached files are named, not passed on."""
    failed = state.get("status") == "error"
    content = text(state.get("error" if failed else "output"))
    attached = state.get("attachments")
    if isinstance(attached, list) and attached:
        content = f"{content}\n[{len(attached)} attached files left out]"
    return {"type": "tool_result", "tool_use_id": call, "content": content, "is_error": failed}


def add_usage(usage: dict[str, int], tokens: Mapping[str, Any]) -> None:
    cache = members(tokens.get("cache"))
    told = {
        "inputTokens": tokens.get("input"),
        "outputTokens": tokens.get("output"),
        "cacheReadTokens": cache.get("read"),
        "cacheWriteTokens": cache.get("write"),
    }
    for name, theirs in told.items():
        if (more := count(theirs)) is not None:
            usage[name] = usage.get(name, 0) + more


def error_of(error: Mapping[str, Any]) -> str:
    return text(members(error.get("data")).get("message"))


def is_refusal(error: Mapping[str, Any]) -> bool:
    """Whether the model refused the key, or has none."""
    told = f"{text(error.get('name'))} {error_of(error)}"
    refused = members(error.get("data")).get("statusCode") in (401, 403)
    return refused or re.search(r"[Aa][Pp][Ii] ?[Kk]ey|ProviderAuth", told) is not None


def error(turn: Turn, told: str, *, refused: bool) -> Iterator[Out]:
    if refused or re.search(r"\b40[13]\b", told):
        told = f"the model refused the key, or the key is missing: set a valid key ({told})"
        yield from turn.say("error", code="agent_auth", error=cut_text(told, MAX_ERROR))
    else:
        yield from turn.say("error", code="agent", error=cut_text(told, MAX_ERROR))
