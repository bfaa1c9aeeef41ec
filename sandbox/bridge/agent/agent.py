"""One agent process at a time: records in, numbered frames out.

States: *absent* (never started, or exited), *running*, *ending* (asked to stop, or dead with output still to read).
It starts only on request. A request during *ending* waits for the exit. It never starts while it is *held*: from the
bridge's start if the configuration says so, or since a restore demanded quiet, until its release; and while its
workspace is being replaced.

All its input and output go through its *core* (sandbox/agents/core.py), which knows the agent's own protocol; each
process has a new one. This module does what a core cannot: the process, pipes, signals, timers, notes, files
(home.py).

Lines reach the agent in this order: its first lines, then the core's answers and injected lines, then deliveries by
seq when the core is ready for them (deliveries.py). A delivery is noted as taken before its first byte is written, so
the agent gets it at most once, even if the bridge is killed. Deliveries need an open *gate*. Without it, a delivery
that was sent before the gateway learned of the process's end could reach the next process, and overtake the lines
that were dropped with the old one.

Output is numbered into the backlog. While that is full, the bridge does not read the agent; nothing is dropped. Nor
does it read the agent while the agent leaves `UNREAD_BYTES` of the core's answers unread.

The bridge reaches an agent that is a server over HTTP (http_reach.py). Deliveries become requests then, and nothing
is written to its input.
"""

import asyncio
import contextlib
import secrets
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from select import PIPE_BUF

from sandbox.agents.catalogue import CORES
from sandbox.agents.core import (
    Core,
    EndProcess,
    FoldingCore,
    HomeFile,
    Http,
    HttpServer,
    InterruptProcess,
    Launch,
    Note,
    Out,
    Past,
    ServerCore,
    ToAgent,
    ToGateway,
    UnknownFrame,
    WakeAfter,
)
from sandbox.bridge.agent import home
from sandbox.bridge.agent.deliveries import DeliveryQueue, DueDelivery
from sandbox.bridge.agent.guarded_core import GuardedCore
from sandbox.bridge.agent.http_reach import HttpReach
from sandbox.bridge.agent.lines import LineSplitter
from sandbox.bridge.agent.long_lines import CuttingSplitter
from sandbox.bridge.agent.outgoing import OutgoingLines
from sandbox.bridge.agent.server_socket import AgentSocket, taken_port
from sandbox.bridge.agent.taken import TakenNotes
from sandbox.bridge.agent.unknown import UnknownKinds
from sandbox.bridge.base.config import Config, Limits
from sandbox.protocol.agent import MAX_LINE
from sandbox.protocol.agent_server import AgentServer
from sandbox.protocol.agent_stream import FrameBacklog
from sandbox.protocol.values import AgentExit, Hello, Position
from sandbox.system.child import Child, Reader, Writer, describe_exit
from sandbox.system.log import BoundedLog, ErrorLog, log

MAX_LOG_LINE = 64 << 10  # bytes that a core is given


class AgentFailed(Exception):
    """The agent could not be started. The text is for the user."""


class AgentHeld(AgentFailed):
    """The agent may not start now: its workspace is still to be put in place."""


class AgentRuns(Exception):
    """The operation needs that no agent runs."""


class Agent:
    """The agent of one sandbox. `on_change` is called when there is news for the gateway, `on_problem` with a text
    for the user, and `on_room` when a full queue has room again; `on_room` must not deliver before it returns. Only
    `room` and `end` wait."""

    def __init__(self, config: Config, notes: TakenNotes, open_log: Callable[[], ErrorLog] | None = None) -> None:
        """`open_log` opens the log for each process's stderr; without it the configuration's `agent_log` is used."""
        self._config = config
        self._limits = config.limits
        self.open_log = open_log or partial(BoundedLog, config.agent_log, config.limits.agent_log_bytes)
        self._notes = notes
        directory = config.environment.get("HOME")
        self._home = Path(directory) if directory else None
        self.core_notes = home.AgentNotes(self._home, config.core)
        self._loop = asyncio.get_running_loop()
        self.backlog = FrameBacklog(config.limits.backlog_bytes)
        self.on_change: Callable[[], None] = lambda: None
        self.on_problem: Callable[[str], None] = lambda reason: None
        self.on_room: Callable[[], None] = lambda: None
        self._deliveries = DeliveryQueue(config.limits.queue_lines, config.limits.queue_bytes)
        self._room = asyncio.Event()
        self._room.set()
        self._gate_open = False
        self._process: _Process | None = None
        self._kept_out = False
        self.held = config.hold
        self._next_start: tuple[bytes | None] | None = None
        self.unknown = UnknownKinds()  # not reported to a gateway yet

    @property
    def alive(self) -> bool:
        return self._process is not None

    @property
    def epoch(self) -> str | None:
        return self.backlog.newest.epoch if self.backlog.newest else None

    @property
    def taken(self) -> int:
        return self._notes.taken

    @property
    def health(self) -> dict[str, str | int | None]:
        """Its `state`: waiting (it never ran), running or exited; after an exit also `code` or `signal`. A process
        that is gone counts as exited, even if its last output is still to be read."""
        if self._process is not None and not self._process.child.ended.done():
            return {"state": "running"}
        if self._process is not None:
            code, signal_name, _ = describe_exit(self._process.child.ended.result())
        elif (run := self.backlog.newest) is not None and run.exit is not None:
            code, signal_name = run.exit.code, run.exit.signal
        else:
            return {"state": "waiting"}
        return {"state": "exited", "code": code, "signal": signal_name}

    @property
    def all_events(self) -> bool:
        """Whether events that the core does not know are passed on, too."""
        return self._config.all_events

    @property
    def core(self) -> str:
        """The name of the agent's core."""
        return self._config.core

    def attach(self) -> Hello:
        """A gateway came: forget the queue of the one before, and report the state."""
        self._drop_queue()
        self._gate_open = self._process is not None and not self._process.ending
        return Hello(self._notes.taker, self._notes.taken, self.epoch, self.alive, self.held, recalls=True)

    @property
    def barred(self) -> bool:
        """Whether no program may start because the workspace is not in place."""
        return self.held or self._kept_out

    def hold(self) -> None:
        """No agent starts from here on until the release; a running one goes on."""
        if not self.held:
            self.held = True
            log("agent.held")

    def release(self) -> None:
        """The workspace is in place: the agent may start."""
        if self.held:
            self.held = False
            log("agent.released")

    @contextlib.contextmanager
    def kept_out(self) -> Iterator[None]:
        """Within this context no agent runs or starts. Raises AgentRuns."""
        if self._process is not None:
            raise AgentRuns("the agent runs: stop it first")
        self._kept_out = True
        try:
            yield
        finally:
            self._kept_out = False

    def start(self, line: bytes | None) -> bool:
        """Start the agent unless it runs; return whether this call started it. Its gate is closed. Raises
        AgentFailed."""
        if self.barred:
            raise AgentHeld("the agent waits for its workspace")
        if self._process is not None:
            if self._process.ending:
                self._next_start = (line,)
            return False
        if self.server is not None and taken_port(self.server):
            log("agent.start_failed", cause="its port is taken")
            raise AgentFailed(
                f"the agent could not be started: {self.server.address} is taken by another program: name another port"
            )
        core = CORES[self._config.core]()
        launch = self._launch(core)
        piped = self._config.server is None
        password = secrets.token_urlsafe(24)
        own = {launch.server.password_in: password} if launch.server is not None else {}
        env = {**launch.env, **own}
        try:
            child = Child(launch.argv, cwd=self._config.workspace, env=env, with_input=piped, with_output=piped)
        except (OSError, ValueError) as exc:
            cause = exc.strerror if isinstance(exc, OSError) else str(exc)
            log("agent.start_failed", cause=cause)
            raise AgentFailed(f"the agent could not be started: {launch.argv[0]}: {cause}") from exc
        epoch = secrets.token_urlsafe(9)
        log("agent.started", pid=child.pid, epoch=epoch)
        self.backlog.begin(epoch)
        self._process = _Process(self, child, core, line, launch.server, password)
        self.on_change()
        return True

    def _launch(self, core: Core) -> Launch:
        wanted = Launch(self._config.agent, self._config.environment, directory=str(self._config.workspace))
        if self._home is not None:
            home.write_missing(self._home, self._config.home_files)
        notes = self.core_notes.read()
        launch = core.command(wanted, Past(notes, home.found(self._home, core.traces(wanted, notes))))
        for file in launch.files:
            self._write(file)
        for move in launch.moves:
            home.move(self._home, move)
        return launch

    def _write(self, file: HomeFile) -> None:
        if self._home is None:
            raise AgentFailed(f"the agent could not be started: no HOME for its file {file.path}")
        try:
            home.write(self._home, file)
        except OSError as exc:
            log("agent.start_failed", cause=exc.strerror)
            raise AgentFailed(f"the agent could not be started: HOME/{file.path}: {exc.strerror}") from exc

    def open_gate(self, epoch: str | None) -> None:
        """The gateway knows that `epoch` runs, or asked for it itself: deliveries from here on are meant for it."""
        if epoch == self.epoch and self._process is not None and not self._process.ending:
            self._gate_open = True

    def deliver(self, records: Iterable[tuple[int, bytes]]) -> int:
        """Queue records, each (seq, line), in order, as many as there is room for, and return how many. If no process
        can take them, they are dropped and count as queued; the gateway delivers them again."""
        accepted = 0
        for seq, line in records:
            if self._deliveries.full:
                self._room.clear()
                break
            accepted += 1
            if self._gate_open and self._process is not None and seq > self._notes.taken:
                process = self._process
                self._deliveries.add(seq, line, waits=process.core.waits(line), folded=process.folds(line))
        if self._deliveries and self._process is not None:
            self._process.input.write()
        return accepted

    async def room(self) -> None:
        """Wait until the queue can take more."""
        while self._deliveries.full:
            self._room.clear()
            await self._room.wait()

    def _make_room(self) -> None:
        if not self._room.is_set() and not self._deliveries.full:
            self._room.set()
            self.on_room()

    def next_due(self, taken: int, *, ready: bool, can_fold: bool) -> DueDelivery | None:
        """The next record that may go to the agent, None if there is none. `taken` is the highest seq taken so far.
        Call `note` before you write the line."""
        due = self._deliveries.next(taken, ready=ready, can_fold=can_fold)
        self._make_room()
        return due

    @property
    def due_bytes(self) -> int:
        """Length of the oldest record in the queue; 0 if there is none."""
        return self._deliveries.oldest_bytes

    def note(self, taken: int) -> None:
        """Note that everything up to `taken` goes to the agent now."""
        self._notes.take(taken)
        self.on_change()

    def hold_back(self, seq: int) -> bool:
        """Keep the record `seq` and everything behind it from the agent until it is dropped. False if it is not in
        the queue."""
        return seq > self._notes.taken and self._deliveries.hold(seq)

    def drop_held(self, seq: int) -> None:
        """The held record is cancelled: forget it and go on."""
        self._deliveries.drop_held(seq)
        self._make_room()
        if self._deliveries and self._process is not None:
            self._process.input.write()

    def inject(self, line: bytes) -> None:
        """Write a line before everything in the queue. It is dropped if no process runs."""
        if self._process is None or self._process.ending:
            return
        if not self._process.inject(line):
            self.on_problem("the agent does not read its input")

    def interrupt(self) -> None:
        """Stop a turn that goes on after an `abort`, in the way that this agent survives best."""
        if self._process is not None:
            self._process.interrupt()

    def confirm(self, position: Position) -> None:
        self.backlog.confirm(position)
        if self._process is not None:
            self._process.pace_output()

    def stop(self) -> None:
        """End the process in order: close its input, then SIGTERM, then SIGKILL."""
        self._next_start = None
        if self._process is not None and not self._process.ending:
            self.forget_deliveries()
            # A server does not end when its input does.
            self._process.stop(0.0 if self.server else self._limits.stop_input_seconds, self._limits.stop_term_seconds)

    def kill(self) -> None:
        if self._process is not None:
            self._process.child.signal_group(signal.SIGKILL)

    async def end(self) -> None:
        """End the process and wait until it is gone, even if some output could not be read."""
        self.stop()
        if self._process is not None:
            await asyncio.shield(self._process.child.ended)

    async def finished(self, seconds: float) -> None:
        """Wait until all output of an ended process is read, for at most so long."""
        if self._process is not None:
            await asyncio.wait({self._process.over}, timeout=seconds)

    def forget_deliveries(self) -> None:
        self._gate_open = False
        self._drop_queue()

    def _drop_queue(self) -> None:
        self._deliveries.drop()
        self._make_room()

    @property
    def limits(self) -> Limits:
        return self._limits

    @property
    def server(self) -> AgentServer | None:
        """How the bridge reaches the agent without pipes."""
        return self._config.server

    def finish(self, code: int) -> None:
        """The process is gone and all its output is read."""
        run = self.backlog.newest
        assert run is not None
        exit_code, signal_name, reason = describe_exit(code)
        self.backlog.finish(AgentExit(run.epoch, run.end, self._notes.taken, exit_code, signal_name, reason))
        log("agent.exited", epoch=run.epoch, reason=reason, frames=run.end, taken=self._notes.taken)
        self._process = None
        self._deliveries.forget_process()
        self.on_change()
        if self._next_start is not None:
            (line,), self._next_start = self._next_start, None
            try:
                self.start(line)
            except AgentFailed as exc:
                self.on_problem(str(exc))


class _Process:
    """One run of the agent: its core, its pipes and its end."""

    def __init__(
        self, agent: Agent, child: Child, core: Core, start: bytes | None, server: HttpServer | None, password: str
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
