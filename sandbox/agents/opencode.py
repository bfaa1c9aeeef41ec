"""The core of opencode: `opencode serve`, an HTTP server with a stream of events. Pure.

A conversation is a session of opencode. opencode chooses its id, and the core notes it with the first message. A
later process goes on with that session if opencode knows it; else a new one begins, and the core tells the user
(`memory_lost`). A session's events belong to the directory where it began, so the core moves it if our directory is
another one.

opencode may fold a message into the running turn at any time, so messages wait in the bridge; one with `steer` does
not. Each message is a request whose answer comes at the end of the turn. The answer overtakes events, so the turn
ends with the `session.idle` behind the answer. A `session.idle` while a message is unfinished, as after an abort, is
not the last one. If none comes, a timer ends the turn.

opencode asks according to its permissions. The core sets them, unless the environment has others
(OPENCODE_PERMISSION). The core implements modes itself: `edits` allows changes of files, `all` allows everything,
`plan` nothing, and has opencode plan. opencode retries a model's failure for ever; the core stops the turn at the
third.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sandbox.agents import opencode_words as words
from sandbox.agents.core import EndProcess, Http, HttpServer, Launch, Note, Out, Past, UnknownFrame, WakeAfter
from sandbox.agents.json_lines import (
    count,
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
from sandbox.agents.opencode_parts import OpencodeParts
from sandbox.agents.turn import GATHER, MAX_JOINING, Turn

NAME = "opencode"
SESSION = "session"
SERVER = HttpServer("/global/health", "/event", "opencode", "OPENCODE_SERVER_PASSWORD")
ARGUMENTS = ("serve", "--hostname", "127.0.0.1", "--port", "0")
ENV = {
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_ENABLE_QUESTION_TOOL": "1",
    "OPENCODE_PERMISSION": '{"edit":"ask","bash":"ask","webfetch":"ask"}',
}
MODES = ("ask", "edits", "all", "plan")
PERMIT = "tool_permission_request"
OPEN, OPEN_SECONDS, TRIES = "open", 10.0, 10
SETTLE, SETTLE_SECONDS, UNANSWERED_SECONDS = "settle", 5.0, 30.0
ATTEMPTS = 3
MAX_MESSAGES = 4096  # of one turn
MAX_OLD = 256  # remembered names of earlier turns
MAX_ABORTS = 8


@dataclass(slots=True)
class OpencodeCore:
    """Implements sandbox.agents.core.ServerCore and FoldingCore."""

    turn: Turn = field(default_factory=Turn)
    noted: str = ""
    directory: str = ""
    session: str = ""
    tries: int = 0  # attempts to open the conversation
    mode: str = "ask"
    model: str = ""  # the requested model
    number: int = 0  # number of the newest request
    opening: str = ""  # request whose answer opens the conversation
    moving: bool = False  # that request moves the conversation to this directory
    asking_version: str = ""  # request whose answer has the server's version
    prompts: dict[str, int | None] = field(default_factory=dict)  # unanswered messages, by their requests
    messages: dict[str, bool] = field(default_factory=dict)  # messages of this turn, and whether they are complete
    old: list[str] = field(default_factory=list)  # messages of earlier turns
    users: list[str] = field(default_factory=list)  # messages of the user
    asked: list[str] = field(
        default_factory=list
    )  # what was asked already: some of it is told again, though it is over
    missed: dict[str, str] = field(default_factory=dict)  # requests for missed events, and what each asks for
    missed_more: bool = False  # the stream broke again before their answers
    parts: OpencodeParts = field(default_factory=OpencodeParts)  # of this turn's messages
    is_idle: bool = False
    aborts: int = 0  # sent in this turn
    failed: str = ""
    refused: bool = False
    reason: str = ""

    @property
    def cuts_lines(self) -> bool:
        return True

    @property
    def ready(self) -> bool:
        return bool(self.session) and not self.turn.running

    def traces(self, wanted: Launch, notes: Mapping[str, str]) -> Sequence[str]:
        return ()

    def command(self, wanted: Launch, past: Past) -> Launch:
        self.directory = wanted.directory
        self.noted = words.session_of(past.notes.get(SESSION, ""))
        env = {**ENV, **wanted.env, "OPENCODE_SERVER_USERNAME": SERVER.user}
        return Launch((*wanted.argv, *ARGUMENTS), env, (), wanted.directory, (), SERVER)

    def begin(self, start: bytes | None) -> Sequence[Out]:
        frame = read(start or b"")
        self._set_mode(frame.get("mode"))
        self.model = text(frame.get("model"))
        return ()

    def waits(self, line: bytes) -> bool:
        return waits_for_turn(line)

    def folds(self, line: bytes) -> bool:
        return joins_turn(line)

    @property
    def can_fold(self) -> bool:
        joins = self.turn.running and not (self.turn.aborting or self.failed)
        return self.ready or (joins and len(self.prompts) < MAX_JOINING)

    def down(self, line: bytes) -> Sequence[Out]:
        return list(self._down(read(line)))

    def _down(self, frame: dict[str, Any]) -> Iterator[Out]:
        match frame:
            case {"type": "message"}:
                yield from self._message(frame)
            case {"type": "permission_response" | "ask_user_answer"}:
                yield from self.turn.reply(frame, lambda asked: self._reply(asked, words.answer(asked, frame)))
            case {"type": "abort"} if self.turn.running and not self.turn.aborting:
                self.turn.aborting = True
                for name in list(self.turn.requests):
                    yield from self.turn.withdraw(name, "the turn was aborted")
                yield from self._abort()
            case {"type": "set_mode"}:
                self._set_mode(frame.get("mode"))

    def _message(self, frame: dict[str, Any]) -> Iterator[Out]:
        seq = seq_of(frame)
        if self.session:
            if self.noted != self.session:
                self.noted = self.session
                yield Note({SESSION: self.session})
            self.turn.begin(seq)
            self.is_idle = False
            yield WakeAfter(SETTLE, None)
            plans = {"agent": "plan"} if self.mode == "plan" else {}
            said = [{"type": "text", "text": words_of(frame.get("content")) or " "}]
            yield self._ask(f"/session/{self.session}/message", **words.model_of(self.model), **plans, parts=said)
            self.prompts[self._tag] = seq
        else:
            told = "the conversation is not open yet: send this message again"
            yield from self.turn.say("error", code="agent", error=told)
            yield from self.turn.refuse(seq)

    def _set_mode(self, mode: Any) -> None:
        if isinstance(mode, str) and mode in MODES:
            self.mode = mode

    @property
    def _tag(self) -> str:
        """The tag of the newest request."""
        return f"h{self.number}"

    def _ask(self, path: str, **body: Any) -> Out:
        self.number += 1
        return Http("POST", path, self._tag, line(body))

    def _get(self, path: str) -> Out:
        self.number += 1
        return Http("GET", path, self._tag)

    def _reply(self, asked: dict[str, Any], answer: dict[str, Any]) -> Out:
        return self._ask(f"/{asked['kind']}/{asked['id']}/reply", **answer)

    def _abort(self) -> Iterator[Out]:
        if self.aborts < MAX_ABORTS:
            self.aborts += 1
            yield self._ask(f"/session/{self.session}/abort")

    # The server's answers.

    def answered(self, tag: str, status: int, body: bytes) -> Sequence[Out]:
        if kind := self.missed.pop(tag, ""):
            outs = [out for each in words.list_of(body) for out in self._learn(kind, each)]
            return [*outs, *(self._catch_up() if self.missed_more and not self.missed and self.turn.running else ())]
        return list(self._answered(tag, status, read(body)))

    def _answered(self, tag: str, status: int, body: dict[str, Any]) -> Iterator[Out]:
        if tag and tag == self.opening:
            yield from self._opened(status, body)
        elif tag and tag == self.asking_version:
            self.asking_version = ""
            yield from self.turn.identify(version=text(body.get("version")))
        elif tag in self.prompts:
            del self.prompts[tag]
            if status != 200:
                self.failed = self.failed or words.error_of(body) or "the agent's server broke the connection"
            if self.turn.running and not self.prompts:
                if self.is_idle:
                    yield from self._over()
                else:
                    yield WakeAfter(SETTLE, SETTLE_SECONDS)

    def _opened(self, status: int, body: dict[str, Any]) -> Iterator[Out]:
        self.opening = ""
        found, moved = words.session_of(text(body.get("id"))), self.moving and status == 204
        opens = moved or (status == 200 and bool(found))
        lost = status in (400, 404) or (self.moving and status > 0) or self.tries == TRIES - 1
        if self.noted and lost and not opens:
            yield from self._begin_anew()
        elif self.noted and not moved and opens and self.directory and body.get("directory") != self.directory:
            self.moving = True
            where = {"directory": self.directory}
            yield self._ask("/experimental/control-plane/move-session", sessionID=self.noted, destination=where)
            self.opening = self._tag
        elif opens:
            self.session = self.noted or found
            yield WakeAfter(OPEN, None)
            yield from self._go_on()

    def _begin_anew(self) -> Iterator[Out]:
        self.noted, self.moving = "", False
        yield from self.turn.say("agent_status", status="memory_lost")
        yield from self._open()

    def _go_on(self) -> Iterator[Out]:
        """The conversation is open."""
        yield from self.turn.identify(name=NAME, session=self.session)
        yield self._get(SERVER.health)
        self.asking_version = self._tag

    def _open(self) -> Iterator[Out]:
        yield self._get(f"/session/{self.noted}") if self.noted else self._ask("/session")
        self.opening = self._tag
        yield WakeAfter(OPEN, OPEN_SECONDS)

    def _open_again(self) -> Iterator[Out]:
        if self.session:
            return
        self.tries += 1
        if self.tries < TRIES:
            yield from self._open()
        else:
            yield from self.turn.say("error", code="agent", error="the agent's server did not open a conversation")
            yield EndProcess("the agent could not begin a conversation")

    def _catch_up(self) -> Iterator[Out]:
        """The event stream broke in a turn and is back: ask for what the core missed."""
        self.missed_more = bool(self.missed)
        if self.missed:
            return
        for kind, path in words.MISSED.items():
            yield self._get(path.format(self.session))
            self.missed[self._tag] = kind

    def _learn(self, kind: str, found: dict[str, Any]) -> Iterator[Out]:
        """Read one answer to that."""
        if not self.turn.running:
            return
        match kind:
            case "permission":
                yield from self._asked_to_permit(found)
            case "question":
                yield from self._asked_question(found)
            case _:
                info = members(found.get("info"))
                if text(info.get("parentID")) in self.users:
                    yield from self._message_updated(info)
                    for part in items(found.get("parts")):
                        yield from self._told_of_ours("message.part.updated", {"part": part})

    # The server's events.

    def up(self, lines: Sequence[bytes]) -> Sequence[Out]:
        return [out for each in lines for out in self._up(read(each))]

    def _up(self, said: dict[str, Any]) -> Iterator[Out]:
        given, kind = members(said.get("properties")), text(said.get("type"))
        is_ours = bool(self.session) and words.session_in(given) == self.session
        match kind:
            case "server.connected":
                if not self.session:
                    yield from self._open()
                elif self.turn.running:
                    yield from self._catch_up()
            case "permission.asked":
                yield from self._asked_to_permit(given)
            case "question.asked":
                yield from self._asked_question(given)
            case "permission.replied" | "question.replied" | "question.rejected":
                yield from self.turn.withdraw(text(given.get("requestID")), "the agent no longer asks this")
            case "file.edited":
                if self.turn.running:
                    path = text(given.get("file")).removeprefix(f"{self.directory}/")
                    yield from self.turn.say("file_change", path=path)
            case "session.error":
                if is_ours or "sessionID" not in given:
                    self._fail(members(given.get("error")))
            case _ if kind in words.OF_A_SESSION:
                if is_ours:
                    yield from self._told_of_ours(kind, given)
                else:
                    yield UnknownFrame(f"another session's {kind}")
            case _ if not words.SILENT.fullmatch(kind):
                yield UnknownFrame(kind or "no event")

    def _told_of_ours(self, kind: str, given: dict[str, Any]) -> Iterator[Out]:
        match kind:
            case "message.updated":
                yield from self._message_updated(members(given.get("info")))
            case "message.part.delta":
                yield from self.parts.grown(self.turn, text(given.get("partID")), text(given.get("delta")))
            case "message.part.updated":
                part = members(given.get("part"))
                if text(part.get("messageID")) in self.messages and self.turn.running:
                    yield from self.parts.updated(self.turn, part)
            case "todo.updated":
                yield from self.turn.say("todo", items=items(given.get("todos")))
            case "session.status":
                yield from self._status(members(given.get("status")))
            case _:
                yield from self._idle()

    def _message_updated(self, info: dict[str, Any]) -> Iterator[Out]:
        name = words.kept_name(info.get("id"))
        if info.get("role") == "user" and name and self.turn.running and name not in self.users:
            self.users = [*self.users, name][-MAX_OLD:]
        if not name or info.get("role") != "assistant" or name in self.old:
            return
        if not self.turn.running:
            self.old = [*self.old, name][-MAX_OLD:]
            return
        if name not in self.messages and (self.turn.aborting or self.failed):
            yield from self._abort()  # the abort before this one came before the turn began
        if len(self.messages) < MAX_MESSAGES:
            complete = "completed" in members(info.get("time"))
            self.messages[name] = self.messages.get(name, False) or complete
        self.reason = text(info.get("finish")) or self.reason
        self._fail(members(info.get("error")))
        provider, model = text(info.get("providerID")), text(info.get("modelID"))
        yield from self.turn.identify(model=f"{provider}/{model}" if provider and model else "")

    def _asked_to_permit(self, given: dict[str, Any]) -> Iterator[Out]:
        name, kind = words.name_in(given), text(given.get("permission"))
        asked = {"kind": "permission", "id": name}
        if not self._is_new(name):
            return
        if self.mode in ("all", "plan") or (self.mode == "edits" and kind == "edit"):
            allowed = {"allow": self.mode != "plan", "message": "Only plan: change nothing."}
            yield self._reply(asked, words.answer(asked, allowed))
        else:
            always = given.get("always")
            yield from self.turn.ask(
                PERMIT,
                name,
                asked,
                toolName=kind or "tool",
                toolInput=members(given.get("metadata")) or {"patterns": given.get("patterns")},
                toolUseId=text(members(given.get("tool")).get("callID")) or None,
                suggestions=always if isinstance(always, list) and always else None,
            )

    def _asked_question(self, given: dict[str, Any]) -> Iterator[Out]:
        name, questions = words.name_in(given), items(given.get("questions"))
        if self._is_new(name):
            asked = {"kind": "question", "id": name, "questions": [text(each.get("question")) for each in questions]}
            told = [{**each, "multiSelect": each.get("multiple") is True} for each in questions]
            use = text(members(given.get("tool")).get("callID")) or None
            yield from self.turn.ask("ask_user_question", name, asked, questions=told, toolUseId=use)

    def _is_new(self, name: str) -> bool:
        """Whether to pass on a request of this name."""
        if not name or not self.turn.running or name in self.asked:
            return False
        self.asked = [*self.asked, name][-MAX_OLD:]
        return True

    def _status(self, status: dict[str, Any]) -> Iterator[Out]:
        if status.get("type") == "retry":
            attempt, error = count(status.get("attempt")) or 0, text(status.get("message"))
            yield from self.turn.say("agent_status", status="retrying", attempt=attempt, of=ATTEMPTS, error=error)
            if attempt >= ATTEMPTS and self.turn.running and not (self.turn.aborting or self.failed):
                self.failed = error or "the model kept failing"
                yield from self._abort()
        elif status.get("type") == "busy" and self.turn.running:
            self.is_idle = False
            yield WakeAfter(SETTLE, None if self.prompts else SETTLE_SECONDS)

    def _idle(self) -> Iterator[Out]:
        if not self.turn.running or not (self.messages or self.failed) or not all(self.messages.values()):
            return
        self.is_idle = True
        if self.prompts:
            yield WakeAfter(SETTLE, UNANSWERED_SECONDS)
        else:
            yield from self._over()

    def _fail(self, error: dict[str, Any]) -> None:
        name = text(error.get("name"))
        if name and name != "MessageAbortedError" and self.turn.running:
            self.failed = words.error_of(error) or name
            self.refused |= words.is_refusal(error)

    def _over(self) -> Iterator[Out]:
        yield WakeAfter(SETTLE, None)
        yield from self.parts.end_text(self.turn)
        failed = bool(self.failed) and not self.turn.aborting
        if failed:
            yield from words.error(self.turn, self.failed, refused=self.refused)
        parts, self.parts = self.parts, OpencodeParts()
        cost = round(parts.cost, 9) or None
        yield from self.turn.done(failed=failed, reason=self.reason or None, costUsd=cost, usage=parts.usage or None)
        self.old = [*self.old, *self.messages][-MAX_OLD:]
        self.prompts.clear()
        self.messages.clear()
        self.failed = self.reason = ""
        self.is_idle = self.refused = False
        self.aborts = 0

    def woken(self, name: str) -> Sequence[Out]:
        match name:
            case "settle" if self.turn.running:
                return list(self._over())
            case "open":
                return list(self._open_again())
        return list(self.turn.gathered()) if name == GATHER else ()

    def interrupt(self) -> Sequence[Out]:
        return (EndProcess("the agent did not stop its turn and is restarted"),)

    def over(self) -> Sequence[Out]:
        return list(self.turn.over())
