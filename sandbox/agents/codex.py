"""The core of Codex: `codex app-server`, JSON-RPC without the `jsonrpc` member, in lines. Pure.

A conversation is a thread. The server chooses its id, and the core notes it when the first turn runs. A later process
resumes the thread if its file exists. If the file is gone, or the server does not know the thread, a new one begins,
and the core tells the user (`memory_lost`).

`turn/start` in a running turn would drop the answer in work, so messages wait in the bridge. The core passes a
message with `steer` on with `turn/steer`, which needs the turn's id. Until that is known, and during an abort, the
message stays in the bridge's queue. It belongs to the turn once the server has confirmed it. If the server refuses it
because the turn is over, the core holds it and begins the next turn with it.

Codex cannot make its own sandbox inside ours, so it runs without one. It then asks for permission only for commands
that a rules file names; the core writes that file. The rules are a courtesy, not a boundary. A `config.toml` in the
home overrides all of this. The core implements modes itself: `edits` allows changes of files, `all` allows
everything, `plan` nothing.

The server's request numbers begin anew with each process, so the name of a request includes the turn's id.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sandbox.agents import codex_words as words
from sandbox.agents.core import EndProcess, HomeFile, Launch, Note, Out, Past, ToAgent, UnknownFrame, WakeAfter
from sandbox.agents.json_lines import (
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
from sandbox.agents.turn import GATHER, MAX_ID, MAX_JOINING, Turn

NAME = "codex"
OURS = "HOLDFAST_CODEX_CONFIG"  # in the environment: a config.toml of the home names the proxy and nothing else
VERSION = re.compile(r"[^/\s]*/([0-9][^\s]*)")  # in its user agent: CLIENT/VERSION (...)
MODES = ("ask", "edits", "all", "plan")
MAX_ERROR = 2000
LATE, LATE_SECONDS = "late", 10.0
MAX_HELD_BYTES = 4 << 20  # total text of steering messages that are in no turn yet
MAX_PATCH_BYTES = 4 << 20
MAX_ITEMS = 256


@dataclass(slots=True)
class CodexCore:
    """Implements sandbox.agents.core.Core and FoldingCore."""

    turn: Turn = field(default_factory=Turn)
    noted: str = ""  # thread of earlier processes
    resumes: bool = False
    directory: str = ""
    is_configured: bool = False  # by the user
    thread: str = ""
    turn_id: str = ""
    model: str = ""
    mode: str = "ask"
    number: int = 0
    calls: dict[int, tuple[str, Any]] = field(default_factory=dict)  # requests to the server, by id
    held: list[dict[str, Any]] = field(default_factory=list)  # steering messages that cannot be sent yet
    patches: dict[str, bytes] = field(default_factory=dict)  # patches of the running items
    late: set[int] = field(default_factory=set)  # requests to steer that outlived their turn
    streamed: set[str] = field(default_factory=set)
    usage: dict[str, int] | None = None

    @property
    def cuts_lines(self) -> bool:
        return True

    @property
    def ready(self) -> bool:
        return bool(self.thread) and not (self.turn.running or self.held)

    def traces(self, wanted: Launch, notes: Mapping[str, str]) -> Sequence[str]:
        where, thread = words.home_of(wanted.env), words.thread_of(notes)
        configured = (f"{where}/config.toml", f"{where}/auth.json")
        return (*configured, f"{where}/sessions/*/*/*/rollout-*{thread}.jsonl") if thread else configured

    def command(self, wanted: Launch, past: Past) -> Launch:
        where = words.home_of(wanted.env)
        self.directory = wanted.directory
        self.noted = words.thread_of(past.notes)
        self.resumes = any(pattern.startswith(f"{where}/sessions/") for pattern in past.found)
        has_file = f"{where}/config.toml" in past.found
        self.is_configured = has_file and not wanted.env.get(OURS)
        settings = [] if self.is_configured else ["features.default_mode_request_user_input=true"]
        is_led = bool(wanted.env.get(OURS))  # to the proxy, whatever else a configuration says
        if is_led or (not has_file and f"{where}/auth.json" not in past.found):
            settings += words.provider(wanted.env.get("OPENAI_BASE_URL") or "https://api.openai.com/v1")
        flags = [word for setting in settings for word in ("-c", setting)]
        files = () if self.is_configured else (HomeFile(f"{where}/rules/holdfast.rules", words.RULES),)
        return Launch((*wanted.argv, "app-server", *flags), wanted.env, files, wanted.directory)

    def begin(self, start: bytes | None) -> Sequence[Out]:
        started = read(start or b"")
        self.model = text(started.get("model"))
        if (mode := started.get("mode")) in MODES:
            self.mode = str(mode)
        client = {"name": "holdfast", "title": "Holdfast", "version": "0"}
        return [self._call("initialize", clientInfo=client, capabilities={"experimentalApi": True})]

    def waits(self, line: bytes) -> bool:
        return waits_for_turn(line)

    def folds(self, line: bytes) -> bool:
        return joins_turn(line)

    @property
    def can_fold(self) -> bool:
        return self.ready or (bool(self.turn_id) and not self.turn.aborting and not self._is_full)

    @property
    def _is_full(self) -> bool:
        """Whether no further steering message fits. Held messages count, and those that the server has not answered."""
        said = [*self.held, *(kept for _, kept in self.calls.values() if kept is not None)]
        return len(said) >= MAX_JOINING or sum(len(text(each["content"])) for each in said) >= MAX_HELD_BYTES

    def down(self, line: bytes) -> Sequence[Out]:
        return list(self._down(read(line)))

    def _down(self, frame: dict[str, Any]) -> Iterator[Out]:
        match frame:
            case {"type": "message"}:
                yield from self._message(frame)
            case {"type": "permission_response" | "ask_user_answer"}:
                yield from self.turn.reply(frame, lambda asked: words.reply(asked["id"], words.answer(asked, frame)))
            case {"type": "abort"} if self.turn.running and not self.turn.aborting:
                self.turn.aborting = True
                yield from self._interrupt()
            case {"type": "set_mode", "mode": str(mode)} if mode in MODES:
                self.mode = mode

    def _message(self, frame: dict[str, Any]) -> Iterator[Out]:
        if not self.turn.running and self.thread:
            yield from self._start(frame)
        elif self.turn_id:
            yield self._call("turn/steer", words.kept(frame), expectedTurnId=self.turn_id, **self._said(frame))
        else:
            yield from self._hold(words.kept(frame))

    def _hold(self, frame: dict[str, Any]) -> Iterator[Out]:
        if not self._is_full:
            self.held.append(frame)
        else:
            told = "too many messages wait for a turn that has not begun: send this message again"
            yield from self.turn.say("error", code="agent", error=told)
            yield from self.turn.refuse(seq_of(frame))

    def _start(self, frame: dict[str, Any]) -> Iterator[Out]:
        self.turn.begin(seq_of(frame))
        self.usage = None
        mode = "plan" if self.mode == "plan" else "default"
        settings = {"model": self.model, "developer_instructions": None, "reasoning_effort": None}
        yield self._call("turn/start", collaborationMode={"mode": mode, "settings": settings}, **self._said(frame))

    def _said(self, frame: dict[str, Any]) -> dict[str, Any]:
        said = [{"type": "text", "text": words_of(frame.get("content")) or " "}]
        return {"threadId": self.thread, "input": said, "clientUserMessageId": text(frame.get("cid"))}

    def _interrupt(self) -> Iterator[Out]:
        if self.turn_id:
            yield self._call("turn/interrupt", threadId=self.thread, turnId=self.turn_id)

    def _call(self, method: str, kept: Any = None, **given: Any) -> Out:
        self.number += 1
        self.calls[self.number] = (method, kept)
        return ToAgent(line({"id": self.number, "method": method, "params": given}))

    def up(self, lines: Sequence[bytes]) -> Sequence[Out]:
        return [out for each in lines for out in self._up(read(each))]

    def _up(self, said: dict[str, Any]) -> Iterator[Out]:
        given = members(said.get("params"))
        match said:
            case {"method": str(method), "id": int() | str() as number}:
                yield from self._asked(method, number, given)
            case {"method": str(method)}:
                yield from self._told(method, given)
            case {"id": int(number)}:
                method, kept = self.calls.pop(number, ("", None))
                if method:
                    yield from self._returned(method, kept, said)
            case _:
                yield UnknownFrame("no message")

    def _returned(self, method: str, kept: Any, said: dict[str, Any]) -> Iterator[Out]:
        result, error = members(said.get("result")), members(said.get("error"))
        told = cut_text(text(error.get("message")) or "the agent failed", MAX_ERROR) if "error" in said else ""
        match method:
            case "initialize":
                if found := VERSION.match(text(result.get("userAgent"))):
                    yield from self.turn.identify(name=NAME, version=found[1])
                yield ToAgent(line({"method": "initialized"}))
                if self.noted and not self.resumes:
                    yield from self.turn.say("agent_status", status="memory_lost")
                yield self._open()
            case "thread/resume" if told:
                self.resumes = False
                yield from self.turn.say("agent_status", status="memory_lost")
                yield self._open()
            case "thread/start" if told:
                yield from self.turn.say("error", code="agent", error=told)
                yield EndProcess("the agent could not begin a conversation")
            case "thread/start" | "thread/resume":
                self.thread = text(members(result.get("thread")).get("id"))
                if not self.thread:
                    yield from self.turn.say("error", code="agent", error="the agent sent no id for its conversation")
                    yield EndProcess("the agent could not begin a conversation")
                    return
                self.model = text(result.get("model")) or self.model
                yield from self.turn.identify(name=NAME, session=self.thread, model=self.model)
                yield from self._go_on()
            case "turn/start" if told:
                yield from self.turn.say("error", code="agent", error=told)
                yield from self._done(failed=True)
            case "turn/steer" if told and isinstance(kept, dict):
                yield from self._hold(kept)  # the turn was over: this message begins the next one
                if not self.turn.running:
                    yield from self._go_on()
            case "turn/steer" if isinstance(kept, dict):
                yield from self._folded(seq_of(kept))

    def _folded(self, seq: int | None) -> Iterator[Out]:
        """The server took a message into its turn. The turn may have ended since."""
        if self.turn.running:
            self.turn.begin(seq)
        elif seq is not None:
            yield from self.turn.say("done", answers=[seq], metadata={})

    def _open(self) -> Out:
        own = {} if self.is_configured else {"sandbox": "danger-full-access", "approvalPolicy": "on-request"}
        given = {"cwd": self.directory or None, "model": self.model or None, **own}
        if self.resumes:
            return self._call("thread/resume", threadId=self.noted, **given)
        return self._call("thread/start", **given)

    def _go_on(self) -> Iterator[Out]:
        """Begin a turn with the steering messages that came too early or too late."""
        if self.held and self.thread:
            yield from self._start(self.held.pop(0))

    def _asked(self, method: str, number: int | str, given: dict[str, Any]) -> Iterator[Out]:
        asked = {"id": number, "method": method, "params": given}
        name = f"{text(given.get('turnId')) or self.turn_id}-{number}"
        item = text(given.get("itemId")) or None
        is_file = method == "item/fileChange/requestApproval"
        if method == "item/tool/requestUserInput" and self.turn.running:
            questions = [{**each, "multiSelect": False} for each in items(given.get("questions"))]
            yield from self.turn.ask("ask_user_question", name, asked, questions=questions, toolUseId=item)
        elif not (is_file or method == "item/commandExecution/requestApproval") or not self.turn.running:
            yield ToAgent(line({"id": number, "error": {"code": -32601, "message": "not supported"}}))
        elif self.mode in ("all", "plan") or (is_file and self.mode == "edits"):
            yield words.reply(number, {"decision": "decline" if self.mode == "plan" else "accept"})
        else:
            tool = {"command": given.get("command"), "cwd": given.get("cwd")}
            yield from self.turn.ask(
                "tool_permission_request",
                name,
                asked,
                toolName="apply_patch" if is_file else "shell",
                toolInput={"changes": read(self.patches.get(item or "", b"")).get("changes")} if is_file else tool,
                toolUseId=item,
                reason=given.get("reason"),
                suggestions=["session"],
            )

    def _told(self, method: str, given: dict[str, Any]) -> Iterator[Out]:
        match method:
            case "item/agentMessage/delta":
                name = text(given.get("itemId"))
                if len(self.streamed) < MAX_ITEMS and len(name) <= MAX_ID:
                    self.streamed.add(name)
                yield from self.turn.piece("chunk", text(given.get("delta")))
            case "item/reasoning/summaryTextDelta":
                yield from self.turn.piece("thinking", text(given.get("delta")))
            case "item/started":
                yield from self._item_started(members(given.get("item")))
            case "item/completed":
                yield from self._item_ended(members(given.get("item")))
            case "turn/started":
                self.turn_id = text(members(given.get("turn")).get("id"))
                yield from self._started()
            case "turn/completed":
                yield from self._completed(members(given.get("turn")))
            case "turn/plan/updated":
                steps = [{"step": each.get("step"), "status": each.get("status")} for each in items(given.get("plan"))]
                yield from self.turn.say("plan", steps=steps, explanation=given.get("explanation"))
            case "thread/tokenUsage/updated":
                self.usage = words.usage_of(members(members(given.get("tokenUsage")).get("last")))
            case "serverRequest/resolved":
                number = given.get("requestId")
                for name in [name for name, asked in self.turn.requests.items() if asked["id"] == number]:
                    yield from self.turn.withdraw(name, "the agent no longer asks this")
            case "error":
                yield from self._failed(given)
            case _ if not words.SILENT.fullmatch(method):
                yield UnknownFrame(method)

    def _started(self) -> Iterator[Out]:
        if self.noted != self.thread:
            self.noted = self.thread
            yield Note({words.THREAD: self.thread})
        if self.turn.aborting:
            yield from self._interrupt()
        held, self.held = self.held, []
        for frame in held:
            yield from self._message(frame)

    def _item_started(self, item: dict[str, Any]) -> Iterator[Out]:
        kind, name = text(item.get("type")), text(item.get("id"))
        if kind in words.TOOLS and name:
            self._keep_changes(name, item.get("changes"))
            given = {member: item[member] for member in words.GIVEN if item.get(member)}
            use = {"type": "tool_use", "id": name, "name": words.TOOLS[kind], "input": given}
            yield from self.turn.message("assistant", [use])

    def _keep_changes(self, name: str, changes: Any) -> None:
        """For a request that names the item alone."""
        kept = line({"changes": changes})
        room = MAX_PATCH_BYTES - sum(map(len, self.patches.values()))
        if len(self.patches) < MAX_ITEMS and len(name) <= MAX_ID and len(kept) <= room:
            self.patches[name] = kept

    def _item_ended(self, item: dict[str, Any]) -> Iterator[Out]:
        kind, name = text(item.get("type")), text(item.get("id"))
        self.patches.pop(name, None)
        if kind == "agentMessage":
            streamed = name in self.streamed
            self.streamed.discard(name)
            yield from self.turn.message(
                "assistant", [{"type": "text", "text": text(item.get("text"))}], streamed=streamed
            )
        elif kind in words.TOOLS and name:
            status = text(item.get("status"))
            other = item.get("result") or item.get("error")
            content = text(item.get("aggregatedOutput")) or (json.dumps(other) if other else status)
            failed = status in ("failed", "declined")
            result = {"type": "tool_result", "tool_use_id": name, "content": content, "is_error": failed}
            yield from self.turn.message("user", [result])

    def _completed(self, turn: dict[str, Any]) -> Iterator[Out]:
        if self.turn_id and text(turn.get("id")) != self.turn_id:
            return
        failed = turn.get("status") == "failed" and not self.turn.aborting
        if failed and self.turn.running:
            yield from self._error(members(turn.get("error")))
        yield from self._done(failed=failed, reason=text(turn.get("status")) or None)

    def _done(self, *, failed: bool, reason: str | None = None) -> Iterator[Out]:
        self.turn_id = ""
        self.patches.clear()
        self.streamed.clear()
        yield from self.turn.done(failed=failed, reason=reason, usage=self.usage)
        self.late |= {number for number, (_, kept) in self.calls.items() if kept is not None}
        if self.late:
            yield WakeAfter(LATE, LATE_SECONDS)
        yield from self._go_on()

    def _give_up_late(self) -> Iterator[Out]:
        """The server never said whether it took these messages in."""
        for number in sorted(self.late & self.calls.keys()):
            _, kept = self.calls.pop(number)
            told = "the agent did not confirm a message sent during its turn: send it again if the agent missed it"
            yield from self.turn.say("error", code="agent", error=told)
            yield from self.turn.refuse(seq_of(kept))
        self.late.clear()

    def _failed(self, given: dict[str, Any]) -> Iterator[Out]:
        """An error that the server retries, or that ends the turn. In the second case the turn's end reports it."""
        error = members(given.get("error"))
        if given.get("willRetry") is True:
            told = text(error.get("additionalDetails")) or text(error.get("message"))
            yield from self.turn.say("agent_status", status="retrying", error=cut_text(told, MAX_ERROR))
        elif not self.turn.running:
            yield from self._error(error)

    def _error(self, error: dict[str, Any]) -> Iterator[Out]:
        told, code = text(error.get("message")) or "the agent failed", "agent"
        if re.search(r"\b40[13]\b", told) or told.startswith("Missing environment variable"):
            code, told = "agent_auth", f"the model refused the key, or the key is missing: set OPENAI_API_KEY ({told})"
        yield from self.turn.say("error", code=code, error=cut_text(told, MAX_ERROR))

    def woken(self, name: str) -> Sequence[Out]:
        if name == LATE:
            return list(self._give_up_late())
        return list(self.turn.gathered()) if name == GATHER else ()

    def interrupt(self) -> Sequence[Out]:
        return (EndProcess("the agent did not stop its turn and is restarted"),)

    def over(self) -> Sequence[Out]:
        return list(self.turn.over())
