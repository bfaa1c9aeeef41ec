"""One run of an agent: its process, the core that speaks its words, its pipes and its end.

This module does what a core cannot: pipes, signals and timers. What outlives the process (the backlog, the notes, the
queue of deliveries) is the AgentHouse's. The process asks it for the next delivery, and has it noted as taken before
the first byte is written.
"""

import asyncio
import signal
from collections.abc import Callable, Sequence
from functools import partial
from select import PIPE_BUF
from typing import Protocol

from sandbox.agents.core import (
    Core,
    EndProcess,
    FoldingCore,
    Http,
    HttpServer,
    InterruptProcess,
    Note,
    Out,
    ServerCore,
    ToAgent,
    ToGateway,
    UnknownFrame,
    WakeAfter,
)
from sandbox.bridge.agent.deliveries import DueDelivery
from sandbox.bridge.agent.guarded_core import GuardedCore
from sandbox.bridge.agent.home import AgentNotes
from sandbox.bridge.agent.http_reach import HttpReach
from sandbox.bridge.agent.lines import LineSplitter
from sandbox.bridge.agent.long_lines import CuttingSplitter
from sandbox.bridge.agent.outgoing import OutgoingLines
from sandbox.bridge.agent.server_socket import AgentSocket
from sandbox.bridge.agent.unknown import UnknownKinds
from sandbox.bridge.base.config import Limits
from sandbox.protocol.agent import MAX_LINE
from sandbox.protocol.agent_server import AgentServer
from sandbox.protocol.agent_stream import FrameBacklog
from sandbox.system.child import Child, Reader, Writer
from sandbox.system.log import ErrorLog, log

MAX_LOG_LINE = 64 << 10  # bytes that a core is given


class AgentHouse(Protocol):
    """What stays when a process goes."""

    backlog: FrameBacklog
    core_notes: AgentNotes
    unknown: UnknownKinds
    on_change: Callable[[], None]
    on_problem: Callable[[str], None]
    open_log: Callable[[], ErrorLog]

    @property
    def core(self) -> str:
        """The core's name."""
        ...

    @property
    def all_events(self) -> bool: ...

    @property
    def limits(self) -> Limits: ...

    @property
    def server(self) -> AgentServer | None:
        """How the bridge reaches the agent without pipes."""
        ...

    @property
    def taken(self) -> int: ...

    @property
    def due_bytes(self) -> int:
        """The length of the oldest delivery; 0 if there is none."""
        ...

    def next_due(self, taken: int, *, ready: bool, can_fold: bool) -> DueDelivery | None:
        """The delivery that goes to the agent now. Its line may be written only after `note`."""
        ...

    def note(self, taken: int) -> None: ...

    def forget_deliveries(self) -> None: ...

    def finish(self, code: int) -> None:
        """The process is gone and all its output is read."""
        ...


class AgentProcess:
    """One run of the agent: its core, its pipes and its end."""

    def __init__(
        self, agent: AgentHouse, child: Child, core: Core, start: bytes | None, server: HttpServer | None, password: str
    ) -> None:
        """`server` is how the bridge reaches an agent that is a server."""
        self._agent = agent
        self.child = child
        self.core = core
        self._guarded = GuardedCore(core, agent.core, all_events=agent.all_events)
        self._folding = core if isinstance(core, FoldingCore) else None
        self.ending = False
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # gone, output read
        self._splitter = CuttingSplitter() if core.cuts_lines else LineSplitter(MAX_LINE)
        self._log_splitter = LineSplitter(MAX_LOG_LINE)
        self._oversized_told = 0
        self._unknown = UnknownKinds()
        self._timer: asyncio.TimerHandle | None = None
        self._wakes: dict[str, asyncio.TimerHandle] = {}
        self._lines = OutgoingLines(PIPE_BUF)
        self._reach = None if server is None else self._reach_by_http(server, password)
        log_file = agent.open_log()
        self.input, self.output = self._pipes(start)
        self._errors = Reader(child.errors, partial(self._on_errors, log_file))
        self._perform(self._guarded.ask("begin", lambda: core.begin(start)))
        child.ended.add_done_callback(self._on_ended)
        self.input.write()

    def folds(self, line: bytes) -> bool:
        """Whether this record is a message for the running turn. The core must be able to take it in."""
        return self._folding is not None and self._folding.folds(line)

    def _pipes(self, start: bytes | None) -> tuple[Writer | AgentSocket, Reader | AgentSocket]:
        if self._agent.server is None:
            output = Reader(self.child.output, self._on_output)
            return Writer(self.child.input, self._next_piece, self._on_deaf), output
        both = AgentSocket(
            self._agent.server,
            start_seconds=self._agent.limits.server_start_seconds,
            start=start,
            pull=self._next_piece,
            on_chunk=self._on_output,
            on_problem=lambda why: self._agent.on_problem(why),
            on_lost=self._end_now,
        )
        return both, both

    def _reach_by_http(self, server: HttpServer, password: str) -> HttpReach:
        core = self.core
        assert isinstance(core, ServerCore), "a core that launches a server takes its answers"

        def on_answer(tag: str, status: int, body: bytes) -> None:
            self._perform(self._guarded.ask("answered", lambda: core.answered(tag, status, body)))
            self.input.write()

        return HttpReach(
            server,
            password,
            on_events=self._heard,
            on_answer=on_answer,
            on_left_out=self._leave_out,
            on_failed=self._end_now,
            on_done=self._finish_if_over,
        )

    def _perform(self, outs: Sequence[Out]) -> None:
        for out in outs:
            match out:
                case ToGateway(frames):
                    for frame in frames:
                        self._agent.backlog.append(frame)
                    self._agent.on_change()
                case ToAgent(line) if not (self.ending or self.input.closed):
                    self._lines.append(line)
                case Http() if self._reach is not None:
                    self._reach.ask(out)
                case Note(members):
                    self._agent.core_notes.note(members)
                case WakeAfter(name, seconds):
                    self._wake_in(name, seconds)
                case UnknownFrame(kind):
                    self._count(kind)
                case InterruptProcess():
                    self.child.signal_group(signal.SIGINT)
                case EndProcess(reason):
                    asyncio.get_running_loop().call_soon(self._end_now, reason)  # the input may be in mid-write
        self.pace_output()

    def _wake_in(self, name: str, seconds: float | None) -> None:
        if (timer := self._wakes.pop(name, None)) is not None:
            timer.cancel()
        if seconds is not None and not self.over.done():
            self._wakes[name] = asyncio.get_running_loop().call_later(seconds, self._on_wake, name)

    def _on_wake(self, name: str) -> None:
        del self._wakes[name]
        self._perform(self._guarded.ask("woken", lambda: self.core.woken(name)))
        self.input.write()

    def _count(self, kind: str) -> None:
        if (first := self._unknown.add(kind)) is not None:
            log("agent.unknown", kind=first)
        self._agent.unknown.add(kind)

    def _end_now(self, reason: str) -> None:
        if not self.ending:
            if reason:
                self._agent.on_problem(reason)
            self._agent.forget_deliveries()
            self.stop(0.0, self._agent.limits.stop_term_seconds)

    def interrupt(self) -> None:
        self._perform(self._guarded.ask("interrupt", self.core.interrupt))
        self.input.write()

    def pace_output(self) -> None:
        """Read the agent while there is room for its output, and while it reads its input."""
        for source in (self.output, self._reach):
            if source is None:
                pass
            elif self._agent.backlog.full or self._lines.unheeded:
                source.pause()
            else:
                source.resume()

    def _next_piece(self) -> bytes:
        """The next lines for the agent, b"" if there are none. Records are noted before this returns. Several share
        one note only if the pipe surely takes them whole: if it took a part, records that the agent never got would
        count as taken."""
        taken = noted = self._agent.taken
        is_free = False
        while True:
            if self._lines:
                size = self._agent.due_bytes
                if not size or not self._lines.has_room_beside(size):
                    break
                if not (is_free := is_free or self.input.is_free):
                    break
            can_fold = self._folding is None or self._folding.can_fold
            due = self._agent.next_due(noted, ready=self.core.ready, can_fold=can_fold)
            if due is None:
                break
            if due.noted is not None:
                noted = due.noted
            if due.line is not None:
                self._perform(self._guarded.down(due.line))
        if noted > taken:
            self._agent.note(noted)
        return self._cut_piece()

    def _cut_piece(self) -> bytes:
        was_unheeded, piece = self._lines.unheeded, self._lines.cut()
        if was_unheeded and not self._lines.unheeded:
            self.pace_output()
        return piece

    def inject(self, line: bytes) -> bool:
        """Return whether there was room for it."""
        if not self._lines.has_room:
            return False
        self._perform(self._guarded.down(line))
        self.input.write()
        return True

    def _forget_lines(self) -> None:
        """Nobody reads them any more."""
        self._lines.forget()
        self.pace_output()

    def _on_deaf(self) -> None:
        self._forget_lines()
        if not self.ending:
            self._agent.on_problem("the agent closed its input")

    def _on_output(self, chunk: bytes) -> None:
        lines = self._splitter.feed(chunk) if chunk else self._splitter.finish()
        if self._reach is not None:
            for line in lines:
                self._reach.said(line)
        elif lines:
            self._heard(lines)
        if self._splitter.oversized > self._oversized_told:
            self._oversized_told = self._splitter.oversized
            self._leave_out()
        self._finish_if_over()

    def _on_errors(self, log_file: ErrorLog, chunk: bytes) -> None:
        if not chunk:
            log_file.close()
            return
        log_file.write(chunk)
        if self._guarded.reads_log and not self.over.done() and (lines := self._log_splitter.feed(chunk)):
            self._perform(self._guarded.logged(lines))
            self.input.write()

    def _leave_out(self) -> None:
        self._agent.on_problem(f"a line of agent output was longer than {MAX_LINE} bytes and was left out")

    def _heard(self, lines: Sequence[bytes]) -> None:
        before = self._lines.size
        self._perform(self._guarded.up(lines))
        self.input.write()  # the core's answers, and deliveries that it may be ready for now
        if self._lines.grown(before):
            self.pace_output()

    def stop(self, input_seconds: float, term_seconds: float) -> None:
        self.ending = True
        loop = asyncio.get_running_loop()

        def terminate() -> None:
            self.child.signal_group(signal.SIGTERM)
            self._timer = loop.call_later(term_seconds, self.child.signal_group, signal.SIGKILL)

        if input_seconds and self._reach is None:  # a server does not end when its input does
            self._timer = loop.call_later(input_seconds, terminate)
        else:
            terminate()
        self.input.finish()
        self._forget_lines()

    def _on_ended(self, ended: asyncio.Future[int]) -> None:
        self.ending = True
        if self._timer is not None:
            self._timer.cancel()
        self._agent.forget_deliveries()
        self.input.close()
        self._forget_lines()
        self.output.end_when_silent(self._agent.limits.drain_seconds)
        self._errors.end_when_silent(self._agent.limits.drain_seconds)
        if self._reach is not None:
            self._reach.end(self._agent.limits.drain_seconds)
        self._finish_if_over()

    def _finish_if_over(self) -> None:
        read = self.output.done and (self._reach is None or self._reach.done)
        if read and self.child.ended.done() and not self.over.done():
            self._perform(self._guarded.ask("over", self.core.over))
            for timer in self._wakes.values():
                timer.cancel()
            self.over.set_result(None)
            if self._unknown:
                log("agent.unknown_counts", counts=self._unknown.counts)
            self._agent.finish(self.child.ended.result())
