"""Our own HTTP/1.1 client: for requests to a bridge, and for posts to a service that keeps records.

One protocol for one connection, one request at a time, no task. A reader that stops reading stops the other end: at
most READ_BYTES and one read more are in memory. The caller bounds the time.

Why not a library: docs/decisions/0015-our-own-http-client.md.
"""

import asyncio
import copy
import ssl
from collections import deque
from collections.abc import Mapping
from typing import cast

from sandbox.client.endpoint import Endpoint
from sandbox.client.http1 import HttpFailed, HttpResponse, request

READ_BYTES = 256 << 10


async def connect(endpoint: Endpoint) -> "Connection":
    """Raises OSError."""
    return await endpoint.dial(Connection)


async def connect_tcp(host: str, port: int, tls: ssl.SSLContext | None) -> "Connection":
    """Raises OSError."""
    return (await asyncio.get_running_loop().create_connection(Connection, host, port, ssl=tls))[1]


class Connection(asyncio.Protocol):
    """`is_idle` is whether it can take a request: every answer was read to its end, nobody hung up, and no
    unrequested bytes came, which would be taken for the next answer."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer: HttpResponse | None = None
        self._pieces: deque[bytes] = deque()
        self._held_bytes = 0
        self._is_paused = False
        self._failure: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_idle(self) -> bool:
        is_free = self._answer is None or (self._answer.is_reusable and not self._pieces)
        return is_free and self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        """Close it; an unfinished answer never ends."""
        self._failure = self._failure or HttpFailed("the connection was closed before the answer was complete")
        if self._transport is not None:
            self._transport.abort()

    async def fetch(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes = b"", *, most: int
    ) -> tuple[int, dict[bytes, bytes], bytes]:
        """Ask, and return status, headers and the first `most` bytes of the body. Raises OSError."""
        answer = await self.ask(method, target, headers, body)
        return answer.status, answer.headers, await self.read_whole(most)

    async def ask(self, method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> HttpResponse:
        """Send a request, and return its answer as soon as its head is there. Raises OSError."""
        if self._transport is None or not self.is_idle:
            raise HttpFailed("the connection was closed before the answer was complete")
        self._answer = answer = HttpResponse()
        self._transport.write(request(method, target, headers, body))
        while not answer.has_head:
            await self._more()
        return answer

    async def read(self) -> bytes:
        """The next piece of the body; b"" is its end. Raises OSError if it does not come whole."""
        while not self._pieces:
            if self._answer is None or self._answer.is_over:
                return b""
            await self._more()
        piece = self._pieces.popleft()
        self._held_bytes -= len(piece)
        if self._is_paused and self._held_bytes < READ_BYTES:
            self._is_paused = False
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()
        return piece

    async def read_whole(self, most: int) -> bytes:
        """The body, or its first `most` bytes if there are more. Raises OSError."""
        body = bytearray()
        while len(body) < most and (piece := await self.read()):
            body += piece
        del body[most:]
        return bytes(body)

    async def _more(self) -> None:
        """Return when something new has come. Raises OSError if nothing will."""
        if self._failure is not None:
            raise copy.copy(self._failure)  # a raised exception refers to its callers, and so would the stored one
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _pause(self) -> None:
        if not self._is_paused and self._transport is not None and not self._transport.is_closing():
            self._is_paused = True
            self._transport.pause_reading()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error.with_traceback(None)
        self.close()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by descent

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.is_over:
            return self.close()
        try:
            pieces = self._answer.feed(data)
        except HttpFailed as exc:
            self._fail(exc)
        else:
            self._pieces.extend(pieces)
            self._held_bytes += sum(map(len, pieces))
            if self._held_bytes >= READ_BYTES and not self._answer.is_over:
                self._pause()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        try:
            if error is not None:
                raise error
            if self._answer is not None and self._failure is None:
                self._answer.end()
        except Exception as exc:
            self._fail(exc)
        if self._answer is not None:
            self._answer.let_go()
        self._wake()
