"""A TCP proxy that does to connections what networks do: cut, stall, swallow."""

import asyncio
import os
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self


class Passage:
    """One connection through the proxy."""

    def __init__(self, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self._writers = (near, far)
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._swallowing = False

    def cut(self) -> None:
        """Reset both ends; data under way are lost."""
        for writer in self._writers:
            writer.transport.abort()
        self._flowing.set()

    def stall(self) -> None:
        """Nothing passes any more; nothing is lost until it is cut."""
        self._flowing.clear()

    def swallow(self) -> None:
        """From now on data are taken and thrown away, both ways; neither end notices."""
        self._swallowing = True

    def passes(self, data: bytes, writer: asyncio.StreamWriter) -> bool:
        """Whether the data may go on to `writer`; if not, the connection is cut."""
        return True

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await self._flowing.wait()
                if writer.is_closing() or not self.passes(data, writer):
                    break
                if not self._swallowing:
                    writer.write(data)
                    await writer.drain()
        except OSError:
            pass
        finally:
            self.cut()


class CuttingProxy:
    """Listens on a port of its own and passes on to `port`. Leaving it cuts everything."""

    passage = Passage

    def __init__(self, port: int) -> None:
        self._target = port
        self._server: asyncio.Server | None = None
        self._passages: list[Passage] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await self._listen()
        return self

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._target)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for passage in self._passages:
            passage.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def passages(self) -> list[Passage]:
        return list(self._passages)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._connect(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await self._dial()
        except OSError:
            return
        passage = self.passage(writer, far_writer)
        self._passages.append(passage)
        try:
            await asyncio.gather(passage.pump(reader, far_writer), passage.pump(far_reader, writer))
        finally:
            passage.cut()
            self._passages.remove(passage)

    async def harm_one(self, rng: Random) -> bool:
        """Pick a connection and end it in one of the ways connections end. Waits until it is cut. False if there is
        none."""
        if not (victims := self._victims()):
            return False
        passage = rng.choice(victims)
        match rng.randrange(3):
            case 0:
                passage.stall()
                await asyncio.sleep(rng.uniform(0, 0.3))
            case 1:
                passage.swallow()
                await asyncio.sleep(rng.uniform(0, 0.3))
        passage.cut()
        return True

    def _victims(self) -> list[Passage]:
        return self.passages


class LinkPassage(Passage):
    """A connection to a bridge, which may be the link of a terminal's viewer."""

    TERMINAL = b"GET /terminals/"

    def __init__(self, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        super().__init__(near, far)
        self.is_terminal: bool | None = None  # known when it has asked for something

    def passes(self, data: bytes, writer: asyncio.StreamWriter) -> bool:
        if self.is_terminal is None:
            self.is_terminal = data.startswith(self.TERMINAL)
        return True


class LinkProxy(CuttingProxy):
    """Takes the place of a bridge's socket: new connections to the bridge come through here. It harms the links of
    terminals."""

    passage = LinkPassage

    def __init__(self, directory: Path, name: str) -> None:
        super().__init__(0)
        self._directory = directory
        self._name = name
        self._opened = -1

    def _path(self, name: str) -> str:
        return f"/proc/self/fd/{self._opened}/{name}"  # a socket's path may not be long

    async def _listen(self) -> asyncio.Server:
        self._opened = os.open(self._directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        os.rename(self._path(self._name), self._path(f"{self._name}.far"))
        return await asyncio.start_unix_server(self._serve, self._path(self._name))

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(self._path(f"{self._name}.far"))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, trace)
        os.rename(self._path(f"{self._name}.far"), self._path(self._name))
        os.close(self._opened)

    def _victims(self) -> list[Passage]:
        return [each for each in self.passages if isinstance(each, LinkPassage) and each.is_terminal]


class StorePassage(Passage):
    """A connection to PostgreSQL that may be cut between a commit and its answer."""

    COMMITS = b"all_as_believed"  # what the statement of a batch calls; later it is only named, so it is remembered
    SYNC = b"S\0\0\0\x04"
    COMMITTED = b"Z\0\0\0\x05I"  # ready for the next transaction: this one is over

    def __init__(self, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        super().__init__(near, far)
        self.commits = False
        self._armed: asyncio.Future[bool] | None = None
        self._asked = False

    def arm(self) -> asyncio.Future[bool]:
        """Cut at the next answer to a commit, which is thrown away. True when that happened, False if the connection
        ended before."""
        self._armed = asyncio.get_running_loop().create_future()
        self._asked = False
        return self._armed

    def cut(self) -> None:
        super().cut()
        if self._armed is not None and not self._armed.done():
            self._armed.set_result(False)

    def passes(self, data: bytes, writer: asyncio.StreamWriter) -> bool:
        if writer is self._writers[1]:
            self.commits = self.commits or self.COMMITS in data
            self._asked = self._armed is not None and data.endswith(self.SYNC)
        elif self._asked and self._armed is not None and data.endswith(self.COMMITTED):
            if not self._armed.done():
                self._armed.set_result(True)
            return False
        return True


class StoreProxy(CuttingProxy):
    """Between a gateway and its PostgreSQL server: away, back, and deaf at the worst moment."""

    passage = StorePassage

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._away = False

    def leave(self) -> None:
        """Every connection is cut, and nobody gets another."""
        self._away = True
        for passage in self.passages:
            passage.cut()

    def come_back(self) -> None:
        self._away = False

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._away:
            await super()._connect(reader, writer)

    async def lose_a_reply(self, *, within: float) -> bool:
        """Wait for the answer to the next commit, and cut its connection instead of passing the answer on."""
        committing = [each for each in self.passages if isinstance(each, StorePassage) and each.commits]
        if not committing:
            return False
        armed = [each.arm() for each in committing]
        done, _ = await asyncio.wait(armed, timeout=within, return_when=asyncio.FIRST_COMPLETED)
        return any(each.result() for each in done)
