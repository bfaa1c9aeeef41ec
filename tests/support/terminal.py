"""A viewer of a bridge's terminal: speaks the link by hand, byte by byte, and records everything it gets."""

import asyncio
import base64
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from sandbox.protocol.terminal import (
    MAX_BYTES,
    MAX_PICTURE,
    Exit,
    Greeting,
    Open,
    Reset,
    Resize,
    Resized,
    Role,
    Size,
    TerminalTrouble,
    Up,
    decode_up,
    encode,
)
from sandbox.protocol.values import Position
from sandbox.protocol.websocket_frames import BINARY, CLOSE, PING, PONG, TEXT, FrameReader, client_frame
from tests.support.bridge import TOKEN, BridgeProcess
from tests.support.waiting import T, until

WAIT_SECONDS = 30.0


@dataclass
class Part:
    """The data after one hello or reset: maybe a picture, then bytes from `offset` on."""

    epoch: str
    offset: int
    picture: bytes | None = None
    output: bytearray = field(default_factory=bytearray)

    @property
    def end(self) -> int:
        return self.offset + len(self.output)


class TerminalViewer:
    """One link. `parts` is the output that it got; `said` has every control message. Reads only while it is not
    `frozen`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = FrameReader(MAX_PICTURE, 1, masked=False)
        self._wants_picture = False
        self._thaw = asyncio.Event()
        self._thaw.set()
        self._task: asyncio.Task[None] | None = None
        self.said: list[Up] = []
        self.parts: list[Part] = []
        self.closed: int | None = None  # with this code; 1006: without one
        self.pongs: list[bytes] = []

    # Its view

    @property
    def output(self) -> bytes:
        """The bytes since the last hello or reset."""
        return bytes(self.parts[-1].output) if self.parts else b""

    @property
    def position(self) -> Position:
        return Position(self.parts[-1].epoch, self.parts[-1].end)

    @property
    def hello(self) -> Greeting:
        assert isinstance(self.said[0], Greeting), self.said
        return self.said[0]

    def heard(self, kind: type[Any]) -> list[Any]:
        return [message for message in self.said if isinstance(message, kind)]

    @property
    def exit(self) -> Exit | None:
        found: list[Exit] = self.heard(Exit)
        return found[-1] if found else None

    @property
    def troubles(self) -> list[str]:
        return [message.code for message in self.heard(TerminalTrouble)]

    @property
    def sizes(self) -> list[Size]:
        return [message.size for message in self.said if isinstance(message, Greeting | Reset | Resized)]

    async def until(self, condition: Callable[[], T | None]) -> T:
        """Wait until a message makes `condition` true."""
        return await until(
            condition, lambda: f"closed={self.closed} said={self.said[-5:]} output={self.output[-300:]!r}"
        )

    async def shows(self, text: bytes) -> None:
        """Wait until `text` is in the output since the last hello or reset, or in the picture that came with it."""
        await self.until(lambda: self.parts and text in (self.parts[-1].picture or b"") + self.output)

    async def is_closed(self) -> int:
        await self.until(lambda: self.closed is not None)
        assert self.closed is not None
        return self.closed

    # Its actions

    def send(self, opcode: int, payload: bytes) -> None:
        self._writer.write(client_frame(opcode, payload))

    def send_raw(self, data: bytes) -> None:
        self._writer.write(data)

    def open(self, role: Role = "drive", size: Size | None = None, after: Position | None = None) -> None:
        self.send(TEXT, encode(Open.of(size, role, after)))

    def type(self, payload: bytes) -> None:
        self.send(BINARY, payload)

    def resize(self, cols: int, rows: int) -> None:
        self.send(TEXT, encode(Resize(cols, rows)))

    def freeze(self) -> None:
        """Read nothing more from the connection."""
        self._thaw.clear()

    def thaw(self) -> None:
        self._thaw.set()

    async def cut(self) -> None:
        """Vanish without a close, whatever was on its way."""
        self._writer.transport.abort()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def begin(self) -> None:
        self._task = asyncio.create_task(self._listen(), name="viewer")

    async def _listen(self) -> None:
        try:
            while True:
                await self._thaw.wait()
                data = await self._reader.read(65536)
                if not data:
                    break
                self._frames.feed(data)
                while (found := self._frames.read()) is not None:
                    self._take(*found)
        except ConnectionError:
            pass
        finally:
            if self.closed is None:
                self.closed = 1006

    def _take(self, opcode: int, payload: bytes) -> None:
        assert self.closed is None, "something after the close"
        if opcode == TEXT:
            assert not self._wants_picture, "a picture was promised"
            self._hear(decode_up(payload))
        elif opcode == BINARY and self._wants_picture:
            self._wants_picture = False
            self.parts[-1].picture = payload
        elif opcode == BINARY:
            assert 0 < len(payload) <= MAX_BYTES
            self.parts[-1].output += payload
        elif opcode == PING:
            self.send(PONG, payload)
        elif opcode == PONG:
            self.pongs.append(payload)
        elif opcode == CLOSE:
            self.closed = int.from_bytes(payload[:2], "big")

    def _hear(self, message: Up) -> None:
        self.said.append(message)
        if isinstance(message, Greeting | Reset):
            self._wants_picture = message.picture if isinstance(message, Greeting) else True
            self.parts.append(Part(message.epoch, message.offset))


class Refusal(Exception):
    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"{status} {body!r}")
        self.status = status
        self.body = body


async def dial(bridge: BridgeProcess, name: str, *, token: str = TOKEN) -> TerminalViewer:
    """A fresh connection without any message yet. The bridge may still be starting. Raises Refusal."""
    reader, writer = await asyncio.open_unix_connection(bridge.path, limit=1 << 20)
    key = base64.b64encode(os.urandom(16)).decode()
    writer.write(
        f"GET /terminals/{name}/link HTTP/1.1\r\nHost: bridge\r\nAuthorization: Bearer {token}\r\n"
        f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Key: {key}\r\n\r\n".encode()
    )
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    if status != 101:
        body = await reader.read()
        writer.close()
        raise Refusal(status, body)
    viewer = TerminalViewer(reader, writer)
    viewer.begin()
    return viewer


@contextlib.asynccontextmanager
async def viewing(
    bridge: BridgeProcess,
    name: str = "main",
    *,
    role: Role = "drive",
    size: Size | None = None,
    after: Position | None = None,
) -> AsyncIterator[TerminalViewer]:
    """A viewer after the greeting."""
    viewer = await dial(bridge, name)
    try:
        viewer.open(role, size, after)
        await viewer.until(lambda: viewer.said or viewer.closed is not None)
        yield viewer
    finally:
        await viewer.cut()
