"""Looks at one file or directory of the live tree, while programs in the sandbox may do anything to it.

The kernel resolves a path below its root and nowhere else (sandbox/system/jail.py). The result is first held without
being opened, so a FIFO without a writer, a device or a socket is recognized before it can do harm.
"""

import errno
import os
import stat
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from sandbox.protocol.entry import MAX_DEPTH, MAX_NAME, MAX_PATH, MODE_BITS, ROOTS
from sandbox.system.jail import Escape, open_beneath

MOST_ITEMS = 10_000
_HOLD = os.O_PATH | os.O_CLOEXEC
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}


class Absent(Exception):
    """Nothing is there."""


class PathRefused(Exception):
    """Something is there, or may be, and nobody gets it. The text says why, and never repeats the path."""


@dataclass(frozen=True, slots=True)
class Item:
    """One name in a directory. `kind` is file, directory, symlink or other. Only a file has a size, only a symlink a
    target."""

    name: bytes
    kind: str
    mode: int
    mtime_ns: int
    size: int = 0
    target: bytes = b""


@dataclass(frozen=True, slots=True)
class DirectoryListing:
    """A directory's content, by name. `truncated`: it has more than MOST_ITEMS, and only some are listed."""

    items: tuple[Item, ...]
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class FileAt:
    """An open regular file; the caller closes it. It was `size` bytes long when it was opened."""

    fd: int
    size: int
    mode: int
    mtime_ns: int

    def read(self, start: int, length: int) -> bytes:
        """At most `length` bytes from `start`; none at the file's end. Raises OSError."""
        return os.pread(self.fd, length, start)

    def close(self) -> None:
        os.close(self.fd)


def look(home: Path, root: bytes, path: bytes) -> DirectoryListing | FileAt:
    """The file or directory at `path` below a root of `home`; an empty path is the root itself. Follows symlinks as
    long as they stay below the root. Never waits for another program. Raises Absent, Refused, and OSError if the disk
    fails."""
    relative = _relative(root, path)
    try:
        held = _hold(home, root, relative)
    except Escape:
        raise PathRefused("the path leads out of its root, or in a circle") from None
    except OSError as exc:
        raise _reaction(exc) from exc
    try:
        return _open(held)
    except OSError as exc:
        raise _reaction(exc) from exc
    finally:
        os.close(held)


def _relative(root: bytes, path: bytes) -> bytes:
    if root not in ROOTS:
        raise Absent("no such root")
    parts = [part for part in path.split(b"/") if part not in (b"", b".")]
    if path.startswith(b"/") or b".." in parts or b"\0" in path:
        raise PathRefused("a path is relative, without `..` and without NUL")
    if len(parts) > MAX_DEPTH or len(path) > MAX_PATH or any(len(part) > MAX_NAME for part in parts):
        raise Absent("no such path can be")
    return b"/".join(parts) or b"."


def _hold(home: Path, root: bytes, relative: bytes) -> int:
    top = os.open(home / os.fsdecode(root), os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return open_beneath(top, relative, _HOLD, follow=True)
    finally:
        os.close(top)


def _open(held: int) -> DirectoryListing | FileAt:
    kind = stat.S_IFMT(os.fstat(held).st_mode)
    if kind == stat.S_IFDIR:
        fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=held)
        try:
            return _list(fd)
        finally:
            os.close(fd)
    if kind != stat.S_IFREG:
        raise PathRefused("neither a file nor a directory")
    # By its descriptor: this very file, whatever has its name now.
    fd = os.open(f"/proc/self/fd/{held}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    found = os.fstat(fd)
    return FileAt(fd, found.st_size, found.st_mode & MODE_BITS, found.st_mtime_ns)


def _list(directory: int) -> DirectoryListing:
    items = []
    with os.scandir(directory) as found:
        names = [os.fsencode(each.name) for each in islice(found, MOST_ITEMS + 1)]
    for name in sorted(names[:MOST_ITEMS]):
        try:
            items.append(_item(directory, name))
        except FileNotFoundError:
            continue
    return DirectoryListing(tuple(items), truncated=len(names) > MOST_ITEMS)


def _item(directory: int, name: bytes) -> Item:
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    kind = _KINDS.get(stat.S_IFMT(found.st_mode), "other")
    size = found.st_size if kind == "file" else 0
    target = b""
    if kind == "symlink":
        try:
            target = os.readlink(name, dir_fd=directory)
        except OSError as exc:
            if exc.errno != errno.EINVAL:
                raise
            kind = "other"  # it has just become something else
    return Item(name, kind, found.st_mode & MODE_BITS, found.st_mtime_ns, size, target)


def _reaction(error: OSError) -> Exception:
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
        return Absent("nothing is there")
    if error.errno in (errno.EACCES, errno.EPERM):
        return PathRefused("no right to read it")
    return error
