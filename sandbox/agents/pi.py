"""The core of pi: `pi --mode rpc` with JSON lines both ways. Pure.

The conversation is one file in the home, which the command line names: pi goes on with it or begins it. If a turn ran
before and the file is gone, the core tells the user (`memory_lost`).

pi asks for no permissions itself. An extension, written before the start, makes it ask before it runs a shell command
or changes a file, and gives the model a question tool (pi_extension.py). The core implements modes itself: it answers
by itself.

An `abort` waits for ever while a dialog is open, so the core cancels the dialogs first. Versions before 0.87 send
`agent_end` before each retry, and nothing after the last one. So the turn is over if nothing begins within
SETTLE_SECONDS.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sandbox.agents.core import (
    VERSION_IN,
    EndProcess,
    HomeFile,
    Launch,
    Note,
    Out,
    Past,
    ToAgent,
    UnknownFrame,
    WakeAfter,
)
from sandbox.agents.json_lines import (
    amount,
    count,
    cut_text,
    items,
    joins_turn,
    line,
    members,
    read,
    seq_of,
    text,
    waits_for_turn,
    words_of,
)
from sandbox.agents.pi_extension import ALLOW, DENY, EXTENSION, PERMISSION, QUESTION
from sandbox.agents.turn import GATHER, MAX_JOINING, Turn

CONVERSATION, EXTENSION_FILE = ".holdfast/pi.jsonl", ".holdfast/pi-extension.ts"
BEGUN = "begun"
NAME, STATE = "pi", "holdfast-state"  # id of the core's question about pi's version and state
SETTLE, SETTLE_SECONDS = "settle", 0.5
MODES = ("ask", "edits", "all", "plan")
EDITS = ("write", "edit")
DIALOGS = ("select", "input", "editor", "confirm")
SILENT = re.compile(
    r"agent_start|turn_(start|end)|message_start|tool_execution_(start|update|end)|queue_update|entry_appended"
    r"|auto_retry_end|compaction_(start|end)|auto_compaction_(start|end)|session_\w+|extension_ui_request"
)
PERMIT = "tool_permission_request"
MAX_ERROR = 2000


@dataclass(slots=True)
class PiCore:
    """Implements sandbox.agents.core.Core and FoldingCore."""

    turn: Turn = field(default_factory=Turn)
    begun: bool = False  # a turn ran, in this process or an earlier one
    forgot: bool = False
    version: str = ""
    mode: str = "ask"
    number: int = 0
    prompts: dict[str, int | None] = field(default_factory=dict)  # seqs of prompts that pi has not accepted yet
    first: str = ""  # the prompt that began the turn
    accepted: bool = False  # pi accepted a prompt of this turn
    settling: bool = False
    failed: str = ""
    usage: dict[str, int] = field(default_factory=dict)
    cost: float = 0.0

    @property
    def cuts_lines(self) -> bool:
        return True

    @property
    def ready(self) -> bool:
        return not self.turn.running

    def traces(self, wanted: Launch, notes: Mapping[str, str]) -> Sequence[str]:
        return (CONVERSATION,)

    def command(self, wanted: Launch, past: Past) -> Launch:
        home = wanted.env.get("HOME", "")
        self.begun = BEGUN in past.notes
        self.version = wanted.env.get(VERSION_IN, "")
        self.forgot = self.begun and not past.found
        flags = ("--mode", "rpc", "--session", f"{home}/{CONVERSATION}", "-e", f"{home}/{EXTENSION_FILE}")
        env = {"PI_CODING_AGENT_DIR": f"{home}/.pi", **wanted.env}
        return Launch((*wanted.argv, *flags), env, (HomeFile(EXTENSION_FILE, EXTENSION),), wanted.directory)

    def begin(self, start: bytes | None) -> Sequence[Out]:
        return list(self._begin(read(start or b"")))

    def _begin(self, start: dict[str, Any]) -> Iterator[Out]:
        if self.forgot:
            yield from self.turn.say("agent_status", status="memory_lost")
        self._set_mode(start.get("mode"))
        provider, slash, model = text(start.get("model")).partition("/")
        if slash:
            yield self._command("set_model", provider=provider, modelId=model)
        yield ToAgent(line({"id": STATE, "type": "get_state"}))

    def waits(self, line: bytes) -> bool:
        return waits_for_turn(line)

    def folds(self, line: bytes) -> bool:
        return joins_turn(line)

    @property
    def can_fold(self) -> bool:
        return len(self.prompts) < MAX_JOINING

    def down(self, line: bytes) -> Sequence[Out]:
        return list(self._down(read(line)))

    def _down(self, frame: dict[str, Any]) -> Iterator[Out]:
        match frame:
            case {"type": "message"}:
                yield self._message(frame)
            case {"type": "permission_response" | "ask_user_answer"}:
                yield from self.turn.reply(frame, lambda asked: _reply(asked["id"], **_answer(asked, frame)))
            case {"type": "abort"} if self.turn.running and not self.turn.aborting:
                self.turn.aborting = True
                for name, asked in list(self.turn.requests.items()):
                    yield _reply(asked["id"], cancelled=True)
                    yield from self.turn.withdraw(name, "the turn was aborted")
                yield self._command("abort")
            case {"type": "set_mode"}:
                self._set_mode(frame.get("mode"))

    def _message(self, frame: dict[str, Any]) -> Out:
        folded = self.turn.running
        steers = {"streamingBehavior": "steer"} if folded else {}
        self.turn.begin(seq_of(frame))
        said = self._command("prompt", message=words_of(frame.get("content")) or " ", **steers)
        self.prompts[f"h{self.number}"] = seq_of(frame)
        self.first = self.first if folded else f"h{self.number}"
        return said

    def _set_mode(self, mode: Any) -> None:
        if isinstance(mode, str) and mode in MODES:
            self.mode = mode

    def _command(self, kind: str, **given: str) -> Out:
        self.number += 1
        return ToAgent(line({"id": f"h{self.number}", "type": kind, **given}))

    def up(self, lines: Sequence[bytes]) -> Sequence[Out]:
        return [out for each in lines for out in self._up(read(each))]

    def _up(self, said: dict[str, Any]) -> Iterator[Out]:
        match said:
            case {"type": "message_update", "assistantMessageEvent": {"type": str(kind), "delta": str(words)}}:
                if kind in ("text_delta", "thinking_delta"):
                    yield from self.turn.piece("chunk" if kind == "text_delta" else "thinking", words)
            case {"type": "message_update"}:
                pass
            case {"type": "message_end", "message": dict(message)}:
                yield from self._message_ended(message)
            case {"type": "extension_ui_request", "id": str(name), "method": str(method)} if method in DIALOGS:
                yield from self._asked(name, method, said)
            case {"type": "extension_ui_request", "method": "notify", "message": str(words)}:
                yield from self.turn.say("agent_status", status="notice", message=cut_text(words, MAX_ERROR))
            case {"type": "agent_start"} if self.settling:
                self.settling = False
                yield WakeAfter(SETTLE, None)
            case {"type": "auto_retry_start"}:
                self.settling = False
                yield WakeAfter(SETTLE, None)
                yield from self.turn.say(
                    "agent_status",
                    status="retrying",
                    attempt=said.get("attempt"),
                    of=said.get("maxAttempts"),
                    inMs=said.get("delayMs"),
                    error=cut_text(text(said.get("errorMessage")), MAX_ERROR),
                )
            case {"type": "agent_end", "willRetry": _}:
                pass  # a version that reports `settled`
            case {"type": "agent_end"}:
                self.settling = True
                yield WakeAfter(SETTLE, SETTLE_SECONDS)
            case {"type": "agent_settled"}:
                yield from self._over()
            case {"type": "response"}:
                yield from self._responded(said)
            case _ if not SILENT.fullmatch(kind := text(said.get("type"))):
                yield UnknownFrame(kind or "no frame")

    def _message_ended(self, message: dict[str, Any]) -> Iterator[Out]:
        content = message.get("content")
        match message.get("role"):
            case "assistant":
                self._count(members(message.get("usage")))
                self.failed = ""
                if message.get("stopReason") == "error":
                    self.failed = text(message.get("errorMessage")) or "the agent failed"
                blocks = [block for part in items(content) if (block := _block(part)) is not None]
                yield from self.turn.message("assistant", blocks)
            case "toolResult":
                name, failed = text(message.get("toolCallId")), message.get("isError") is True
                result = {"type": "tool_result", "tool_use_id": name, "content": items(content), "is_error": failed}
                yield from self.turn.message("user", [result])

    def _count(self, usage: dict[str, Any]) -> None:
        names = {"inputTokens": "input", "outputTokens": "output", "cacheReadTokens": "cacheRead",
                 "cacheWriteTokens": "cacheWrite"}  # fmt: skip
        for name, theirs in names.items():
            if (more := count(usage.get(theirs))) is not None:
                self.usage[name] = self.usage.get(name, 0) + more
        self.cost += amount(members(usage.get("cost")).get("total")) or 0.0

    def _asked(self, name: str, method: str, said: dict[str, Any]) -> Iterator[Out]:
        title, asked = text(said.get("title")), {"id": name, "method": method}
        if not self.turn.running:
            yield _reply(name, cancelled=True)
        elif title.startswith(PERMISSION):
            about = read(title.removeprefix(PERMISSION).encode())
            yield from self._asked_for_tool(asked, about)
        elif method == "confirm":
            given = {"title": title, "message": text(said.get("message"))}
            yield from self.turn.ask(PERMIT, f"pi-{name}", asked, toolName="confirm", toolInput=given)
        else:
            options = said.get("options")
            labels = [{"label": text(each)} for each in options] if isinstance(options, list) else []
            question = {"question": title or text(said.get("message")), "header": "pi", "options": labels}
            if title.startswith(QUESTION):
                question |= read(title.removeprefix(QUESTION).encode())
            asked["question"] = text(question["question"])
            yield from self.turn.ask(
                "ask_user_question", f"pi-{name}", asked, questions=[{**question, "multiSelect": False}]
            )

    def _asked_for_tool(self, asked: dict[str, Any], about: dict[str, Any]) -> Iterator[Out]:
        tool = text(about.get("toolName"))
        if self.mode in ("all", "plan") or (self.mode == "edits" and tool in EDITS):
            yield _reply(asked["id"], value=DENY if self.mode == "plan" else ALLOW)
        else:
            given, use = members(about.get("toolInput")), text(about.get("toolUseId")) or None
            kept = {**asked, "permission": True}
            yield from self.turn.ask(PERMIT, f"pi-{asked['id']}", kept, toolName=tool, toolInput=given, toolUseId=use)

    def _responded(self, said: dict[str, Any]) -> Iterator[Out]:
        if said.get("id") == STATE:
            yield from self._identify(members(said.get("data")))
            return
        name = text(said.get("id"))
        is_prompt = name in self.prompts
        self.prompts.pop(name, None)
        if said.get("success") is True:
            self.accepted |= is_prompt
            return
        told = cut_text(text(said.get("error")) or "the agent failed", MAX_ERROR)
        if not is_prompt or said.get("command") != "prompt":
            yield from self.turn.say("agent_status", status="notice", message=told)
        elif not (self.prompts or self.accepted):
            self.failed = told
            yield from self._over()
        else:
            yield from self.turn.say("error", code="agent", error=told)

    def _identify(self, state: dict[str, Any]) -> Iterator[Out]:
        model = members(state.get("model"))
        named = "/".join(part for part in (text(model.get("provider")), text(model.get("id"))) if part)
        session = text(state.get("sessionId"))
        yield from self.turn.identify(name=NAME, version=self.version, session=session, model=named)

    def _over(self) -> Iterator[Out]:
        self.settling = False
        yield WakeAfter(SETTLE, None)
        failed = bool(self.failed) and not self.turn.aborting
        if failed and self.turn.running:
            yield from self._error()
        if self.turn.running and not self.begun:
            self.begun = True
            yield Note({BEGUN: "yes"})
        cost = round(self.cost, 9) or None
        # A steering message that pi has not read yet gets its own turn.
        still = {name: seq for name, seq in self.prompts.items() if name != self.first and seq is not None}
        self.prompts = {**still}
        yield from self.turn.done(list(still.values()), failed=failed, costUsd=cost, usage=dict(self.usage) or None)
        self.failed, self.cost = "", 0.0
        self.usage.clear()
        self.accepted = False

    def _error(self) -> Iterator[Out]:
        told, code = self.failed, "agent"
        if re.search(r"\b40[13]\b|[Aa][Pp][Ii] key", told):
            told, code = f"the model refused the key, or the key is missing: set a valid key ({told})", "agent_auth"
        yield from self.turn.say("error", code=code, error=cut_text(told, MAX_ERROR))

    def woken(self, name: str) -> Sequence[Out]:
        if name == SETTLE:
            return list(self._over())
        return list(self.turn.gathered()) if name == GATHER else ()

    def interrupt(self) -> Sequence[Out]:
        return (EndProcess("the agent did not stop its turn and is restarted"),)

    def over(self) -> Sequence[Out]:
        return list(self.turn.over())


def _block(part: dict[str, Any]) -> dict[str, Any] | None:
    match part:
        case {"type": "text", "text": str(words)}:
            return {"type": "text", "text": words}
        case {"type": "toolCall", "id": str(name), "name": str(tool)}:
            return {"type": "tool_use", "id": name, "name": tool, "input": members(part.get("arguments"))}
    return None


def _reply(name: str, **given: Any) -> Out:
    return ToAgent(line({"type": "extension_ui_response", "id": name, **given}))


def _answer(asked: dict[str, Any], frame: dict[str, Any]) -> dict[str, Any]:
    allowed = frame.get("allow") is True or frame.get("behavior") == "allow"
    if asked["method"] == "confirm":
        return {"confirmed": allowed}
    if asked.get("permission"):
        return {"value": ALLOW if allowed else DENY}
    answers = frame.get("answers", frame.get("answer"))
    if isinstance(answers, dict):
        answers = answers.get(asked["question"], next(iter(answers.values()), None))
    if answers is None:
        return {"cancelled": True}
    return {"value": answers if isinstance(answers, str) else json.dumps(answers)}
