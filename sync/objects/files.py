"""Objects as plain files below one directory: key `a/b` is the file `a/b`, so that a copy of the directory is a copy
of the store, also into a bucket.

A write goes to a file in `@tmp`, is flushed to the disk and then renamed, so that no name ever shows a part. Names
are created and removed under one lock file, because "if it still has this etag" is two steps; other processes use it,
too. It is held for those two steps, and for a flush only where a directory is new. No key has an `@`.

An object of up to 64 KiB, such as a pointer, has its content's hash as etag, which no clock and no filesystem can get
wrong. A larger object is hardly ever written twice. Its etag is its file's identity: a listing must not read
gigabytes.
"""

import asyncio
import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from blake3 import blake3

from sync.format.keys import ROOT
from sync.objects.object_keys import check_key, check_prefix, is_key
from sync.ports import Conflict, Found, Got, ObjectsRefused, ObjectsUnavailable

DRAFTS = "@tmp"
_NOBODYS = frozenset({"lost+found", ".snapshot", ".zfs"})  # entries that a file system makes in an empty directory
HASHED_BYTES = 64 << 10
STALE_SECONDS = 3600.0  # the writer of a draft this old is gone
THREADS = 8
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
# Retries do not help against these: permissions, and names that something else has taken.
_FOR_EVER = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP}

T = TypeVar("T")


class FileObjects:
    """Blocking work runs in a few threads of its own. A cancelled call may still do its work there."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self._drafts = self._root / DRAFTS
        self._lock = self._root / "@lock"
        self._threads = ThreadPoolExecutor(THREADS, "objects")  # starts none before the first call

    async def __aenter__(self) -> Self:
        await self._apart(str(self._root), self._open)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._threads.shutdown)

    async def put(self, key: str, content: bytes) -> str:
        return await self._write(key, content, os.replace)

    async def create(self, key: str, content: bytes) -> str:
        def link(draft: Path, path: Path) -> None:
            try:
                os.link(draft, path)
            except FileExistsError as exc:
                raise Conflict(f"{key} exists") from exc

        return await self._write(key, content, link)

    async def replace(self, key: str, content: bytes, etag: str) -> str:
        def swap(draft: Path, path: Path) -> None:
            if (there := _look(path)) is None or there[1] != etag:
                raise Conflict(f"{key} is gone" if there is None else f"{key} has changed")
            os.replace(draft, path)

        return await self._write(key, content, swap)

    async def get(self, key: str) -> Got | None:
        return await self._read(key, _read_whole)

    async def get_range(self, key: str, start: int, length: int) -> bytes | None:
        return await self._read(key, lambda descriptor: _read_up_to(descriptor, start, length))

    async def head(self, key: str) -> Found | None:
        path = self._path(key)
        there = await self._apart(key, lambda: _look(path))
        return None if there is None else Found(key, *there)

    async def list(self, prefix: str) -> AsyncIterator[Found]:
        """Reads one directory at a time as a whole, then looks at each entry."""
        open_directories = [check_prefix(prefix)]
        while open_directories:
            directory = open_directories.pop()
            found, below = await self._apart(directory, partial(self._look_around, directory))
            open_directories += below
            for each in found:
                yield each

    async def delete(self, key: str) -> None:
        path = self._path(key)
        await self._apart(key, lambda: self._remove(path))

    # -- in a thread --------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        if foreign := strangers(self._root):
            names = ", ".join(sorted(foreign)[:3]) + (", ..." if len(foreign) > 3 else "")
            raise ObjectsRefused(
                f"{self._root} holds files that are not Holdfast's ({names}): set HOLDFAST_OBJECTS to an empty "
                "directory, or to one that Holdfast made"
            )
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._drafts.mkdir(mode=0o700, exist_ok=True)
        _flush_directory(self._root)
        for draft in self._drafts.iterdir():
            with suppress(FileNotFoundError):
                if draft.stat().st_mtime < time.time() - STALE_SECONDS:
                    draft.unlink()

    def _keep(self, path: Path, content: bytes, name: Callable[[Path, Path], None]) -> str:
        """Write a draft, let `name` give it its place, and make both durable."""
        draft = self._drafts / secrets.token_hex(16)
        try:
            etag = _write_draft(draft, content)
            with self._alone():
                _make_directory(path.parent)
                name(draft, path)
        finally:
            with suppress(FileNotFoundError):
                draft.unlink()
        with suppress(FileNotFoundError):  # its content was deleted meanwhile, and the directory with it
            _flush_directory(path.parent)
        return etag

    def _remove(self, path: Path) -> None:
        with self._alone():
            try:
                path.unlink()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return
            left = path.parent
            with suppress(OSError):
                while left != self._root:
                    left.rmdir()  # fails where something is in it
                    left = left.parent
        with suppress(FileNotFoundError):
            _flush_directory(left)

    def _look_around(self, directory: str) -> tuple[Sequence[Found], Sequence[str]]:
        found, below = [], []
        try:
            with os.scandir(self._root / directory) as entries:
                named = [(directory + entry.name, entry) for entry in entries if is_key(directory + entry.name)]
        except (FileNotFoundError, NotADirectoryError):
            return [], []
        for key, entry in named:
            if entry.is_dir(follow_symlinks=False):
                below.append(f"{key}/")
            elif entry.is_file(follow_symlinks=False) and (there := _look(self._root / key)) is not None:
                found.append(Found(key, *there))
        return found, below

    @contextmanager
    def _alone(self) -> Iterator[None]:
        # A lock belongs to an open file: each call opens its own, so that threads of one process exclude each other.
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    # -- on the loop --------------------------------------------------------------------------------------------------

    def _path(self, key: str) -> Path:
        return self._root / check_key(key)

    async def _write(self, key: str, content: bytes, name: Callable[[Path, Path], None]) -> str:
        path = self._path(key)
        return await self._apart(key, lambda: self._keep(path, content, name))

    async def _read(self, key: str, read: Callable[[int], T]) -> T | None:
        path = self._path(key)

        def work() -> T | None:
            with _opened(path) as descriptor:
                return None if descriptor is None else read(descriptor)

        return await self._apart(key, work)

    async def _apart(self, key: str, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except OSError as exc:
            told = f"{key}: {exc.strerror or exc}"  # users read this: no path of the host
            if exc.errno in _FOR_EVER:
                raise ObjectsRefused(f"{told}; check HOLDFAST_OBJECTS and who owns it") from exc
            raise ObjectsUnavailable(told) from exc


def strangers(root: Path) -> list[str]:
    """The content of a directory that is neither empty nor ours; empty if it may be used. Ours has the directory for
    drafts, which every version makes first, or the top of all keys, in a copy from a bucket. Raises OSError."""
    try:
        names = set(os.listdir(root))
    except FileNotFoundError:
        return []
    ours = DRAFTS in names or (root / ROOT).is_dir()
    return [] if ours else sorted(names - _NOBODYS)


def _write_draft(draft: Path, content: bytes) -> str:
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "wb", buffering=0) as file:
        rest = memoryview(content)
        while rest:
            rest = rest[file.write(rest) :]
        # The kernel's own timestamps may stay equal for milliseconds; two versions must not share an etag.
        os.utime(descriptor, ns=(time.time_ns(), time.time_ns()))
        os.fsync(descriptor)
        return _etag(os.fstat(descriptor), lambda: content)


def _etag(info: os.stat_result, content: Callable[[], bytes]) -> str:
    if info.st_size <= HASHED_BYTES:
        return blake3(content()).hexdigest(length=16)
    return f"{info.st_ino:x}-{info.st_mtime_ns:x}-{info.st_size:x}"


@contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    """A descriptor of the object; None if there is none, also if a directory has its name."""
    try:
        descriptor = os.open(path, _READ)
    except (FileNotFoundError, NotADirectoryError):
        yield None
        return
    try:
        yield descriptor if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    finally:
        os.close(descriptor)


def _look(path: Path) -> tuple[int, str] | None:
    """Size and etag; None if there is no such object."""
    with _opened(path) as descriptor:
        if descriptor is None:
            return None
        info = os.fstat(descriptor)
        return info.st_size, _etag(info, lambda: _read_up_to(descriptor, 0, info.st_size))


def _read_whole(descriptor: int) -> Got:
    info = os.fstat(descriptor)
    content = _read_up_to(descriptor, 0, info.st_size)
    return Got(content, _etag(info, lambda: content))


def _read_up_to(descriptor: int, start: int, length: int) -> bytes:
    """The available bytes. One read stops after 2 GiB, and takes as much memory as its length."""
    length = min(length, os.fstat(descriptor).st_size - start)
    pieces = []
    while length > 0 and (piece := os.pread(descriptor, length, start)):
        pieces.append(piece)
        start, length = start + len(piece), length - len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _make_directory(directory: Path) -> None:
    """Make the directory and those above it, each durable before anything is put into it."""
    if not directory.is_dir():
        _make_directory(directory.parent)
        directory.mkdir(mode=0o700)
        _flush_directory(directory.parent)


def _flush_directory(directory: Path) -> None:
    descriptor = os.open(directory, _DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
