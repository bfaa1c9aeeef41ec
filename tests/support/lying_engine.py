"""Takes the place of a container engine: passes requests and answers on, until a test changes its mood."""

import asyncio
from contextlib import suppress
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Self

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


class Mood(Enum):
    """The answer to every request; None is no answer."""

    HONEST = b"passed on"
    SILENT = None
    CUT_SHORT = _HEAD + b'Content-Length: 100\r\n\r\n{"Id": "'
    ANOTHER_SHAPE = _HEAD + b"Content-Length: 15\r\n\r\n[[], 7, {}, []]"
    REFUSES = b'HTTP/1.1 500 No\r\nContent-Length: 25\r\n\r\n{"message": "disk error"}'
    ENDLESS = _HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


class LyingEngine:
    def __init__(self, path: Path, engine: Path) -> None:
        self.path = path
        self.mood = Mood.HONEST
        self.asked = 0  # since the mood changed
        self._engine = engine
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._serve, self.path)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        await self.become(Mood.HONEST)

    async def become(self, mood: Mood) -> None:
        """Change the mood; requests under way end."""
        self.mood, self.asked = mood, 0
        connections = list(self._connections)
        for each in connections:
            each.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._answer(reader, writer)
        finally:
            self._connections.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.mood is Mood.HONEST:
            return await self._pass_on(reader, writer)
        await reader.readuntil(b"\r\n\r\n")
        self.asked += 1
        if self.mood.value is None:
            await asyncio.Event().wait()
        else:
            writer.write(self.mood.value)
            while self.mood is Mood.ENDLESS:
                writer.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
                await writer.drain()
            await writer.drain()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(self._engine)
        try:
            there = asyncio.create_task(_pump(reader, far_writer))
            back = asyncio.create_task(_pump(far_reader, writer))
            try:
                await back  # whoever asks may have said all, and waits
            finally:
                there.cancel()
                back.cancel()
                await asyncio.gather(there, back, return_exceptions=True)
        finally:
            far_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
