"""The connection between a gateway and a sandbox in memory: two queues that the event loop empties."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from sandbox.ports.link import LinkEvents
from sandbox.protocol.agent import AgentSetup
from sandbox.protocol.values import Position

if TYPE_CHECKING:
    from sandbox.providers.memory.sandbox import MemorySandbox

Action = Callable[[], None]


class Pipe:
    """One direction of a link. Runs the actions later, in order; a cut discards those that have not run."""

    def __init__(self) -> None:
        self._waiting: deque[Action] = deque()
        self._scheduled = False
        self._paused = False
        self._cut = False

    def put(self, action: Action) -> None:
        if not self._cut:
            self._waiting.append(action)
            self._schedule()

    def cut(self) -> None:
        self._cut = True
        self._waiting.clear()

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._schedule()

    def _schedule(self) -> None:
        if self._waiting and not self._scheduled and not self._paused:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        for _ in range(len(self._waiting)):
            if not self._waiting or self._paused:
                break
            self._waiting.popleft()()
        self._schedule()


class MemoryLink:
    """A Link to a MemorySandbox."""

    def __init__(self, sandbox: "MemorySandbox", events: LinkEvents) -> None:
        self.events = events
        self.down = Pipe()  # bridge -> gateway
        self._up = Pipe()
        self._sandbox = sandbox
        self._over = False
        self._setup: Callable[[], AgentSetup] | None = None

    def configure(self, setup: Callable[[], AgentSetup]) -> None:
        self._setup = setup

    def start(self, line: bytes | None) -> None:
        if self._setup is not None:
            self._sandbox.setup = self._setup()
        self._send(lambda: self._sandbox.start_agent(line))

    def deliver(self, seq: int, line: bytes) -> None:
        self._send(lambda: self._sandbox.delivered(seq, line))

    def recall(self, seq: int) -> bool:
        self._send(lambda: self._sandbox.recalled(seq))
        return True

    def drop(self, seq: int) -> None:
        self._send(lambda: self._sandbox.dropped(seq))

    def inject(self, line: bytes) -> None:
        self._send(lambda: self._sandbox.injected(line))

    def interrupt(self) -> None:
        self._send(lambda: self._sandbox.interrupted())

    def stop_agent(self) -> None:
        self._send(lambda: self._sandbox.stop_agent())

    def kill_agent(self) -> None:
        self._send(lambda: self._sandbox.kill_agent())

    def confirm(self, position: Position) -> None:
        self._send(lambda: self._sandbox.confirmed(position))

    def pause_reading(self) -> None:
        self.down.pause()

    def resume_reading(self) -> None:
        self.down.resume()

    def close(self) -> None:
        """Close the link. The sandbox still receives what was sent before."""
        self._over = True
        self.down.cut()
        self._up.put(lambda: self._sandbox.let_go(self))

    def lose(self, reason: str, *, orderly: bool = False) -> None:
        """End the connection. If `orderly`, the gateway still receives what was on its way; otherwise everything on its
        way is lost, in both directions."""
        self._up.cut()
        if self._over:
            return
        self._over = True
        if not orderly:
            self.down.cut()
            self.down = Pipe()
        self.down.put(lambda: self.events.on_lost(reason))

    def began(self, epoch: str, base: int) -> None:
        """A process began. Confirm it to the bridge before the owner can deliver anything to it."""
        self._send(lambda: self._sandbox.ready(epoch))
        self.events.on_epoch(epoch, base)

    def _send(self, action: Action) -> None:
        if not self._over:
            self._up.put(action)
