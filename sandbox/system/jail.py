"""Opens files below a directory in which others may change everything at any time.

The kernel resolves the path and refuses to leave (`openat2` with RESOLVE_BENEATH); nothing is checked first and
opened later. If it has no such call, as under the filter of a contained sandbox, the path is walked one component at
a time: a symlink is read and walked likewise, `..` goes back to the directory that was walked through.
"""

import errno
import os
import stat

from sandbox.system.kernel import has_openat2, openat2

_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_MOST_LINKS, _MOST_OPEN = 40, 256
_ATTEMPTS = 64  # the kernel says EAGAIN if a directory was moved while it looked at `..`


class Escape(OSError):
    """The path leads out of its directory, or through a symlink where none may be."""

    def __init__(self, reason: str) -> None:
        super().__init__(errno.ELOOP, reason)


def open_beneath(directory: int, path: bytes, flags: int, *, follow: bool = False) -> int:
    """Open the file or directory at the relative `path` below `directory`; creates nothing. With `follow`, symlinks
    are followed as long as they stay below; without it, none is. Raises Escape and OSError."""
    if not has_openat2():
        return follow_beneath(directory, path, flags) if follow else walk_beneath(directory, path, flags)
    resolve = _BENEATH | _NO_MAGICLINKS | (0 if follow else _NO_SYMLINKS)
    for _ in range(_ATTEMPTS):
        try:
            return openat2(directory, path, flags, resolve)
        except OSError as exc:
            if exc.errno in (errno.EXDEV, errno.ELOOP):
                raise Escape("a path that leads elsewhere") from None
            if exc.errno != errno.EAGAIN:
                raise
    raise Escape("a path that changes all the time")


def walk_beneath(directory: int, path: bytes, flags: int) -> int:
    """The same without the kernel's help, and without following any symlink. Raises Escape and OSError."""
    parts = path.split(b"/")
    if path.startswith(b"/") or b".." in parts:
        raise Escape("a path that leads elsewhere")
    names = [part for part in parts if part not in (b"", b".")] or [b"."]
    at = os.dup(directory)
    try:
        for name in names[:-1]:
            inner = _open_unfollowed(at, name, os.O_PATH)
            os.close(at)
            at = inner
        return _open_unfollowed(at, names[-1], flags)
    finally:
        os.close(at)


def follow_beneath(directory: int, path: bytes, flags: int) -> int:
    """The same, following symlinks that stay below. Raises Escape and OSError."""
    links, waiting = 0, _components(path)
    stack = [os.dup(directory)]
    try:
        while waiting:
            name = waiting.pop()
            if name == b"..":
                os.close(stack.pop())
                if not stack:
                    raise Escape("a path that leads elsewhere")
                continue
            fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=stack[-1])
            mode = os.fstat(fd).st_mode
            if stat.S_ISDIR(mode) and len(stack) < _MOST_OPEN:
                stack.append(fd)
                continue
            try:
                if stat.S_ISLNK(mode) and (links := links + 1) <= _MOST_LINKS:
                    waiting += _components(os.readlink(b"", dir_fd=fd))
                elif stat.S_ISLNK(mode) or stat.S_ISDIR(mode):
                    raise Escape("a path without end")
                elif waiting:
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
                else:
                    return _open_unfollowed(stack[-1], name, flags)
            finally:
                os.close(fd)
        return os.open(b".", flags | os.O_CLOEXEC, dir_fd=stack[-1])
    finally:
        for fd in stack:
            os.close(fd)


def _components(path: bytes) -> list[bytes]:
    """The last first. Raises Escape."""
    if path.startswith(b"/"):
        raise Escape("a path that leads elsewhere")
    return [part for part in reversed(path.split(b"/")) if part not in (b"", b".")]


def _open_unfollowed(directory: int, name: bytes, flags: int) -> int:
    try:
        fd = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            raise Escape("a path through a symlink") from None
        raise
    # With O_PATH a symlink can be opened itself; nobody here wants that.
    if flags & os.O_PATH and stat.S_ISLNK(os.fstat(fd).st_mode):
        os.close(fd)
        raise Escape("a path through a symlink")
    return fd
