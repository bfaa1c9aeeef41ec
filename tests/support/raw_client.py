"""A WebSocket client with no rules but the test's own: bytes out, bytes in."""

import asyncio
import base64
import os
from contextlib import suppress
from typing import Self, cast

from websockets.frames import Frame, Opcode


def masked(opcode: int, payload: bytes, *, fin: bool = True) -> bytes:
    return Frame(Opcode(opcode), payload, fin).serialize(mask=True)


def upgrade(path: str, *headers: str, host: str = "holdfast") -> bytes:
    key = base64.b64encode(os.urandom(16)).decode()
    lines = [
        f"GET {path} HTTP/1.1",
        f"Host: {host}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {key}",
        *headers,
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class RawClient:
    """One TCP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, host: str, port: int) -> Self:
        return cls(*await asyncio.open_connection(host, port, limit=1 << 16))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.writer.transport.abort()
        with suppress(OSError):
            await self.writer.wait_closed()

    def stop_reading(self) -> None:
        self._transport.pause_reading()

    def read_on(self) -> None:
        self._transport.resume_reading()

    @property
    def _transport(self) -> asyncio.Transport:
        return cast(asyncio.Transport, self.writer.transport)  # typed as its writing half only

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self) -> tuple[int, str]:
        """The answer's status and its head."""
        text = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        return int(text.split()[1]), text

    async def open(self, path: str, *headers: str) -> Self:
        await self.send(upgrade(path, *headers))
        status, text = await self.head()
        assert status == 101, text
        return self

    async def frame(self) -> tuple[int, bytes]:
        """The next frame's opcode and payload."""
        first, second = await self.reader.readexactly(2)
        assert second < 0x80, "a server does not mask"
        size = second
        if size == 126:
            size = int.from_bytes(await self.reader.readexactly(2), "big")
        elif size == 127:
            size = int.from_bytes(await self.reader.readexactly(8), "big")
        return first & 0x0F, await self.reader.readexactly(size)

    async def close_code(self) -> int | None:
        """Read until the end: the code of the close frame, or None if the connection ended without one."""
        try:
            while True:
                opcode, payload = await self.frame()
                if opcode == Opcode.CLOSE:
                    return int.from_bytes(payload[:2], "big")
        except (asyncio.IncompleteReadError, OSError):
            return None

    async def rest(self) -> bytes:
        """Everything until the connection's end."""
        found = b""
        with suppress(OSError):
            while piece := await self.reader.read(1 << 16):
                found += piece
        return found
