"""Takes in a bridge's report of a tree: notes entries, requests content that is not stored yet, and stores it.

The bridge is as untrusted as the programs beside it. Every entry is checked, every hash, every bound; content that
was not requested is refused. Frames go into packs, and packs into the store, a few at a time while the scan goes on.
"""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from sandbox.ports.tree import TreeScan
from sandbox.protocol.chunk_frames import unpack
from sandbox.protocol.entry import BadEntry, Entry, Frame, check_entry, check_path
from sandbox.protocol.tree import (
    BATCH_ENTRIES,
    MAX_OFFERS,
    MAX_SKIPPED,
    MAX_UNREAD,
    Batch,
    ScanAsk,
    ScanDone,
    TreeLimits,
)
from sync import crash_points
from sync.errors import TooLarge
from sync.format.manifest import ChunkPlace
from sync.format.pack import PackBuilder
from sync.snapshots.repository import Avoided, Repository

PACKS_AT_ONCE = 4
CHUNK_ROOM = 48
ROOM_A_FILE, LEAST_ROOM = 1024, 64 << 20  # names and chunks may be long; all of them together are bounded
TOO_LARGE = "the workspace is larger than HOLDFAST_SYNC_MAX_FILES or HOLDFAST_SYNC_MAX_BYTES allows"


class ScanIngest:
    """The result of one scan. `places` says where content is that was sent, or offered and found in the store."""

    def __init__(self, shelf: Repository, heeded: Avoided) -> None:
        self._shelf = shelf
        self._heeded = heeded
        self._pack = shelf.new_pack()
        self._asked: set[bytes] = set()
        self._told_bytes = 0
        self._room = 0  # memory that its entries take, roughly
        self.entries: dict[bytes, Entry] = {}
        self.removed: set[bytes] = set()
        self.places: dict[bytes, ChunkPlace] = {}
        self.sent_bytes = 0
        self.chunks_reused = 0

    @property
    def chunks_sent(self) -> int:
        return len(self._asked)

    async def take(self, scan: TreeScan, asked: ScanAsk) -> ScanDone:
        """Read all of `scan`; when this returns, its content is stored. Raises BadEntry, SyncFailed, TreeFailed and
        the store's errors."""
        async with _Uploads(self._put) as uploads:
            while isinstance(told := await scan.next(), Batch):
                await asyncio.to_thread(_check_batch, told)
                wanted = await self._missing(told)
                expected = {told.offers[number].id for number in wanted}
                self._asked |= expected
                async for frame in scan.fetch(wanted):
                    await self._receive(frame, expected)
                    if self._pack.full:
                        await self._send(uploads)
                if expected:
                    raise BadEntry("less content than was asked for")
                self._note(told, asked.limits)
            _check_done(asked, told)
            if self._pack.frames:
                await self._send(uploads)
            await uploads.settled()
        return told

    def find(self, chunk: bytes) -> bool:
        """Whether the chunk is stored and may be used; then it has a place from here on."""
        if chunk not in self.places:
            place = self._shelf.catalogue.find(chunk, self._heeded.marked)
            if place is None:
                return False
            self.places[chunk] = place
        return True

    async def _missing(self, batch: Batch) -> list[int]:
        """The numbers of the offers that the bridge must send."""
        if batch.offers:
            await self._shelf.know_packs()
        wanted: dict[bytes, int] = {}
        for number, offer in enumerate(batch.offers):
            if offer.id in self._asked or offer.id in wanted:
                continue
            if self.find(offer.id):
                self.chunks_reused += 1
            else:
                wanted[offer.id] = number
        return list(wanted.values())

    async def _receive(self, frame: Frame, expected: set[bytes]) -> None:
        await asyncio.to_thread(unpack, frame)
        for chunk in frame.chunks:
            if chunk.id not in expected:
                raise BadEntry("content that was not asked for")
            expected.remove(chunk.id)
        self._pack.add(frame)

    async def _send(self, uploads: "_Uploads") -> None:
        pack, self._pack = self._pack, self._shelf.new_pack()
        await uploads.send(pack)

    async def _put(self, pack: PackBuilder) -> None:
        crash_points.reached("sync.pack_begun")
        name, size = await self._shelf.put_pack(pack)
        crash_points.reached("sync.pack_stored")
        self.sent_bytes += size
        self.places.update((chunk.id, ChunkPlace(name, frame)) for frame in pack.frames for chunk in frame.chunks)

    def _note(self, batch: Batch, limits: TreeLimits) -> None:
        for entry in batch.entries:
            self.entries[entry.path] = entry
            self._told_bytes += weight(entry)
            self._room += len(entry.path) + len(entry.target) + CHUNK_ROOM * len(entry.chunks)
        self.removed.update(batch.removed)
        self._room += sum(map(len, batch.removed))
        bound(limits, max(len(self.entries), len(self.removed)), self._told_bytes)
        if self._room > ROOM_A_FILE * limits.files + LEAST_ROOM:
            raise TooLarge(TOO_LARGE)


def weight(entry: Entry) -> int:
    """The bytes of its content; holes take no room."""
    return sum(chunk.size for chunk in entry.chunks if chunk.id)


def bound(limits: TreeLimits, files: int, total_bytes: int) -> None:
    """Raise TooLarge if it is too much. The bridge has the same bounds and better texts; these bounds hold if the
    bridge lies."""
    if files > limits.files or total_bytes > limits.total_bytes:
        raise TooLarge(TOO_LARGE)


def _check_batch(batch: Batch) -> None:
    """Raises BadEntry."""
    if len(batch.offers) > MAX_OFFERS or len(batch.entries) > BATCH_ENTRIES:
        raise BadEntry("more than a batch may have")
    for entry in batch.entries:
        check_entry(entry)
    for path in batch.removed:
        check_path(path)


def _check_done(asked: ScanAsk, done: ScanDone) -> None:
    """Raises BadEntry, SyncFailed."""
    if done.base not in (None, asked.base):
        raise BadEntry("differences from a tree that was not named")
    counts = (done.files, done.total_bytes, done.read_bytes, done.skipped_count, done.unread_count)
    if min(counts) < 0 or len(done.skipped) > MAX_SKIPPED or len(done.unread) > MAX_UNREAD:
        raise BadEntry("counts that cannot be")
    for path in (*done.skipped, *done.unread):
        check_path(path)
    bound(asked.limits, done.files, done.total_bytes)


class _Uploads:
    """Packs being uploaded, PACKS_AT_ONCE of them; a caller with one more waits. The next waiting caller gets the
    first failure. Leaving the context ends the remaining uploads."""

    def __init__(self, put: Callable[[PackBuilder], Awaitable[None]]) -> None:
        self._put = put
        self._under_way: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def send(self, pack: PackBuilder) -> None:
        while len(self._under_way) >= PACKS_AT_ONCE:
            await self._wait(asyncio.FIRST_COMPLETED)
        self._under_way.add(asyncio.create_task(self._send(pack), name="send a pack"))

    async def _send(self, pack: PackBuilder) -> None:
        await self._put(pack)

    async def settled(self) -> None:
        """Wait for all of them."""
        while self._under_way:
            await self._wait(asyncio.FIRST_EXCEPTION)

    async def _wait(self, until: str) -> None:
        done, self._under_way = await asyncio.wait(self._under_way, return_when=until)
        failures = [error for task in done if (error := task.exception()) is not None]
        if failures:
            raise failures[0]
