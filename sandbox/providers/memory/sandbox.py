"""A sandbox that exists only in this process, with a scripted agent.

It keeps the contract of a real bridge. It takes each record once and remembers across incarnations what it took. It
numbers frames per agent process and keeps them until they are confirmed. It forgets deliveries not yet taken when the
agent exits or the link is lost. The event loop empties a queue for each direction of a link, so no callback runs
inside a call. Unlike a real bridge, it goes on reading from an agent whose output nobody confirms.
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
    """One session's sandbox: its bridge, its agent, its roots, and the attributes that tests set.

    `handed` lists every (seq, line) given to any agent process, for the life of the sandbox. `cut_at` = (seq, what)
    makes the bridge note that seq as taken and then, before the agent gets the line, lose its `link`, lose its `agent`,
    or die (`bridge`). Then the record is not delivered and must not be sent again.
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
        self.agent_problem: str | None = None  # why the agent's command cannot be run; None: it can
        self.log = bytearray()
        self.roots = MemoryRoots()
        self.terminals: dict[str, MemoryTerminal] = {}
        self._backlog = FrameBacklog()
        self._cursor = Cursor()
        self._queue: deque[tuple[int, bytes]] = deque()
        self._held_back: set[int] = set()
        self._link: MemoryLink | None = None
        self._ready: str | None = None  # the process that the gateway knows of: deliveries are for it
        self._next_start: tuple[bytes | None] | None = None  # a start requested while the last process was stopping

    @property
    def agent(self) -> ScriptedProcess | None:
        """The running agent process, if any."""
        return self.processes[-1] if self.processes and self.processes[-1].alive else None

    @property
    def files(self) -> dict[bytes, bytes]:
        """The files of both roots. Changing them directly does not trigger the watch."""
        return self.roots.files

    def write(self, path: bytes, content: bytes) -> None:
        """Write a file as a program would: the watch sees it."""
        self.files[path] = content
        self.changed()

    def changed(self) -> None:
        """Report a change, as the watch does."""
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
        """Stop the bridge in order: the agent ends first, and its output still arrives."""
        if self.agent:
            self.agent.exit(None, "SIGTERM")
        self._down(reason, orderly=True)

    def crash(self, reason: str = "the bridge died") -> None:
        """kill -9 the bridge. Agent, backlog and link are lost; the note of what was taken stays."""
        process = self.agent
        self._down(reason, orderly=False)
        if process:
            process.exit(None, "SIGKILL")

    def forget_taken(self) -> None:
        """Lose the notes, as a reboot of the host does. The sandbox becomes a new taker."""
        self.taker, self.taken = secrets.token_urlsafe(9), 0

    def lose_link(self, reason: str = "cut by the test") -> None:
        """Cut the connection without a message. Everything on its way, in either direction, is lost."""
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

    # Requests of the gateway over the link.

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

    # Actions of the agent.

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
            self._ready = None  # until the gateway knows of the new process

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
        """Send the link every step of the agent channel that it has not received yet."""
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
