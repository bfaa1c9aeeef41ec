"""The core of agents that speak the Agent Client Protocol, version 1: JSON-RPC in lines. Pure.

The protocol has one turn at a time and cannot fold a message into a running turn, so every message waits. A
conversation is resumed if the agent can (`session/resume`), else loaded (`session/load`). An agent that loads a
conversation repeats all of it, partly after its answer. So the core ignores its output until the agent has been
silent for SETTLE_SECONDS, but for AT_LAST_SECONDS at most. An agent that can do neither, or does not know the
conversation, begins a new one, and the core tells the user (`memory_lost`).

An agent that does not answer within START_SECONDS is ended. One that was to go on with a conversation begins a new one
instead.

An agent that cannot begin a conversation, as without a key, is asked again with each message. Until it can, each
message is answered with its error.

A `session/cancel` leaves requests open, and some agents wait for the answers for ever. The core answers each as
cancelled. If the agent's log says that its model fails again and again (model_failures.py), the core cancels the turn,
which ends with that error.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sandbox.agents import gemini
from sandbox.agents import model_failures as models
from sandbox.agents.core import EndProcess, Launch, Note, Out, Past, ToAgent, UnknownFrame, WakeAfter
from sandbox.agents.json_lines import count, cut_text, items, line, members, read, seq_of, text, words_of
from sandbox.agents.turn import GATHER, MAX_ID, REPEATED, Turn

SESSION = "session"
SETTLE, SETTLE_SECONDS = "settle", 0.2
AT_LAST, AT_LAST_SECONDS = "settle at last", 60.0
START, START_SECONDS = "start", 120.0
CANCEL, CANCEL_SECONDS = "cancel", 10.0
CONTINUED = ("session/load", "session/resume")
MODES = ("ask", "edits", "all", "plan")
SILENT = (
    "user_message_chunk",
    "available_commands_update",
    "current_mode_update",
    "config_option_update",
    "session_info_update",
    "usage_update",
)
CLIENT = {
    "protocolVersion": 1,
    "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False},
    "clientInfo": {"name": "holdfast", "version": "0"},
}
MAX_ERROR = 2000
MAX_TOOLS = 256
MAX_NAME = 256  # characters of a conversation's name; any characters are allowed


@dataclass(slots=True)
class AcpCore:
    """Implements sandbox.agents.core.Core and LogReadingCore."""

    turn: Turn = field(default_factory=Turn)
    noted: str = ""
    directory: str = ""
    session: str = ""
    settling: bool = True  # what the agent says now belongs to no turn
    mode: str = "ask"
    number: int = 0
    calls: dict[int, str] = field(default_factory=dict)
    said: str = ""  # text since the last message or tool
    tools: set[str] = field(default_factory=set)
    waiting: str | None = None  # a message for a conversation that is being begun
    is_refused: bool = False  # the agent could not begin one
    failures: int = 0  # of the model, since the agent said something
    gave_up: str = ""  # why the turn was cancelled here

    @property
    def cuts_lines(self) -> bool:
        return True

    @property
    def ready(self) -> bool:
        opened = (bool(self.session) and not self.settling) or self.is_refused
        return opened and not self.turn.running

    def traces(self, wanted: Launch, notes: Mapping[str, str]) -> Sequence[str]:
        return gemini.conversations(_session_of(notes))

    def command(self, wanted: Launch, past: Past) -> Launch:
        self.directory = wanted.directory
        self.noted = _session_of(past.notes)
        env = {**models.ENV, **wanted.env}
        return Launch(wanted.argv, env, (), wanted.directory, gemini.moves(self.noted, past.found))

    def begin(self, start: bytes | None) -> Sequence[Out]:
        self._set_mode(read(start or b"").get("mode"))
        return [self._call("initialize", **CLIENT), WakeAfter(START, START_SECONDS)]

    def waits(self, line: bytes) -> bool:
        return read(line).get("type") == "message"

    def down(self, line: bytes) -> Sequence[Out]:
        return list(self._down(read(line)))

    def _down(self, frame: dict[str, Any]) -> Iterator[Out]:
        match frame:
            case {"type": "message"}:
                self.turn.begin(seq_of(frame))
                words = words_of(frame.get("content")) or " "
                if self.session:
                    yield self._prompt(words)
                else:
                    yield from self._begin_for(words)
            case {"type": "permission_response"}:
                allowed = frame.get("allow") is True or frame.get("behavior") == "allow"
                always = frame.get("always") is True
                yield from self.turn.reply(frame, lambda asked: _chosen(asked, allowed, always=always))
            case {"type": "abort"} if self.turn.running and not self.turn.aborting:
                self.turn.aborting = True
                if self.session:
                    yield from self._cancel("the turn was aborted")
            case {"type": "set_mode"}:
                self._set_mode(frame.get("mode"))

    def _cancel(self, why: str) -> Iterator[Out]:
        yield ToAgent(line({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": self.session}}))
        for name, asked in list(self.turn.requests.items()):
            yield _reply(asked["id"], {"outcome": {"outcome": "cancelled"}})
            yield from self.turn.withdraw(name, why)

    def _prompt(self, words: str) -> Out:
        return self._call("session/prompt", sessionId=self.session, prompt=[{"type": "text", "text": words}])

    def _begin_for(self, words: str) -> Iterator[Out]:
        self.waiting = words
        yield self._call("session/new", **self._where)
        yield WakeAfter(START, START_SECONDS)

    @property
    def _where(self) -> dict[str, Any]:
        return {"cwd": self.directory or "/", "mcpServers": []}

    def _set_mode(self, mode: Any) -> None:
        if isinstance(mode, str) and mode in MODES:
            self.mode = mode

    def _call(self, method: str, **given: Any) -> Out:
        self.number += 1
        self.calls[self.number] = method
        return ToAgent(line({"jsonrpc": "2.0", "id": self.number, "method": method, "params": given}))

    def up(self, lines: Sequence[bytes]) -> Sequence[Out]:
        return [out for each in lines for out in self._up(read(each))]

    def _up(self, said: dict[str, Any]) -> Iterator[Out]:
        given = members(said.get("params"))
        match said:
            case {"method": "session/request_permission", "id": int() | str() as number}:
                yield from self._asked(number, given)
            case {"method": str(), "id": int() | str() as number}:
                error = {"code": -32601, "message": "not supported"}
                yield ToAgent(line({"jsonrpc": "2.0", "id": number, "error": error}))
            case {"method": "session/update"}:
                if not self.session or text(given.get("sessionId")) in ("", self.session):
                    yield from self._updated(members(given.get("update")))
            case {"method": str(method)}:
                yield UnknownFrame(method)
            case {"id": int(number)}:
                if method := self.calls.pop(number, ""):
                    yield from self._returned(method, said)
            case _:
                yield UnknownFrame("no message")

    def _returned(self, method: str, said: dict[str, Any]) -> Iterator[Out]:
        result, failed = members(said.get("result")), "error" in said
        match method:
            case "session/prompt" if not self.turn.running:
                pass  # it was not waited for
            case "session/prompt":
                if self.gave_up and not self.turn.aborting:
                    failed, said = True, {"error": {"message": self.gave_up}}
                yield from self._end_message()
                if failed and not self.turn.aborting:
                    yield from self._error(said["error"])
                failed = failed and not self.turn.aborting
                if self.gave_up:
                    yield WakeAfter(CANCEL, None)
                self.failures, self.gave_up = 0, ""
                if self.noted != self.session:
                    self.noted = self.session
                    yield Note({SESSION: self.session})
                yield from self.turn.done(failed=failed, reason=result.get("stopReason"), usage=_usage(result))
                self.tools.clear()
            case "initialize":
                info = members(result.get("agentInfo"))
                yield from self.turn.identify(name=text(info.get("name")), version=text(info.get("version")))
                yield from self._open(members(result.get("agentCapabilities")))
            case "session/new" if failed:
                yield WakeAfter(START, None)
                self.is_refused, self.waiting = True, None
                yield from self._end_failed(said["error"])
            case _ if failed:
                yield from self._begin_anew()
            case _:
                self.session = text(result.get("sessionId")) if method == "session/new" else self.noted
                if not 0 < len(self.session) <= MAX_NAME:
                    self.session = ""
                    yield from self._error({"message": "the agent's name for its conversation is missing or too long"})
                    yield EndProcess("the agent could not begin a conversation")
                    return
                model = text(members(result.get("models")).get("currentModelId"))
                yield WakeAfter(START, None)
                yield from self.turn.identify(session=self.session, model=model)
                self.settling = method == "session/load"
                self.is_refused = False
                if self.settling:
                    yield WakeAfter(SETTLE, SETTLE_SECONDS)
                    yield WakeAfter(AT_LAST, AT_LAST_SECONDS)
                if self.waiting is not None:
                    words, self.waiting = self.waiting, None
                    if self.turn.aborting:
                        yield from self.turn.done()
                    else:
                        yield self._prompt(words)

    def _end_failed(self, error: Any) -> Iterator[Out]:
        """A turn that runs ends with this error, unless it was aborted."""
        failed = not self.turn.aborting
        if self.turn.running and failed:
            yield from self._error(error)
        yield from self.turn.done(failed=failed)

    def _open(self, capabilities: dict[str, Any]) -> Iterator[Out]:
        where = self._where
        if not self.noted:
            yield self._call("session/new", **where)
        elif "resume" in members(capabilities.get("sessionCapabilities")):
            yield self._call("session/resume", sessionId=self.noted, **where)
        elif capabilities.get("loadSession") is True:
            yield self._call("session/load", sessionId=self.noted, **where)
        else:
            yield from self._begin_anew()

    def _begin_anew(self) -> Iterator[Out]:
        yield from self.turn.say("agent_status", status="memory_lost")
        yield self._call("session/new", **self._where)

    def _error(self, error: Any) -> Iterator[Out]:
        told, code = text(members(error).get("message")) or "the agent failed", "agent"
        if re.search(r"\b40[13]\b|[Aa][Pp][Ii] key|[Aa]uthenticat", told):
            told, code = f"the model refused the key, or the key is missing: set a valid key ({told})", "agent_auth"
        yield from self.turn.say("error", code=code, error=cut_text(told, MAX_ERROR))

    def _updated(self, update: dict[str, Any]) -> Iterator[Out]:
        if self.settling:
            yield WakeAfter(SETTLE, SETTLE_SECONDS) if self.session else WakeAfter(START, START_SECONDS)
            return
        if text(update.get("sessionUpdate")) not in SILENT:
            self.failures = 0
        match update:
            case {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": str(words)}}:
                if len(self.said) <= REPEATED:
                    self.said += words
                yield from self.turn.piece("chunk", words)
            case {"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": str(words)}}:
                yield from self.turn.piece("thinking", words)
            case {"sessionUpdate": "tool_call" | "tool_call_update"}:
                yield from self._tool(update)
            case {"sessionUpdate": "plan"}:
                steps = [{"step": each.get("content"), "status": each.get("status")}
                         for each in items(update.get("entries"))]  # fmt: skip
                yield from self.turn.say("plan", steps=steps)
            case _ if (kind := text(update.get("sessionUpdate"))) not in SILENT:
                yield UnknownFrame(kind or "no update")

    def _end_message(self) -> Iterator[Out]:
        words, self.said = self.said, ""
        yield from self.turn.message("assistant", [{"type": "text", "text": words}] if words else [])

    def _tool(self, call: dict[str, Any]) -> Iterator[Out]:
        """A tool begins or ends. Agents report some tools only at their end, or with the permission request."""
        name, status = text(call.get("toolCallId")), call.get("status")
        if not 0 < len(name) <= MAX_ID:
            return
        if name not in self.tools and len(self.tools) < MAX_TOOLS:
            self.tools.add(name)
            yield from self._end_message()
            use = {"type": "tool_use", "id": name, "name": _tool_of(call), "input": _given(call)}
            yield from self.turn.message("assistant", [use])
        if status in ("completed", "failed"):
            out = call.get("rawOutput") or call.get("content")
            content = out if isinstance(out, str) else json.dumps(out) if out else text(status)
            result = {"type": "tool_result", "tool_use_id": name, "content": content, "is_error": status == "failed"}
            yield from self.turn.message("user", [result])

    def _asked(self, number: int | str, given: dict[str, Any]) -> Iterator[Out]:
        call, options = members(given.get("toolCall")), items(given.get("options"))
        asked = {"id": number, "options": options}
        if not self.turn.running:
            yield _reply(number, {"outcome": {"outcome": "cancelled"}})
            return
        yield from self._tool({**call, "status": "pending"})
        if self.mode in ("all", "plan") or (self.mode == "edits" and call.get("kind") == "edit"):
            yield _chosen(asked, self.mode != "plan", always=False)
        else:
            use = text(call.get("toolCallId"))
            yield from self.turn.ask(
                "tool_permission_request",
                f"acp-{self.session[:64]}-{use[:64]}-{number}"[:256],
                asked,
                toolName=_tool_of(call),
                toolInput=_given(call),
                toolUseId=use or None,
                suggestions=["session"] if any(each.get("kind") == "allow_always" for each in options) else None,
            )

    def logged(self, lines: Sequence[bytes]) -> Sequence[Out]:
        return [out for each in lines if (found := models.failed_attempt(each)) for out in self._model_failed(found)]

    def _model_failed(self, failure: models.FailedAttempt) -> Iterator[Out]:
        if not self.turn.running or self.turn.aborting or self.gave_up:
            return
        self.failures += 1
        status = {"attempt": failure.attempt or self.failures, "of": models.ATTEMPTS, "error": failure.told}
        yield from self.turn.say("agent_status", status="retrying", **status)
        if models.is_last(failure, self.failures):
            self.gave_up = f"the model kept failing: {failure.told}"
            yield from self._cancel("the turn is over")
            yield WakeAfter(CANCEL, CANCEL_SECONDS)

    def _not_started(self) -> Iterator[Out]:
        """The agent was asked for something before its first turn, and does not answer."""
        asked, self.calls = [*self.calls.values()], {}
        if any(each in CONTINUED for each in asked):
            yield from self._begin_anew()
            yield WakeAfter(START, START_SECONDS)
        elif asked and not self.session:
            told = {"message": f"the agent did not answer {', '.join(asked)} within {START_SECONDS:g} s"}
            self.is_refused = False  # no further message is for this process
            yield from self._end_failed(told) if self.turn.running else self._error(told)
            yield EndProcess("the agent could not begin a conversation")

    def _not_cancelled(self) -> Iterator[Out]:
        if self.gave_up:
            yield from self._error({"message": self.gave_up})
            yield from self.turn.done(failed=True)
            self.session = ""  # no further message is for this process
            yield EndProcess("the agent did not stop its turn and is restarted")

    def woken(self, name: str) -> Sequence[Out]:
        match name:
            case "start":
                return list(self._not_started())
            case "cancel":
                return list(self._not_cancelled())
        if name in (SETTLE, AT_LAST):
            self.settling = False
            return [WakeAfter(each, None) for each in (SETTLE, AT_LAST) if each != name]
        return list(self.turn.gathered()) if name == GATHER else ()

    def interrupt(self) -> Sequence[Out]:
        return (EndProcess("the agent did not stop its turn and is restarted"),)

    def over(self) -> Sequence[Out]:
        return list(self.turn.over())


def _session_of(notes: Mapping[str, str]) -> str:
    session = notes.get(SESSION, "")
    return session if len(session) <= MAX_NAME else ""


def _tool_of(call: dict[str, Any]) -> str:
    return text(call.get("name")) or text(call.get("kind")) or "tool"


def _given(call: dict[str, Any]) -> dict[str, Any]:
    given = members(call.get("rawInput"))
    return given or {name: call[name] for name in ("title", "content", "locations") if call.get(name)}


def _reply(number: int | str, result: dict[str, Any]) -> Out:
    return ToAgent(line({"jsonrpc": "2.0", "id": number, "result": result}))


def _chosen(asked: dict[str, Any], allowed: bool, *, always: bool) -> Out:
    """The option of this kind, else the nearest to it."""
    kind = "allow" if allowed else "reject"
    wanted = f"{kind}_{'always' if always and allowed else 'once'}"
    kinds = {text(each.get("kind")): each.get("optionId") for each in reversed(asked["options"])}
    near = [option for each, option in kinds.items() if each.startswith(kind)]
    option = kinds.get(wanted, near[0] if near else None)
    outcome = {"outcome": "cancelled"} if option is None else {"outcome": "selected", "optionId": option}
    return _reply(asked["id"], {"outcome": outcome})


def _usage(result: dict[str, Any]) -> dict[str, int] | None:
    """The usage in Gemini's form."""
    counted = members(members(members(result.get("_meta")).get("quota")).get("token_count"))
    names = {"inputTokens": "input_tokens", "outputTokens": "output_tokens"}
    told = {name: count(counted.get(each)) for name, each in names.items()}
    return {name: each for name, each in told.items() if each is not None} or None
