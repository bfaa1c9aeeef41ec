"""Terminals of sandboxes that exist only in this process: a real adapter for tests on virtual time.

The same core as in a bridge (sandbox/terminal/room.py) decides seats, what each viewer is sent, and whose size counts.
The program is a parrot: it writes the value of the variable PARROT_SAYS, if set, then echoes what is typed; `quit` ends
it with code 3. The event loop empties a queue for each direction of a link, so no callback runs inside a call. Unlike a
bridge, it never pauses its program: there is no process to pause.
"""

import asyncio
import secrets
from collections.abc import Callable
from typing import Any, Protocol

from sandbox.ports.link import LinkRefused
from sandbox.ports.terminals import PassOn, TerminalEvents, TerminalRefused, TerminalWish
from sandbox.protocol.terminal import MAX_BYTES, Exit, Greeting, Open, Reset, Resized, Size, TerminalTrouble
from sandbox.protocol.terminal_frames import inputs
from sandbox.protocol.websocket_frames import BINARY, frame
from sandbox.terminal.room import Bytes, Paint, Room, Seat
from sandbox.terminal.screen.screen import Screen
from sandbox.terminal.screen_follower import ScreenFollower

RING_BYTES = 64 * 1024
USUAL = Size(80, 24)

Action = Callable[[], None]


class TerminalPipe(Protocol):
    """One direction of a link. Runs the actions later, in order; a cut discards those that have not run."""

    def put(self, action: Action) -> None: ...
    def cut(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class MemoryTerminal:
    def __init__(self, wish: TerminalWish) -> None:
        self.wish = wish
        self.links: dict[Seat, MemoryTerminalLink] = {}
        size = wish.size or USUAL
        self._room = Room(RING_BYTES, hold_seconds=10.0, read_bytes=RING_BYTES, policy="active", size=size)
        self._painter: ScreenFollower
        self.begin()

    @property
    def alive(self) -> bool:
        return self._room.exit is None

    def begin(self) -> None:
        """Start the parrot, or start it again."""
        self._room.begin(secrets.token_urlsafe(9))
        screen = Screen(self._room.size.cols, self._room.size.rows)
        self._painter = ScreenFollower(screen, self._room.ring)
        self.settle()
        if words := self.wish.env.get("PARROT_SAYS"):
            self.write(words.encode())

    def write(self, payload: bytes) -> None:
        """Make the parrot write `payload`."""
        for seat in self._room.wrote(payload):
            self.links[seat].told(Bytes(payload))
        self._painter.grew()

    def exit(self, code: int | None, signal: str | None = None) -> None:
        self._room.ended(Exit(code, signal))
        self.settle()

    def join(self, link: "MemoryTerminalLink", wish: Open) -> Seat:
        if wish.anew and not self.alive:
            self.begin()
        seat = self._room.join(wish)
        self.links[seat] = link
        return seat

    def leave(self, seat: Seat) -> None:
        if self.links.pop(seat, None) is not None:
            self._room.leave(seat, _now())
            self.settle()

    def typed(self, seat: Seat, payload: bytes) -> None:
        if seat not in self.links or not self._room.takes(seat, payload, _now()):
            return
        if not self.alive:
            self.begin()
        if payload == b"quit":
            self.exit(3)
        else:
            self.write(payload)
        self.settle()

    def wanted(self, seat: Seat, size: Size) -> None:
        if seat in self.links:
            self._room.wants(seat, size)
            self.settle()

    def resize(self, size: Size) -> None:
        self._room.set_size(size)
        self.settle()

    def settle(self) -> None:
        """Send every viewer what it has not been sent yet."""
        for seat, link in list(self.links.items()):
            while (step := self._room.step(seat, MAX_BYTES, _now())) is not None:
                link.told(step)

    def picture(self) -> bytes:
        return self._painter.picture()

    def describe(self, name: str) -> dict[str, Any]:
        room, exit = self._room, self._room.exit
        return {
            "name": name,
            "epoch": room.epoch,
            "base": room.ring.base,
            "offset": room.ring.end,
            "cols": room.size.cols,
            "rows": room.size.rows,
            "viewers": len(self.links),
            "idleSeconds": 0.0,
            "alive": self.alive,
            "exit": None if exit is None else {"code": exit.code, "signal": exit.signal},
            "title": self._painter.title,
            "command": list(self.wish.command or ("parrot",)),
        }


class MemoryTerminalLink:
    """Implements TerminalLink."""

    def __init__(
        self,
        terminal: MemoryTerminal,
        opening: Open,
        events: TerminalEvents,
        pass_on: PassOn,
        pipe: Callable[[], TerminalPipe],
    ) -> None:
        self._terminal = terminal
        self._events = events
        self._pass_on = pass_on
        self._up, self._down = pipe(), pipe()
        self._over = False
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.passed_bytes = 0
        self._seat = terminal.join(self, opening)
        terminal.settle()

    def told(self, step: Any) -> None:
        """The bridge's end sends a step. A picture is taken now, not when the step arrives."""
        picture = self._terminal.picture() if isinstance(step, Paint) else None
        self._down.put(lambda: self._hear(step, picture))

    def _hear(self, step: Any, picture: bytes | None) -> None:
        if isinstance(step, Bytes):
            self.passed_bytes += len(step.payload)
            self._pass_on(frame(BINARY, step.payload))
            return
        match step.message:
            case Greeting():
                self.passed_bytes = 0
                self.opened.set_result(None)
                self._events.on_hello(self, step.message, picture)
            case Reset():
                self.passed_bytes = 0
                self._events.on_reset(step.message, picture or b"")
            case Exit():
                self._events.on_exit(step.message)
            case Resized():
                self._events.on_resized(step.message.size)
            case TerminalTrouble():
                self._events.on_trouble(step.message)

    def write(self, frames: bytes) -> None:
        for payload in inputs(frames):
            self.type(payload)

    def type(self, payload: bytes) -> None:
        self._up.put(lambda: self._terminal.typed(self._seat, payload))

    def resize(self, size: Size) -> None:
        self._up.put(lambda: self._terminal.wanted(self._seat, size))

    def pause_reading(self) -> None:
        self._down.pause()

    def resume_reading(self) -> None:
        self._down.resume()

    def close(self) -> None:
        if not self._over:
            self._over = True
            self._down.cut()
            self._up.put(lambda: self._terminal.leave(self._seat))

    def lose(self, reason: str) -> None:
        """End the connection. What was on its way to the viewer still arrives."""
        self._finish(lambda: self._events.on_lost(reason))

    def end(self) -> None:
        """The terminal was ended: report it and close."""
        self._finish(self._events.on_gone)

    def _finish(self, last: Action) -> None:
        if not self._over:
            self._over = True
            self._up.cut()
            self._terminal.leave(self._seat)
            self._down.put(last)


class MemoryTerminals:
    """Implements SandboxTerminals. `find` returns the terminals of the running sandbox, or raises LinkRefused."""

    def __init__(self, find: Callable[[], dict[str, MemoryTerminal]], pipe: Callable[[], TerminalPipe]) -> None:
        self._find = find
        self._pipe = pipe

    async def open(self, name: str, opening: Open, events: TerminalEvents, pass_on: PassOn) -> MemoryTerminalLink:
        terminals = self._find()
        if name not in terminals and opening.role == "view":
            events.on_trouble(TerminalTrouble("unknown_terminal", "nobody has opened this terminal yet"))
            raise LinkRefused("nobody has opened this terminal yet")
        terminal = terminals.get(name) or terminals.setdefault(name, MemoryTerminal(TerminalWish()))
        link = MemoryTerminalLink(terminal, opening, events, pass_on, self._pipe)
        await link.opened
        return link

    async def list(self) -> list[dict[str, Any]]:
        return [terminal.describe(name) for name, terminal in self._find().items()]

    async def create(self, name: str, wish: TerminalWish) -> bool:
        terminals = self._find()
        if name not in terminals:
            terminals[name] = MemoryTerminal(wish)
            return True
        terminal = terminals[name]
        if not terminal.alive:
            terminal.wish = wish if wish.command or wish.env or wish.cwd else terminal.wish
            terminal.begin()
            return True
        if wish.command not in (None, terminal.wish.command):
            raise TerminalRefused(409, "conflict", "this terminal runs another command")
        return False

    async def resize(self, name: str, size: Size) -> None:
        self._known(name).resize(size)

    async def end(self, name: str) -> None:
        terminal = self._known(name)
        if terminal.alive:
            terminal.exit(None, "SIGHUP")
        for link in list(terminal.links.values()):
            link.end()
        del self._find()[name]

    def _known(self, name: str) -> MemoryTerminal:
        terminals = self._find()
        if name not in terminals:
            raise TerminalRefused(404, "unknown_terminal", "there is no such terminal")
        return terminals[name]


def _now() -> float:
    return asyncio.get_running_loop().time()
