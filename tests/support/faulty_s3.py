"""An HTTP proxy before an S3 server that fails as such servers do: busy, silent after the deed, silent at once, or
gone.

    async with FaultyS3(server.port, Random(1)) as faults:
        faults.busy = 0.3                    # this share of requests gets 503 and is not passed on
        store = place.at(faults.port).objects()

`requests` are counted as they arrive, whatever their result.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import Self

PIECE = 256 << 10
ANSWER = "<?xml version='1.0'?><Error><Code>{code}</Code><Message>as asked for</Message></Error>"


@dataclass(frozen=True, slots=True)
class Head:
    """The first lines of a request or an answer, and how much follows: `length` bytes, or chunks if it is None."""

    raw: bytes
    first: list[str]
    length: int | None


class FaultyS3:
    """Shares are of all requests and change at any time. `busy` gets 503 SlowDown. For `loses` the server acts, and
    the answer is dropped with the connection. `refused` methods are always busy. For `key_seconds` after a write one
    key takes no other, as on Cloudflare R2 (429). Leaving it cuts everything."""

    def __init__(self, port: int, rng: Random) -> None:
        self._target = port
        self._rng = rng
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._scripted: deque[tuple[int, str]] = deque()
        self._methods: frozenset[str] = frozenset()
        self._lose_next = 0
        self._corrupt_next = 0
        self.busy = 0.0
        self.loses = 0.0
        self.refused: set[str] = set()
        self.key_seconds = 0.0
        self._written: dict[str, float] = {}
        self.writes = 0
        self.too_soon: list[str] = []  # the keys of writes that got 429
        self.requests = 0
        self.harmed = 0
        self.seen: list[tuple[str, str]] = []  # method and path

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 20)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self._flowing.set()
        for each in list(self._writers):
            each.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def heal(self) -> None:
        """From now on everything passes."""
        self.busy = self.loses = 0.0
        self.refused.clear()
        self._scripted.clear()
        self._lose_next = self._corrupt_next = 0
        self._flowing.set()

    def answer(self, status: int, code: str, *, times: int = 1) -> None:
        """The next requests get this, and are not passed on. A status of 0 cuts the connection instead."""
        self._scripted.extend([(status, code)] * times)

    def lose_replies(self, count: int = 1, *, methods: frozenset[str] = frozenset({"PUT"})) -> None:
        """The server does the next requests of these methods, and nobody hears of it."""
        self._lose_next, self._methods = count, methods

    def corrupt(self, count: int = 1) -> None:
        """One bit of the bodies of the next writes is turned on the way."""
        self._corrupt_next = count

    def stall(self) -> None:
        """Requests are read and left alone until `heal`."""
        self._flowing.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        writers = {writer}
        self._writers.add(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target, limit=1 << 20)
            writers.add(far_writer)
            self._writers.add(far_writer)
            while (request := await _read_head(reader)) is not None:
                if not await self._one(request, reader, writer, far_reader, far_writer):
                    break
        except (OSError, asyncio.IncompleteReadError):
            pass  # one end is gone, and with it the other
        finally:
            self._tasks.discard(task)
            self._writers -= writers
            for each in writers:
                each.transport.abort()

    async def _one(
        self,
        request: Head,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far_reader: asyncio.StreamReader,
        far_writer: asyncio.StreamWriter,
    ) -> bool:
        """One request and its answer. Returns whether the connection goes on."""
        method, path = request.first[0], request.first[1]
        self.requests += 1
        self.seen.append((method, path))
        fate = self._fate(method)
        key = _written_key(method, path)
        if key is not None:
            self.writes += 1
            if fate is None and self._is_too_soon(key):
                self.too_soon.append(key)
                fate = 429, "TooManyRequests"
        if fate is not None:
            self.harmed += 1
        if isinstance(fate, tuple):
            await _pass_on(request, reader, None)
            if fate[0] == 0:
                return False
            body = b"" if method == "HEAD" else ANSWER.format(code=fate[1]).encode()
            writer.write(b"HTTP/1.1 %d Told\r\nContent-Length: %d\r\n\r\n%b" % (fate[0], len(body), body))
            await writer.drain()
            return True
        if not self._flowing.is_set():
            await _pass_on(request, reader, None)
            await self._flowing.wait()
            return False  # the client has given up, or does now
        far_writer.write(request.raw)
        await _pass_on(request, reader, far_writer, turn_a_bit=fate == "corrupt")
        answer = await _read_head(far_reader)
        while answer is not None and answer.first[1] == "100":
            answer = await _read_head(far_reader)
        if answer is None:
            return False
        if key is not None:
            self._written[key] = asyncio.get_running_loop().time()
        bodiless = method == "HEAD" or answer.first[1] in ("204", "304")
        if fate == "lose":
            await _pass_on(answer, far_reader, None, bodiless=bodiless)
            return False
        writer.write(answer.raw)
        await _pass_on(answer, far_reader, writer, bodiless=bodiless)
        return True

    def _is_too_soon(self, key: str) -> bool:
        """Whether this key was written just now, or is being written; if not, it is from here on."""
        now = asyncio.get_running_loop().time()
        if now - self._written.get(key, -self.key_seconds) < self.key_seconds:
            return True
        self._written[key] = now
        return False

    def _fate(self, method: str) -> tuple[int, str] | str | None:
        if self._scripted:
            return self._scripted.popleft()
        if self._lose_next and method in self._methods:
            self._lose_next -= 1
            return "lose"
        if self._corrupt_next and method == "PUT":
            self._corrupt_next -= 1
            return "corrupt"
        drawn = self._rng.random()
        if drawn < self.busy or method in self.refused:
            return 503, "SlowDown"
        return "lose" if drawn < self.busy + self.loses else None


def _written_key(method: str, path: str) -> str | None:
    """The path of the object that this request writes or removes; a part of an upload is no object yet."""
    key, _, query = path.partition("?")
    writes = method in ("PUT", "DELETE") and "uploadId=" not in query
    completes = method == "POST" and "uploadId=" in query
    return key if writes or completes else None


async def _read_head(reader: asyncio.StreamReader) -> Head | None:
    """None at the end of the connection."""
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    first, *lines = raw.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    chunked = headers.get("transfer-encoding", "").lower() == "chunked"
    return Head(raw, first.split(" ", 2), None if chunked else int(headers.get("content-length", "0")))


async def _pass_on(
    head: Head,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter | None,
    *,
    bodiless: bool = False,
    turn_a_bit: bool = False,
) -> None:
    """The body that follows `head`, to `writer` or to nobody."""

    async def give(data: bytes) -> None:
        if writer is not None:
            writer.write(data)
            await writer.drain()

    if bodiless:
        return await give(b"")
    if head.length is None:
        while True:
            line = await reader.readuntil(b"\r\n")
            size = int(line.split(b";")[0], 16)
            await give(line + await reader.readexactly(size + 2))
            if size == 0:
                return None
    left = head.length
    while left:
        data = await reader.read(min(left, PIECE))
        if not data:
            raise asyncio.IncompleteReadError(b"", left)
        left -= len(data)
        if turn_a_bit:
            data, turn_a_bit = bytes([data[0] ^ 1]) + data[1:], False
        await give(data)
    return None
