"""Connections from the proxy to the origins of providers: TLS, reused, one request at a time on each.

An answer is read as it comes: a piece is available as soon as its bytes are. The server may have closed a reused
connection meanwhile: then the request goes out once more, on a new one, if no answer had begun. No redirect is
followed. Bounds: MOST_IDLE connections wait for their next request, for IDLE_SECONDS each.
"""

import asyncio
import ssl
from collections import OrderedDict, deque
from dataclasses import dataclass

from gateway.egress.dialer import Dialer
from gateway.egress.head import Headers, request
from gateway.egress.providers import ModelProvider
from gateway.egress.stream import ByteStream, StreamLost
from sandbox.client.http1 import HttpFailed, HttpResponse

MOST_IDLE, IDLE_SECONDS = 64, 30.0
SILENT_SECONDS = 600.0  # a model may think so long
_Place = tuple[str, str]  # origin, and the file of its certificates


class OriginAnswer:
    """`read` returns the body; `is_whole` is True once all of it came."""

    def __init__(self, stream: ByteStream, head: HttpResponse, pieces: list[bytes]) -> None:
        self.stream = stream
        self.head = head
        self._pieces = deque(pieces)

    @property
    def is_whole(self) -> bool:
        return self.head.is_over and not self._pieces

    async def read(self) -> bytes:
        """All bytes that have come and were not read; b"" at the end. Raises StreamLost, HttpFailed, TimeoutError."""
        while not self._pieces:
            if self.head.is_over:
                return b""
            await read_more(self.stream, self.head, self._pieces)
        found = b"".join(self._pieces)
        self._pieces.clear()
        return found

    async def read_whole(self, most: int) -> bytes:
        """The body, if it has at most so many bytes; the beginning of a longer one. Raises as `read`."""
        found = b""
        while len(found) <= most and (piece := await self.read()):
            found += piece
        return found


@dataclass(slots=True, eq=False)
class _IdleOrigin:
    stream: ByteStream
    timer: asyncio.TimerHandle | None = None


class OriginDialer:
    """Connects to providers. What is trusted is read once for each file of certificates."""

    def __init__(self, dialer: Dialer) -> None:
        self._dialer = dialer
        self._contexts: dict[str, ssl.SSLContext] = {}

    async def dial(self, session: str, provider: ModelProvider) -> ByteStream:
        """Raises NotServed, OSError."""
        tls = None
        if provider.is_tls:
            tls = self._contexts.get(provider.ca_file)
            if tls is None:
                tls = await asyncio.to_thread(ssl.create_default_context, cafile=provider.ca_file or None)
                self._contexts[provider.ca_file] = tls
        return await self._dialer.dial(session, provider.host, provider.port, tls=tls, trusted=provider.of_operator)


class OriginPool:
    def __init__(self, dialer: OriginDialer) -> None:
        self._dialer = dialer
        self._idle: OrderedDict[_IdleOrigin, _Place] = OrderedDict()

    async def ask(
        self, session: str, provider: ModelProvider, method: str, target: str, headers: Headers, body: bytes
    ) -> OriginAnswer:
        """Send a request and return its answer. Raises NotServed if the origin cannot be reached, OSError if it breaks
        off, TimeoutError."""
        words = request(method, target, headers)
        if (used := self._take(_place(provider))) is not None:
            answer = await self._exchange(used, words, body, again=True)
            if answer is not None:
                return answer
        stream = await self._dialer.dial(session, provider)
        answer = await self._exchange(stream, words, body, again=False)
        assert answer is not None
        return answer

    def let_go(self, provider: ModelProvider, answer: OriginAnswer) -> None:
        """The answer is not read any further."""
        answer.head.let_go()
        stream = answer.stream
        if not answer.is_whole or not answer.head.is_reusable or stream.is_lost:
            return stream.abort()
        idle = _IdleOrigin(stream)
        idle.timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._drop, idle)
        self._idle[idle] = _place(provider)
        if len(self._idle) > MOST_IDLE:
            self._drop(next(iter(self._idle)))

    def close(self) -> None:
        for idle in list(self._idle):
            self._drop(idle)

    async def _exchange(self, stream: ByteStream, words: bytes, body: bytes, *, again: bool) -> OriginAnswer | None:
        """None: the request may go out once more."""
        head = HttpResponse()
        pieces: deque[bytes] = deque()
        try:
            try:
                await stream.write(words + body if len(body) < 65536 else words)
                if len(body) >= 65536:
                    await stream.write(body)
            except StreamLost:
                if again:
                    raise
            while not head.has_head:
                await read_more(stream, head, pieces)
        except (StreamLost, HttpFailed):
            stream.abort()
            if again and head.status == 0:
                return None
            raise
        except BaseException:
            stream.abort()
            raise
        return OriginAnswer(stream, head, list(pieces))

    def _take(self, place: _Place) -> ByteStream | None:
        """The connection that was used last."""
        for idle in reversed([each for each, of in self._idle.items() if of == place]):
            if not idle.stream.is_lost and not idle.stream.has_come:
                self._remove(idle)
                return idle.stream
            self._drop(idle)
        return None

    def _drop(self, idle: _IdleOrigin) -> None:
        self._remove(idle)
        idle.stream.abort()

    def _remove(self, idle: _IdleOrigin) -> None:
        del self._idle[idle]
        if idle.timer is not None:
            idle.timer.cancel()


def _place(provider: ModelProvider) -> _Place:
    return f"{provider.is_tls} {provider.authority}", provider.ca_file


async def read_more(stream: ByteStream, head: HttpResponse, pieces: deque[bytes]) -> None:
    """Feed what comes next to `head`, and append the body's part of it to `pieces`. Raises HttpFailed, TimeoutError."""
    async with asyncio.timeout(SILENT_SECONDS):
        data = await stream.read()
    if data:
        pieces.extend(head.feed(data))
    else:
        head.end()
