"""A sandbox that exists only in this process, with a scripted agent.

It keeps the contract of a real bridge: records are taken once, what was taken is remembered across incarnations, frames
are numbered per agent process and kept until confirmed, deliveries that were not taken are forgotten when the agent
exits or the link is lost. Both directions of a link are queues emptied by the event loop, so nothing is ever called
back from within a call. Unlike a real bridge it goes on reading an agent whose output nobody confirms.
"""

import secrets
from collections import deque
from collections.abc import Callable
from typing import Literal, ParamSpec

from sandbox.ports.fleet import SandboxSpec
from sandbox.ports.link import LinkEvents
from sandbox.protocol.agent import NO_SETUP
from sandbox.protocol.agent_stream import BeginEpoch, Cursor, FrameBacklog, Frames
from sandbox.protocol.values import AgentExit, Hello, Position
from sandbox.providers.memory.link import MemoryLink
from sandbox.providers.memory.scripted import Script, ScriptedProcess
from sandbox.providers.memory.terminals import MemoryTerminal
from sandbox.providers.memory.tree import MemoryRoots

P = ParamSpec("P")
_PORTION = 64 * 1024


class MemorySandbox:
    """One session's sandbox: its bridge, its agent, its roots, and the handles tests pull.

    `handed` lists every (seq, line) given to any agent process, for the life of the sandbox. `cut_at` = (seq, what)
    makes the bridge note that seq as taken and then, before the agent gets the line, lose its `link`, its `agent`, or
    die itself (`bridge`): the record is neither delivered nor to be sent again.
    """

    def __init__(self, spec: SandboxSpec, script: Script) -> None:
        self.spec = spec
        self.script = script
        self.alive = False
        self.taker = secrets.token_urlsafe(9)
        self.taken = 0
        self.handed: list[tuple[int, bytes]] = []
        self.processes: list[ScriptedProcess] = []
        self.setup = NO_SETUP  # of the newest start
        self.cut_at: tuple[int, Literal["link", "agent", "bridge"]] | None = None
        self.agent_problem: str | None = None  # the agent command cannot be run, and why
        self.log = bytearray()
        self.roots = MemoryRoots()
        self.terminals: dict[str, MemoryTerminal] = {}
        self._backlog = FrameBacklog()
        self._cursor = Cursor()
        self._queue: deque[tuple[int, bytes]] = deque()
        self._held_back: set[int] = set()
        self._link: MemoryLink | None = None
        self._ready: str | None = None  # the process the gateway knows of: deliveries are meant for it
        self._next_start: tuple[bytes | None] | None = None  # asked for while the last process was being stopped

    @property
    def agent(self) -> ScriptedProcess | None:
        """The agent process that runs now."""
        return self.processes[-1] if self.processes and self.processes[-1].alive else None

    @property
    def files(self) -> dict[bytes, bytes]:
        """The files of both roots; whoever changes them himself tells nobody."""
        return self.roots.files

    def write(self, path: bytes, content: bytes) -> None:
        """A program writes a file, and the watch sees it."""
        self.files[path] = content
        self.changed()

    def changed(self) -> None:
        """The watch sees something."""
        if self._link:
            self._tell(self._link.events.on_changed)

    @property
    def linked(self) -> bool:
        return self._link is not None

    def boot(self, spec: SandboxSpec) -> None:
        self.spec = spec
        self.alive = True
        self.roots.boots += 1
        self.roots.held = spec.hold
        self.roots.outdated = False
        if spec.empty:
            self.roots.begin_empty()
        self._backlog = FrameBacklog()
        self._next_start = None

    def end(self, reason: str) -> None:
        """The bridge stops in order: its agent first, what it wrote still arrives."""
        if self.agent:
            self.agent.exit(None, "SIGTERM")
        self._down(reason, orderly=True)

    def crash(self, reason: str = "the bridge died") -> None:
        """kill -9 of the bridge: agent, backlog and link are gone; what it noted as taken is not."""
        process = self.agent
        self._down(reason, orderly=False)
        if process:
            process.exit(None, "SIGKILL")

    def forget_taken(self) -> None:
        """Lose the notes, as a reboot of the host does: a new taker."""
        self.taker, self.taken = secrets.token_urlsafe(9), 0

    def lose_link(self, reason: str = "cut by the test") -> None:
        """Cut the connection without a word; whatever was on its way, in either direction, is gone."""
        if self._link:
            link = self._link
            self.let_go(link)
            link.lose(reason)

    def attach(self, events: LinkEvents, after: Position | None) -> MemoryLink:
        self.lose_link("a newer link took over")
        link = self._link = MemoryLink(self, events)
        newest = self._backlog.newest
        self._ready = newest.epoch if newest else None
        hello = Hello(
            self.taker, self.taken, self._ready, self.agent is not None, self.roots.held, recalls=True, configures=True
        )
        self._tell(link.events.on_hello, hello)
        self._cursor = self._backlog.cursor(after)
        self._stream()
        return link

    def let_go(self, link: MemoryLink) -> None:
        if self._link is link:
            self._link = None
            self._forget_queue()

    # What the gateway asks over the link.

    def start_agent(self, line: bytes | None) -> None:
        if self.agent and not self.roots.held:
            self._next_start = (line,) if self.agent.stopping else None
            return
        problem = "the agent waits for its workspace" if self.roots.held else self.agent_problem
        if problem is not None:
            if self._link:
                self._tell(self._link.events.on_problem, problem)
            return
        process = ScriptedProcess(secrets.token_urlsafe(9), self.spec, self.script, self)
        self.processes.append(process)
        self._ready = process.epoch
        self._backlog.begin(process.epoch)
        self._stream()
        if line is not None:
            process.hand(line)

    def ready(self, epoch: str) -> None:
        self._ready = epoch

    def delivered(self, seq: int, line: bytes) -> None:
        if self.agent and self.agent.epoch == self._ready:
            self._queue.append((seq, line))
            self.agent_reads()

    def recalled(self, seq: int) -> None:
        if self._link and any(seq == each for each, _ in self._queue):
            self._held_back.add(seq)
            self._tell(self._link.events.on_recalled, seq)

    def dropped(self, seq: int) -> None:
        self._held_back.discard(seq)
        self._queue = deque(each for each in self._queue if each[0] != seq)
        self.agent_reads()

    def injected(self, line: bytes) -> None:
        if self.agent:
            self.agent.hand(line)

    def interrupted(self) -> None:
        if self.agent:
            self.agent.on_interrupt()

    def stop_agent(self) -> None:
        self._next_start = None
        if self.agent and not self.agent.stopping:
            self._ready = None
            self._forget_queue()
            self.agent.stop()

    def kill_agent(self) -> None:
        if self.agent:
            self.agent.exit(None, "SIGKILL")

    def confirmed(self, position: Position) -> None:
        self._backlog.confirm(position)

    # What the agent does.

    def agent_wrote(self, process: ScriptedProcess, line: bytes) -> None:
        if self.alive:
            self._backlog.append(line)
            self._stream()

    def agent_exited(self, process: ScriptedProcess, code: int | None, signal: str | None) -> None:
        self._forget_queue()
        newest = self._backlog.newest
        if self.alive and newest:
            reason = f"killed by {signal}" if signal else f"exited with code {code}"
            self._backlog.finish(AgentExit(process.epoch, newest.end, self.taken, code, signal, reason))
            self._stream()
        if self.alive and self._next_start:
            (line,), self._next_start = self._next_start, None
            self.start_agent(line)
            self._ready = None  # until the gateway has heard of it

    def agent_reads(self) -> None:
        while self._queue and (agent := self.agent) and agent.reading and self._queue[0][0] not in self._held_back:
            seq, line = self._queue.popleft()
            if seq <= self.taken:
                continue
            self.taken = seq
            if self.cut_at and seq >= self.cut_at[0]:
                return self._cut_now()
            self.handed.append((seq, line))
            if self._link:
                self._tell(self._link.events.on_taken, seq)
            agent.hand(line)

    def _forget_queue(self) -> None:
        self._queue.clear()
        self._held_back.clear()

    def _cut_now(self) -> None:
        assert self.cut_at
        what, self.cut_at = self.cut_at[1], None
        if what == "link":
            self.lose_link()
        elif what == "agent" and self.agent:
            self.agent.exit(None, "SIGKILL")
        else:
            self.crash()

    def _stream(self) -> None:
        """Tell the link everything of the agent channel that it was not told yet."""
        while self._link and (step := self._backlog.step(self._cursor, _PORTION)) is not None:
            events = self._link.events
            match step:
                case BeginEpoch(epoch, base):
                    self._tell(self._link.began, epoch, base)
                case Frames(first, lines):
                    self._tell(events.on_frames, self._cursor.epoch or "", first, lines)
                case AgentExit():
                    self._tell(events.on_exit, step)

    def _tell(self, event: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        if self._link:
            self._link.down.put(lambda: event(*args, **kwargs))

    def _down(self, reason: str, *, orderly: bool) -> None:
        self.alive = False
        for terminal in self.terminals.values():
            for viewing in list(terminal.links.values()):
                viewing.lose(reason)
        self.terminals.clear()
        self._forget_queue()
        link, self._link = self._link, None
        if link:
            link.lose(reason, orderly=orderly)
