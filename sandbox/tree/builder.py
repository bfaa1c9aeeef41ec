"""Makes files, directories and symlinks below one directory of ours.

Everything is made through descriptors of directories, by its last name, never followed, never over an existing entry.
A directory gets its mode and its time when its content is complete, so a read-only one can be filled.
"""

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from sandbox.system.jail import open_beneath
from sandbox.system.kernel import syncfs

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORIES_OPEN = 64
_FILES_OPEN = 32
_BEHIND_BYTES = 64 << 20  # after so much is written, the disk is asked to begin writing it back


@dataclass(slots=True)
class OpenFiles:
    """Descriptors by path, the least recently used closed when there are more than `most`."""

    most: int
    reopen: Callable[[bytes], int]
    _open: OrderedDict[bytes, int] = field(default_factory=OrderedDict)

    def get(self, path: bytes) -> int:
        fd = self._open.get(path)
        if fd is None:
            return self.add(path, self.reopen(path))
        self._open.move_to_end(path)
        return fd

    def add(self, path: bytes, fd: int) -> int:
        self._open[path] = fd
        if len(self._open) > self.most:
            os.close(self._open.popitem(last=False)[1])
        return fd

    def close(self, path: bytes) -> None:
        fd = self._open.pop(path, None)
        if fd is not None:
            os.close(fd)

    def close_all(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])


class Builder:
    """Makes a tree below the open directory `top`, which becomes the builder's to close. Every method may raise
    OSError, `FileExistsError` above all. Not for two threads at once."""

    def __init__(self, top: int) -> None:
        self.top = top
        self._directories = OpenFiles(_DIRECTORIES_OPEN, self._open_directory)
        self._files = OpenFiles(_FILES_OPEN, self._open_file)
        self._behind: threading.Thread | None = None
        self._behind_bytes = 0

    def close(self) -> None:
        """Close every descriptor; the made files stay. Safe to repeat."""
        if self._behind is not None:
            self._behind.join()
        self._files.close_all()
        self._directories.close_all()
        if self.top >= 0:
            os.close(self.top)
            self.top = -1

    def parent(self, path: bytes) -> tuple[int, bytes]:
        """The open directory `path` lies in, good until the next call of any method, and its name there."""
        directory, _, name = path.rpartition(b"/")
        return (self._directories.get(directory) if directory else self.top), name

    def make_directory(self, path: bytes) -> None:
        parent, name = self.parent(path)
        os.mkdir(name, 0o700, dir_fd=parent)

    def make_file(self, path: bytes) -> int:
        """A new file for `pwrite`. It stays open until `finish_file`, or until many others are: ask `file` again."""
        parent, name = self.parent(path)
        return self._files.add(path, os.open(name, _NEW_FILE, 0o600, dir_fd=parent))

    def file(self, path: bytes) -> int:
        """The descriptor of a file made before and not finished, good until the next call of any method."""
        return self._files.get(path)

    def finish_file(self, path: bytes, mode: int, mtime_ns: int) -> None:
        fd = self._files.get(path)
        os.fchmod(fd, mode)
        os.utime(fd, ns=(mtime_ns, mtime_ns))
        self._files.close(path)

    def write_file(self, path: bytes, content: bytes | memoryview, mode: int, mtime_ns: int) -> None:
        """A whole file in one go."""
        parent, name = self.parent(path)
        fd = os.open(name, _NEW_FILE, 0o600, dir_fd=parent)
        try:
            write_all(fd, content, 0)
            os.fchmod(fd, mode)
            os.utime(fd, ns=(mtime_ns, mtime_ns))
        finally:
            os.close(fd)

    def link_file(self, path: bytes, new_path: bytes) -> int:
        """One more name for a finished file that was made here; returns its size."""
        parent, name = self.parent(path)
        new_parent, new_name = self.parent(new_path)  # the other one stays open: it was used last
        os.link(name, new_name, src_dir_fd=parent, dst_dir_fd=new_parent, follow_symlinks=False)
        return os.stat(new_name, dir_fd=new_parent, follow_symlinks=False).st_size

    def make_symlink(self, path: bytes, target: bytes, mtime_ns: int) -> None:
        parent, name = self.parent(path)
        os.symlink(target, name, dir_fd=parent)
        os.utime(name, ns=(mtime_ns, mtime_ns), dir_fd=parent, follow_symlinks=False)

    def finish_directories(self, directories: Iterable[tuple[bytes, int, int]]) -> None:
        """Give directories, as (path, mode, mtime_ns), their mode and time, the inner ones first. After this nothing
        can be made any more."""
        self._files.close_all()
        self._directories.close_all()
        for path, mode, mtime_ns in sorted(directories, reverse=True):
            fd = self._open_directory(path)
            try:
                os.utime(fd, ns=(mtime_ns, mtime_ns))
                os.fchmod(fd, mode)
            finally:
                os.close(fd)

    def write_behind(self, count: int) -> None:
        """`count` bytes more were written: now and then the disk is asked to begin, so that `sync` finds little left
        to do."""
        self._behind_bytes += count
        if self._behind_bytes >= _BEHIND_BYTES and (self._behind is None or not self._behind.is_alive()):
            self._behind_bytes = 0
            # Through its own descriptor: the kernel reports an error once for each, and `sync` must get it.
            fd = os.open(".", DIRECTORY, dir_fd=self.top)
            self._behind = threading.Thread(target=_sync_and_close, args=(fd,), name="tree.behind", daemon=True)
            self._behind.start()

    def sync(self) -> None:
        """Wait until everything is on the disk."""
        syncfs(self.top)

    def _open_directory(self, path: bytes) -> int:
        return open_beneath(self.top, path, DIRECTORY)

    def _open_file(self, path: bytes) -> int:
        parent, name = self.parent(path)
        return os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=parent)


def write_all(fd: int, content: bytes | memoryview, offset: int) -> None:
    """Write all of `content` at `offset`. Raises OSError."""
    done = os.pwrite(fd, content, offset)
    while done < len(content):
        done += os.pwrite(fd, memoryview(content)[done:], offset + done)


def _sync_and_close(fd: int) -> None:
    try:
        with contextlib.suppress(OSError):
            syncfs(fd)
    finally:
        os.close(fd)


def unlock(name: bytes, directory: int) -> None:
    """Give ourselves all rights on a directory. Raises NotADirectoryError for anything else, also for a symlink."""
    fd = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        os.chmod(f"/proc/self/fd/{fd}", 0o700)
    finally:
        os.close(fd)
