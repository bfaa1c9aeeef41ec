"""One agent process at a time: records in, numbered frames out.

States: *absent* (never started, or exited), *running*, *ending* (asked to stop, or dead with output still to read).
It starts only on request. A request during *ending* waits for the exit. It never starts while it is *held*: from the
bridge's start if the configuration says so, or since a restore demanded quiet, until its release; and while its
workspace is being replaced.

All its input and output go through its *core* (sandbox/agents/core.py), which knows the agent's own protocol; each
process has a new one (process.py). This module has what stays when a process goes: the queue of deliveries, the
backlog, notes, and files (home.py).

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
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from sandbox.agents.catalogue import CORES
from sandbox.agents.core import (
    Core,
    HomeFile,
    Launch,
    Past,
)
from sandbox.bridge.agent import home
from sandbox.bridge.agent.deliveries import DeliveryQueue, DueDelivery
from sandbox.bridge.agent.process import AgentProcess
from sandbox.bridge.agent.server_socket import taken_port
from sandbox.bridge.agent.taken import TakenNotes
from sandbox.bridge.agent.unknown import UnknownKinds
from sandbox.bridge.base.config import Config, Limits
from sandbox.protocol.agent import NO_SETUP
from sandbox.protocol.agent_server import AgentServer
from sandbox.protocol.agent_stream import FrameBacklog
from sandbox.protocol.values import AgentExit, Hello, Position
from sandbox.system.child import Child, describe_exit
from sandbox.system.log import BoundedLog, ErrorLog, log


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
        self.setup = NO_SETUP  # of the next processes
        self._loop = asyncio.get_running_loop()
        self.backlog = FrameBacklog(config.limits.backlog_bytes)
        self.on_change: Callable[[], None] = lambda: None
        self.on_problem: Callable[[str], None] = lambda reason: None
        self.on_room: Callable[[], None] = lambda: None
        self._deliveries = DeliveryQueue(config.limits.queue_lines, config.limits.queue_bytes)
        self._room = asyncio.Event()
        self._room.set()
        self._gate_open = False
        self._process: AgentProcess | None = None
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
        return Hello(
            self._notes.taker, self._notes.taken, self.epoch, self.alive, self.held, recalls=True, configures=True
        )

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
        self._process = AgentProcess(self, child, core, line, launch.server, password)
        self.on_change()
        return True

    def _launch(self, core: Core) -> Launch:
        argv = (*self._config.agent, *self.setup.arguments)
        wanted = Launch(argv, self._config.environment, directory=str(self._config.workspace))
        if self._home is not None:
            home.write_missing(self._home, self._config.home_files)
        self._write_setup()
        notes = self.core_notes.read()
        launch = core.command(wanted, Past(notes, home.found(self._home, core.traces(wanted, notes))))
        for file in launch.files:
            self._write(file)
        for move in launch.moves:
            home.move(self._home, move)
        return launch

    def _write_setup(self) -> None:
        """The files of the user's configuration, without those of an earlier one that are in it no more."""
        files = [HomeFile(each.path, each.content.encode()) for each in self.setup.files]
        earlier = home.listed(self._home)
        home.remove(self._home, earlier - {each.path for each in files})
        if files or earlier:
            self._write(home.list_of(files))
        for file in files:
            self._write(file)

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
