"""Browsers that send chat messages and count answers. A message is over when its `done` has come.

It searches frames and does not parse their JSON, so one process can load a gateway several times as slow as itself.
Only `done` frames contain `"type":"done"`; each answers the oldest message of its connection.
"""

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random, getrandbits
from types import TracebackType
from typing import Self, cast

from sandbox.protocol.websocket_frames import PING, PONG, FrameReader, client_frame

DONE = b'"type":"done"'
REFUSED = b'"type":"nack"'
MAX_MESSAGE = 1 << 20
CONNECT_AT_ONCE = 32
CONTENT = b"What does the fox do, and over whom does it jump? Say it once."
PATIENCE_SECONDS = 60.0


class LoadFailed(Exception):
    """The program under test did not do its work, so there is no figure."""


class Browser(asyncio.Protocol):
    """One connection. `on_done` gets the seconds that each message took."""

    def __init__(self, request: bytes, on_done: Callable[["Browser", float], None]) -> None:
        self._who = getrandbits(32)  # without it, cids would repeat those of an earlier connection to the session
        self._request = request
        self._on_done = on_done
        self._sent: deque[float] = deque()
        self._count = 0
        self._head = b""
        self._reader = FrameReader(MAX_MESSAGE, 1, masked=False)
        self._transport: asyncio.Transport | None = None
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.problem: str | None = None

    @property
    def in_flight(self) -> int:
        return len(self._sent)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)

    def connection_lost(self, exc: Exception | None) -> None:
        self.problem = self.problem or "the connection was closed"
        if not self.opened.done():
            self.opened.set_exception(LoadFailed(f"{self.problem}: {self._head[:500]!r}"))

    def data_received(self, data: bytes) -> None:
        if not self.opened.done():
            self._head += data
            head, end, data = self._head.partition(b"\r\n\r\n")
            if not end:
                return
            if not head.startswith(b"HTTP/1.1 101"):
                self.close()
                return
            self.opened.set_result(None)
            self._head = b""
        now = time.perf_counter()
        self._reader.feed(data)
        while (message := self._reader.read()) is not None:
            opcode, payload = message
            if opcode == PING and self._transport is not None:
                self._transport.write(client_frame(PONG, payload))
            elif DONE in payload:
                self._on_done(self, now - self._sent.popleft())
            elif REFUSED in payload:
                self.problem = f"a message was refused: {payload[:500]!r}"

    def send(self) -> None:
        """Send one message."""
        if self._transport is None or self._transport.is_closing():
            raise LoadFailed(self.problem or "the connection was closed")
        self._count += 1
        self._sent.append(time.perf_counter())  # the loop's clock has a resolution of milliseconds
        cid = b"%08x-%011d" % (self._who, self._count)
        self._transport.write(masked(b'{"type":"message","cid":"%b","content":"%b"}' % (cid, CONTENT)))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def masked(payload: bytes) -> bytes:
    """A client's text frame. Its mask is zero, so the payload is unchanged; the server still unmasks it."""
    size = len(payload)
    length = bytes((0x80 | size,)) if size < 126 else bytes((0x80 | 126, size >> 8, size & 255))
    return b"\x81" + length + bytes(4) + payload


def handshake(path: str, token: str | None) -> bytes:
    authorization = f"Authorization: Bearer {token}\r\n" if token else ""
    return (
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{authorization}\r\n"
    ).encode()


@dataclass(frozen=True, slots=True)
class Target:
    """The address of the load: a port, and the opening request of the n-th session."""

    port: int
    request: Callable[[int], bytes]


class Crowd:
    """Open connections. Each has had its first answer. `async with` opens and closes them."""

    def __init__(self, target: Target, size: int, *, at_once: int = CONNECT_AT_ONCE) -> None:
        """`at_once` is the number of connections that open at the same time."""
        self._target = target
        self._size = size
        self._at_once = at_once
        self._took: Callable[[Browser, float], None] = lambda browser, seconds: None
        self.browsers: list[Browser] = []

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()

        async def open_one(number: int) -> None:
            request = self._target.request(number)
            browser = Browser(request, lambda browser, seconds: self._took(browser, seconds))
            self.browsers.append(browser)
            await loop.create_connection(lambda: browser, "127.0.0.1", self._target.port)
            await browser.opened
            browser.send()

        for first in range(0, self._size, self._at_once):
            numbers = range(first, min(first + self._at_once, self._size))
            async with asyncio.timeout(PATIENCE_SECONDS):
                await asyncio.gather(*(open_one(number) for number in numbers))
        await self.settle()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for browser in self.browsers:
            browser.close()
        await asyncio.sleep(0)

    async def in_turns(self, in_flight: int, seconds: float, cpu_seconds: Callable[[], float]) -> tuple[int, float]:
        """Keep `in_flight` messages of each connection on their way. Returns the number answered after the first fifth
        of the time, and their cost by `cpu_seconds`.
        """
        first = [browser for browser in self.browsers for _ in range(in_flight)]
        return await self._closed_loop(first, lambda browser: browser, seconds, cpu_seconds)

    async def in_rotation(self, in_flight: int, seconds: float, cpu_seconds: Callable[[], float]) -> tuple[int, float]:
        """Keep `in_flight` messages of all connections together on their way. After each answer, the next connection
        sends. Returns the same as `in_turns`.
        """
        order = itertools.cycle(self.browsers)
        first = list(itertools.islice(order, in_flight))
        return await self._closed_loop(first, lambda _: next(order), seconds, cpu_seconds)

    async def _closed_loop(
        self,
        first: Sequence[Browser],
        after: Callable[[Browser], Browser],
        seconds: float,
        cpu_seconds: Callable[[], float],
    ) -> tuple[int, float]:
        """Go on at least until more messages are answered than were in flight at the first reading: those may have
        caused their whole cost before it.
        """
        answered, going_on = 0, True

        def took(browser: Browser, _: float) -> None:
            nonlocal answered
            answered += 1
            if going_on:
                after(browser).send()

        self._took = took
        for browser in first:
            browser.send()
        await asyncio.sleep(seconds / 5)
        before, cpu = answered, cpu_seconds()
        await asyncio.sleep(seconds)
        late = time.monotonic() + PATIENCE_SECONDS
        while answered - before <= len(first) and time.monotonic() < late:  # noqa: ASYNC110 - a look
            await asyncio.sleep(0.01)
        counted, cost = answered - before, cpu_seconds() - cpu
        going_on = False
        await self.settle()
        if not counted or not cost:
            raise LoadFailed("nothing was answered")
        return counted, cost

    def listen(self, took: Callable[["Browser", float], None]) -> None:
        """Call `took` for each answer from now on."""
        self._took = took

    async def settle(self) -> None:
        """Wait until no message is in flight."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while any(browser.in_flight and browser.problem is None for browser in self.browsers):  # noqa: ASYNC110 - a look
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise LoadFailed("answers are missing") from None
        if problem := next((browser.problem for browser in self.browsers if browser.problem), None):
            raise LoadFailed(problem)


async def side_by_side(
    crowds: Mapping[str, Crowd], per_second: float, seconds: float, rng: Random
) -> dict[str, list[float]]:
    """Open loop: each crowd in turn sends a message, at a fixed rate independent of the answers. So all crowds meet the
    same disturbances. The order of each turn is random. Returns the sorted seconds of each crowd's messages.
    """
    loop = asyncio.get_running_loop()
    latencies: dict[str, list[float]] = {name: [] for name in crowds}
    for name, crowd in crowds.items():
        crowd.listen(lambda _, seconds, kept=latencies[name]: kept.append(seconds))  # type: ignore[misc]  # a default has no type
    began, sent = loop.time(), 0
    for turn in range(int(per_second * seconds / len(crowds))):
        for crowd in rng.sample(list(crowds.values()), len(crowds)):
            await asyncio.sleep(max(0.0, began + sent / per_second - loop.time()))
            crowd.browsers[turn % len(crowd.browsers)].send()
            sent += 1
    for crowd in crowds.values():
        await crowd.settle()
    return {name: sorted(kept) for name, kept in latencies.items()}


def quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
