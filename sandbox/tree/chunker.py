"""Files as rows of chunks: opened so that nothing else is opened by mistake, read in windows, cut by their content.

A cut depends only on the bytes before it, back to the last cut; so a change in the middle of a file leaves the chunks
before it and, soon after it, the chunks behind it as they were. Large files have larger chunks, so that their rows stay
short. A change of these numbers makes every file look new to every store.
"""

import errno
import os
import stat
from collections.abc import Iterator
from typing import Final, NoReturn

from pyfastcdc import FastCDC

from sandbox.protocol.entry import Chunk, chunk_id
from sandbox.system.problem import unreadable

ONE_CHUNK: Final = 16 << 10  # a file up to this size is not cut
LARGE_FILE: Final = 128 << 20
SMALLEST_HOLE: Final = 64 << 10
WINDOW: Final = 2 << 20  # larger than two chunks
BLOCK: Final = 512  # what st_blocks counts

_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OPEN_QUIETLY: Final = _OPEN | os.O_NOATIME  # refused for files of other users
_NO_FILE: Final = (
    errno.ELOOP,
    errno.ENXIO,
    errno.ENODEV,
    errno.EINVAL,
)  # a symlink, a socket, a device; no symlink

Piece = tuple[Chunk, bytes]


class Vanished(Exception):
    """There is nothing of that name any more."""


class Swapped(Exception):
    """There is something else of that name now."""


def open_file(directory: int, name: str, path: str) -> tuple[int, os.stat_result]:
    """Open the file `name` in `directory`, without waiting for anything. Raises Vanished, Swapped, TreeProblem."""
    try:
        fd = _open(directory, name)
    except OSError as error:
        _refuse(path, error)
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode):
        return fd, status
    os.close(fd)
    raise Swapped


def read_link(directory: int, name: str, path: str) -> bytes:
    """Raises Vanished, Swapped, TreeProblem."""
    try:
        return os.fsencode(os.readlink(name, dir_fd=directory))
    except OSError as error:
        _refuse(path, error)


def _open(directory: int, name: str) -> int:
    try:
        return os.open(name, _OPEN_QUIETLY, dir_fd=directory)
    except PermissionError:
        return os.open(name, _OPEN, dir_fd=directory)


def _refuse(path: str, error: OSError) -> NoReturn:
    if error.errno == errno.ENOENT:
        raise Vanished from None
    if error.errno in _NO_FILE:
        raise Swapped from None
    raise unreadable(path, error) from error


class Chunker:
    """Reads and cuts one file at a time. It has one window of memory, used again and again."""

    def __init__(self) -> None:
        self._window = memoryview(bytearray(WINDOW))
        self._usual = FastCDC(64 << 10, min_size=16 << 10, max_size=192 << 10)
        self._large = FastCDC(256 << 10, min_size=64 << 10, max_size=1 << 20)

    def pieces(self, fd: int, size: int, blocks: int) -> Iterator[Piece]:
        """The first `size` bytes of a file that has `blocks` blocks, as chunks with their bytes; a hole has none. Ends
        early where the file does. Raises OSError."""
        if size <= ONE_CHUNK:
            content = _read(fd, size)
            if content:
                yield Chunk(chunk_id(content), len(content)), content
            return
        cuts = self._usual if size < LARGE_FILE else self._large
        for start, end, is_hole in extents(fd, size) if blocks * BLOCK < size else ((0, size, False),):
            if is_hole:
                yield Chunk(b"", end - start), b""
            else:
                yield from self._cut(fd, start, end, cuts)

    def _cut(self, fd: int, start: int, end: int, cuts: FastCDC) -> Iterator[Piece]:
        while start < end:
            wanted = min(WINDOW, end - start)
            view = self._window[: _fill(fd, self._window[:wanted], start)]
            is_last = len(view) < wanted or start + wanted == end
            used = 0
            for cut in cuts.cut_buf(view):
                stop = cut.offset + cut.length
                if stop == len(view) and not is_last:
                    break  # the window's end, and not for sure a chunk's: it is read again
                content = bytes(view[used:stop])
                yield Chunk(chunk_id(content), len(content)), content
                used = stop
            if is_last:
                return
            start += used


def extents(fd: int, size: int) -> Iterator[tuple[int, int, bool]]:
    """The first `size` bytes of a file as (start, end, is a hole), without holes smaller than SMALLEST_HOLE."""
    start = at = 0
    while at < size:
        hole = min(size, _seek(fd, at, os.SEEK_HOLE, size))
        data = min(size, _seek(fd, hole, os.SEEK_DATA, size))
        if data <= at:
            break  # the file has become shorter
        if data - hole >= SMALLEST_HOLE:
            if start < hole:
                yield start, hole, False
            yield hole, data, True
            start = data
        at = data
    if start < size:
        yield start, size, False


def _seek(fd: int, at: int, whence: int, size: int) -> int:
    """Where the next data or hole begins; the end if there is none."""
    try:
        return os.lseek(fd, at, whence)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return min(size, os.lseek(fd, 0, os.SEEK_END))


def _read(fd: int, size: int) -> bytes:
    content = os.read(fd, size) if size else b""
    while len(content) < size and (more := os.read(fd, size - len(content))):
        content += more
    return content


def _fill(fd: int, window: memoryview, at: int) -> int:
    """Read from `at` until `window` is full or the file ends; how much that was."""
    filled = 0
    while filled < len(window) and (count := os.preadv(fd, [window[filled:]], at + filled)):
        filled += count
    return filled
