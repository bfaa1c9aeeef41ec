"""The core of Claude Code: `claude -p` with JSON lines both ways. Pure.

One process has one conversation, which Claude stores below its configuration directory. The core chooses its id, so
it finds the file again even if a process died before it noted anything. If the id was noted and the file is gone, a
new conversation begins under the same id, and the core tells the user (`memory_lost`).

Claude would take a second message while it works, and might run both as one turn or as two. So messages wait in the
bridge. A message with `steer` does not wait: Claude folds it into its tool loop, and the `result` names the messages
that it answers. Each message has an id that the core chose. Claude does not run a message whose id it knows, and may
report that with `command_lifecycle` alone, without a `result`.

A `result` may say "success" and still be an error. Claude retries a refused key for minutes; the core ends the turn
at the second refusal.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from sandbox.agents.core import EndProcess, Launch, Note, Out, Past, ToAgent, UnknownFrame
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
    word,
)
from sandbox.agents.turn import GATHER, MAX_JOINING, Turn

FLAGS = (
    "-p",
    "--input-format",
    "stream-json",
    "--output-format",
    "stream-json",
    "--verbose",
    "--include-partial-messages",
    "--permission-prompt-tool",
    "stdio",
)
ENV = {"DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_SDK_READS_SESSION_STATE": "1"}
MODES = {"ask": "default", "edits": "acceptEdits", "all": "acceptEdits", "plan": "plan"}
NAME = "claude-code"
SESSION = "session"
SILENT = {  # known events that a viewer does not need
    "keep_alive",
    "control_response",
    "system/status",
    "system/thinking_tokens",
    "system/session_state_changed",
    "system/hook_started",
    "system/hook_progress",
    "system/hook_response",
    "system/task_started",
    "system/task_progress",
    "system/task_notification",
    "system/files_persisted",
    "rate_limit_event",
    "tool_progress",
    "tool_use_summary",
    "auth_status",
    "prompt_suggestion",
}
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
KEYS = "ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN"
MAX_ERROR = 2000
REFUSALS = 2


@dataclass(slots=True)
class ClaudeCore:
    """Implements sandbox.agents.core.Core and FoldingCore."""

    turn: Turn = field(default_factory=Turn)
    session: str = ""
    forgot: bool = False
    noted: bool = False
    mode: str = "ask"
    refused: bool = False
    cost: float = 0.0  # of this process so far
    requests: int = 0  # number of requests that the core sent
    sent: dict[str, int | None] = field(default_factory=dict)  # messages in work, by Claude's id for them
    started: set[str] = field(default_factory=set)

    @property
    def cuts_lines(self) -> bool:
        return True

    @property
    def ready(self) -> bool:
        return not self.turn.running

    def traces(self, wanted: Launch, notes: Mapping[str, str]) -> Sequence[str]:
        return (_file_of(_session(wanted, notes), wanted.env),)

    def command(self, wanted: Launch, past: Past) -> Launch:
        self.session = _session(wanted, past.notes)
        known = bool(past.found)
        self.noted = SESSION in past.notes
        self.forgot = self.noted and not known
        flags = (*FLAGS, "--resume" if known else "--session-id", self.session)
        return Launch((*wanted.argv, *flags), {**ENV, **wanted.env})

    def begin(self, start: bytes | None) -> Sequence[Out]:
        return list(self._begin(read(start or b"")))

    def _begin(self, start: dict[str, Any]) -> Iterator[Out]:
        if self.forgot:
            yield from self.turn.say("agent_status", status="memory_lost")
        yield self._control("initialize")
        if model := text(start.get("model")):
            yield self._control("set_model", model=model)
        yield from self._set_mode(start.get("mode"))

    def waits(self, line: bytes) -> bool:
        return waits_for_turn(line)

    def folds(self, line: bytes) -> bool:
        return joins_turn(line)

    @property
    def can_fold(self) -> bool:
        return len(self.sent) < MAX_JOINING

    def down(self, line: bytes) -> Sequence[Out]:
        return list(self._down(read(line)))

    def _down(self, frame: dict[str, Any]) -> Iterator[Out]:
        match frame:
            case {"type": "message"}:
                yield self._message(frame)
            case {"type": "permission_response" | "ask_user_answer"}:
                yield from self.turn.reply(frame, lambda asked: _response(asked, _answer(asked, frame)))
            case {"type": "abort"} if self.turn.running and not self.turn.aborting:
                self.turn.aborting = True
                yield self._control("interrupt")
            case {"type": "set_mode"}:
                yield from self._set_mode(frame.get("mode"))

    def _message(self, frame: dict[str, Any]) -> Out:
        seq, content = seq_of(frame), frame.get("content")
        name = str(uuid5(NAMESPACE_OID, f"{self.session} {seq} {frame.get('cid')} {content}"))
        self.turn.begin(seq)
        self.sent[name] = seq
        said = content if isinstance(content, str) else items(content)
        message = {"role": "user", "content": said or " "}
        return ToAgent(
            line({"type": "user", "message": message, "parent_tool_use_id": None, "session_id": "", "uuid": name})
        )

    def _set_mode(self, mode: Any) -> Iterator[Out]:
        if isinstance(mode, str) and mode in MODES and mode != self.mode:
            self.mode = mode
            yield self._control("set_permission_mode", mode=MODES[mode])

    def _control(self, subtype: str, **more: str) -> Out:
        self.requests += 1
        request = {"subtype": subtype, **more}
        return ToAgent(line({"type": "control_request", "request_id": f"holdfast-{self.requests}", "request": request}))

    def up(self, lines: Sequence[bytes]) -> Sequence[Out]:
        return [out for each in lines for out in self._up(read(each))]

    def _up(self, said: dict[str, Any]) -> Iterator[Out]:
        kind = text(said.get("type"))
        match said:
            case {"parent_tool_use_id": str()}:
                yield UnknownFrame(f"subagent {kind}")
            case {"type": "stream_event"}:
                yield from self._streamed(members(said.get("event")))
            case {"type": "assistant", "message": {"model": "<synthetic>"}}:
                pass  # Claude Code's own words; `result` repeats them
            case {"type": "assistant", "message": {"content": content}}:
                blocks = [block for block in items(content) if block.get("type") in ("text", "tool_use")]
                yield from self.turn.message("assistant", blocks)
            case {"type": "user", "message": {"content": content}}:
                results = [block for block in items(content) if block.get("type") == "tool_result"]
                yield from self.turn.message("user", results)
            case {"type": "control_request", "request_id": str(name), "request": dict(request)}:
                yield from self._asked(name, request)
            case {"type": "control_cancel_request", "request_id": str(name)}:
                yield from self.turn.withdraw(name, "the agent no longer asks this")
            case {"type": "system", "subtype": "init"}:
                version, model = text(said.get("claude_code_version")), text(said.get("model"))
                yield from self.turn.identify(name=NAME, version=version, session=self.session, model=model)
            case {"type": "system", "subtype": "api_retry"}:
                yield from self._retries(said)
            case {"type": "command_lifecycle", "command_uuid": str(name), "state": str(state)}:
                yield from self._moved(name, state)
            case {"type": "result"}:
                yield from self._result(said)
            case _:
                kind = "/".join(part for part in (kind, text(said.get("subtype"))) if part)
                if kind not in SILENT:
                    yield UnknownFrame(kind or "no frame")

    def _streamed(self, event: dict[str, Any]) -> Iterator[Out]:
        match event:
            case {"type": "content_block_delta", "delta": {"type": "text_delta", "text": str(words)}}:
                yield from self.turn.piece("chunk", words)
            case {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": str(words)}}:
                yield from self.turn.piece("thinking", words)

    def _asked(self, name: str, request: dict[str, Any]) -> Iterator[Out]:
        tool, given = text(request.get("tool_name")), members(request.get("input"))
        asked = {"name": name, "request": request}
        if request.get("subtype") != "can_use_tool" or not self.turn.running:
            yield ToAgent(line({"type": "control_response", "response": _refusal(name)}))
        elif tool == "AskUserQuestion":
            yield from self.turn.ask(
                "ask_user_question",
                name,
                asked,
                questions=items(given.get("questions")),
                toolUseId=request.get("tool_use_id"),
            )
        elif self.mode == "all":
            yield _response(asked, {"behavior": "allow", "updatedInput": given})
        else:
            yield from self.turn.ask(
                "tool_permission_request",
                name,
                asked,
                toolName=tool,
                toolInput=given,
                toolUseId=request.get("tool_use_id"),
                suggestions=request.get("permission_suggestions"),
                reason=request.get("decision_reason"),
                defaultToNo=request.get("default_to_no"),
            )

    def _retries(self, said: dict[str, Any]) -> Iterator[Out]:
        attempt, error = said.get("attempt"), text(said.get("error"))
        yield from self.turn.say(
            "agent_status",
            status="retrying",
            attempt=attempt,
            of=said.get("max_retries"),
            inMs=said.get("retry_delay_ms"),
            error=cut_text(error, MAX_ERROR),
        )
        is_again = isinstance(attempt, int) and attempt >= REFUSALS
        if error == "authentication_failed" and is_again and self.turn.running and not self.refused:
            self.refused = True
            yield self._control("interrupt")

    def _moved(self, name: str, state: str) -> Iterator[Out]:
        """The lifecycle of a message. If it ends and never began, Claude knew it already and does not answer it
        again."""
        if state == "started" and name in self.sent:
            self.started.add(name)
        elif state in ("completed", "cancelled") and name not in self.started and name in self.sent:
            del self.sent[name]
            if not self.sent:
                yield from self.turn.done(reason="known")

    def _result(self, said: dict[str, Any]) -> Iterator[Out]:
        if not self.turn.running:
            if said.get("is_error") is True:
                yield from self._failed(said)
            return
        named = said.get("user_message_uuids")
        answered = {name for name in named if text(name) in self.sent} if isinstance(named, list) else set()
        still = {name: seq for name, seq in self.sent.items() if answered and name not in answered}
        failed = said.get("is_error") is True and not self.turn.aborting
        if failed:
            yield from self._failed(said)
        self.sent, self.started = still, self.started & still.keys()
        yield from self._note()
        yield from self.turn.done(
            [seq for seq in still.values() if seq is not None],
            failed=failed,
            reason=said.get("terminal_reason"),
            costUsd=self._spent(amount(said.get("total_cost_usd"))),
            turns=said.get("num_turns"),
            usage=_usage(members(said.get("usage"))),
        )
        self.refused = False

    def _failed(self, said: dict[str, Any]) -> Iterator[Out]:
        errors = said.get("errors")
        told = text(said.get("result")) or "; ".join(map(text, errors if isinstance(errors, list) else ()))
        code = "agent"
        if self.refused or said.get("api_error_status") in (401, 403):
            code, told = (
                "agent_auth",
                "the model refused the key: set another ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN",
            )
        elif told.startswith("Not logged in"):
            code, told = "agent_auth", f"the agent has no key: set {KEYS}"
        yield from self.turn.say("error", code=code, error=cut_text(told or "the agent failed", MAX_ERROR))

    def _note(self) -> Iterator[Out]:
        if not self.noted:
            self.noted = True
            yield Note({SESSION: self.session})

    def _spent(self, cost: float | None) -> float | None:
        """The cost of this turn. Claude reports the sum over its process."""
        if cost is None:
            return None
        spent, self.cost = round(cost - self.cost, 9), cost
        return max(0.0, spent)

    def woken(self, name: str) -> Sequence[Out]:
        return list(self.turn.gathered()) if name == GATHER else ()

    def interrupt(self) -> Sequence[Out]:
        return (EndProcess("the agent did not stop its turn and is restarted"),)

    def over(self) -> Sequence[Out]:
        return list(self.turn.over())


def _session(wanted: Launch, notes: Mapping[str, str]) -> str:
    """The noted conversation, else the id that this session uses from its first message on."""
    if UUID.fullmatch(noted := notes.get(SESSION, "")):
        return noted
    return str(uuid5(NAMESPACE_OID, f"holdfast {wanted.env.get('HOLDFAST_SESSION_ID', '')}"))


def _file_of(session: str, env: Mapping[str, str]) -> str:
    """A pattern below HOME. Claude names the directory after its working directory."""
    where = ".claude"
    if configured := env.get("CLAUDE_CONFIG_DIR"):
        with_home = PurePosixPath(configured)
        home = env.get("HOME", "")
        where = str(with_home.relative_to(home)) if home and with_home.is_relative_to(home) else where
    return f"{where}/projects/*/{session}.jsonl"


def _response(asked: dict[str, Any], response: dict[str, Any]) -> Out:
    told = {"subtype": "success", "request_id": asked["name"], "response": response}
    return ToAgent(line({"type": "control_response", "response": told}))


def _refusal(name: str) -> dict[str, Any]:
    return {"subtype": "error", "request_id": name, "error": "not supported"}


def _answer(asked: dict[str, Any], frame: dict[str, Any]) -> dict[str, Any]:
    request, given = asked["request"], members(asked["request"].get("input"))
    if request.get("tool_name") == "AskUserQuestion":
        return {"behavior": "allow", "updatedInput": {**given, "answers": _answers(given, frame)}}
    if frame.get("allow") is True or frame.get("behavior") == "allow":
        changed = frame.get("updatedInput")
        allowed = {"behavior": "allow", "updatedInput": changed if isinstance(changed, dict) else given}
        if frame.get("always") is True and items(request.get("permission_suggestions")):
            allowed["updatedPermissions"] = request["permission_suggestions"]
        return allowed
    denied = {"behavior": "deny", "message": text(frame.get("message")) or "The user said no."}
    return {**denied, "interrupt": True} if frame.get("interrupt") is True else denied


def _answers(given: dict[str, Any], frame: dict[str, Any]) -> dict[str, Any]:
    """Answers by question, as Claude expects them. A single answer counts for every question."""
    answers = frame.get("answers", frame.get("answer"))
    if isinstance(answers, dict):
        return {name: _label(each) for name, each in answers.items()}
    return {text(each.get("question")): _label(answers) for each in items(given.get("questions"))}


def _label(answer: Any) -> str:
    if isinstance(answer, list):
        return ", ".join(map(word, answer))
    return word(answer)


def _usage(usage: dict[str, Any]) -> dict[str, int] | None:
    names = {
        "inputTokens": "input_tokens",
        "outputTokens": "output_tokens",
        "cacheReadTokens": "cache_read_input_tokens",
        "cacheWriteTokens": "cache_creation_input_tokens",
    }
    counted = {name: count(usage.get(theirs)) for name, theirs in names.items()}
    return {name: each for name, each in counted.items() if each is not None} or None
