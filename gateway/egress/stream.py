"""One connection of the proxy, read and written in pieces: the sandbox's to the proxy, or the proxy's to a host.

Bounds: at most READ_AHEAD bytes wait to be read, then the connection is not read; at most WRITE_AHEAD wait to be
written, then `write` waits. So a slow end slows down only the other end of its own connection.
"""

import asyncio
import socket
from typing import Any, cast

READ_AHEAD = 256 * 1024
WRITE_AHEAD = 256 * 1024


class StreamLost(ConnectionError):
    """The connection ended in the middle."""


class ByteStream(asyncio.Protocol):
    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._came = bytearray()
        self._ended = False  # no more bytes will come
        self._lost = False
        self._paused = False
        self._readable: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(WRITE_AHEAD)

    def data_received(self, data: bytes) -> None:
        self._came += data
        if len(self._came) >= READ_AHEAD and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        _wake(self._readable)

    def eof_received(self) -> bool:
        self._ended = True
        _wake(self._readable)
        return True  # bytes may still go the other way

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = self._lost = True
        _wake(self._readable)
        _wake(self._writable)
        _wake(self._gone)

    def pause_writing(self) -> None:
        self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        _wake(self._writable)
        self._writable = None

    @property
    def is_lost(self) -> bool:
        return self._lost

    @property
    def has_come(self) -> bool:
        """True if bytes can be read at once, or no more will come."""
        return self._ended or bool(self._came)

    def peer(self) -> Any:
        return None if self._transport is None else self._transport.get_extra_info("peername")

    async def read(self, most: int = READ_AHEAD) -> bytes:
        """The bytes that have come, at most so many; b"" at the end."""
        while not self._came and not self._ended:
            await self._more()
        if len(self._came) <= most:
            piece = bytes(self._came)
            self._came.clear()
        else:
            piece = bytes(self._came[:most])
            del self._came[:most]
        self._go_on()
        return piece

    async def read_until(self, mark: bytes, most: int) -> bytes | None:
        """The bytes before `mark`, which is read as well; None if more than `most` bytes come without it. Raises
        StreamLost if the connection ends before it."""
        looked = 0
        while True:
            at = self._came.find(mark, max(0, looked - len(mark) + 1))
            if at >= 0:
                found = bytes(self._came[:at])
                del self._came[: at + len(mark)]
                self._go_on()
                return found if at <= most else None
            looked = len(self._came)
            if looked > most:
                return None
            if self._ended:
                raise StreamLost("the connection ended in the middle of a request")
            await self._more()

    async def read_exactly(self, count: int) -> bytes:
        """Raises StreamLost if the connection ends before that."""
        pieces = []
        while count:
            piece = await self.read(count)
            if not piece:
                raise StreamLost("the connection ended in the middle of a body")
            pieces.append(piece)
            count -= len(piece)
        return b"".join(pieces)

    async def write(self, data: bytes) -> None:
        """Returns when there is room for more. Raises StreamLost."""
        if self._lost or self._transport is None or self._transport.is_closing():
            raise StreamLost("the connection has ended")
        self._transport.write(data)
        while self._writable is not None and not self._lost:
            await asyncio.shield(self._writable)
        if self._lost:
            raise StreamLost("the connection has ended")

    def end_writing(self) -> None:
        """Write no more; bytes are still read."""
        if self._transport is not None and not self._lost and self._transport.can_write_eof():
            self._transport.write_eof()

    async def closed(self) -> None:
        await asyncio.shield(self._gone)

    def close(self) -> None:
        """Written bytes are still sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def _more(self) -> None:
        self._go_on()
        self._readable = asyncio.get_running_loop().create_future()
        try:
            await self._readable
        finally:
            self._readable = None

    def _go_on(self) -> None:
        if self._paused and len(self._came) < READ_AHEAD and not self._lost and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()


def _wake(waiting: "asyncio.Future[None] | None") -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


async def adopt(connection: socket.socket) -> ByteStream:
    """A stream of a connected socket, which the stream owns from now on."""
    connection.setblocking(False)
    _, stream = await asyncio.get_running_loop().connect_accepted_socket(ByteStream, connection)
    return stream
