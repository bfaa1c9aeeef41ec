"""Reads a stored tree without a sandbox: one file, or all of it as a tar."""

import tarfile
from collections import OrderedDict
from collections.abc import AsyncIterator

from sandbox.protocol.entry import Chunk, Entry, Kind
from sync.format.manifest import StoredTree
from sync.snapshots.pack_reader import fetch
from sync.snapshots.repository import Repository

PIECE = 1 << 20
FRAMES_KEPT = 16  # of at most 1 MiB: files that were written together are in the same frame


class SnapshotReader:
    """The content of one stored tree, checked against its hashes."""

    def __init__(self, shelf: Repository, stored: StoredTree) -> None:
        self._shelf, self._stored = shelf, stored
        self._frames: OrderedDict[tuple[str, int], dict[bytes, bytes]] = OrderedDict()

    async def read(self, entry: Entry, start: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        """The bytes of a file from `start`, at most `length` of them. Raises Damaged, ObjectsUnavailable."""
        left = entry.size - start if length is None else min(length, entry.size - start)
        at = 0
        for chunk in entry.chunks:
            skip = max(0, start - at)
            at += chunk.size
            if skip >= chunk.size:
                continue
            if left <= 0:
                return
            size = min(left, chunk.size - skip)
            left -= size
            async for piece in self._pieces(chunk, skip, size):
                yield piece

    async def _pieces(self, chunk: Chunk, skip: int, size: int) -> AsyncIterator[bytes]:
        if chunk.id:
            yield (await self._chunk(chunk.id))[skip : skip + size]
            return
        while size > 0:
            yield bytes(min(size, PIECE))
            size -= PIECE

    async def _chunk(self, chunk: bytes) -> bytes:
        place = self._stored.places[chunk]
        key = (place.pack, place.frame.offset)
        if key not in self._frames:
            async for frame, contents in fetch(self._shelf, place.pack, [place.frame]):
                named = zip(frame.chunks, contents, strict=True)
                self._frames[key] = {inside.id: bytes(content) for inside, content in named}
            while len(self._frames) > FRAMES_KEPT:
                self._frames.popitem(last=False)
        self._frames.move_to_end(key)
        return self._frames[key][chunk]


async def tar(shelf: Repository, stored: StoredTree) -> AsyncIterator[bytes]:
    """The tree as a tar (PAX) with the roots `workspace/` and `agent/`; a directory comes before its content. After a
    failure, which is raised, the tar lacks its two closing blocks and is not whole."""
    contents = SnapshotReader(shelf, stored)
    for path in sorted(stored.entries):
        entry = stored.entries[path]
        yield tar_head(entry)
        if entry.kind == Kind.FILE:
            async for piece in contents.read(entry):
                yield piece
            yield bytes(-entry.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def tar_head(entry: Entry) -> bytes:
    """The header of one member."""
    info = tarfile.TarInfo(entry.path.decode("utf-8", "surrogateescape"))
    info.mode, info.mtime = entry.mode, entry.mtime_ns // 10**9
    info.size = entry.size
    info.type = {Kind.FILE: tarfile.REGTYPE, Kind.DIRECTORY: tarfile.DIRTYPE, Kind.SYMLINK: tarfile.SYMTYPE}[
        Kind(entry.kind)
    ]
    info.linkname = entry.target.decode("utf-8", "surrogateescape")
    if entry.mtime_ns % 10**9:
        seconds, fraction = divmod(abs(entry.mtime_ns), 10**9)
        info.pax_headers = {"mtime": f"{'-' if entry.mtime_ns < 0 else ''}{seconds}.{fraction:09d}"}
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
