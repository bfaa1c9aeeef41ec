"""A terminal's tab on virtual time: a real viewer on a real spliced socket, whose transport is a list of bytes."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from gateway.auth.tokens import Principal, SharedSecret, TokenVerifier, mint
from gateway.config.loading import load_settings
from gateway.config.settings import SecretStr
from gateway.server.front_door import FrontDoor
from gateway.server.spliced_socket import SplicedSocket
from gateway.session.actor import SessionActor
from gateway.sockets.attach import AccessWatch
from gateway.sockets.terminal import seat
from gateway.terminal.dialects.negotiate import choose
from gateway.terminal.viewer import TerminalViewer
from sandbox.protocol.terminal import Role, Size
from sandbox.protocol.values import Position
from sandbox.protocol.websocket_frames import BINARY, CLOSE, PING, TEXT, FrameReader, client_frame
from tests.support.sessions import World

SECRET = SecretStr("jwt-secret-0123456789-0123456789-012345")
HIGH_WATER = 64 * 1024


class MemoryTransport(asyncio.Transport):
    """Both directions of a connection. While its peer is `frozen` nothing is taken."""

    def __init__(self, hear: Callable[[bytes], None]) -> None:
        super().__init__()
        self._hear = hear
        self._loop = asyncio.get_running_loop()
        self._protocol: asyncio.Protocol
        self._unsent = b""
        self._unread = b""
        self._paused = False
        self._closing = False
        self.frozen = False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._closing

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def write(self, data: Any) -> None:
        before = len(self._unsent)
        self._unsent += data
        if not self.frozen:
            self._flush()
        elif before <= HIGH_WATER < len(self._unsent):
            self._protocol.pause_writing()

    def thaw(self) -> None:
        self.frozen = False
        full = len(self._unsent) > HIGH_WATER
        self._flush()
        if full:
            self._protocol.resume_writing()

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, b""
        if unsent:
            self._hear(unsent)

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._loop.call_soon(self._deliver)

    def receive(self, data: bytes) -> None:
        """The peer sends this."""
        self._unread += data
        self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        if self._unread and not self._paused and not self._closing:
            data, self._unread = self._unread, b""
            self._protocol.data_received(data)

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()


class TerminalTab:
    """The data that one client of a terminal got. `output` is everything since the last `ready` or `reset`."""

    def __init__(
        self,
        world: World,
        actor: SessionActor,
        *,
        name: str = "main",
        dialect: str = "native",
        role: Role = "drive",
        after: Position | None = None,
        size: Size | None = None,
        token_seconds: float = 86400.0,
    ) -> None:
        self.world = world
        self.actor = actor
        self.controls: list[dict[str, Any]] = []
        self.texts: list[str] = []  # of the plain dialect
        self.output = b""
        self.pictures: list[bytes] = []
        self.pings = 0
        self.closed_with: int | None = None
        self._painting = False
        self._plain = dialect == "plain"
        self._reader = FrameReader(1 << 21, 1, masked=False)
        chosen = choose("terminal", [], [("dialect", dialect)]).dialect
        self.door = FrontDoor(load_settings({}))
        self.viewer = TerminalViewer(actor.terminals, name, chosen, role, after=after, size=size)
        self.transport = MemoryTransport(self._hear)
        self.socket = SplicedSocket(self.transport, self.door, self.viewer, passes=chosen.splices, early=b"")
        self._changed = asyncio.Event()
        who = Principal("user", "ann", "ann@example.com", world.utcnow() + token_seconds, "header", "", "drive")
        verifier = TokenVerifier(SharedSecret(SECRET), utcnow=world.utcnow)
        seat(actor, self.viewer, self.socket, AccessWatch(self.viewer, who, verifier, utcnow=world.utcnow))

    def _hear(self, data: bytes) -> None:
        self._reader.feed(data)
        while (found := self._reader.read()) is not None:
            self._take(*found)
        self._changed.set()

    def _take(self, opcode: int, payload: bytes) -> None:
        assert self.closed_with is None, "something after the close"
        if opcode == TEXT and self._plain:
            self.texts.append(payload.decode())
        elif opcode == TEXT:
            control = json.loads(payload)
            assert self.controls or control["type"] == "ready", "ready comes first"
            assert not self._painting, "a picture was promised"
            self.controls.append(control)
            if control["type"] in ("ready", "reset"):
                self.output = b""
                self._painting = control["type"] == "reset"
        elif opcode == BINARY and self._painting:
            self._painting = False
            self.pictures.append(payload)
        elif opcode == BINARY:
            self.output += payload
        elif opcode == PING:
            self.pings += 1
        elif opcode == CLOSE:
            self.closed_with = int.from_bytes(payload[:2], "big")

    # Its actions

    def type(self, payload: bytes) -> None:
        self.transport.receive(client_frame(BINARY, payload))

    def say(self, type: str, **members: Any) -> None:
        self.transport.receive(client_frame(TEXT, json.dumps({"type": type} | members).encode()))

    def leave(self) -> None:
        """The connection is lost."""
        self.transport.abort()

    def freeze(self) -> None:
        self.transport.frozen = True

    def thaw(self) -> None:
        self.transport.thaw()

    def token(self, user: str = "ann", ttl: float = 600.0) -> str:
        return mint(SECRET, user, f"{user}@example.com", ttl, now=self.world.utcnow())

    # Its view

    @property
    def position(self) -> Position:
        """As a client counts."""
        last = [control for control in self.controls if control["type"] in ("ready", "reset")][-1]
        return Position(last["epoch"], last["offset"] + len(self.output))

    def seen(self, type: str, **members: Any) -> list[dict[str, Any]]:
        return [told for told in self.controls if told["type"] == type and members.items() <= told.items()]

    @property
    def statuses(self) -> list[str]:
        return [told["status"] for told in self.seen("status")]

    async def until(self, type: str, *, count: int = 1, within: float = 900.0, **members: Any) -> dict[str, Any]:
        await self.met(lambda: len(self.seen(type, **members)) >= count, f"{type} {members}", within)
        return self.seen(type, **members)[count - 1]

    async def shows(self, text: bytes, within: float = 900.0) -> None:
        """Wait until `text` is in the newest picture or in the output after it."""
        await self.met(lambda: text in b"".join(self.pictures[-1:]) + self.output, repr(text), within)

    async def until_closed(self, within: float = 900.0) -> int:
        await self.met(lambda: self.closed_with is not None, "the close", within)
        assert self.closed_with is not None
        return self.closed_with

    async def met(self, holds: Callable[[], bool], what: str, within: float = 900.0) -> None:
        try:
            async with asyncio.timeout(within):
                while not holds():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            seen = f"{self.controls} {self.output!r} closed={self.closed_with}"
            raise AssertionError(f"no {what} among {seen}") from None


async def terminal_tab(world: World, session_id: str = "s", **wish: Any) -> TerminalTab:
    """A viewer of this session's terminal, greeted or about to be."""
    return TerminalTab(world, await world.actor(session_id), **wish)


async def linked_tab(world: World, session_id: str = "s", **wish: Any) -> TerminalTab:
    """The same, at a terminal that is there."""
    tab = await terminal_tab(world, session_id, **wish)
    await world.until(lambda: tab.viewer.linked, "the link")
    return tab
