"""The parts of a kept tree. Pure: imported by the bridge, which reads and writes trees, and by `sync`, which stores
them.

A tree is a set of entries under two roots, the first component of every path: `workspace` and `agent`. Paths and
symlink targets are bytes, as the kernel has them. The content of a file is a row of chunks, each named by the BLAKE3
hash of its bytes, so the row is the file's hash as well. A hole of a sparse file is a chunk without a name.

Neither end trusts the other, and nobody trusts stored data: `check_entry` checks all of it.
"""

from collections.abc import Iterable
from enum import IntEnum
from itertools import pairwise

import msgspec
from blake3 import blake3

ROOTS = (b"workspace", b"agent")
ID_BYTES = 32
MAX_NAME = 255
MAX_PATH = 4095  # as long as the kernel takes one, and a target of a symlink as well
MAX_DEPTH = 64
MAX_CHUNK = 1 << 20  # bytes of one chunk, and of one frame, uncompressed
MAX_FILE = 1 << 44
MOST_CHUNKS = (16 << 20) // 56  # of one file: its entry fits into a message of sandbox/protocol/tree.py, beside others
MODE_BITS = 0o777  # the kept part of a mode: no setuid, no setgid, no sticky bit
MAX_MTIME_NS = (1 << 63) - 1


class BadEntry(Exception):
    """The data cannot be part of a tree that we would write. The text says what, and never repeats a whole path."""


class Kind(IntEnum):
    FILE = 0
    DIRECTORY = 1
    SYMLINK = 2


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """`size` bytes of content named `id`; without an `id`, a hole: that many zeros that take no room."""

    id: bytes
    size: int


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One file, directory or symlink. `unsettled`: it changed all the time while it was read."""

    path: bytes
    kind: int
    mode: int
    mtime_ns: int
    size: int = 0
    target: bytes = b""
    chunks: tuple[Chunk, ...] = ()
    unsettled: bool = False


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """Chunks that were compressed together: the zstd frame `data` holds exactly their bytes, one after the other."""

    chunks: tuple[Chunk, ...]
    data: bytes


def chunk_id(content: bytes | memoryview) -> bytes:
    return blake3(content).digest()


def check_path(path: bytes) -> None:
    """Raise BadEntry unless `path` is one of ours: under a root, with no empty, `.` or `..` component, no NUL."""
    parts = path.split(b"/")
    if parts[0] not in ROOTS:
        raise BadEntry("a path outside the roots")
    if len(path) > MAX_PATH:
        raise BadEntry(f"a path of more than {MAX_PATH} bytes")
    if len(parts) > MAX_DEPTH:
        raise BadEntry(f"a path of more than {MAX_DEPTH} components")
    for part in parts:
        if part in (b"", b".", b"..") or len(part) > MAX_NAME or b"\0" in part:
            raise BadEntry("a path with a component that cannot be")


def check_entry(entry: Entry) -> None:
    """Raise BadEntry unless `entry` could have come from a scan of ours. Types are the decoder's business."""
    check_path(entry.path)
    if not 0 <= entry.mode <= MODE_BITS:
        raise BadEntry("a mode with other bits than permissions")
    if abs(entry.mtime_ns) > MAX_MTIME_NS:
        raise BadEntry("a time that no file has")
    if entry.kind == Kind.FILE:
        if not 0 <= entry.size <= MAX_FILE or entry.target:
            raise BadEntry("a file that cannot be")
        check_chunks(entry.chunks)
        if len(entry.chunks) > MOST_CHUNKS:
            raise BadEntry(f"a file of more than {MOST_CHUNKS} chunks")
        if any(not one.id and not other.id for one, other in pairwise(entry.chunks)):
            raise BadEntry("a file with two holes in a row")
        if sum(chunk.size for chunk in entry.chunks) != entry.size:
            raise BadEntry("a file whose chunks do not add up to its size")
    elif entry.kind == Kind.SYMLINK:
        if entry.chunks or entry.size or not 0 < len(entry.target) <= MAX_PATH or b"\0" in entry.target:
            raise BadEntry("a symlink that cannot be")
    elif entry.kind != Kind.DIRECTORY or entry.chunks or entry.size or entry.target:
        raise BadEntry("neither a file nor a directory nor a symlink")


def check_chunks(chunks: Iterable[Chunk]) -> None:
    for chunk in chunks:
        if chunk.id:
            if len(chunk.id) != ID_BYTES or not 0 < chunk.size <= MAX_CHUNK:
                raise BadEntry("a chunk that cannot be")
        elif not 0 < chunk.size <= MAX_FILE:
            raise BadEntry("a hole that cannot be")
