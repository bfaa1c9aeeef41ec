"""Copies files and trees, in little memory, whatever programs do to them meanwhile.

Sandboxes write into the trees that are copied here, and this may run as root. So no symlink is followed on either side,
every step goes from an open directory, and only files, directories and symlinks are copied. Nothing copied is setuid,
setgid or sticky. Holes stay holes: a file of many terabytes costs its content. A file with several names in a tree is
copied once, and has them in the copy. Names that vanish are skipped. An entry that cannot be copied is left out, for
any reason: a program can provoke almost any error on its own files, and must not end the backup of others by it. The
system never gets a whole path, so none is too long.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from gateway.backup.hard_links import HardLinks
from sandbox.system.problem import printable

DEEPEST = 80  # no snapshot goes deeper than 64
NAMED = 20  # of the entries left out
PIECE_BYTES = 8 << 20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
TRIES = 3  # for an entry that changes its kind during the copy
# Faults of the target or of this process, not of one entry: these end the copy.
_OF_ALL = {
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENODEV, errno.ENOMEM, errno.EMFILE, errno.ENFILE,
}  # fmt: skip
_CHANGED = {errno.EINVAL, errno.ELOOP, errno.ENOTDIR, errno.ENXIO}  # it is of another kind than it was


class Copier:
    """Counts the entries copied and left out; `told` is called with the number of bytes done. A source that `changes`
    may name an entry twice, before and after a rename: the first copy stays."""

    def __init__(self, told: Callable[[int], None] = lambda done: None, *, changes: bool = False) -> None:
        self.files = 0
        self.bytes = 0
        self.left_out = 0
        self.left_out_names: list[str] = []
        self._told = told
        self._changes = changes
        self._passed_over = (FileNotFoundError, FileExistsError) if changes else (FileNotFoundError,)
        self._as_root = os.geteuid() == 0
        self._links: HardLinks | None = None  # of the present tree

    def tree(self, source: Path, target: Path, wanted: Callable[[str], bool] = lambda name: True) -> None:
        """Copy the directory `source` to `target`, which is made; of its own entries only those that are `wanted`. A
        missing `source` is no error. Raises OSError; the entries copied so far stay."""
        try:
            opened = os.open(source, _DIRECTORY)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno in _OF_ALL:
                raise
            return self._leave_out(source, error)
        try:
            target.mkdir(mode=0o700, parents=True, exist_ok=True)
            into = os.open(target, _DIRECTORY)
            try:
                with HardLinks(into) as self._links:
                    self._directory(opened, into, source, wanted, 0)
                self._finish(opened, into)
            finally:
                self._links = None
                os.close(into)
        finally:
            os.close(opened)

    def file(self, source: Path, target: Path) -> bool:
        """Copy one file; False if there is none. Raises OSError."""
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _opened(source.parent) as here, _opened(target.parent) as there:
            return self._file(here, there, source.name, target.name)

    def _directory(self, here: int, there: int, path: Path, wanted: Callable[[str], bool], depth: int) -> None:
        for name in _names(here):
            if wanted(name):
                try:
                    self._entry(name, here, there, path, depth)
                except self._passed_over:
                    continue
                except OSError as error:
                    if error.errno in _OF_ALL or isinstance(error, FileExistsError):
                        raise
                    self._leave_out(path / name, error)

    def _entry(self, name: str, here: int, there: int, path: Path, depth: int) -> None:
        for attempt in range(1, TRIES + 1):
            try:
                return self._copy(name, here, there, path, depth)
            except OSError as error:
                if not self._changes or error.errno not in _CHANGED or attempt == TRIES:
                    raise

    def _copy(self, name: str, here: int, there: int, path: Path, depth: int) -> None:
        info = os.stat(name, dir_fd=here, follow_symlinks=False)
        if stat.S_ISLNK(info.st_mode):
            os.symlink(os.readlink(name, dir_fd=here), name, dir_fd=there)
            self._own(info, name, there)
        elif stat.S_ISDIR(info.st_mode):
            if depth >= DEEPEST:
                too_deep = OSError(errno.ENAMETOOLONG, f"more than {DEEPEST} directories deep")
                return self._leave_out(path / name, too_deep)
            opened = os.open(name, _DIRECTORY, dir_fd=here)
            try:
                os.mkdir(name, 0o700, dir_fd=there)
                into = os.open(name, _DIRECTORY, dir_fd=there)
                try:
                    self._directory(opened, into, path / name, lambda name: True, depth + 1)
                    self._finish(opened, into)
                finally:
                    os.close(into)
            finally:
                os.close(opened)
        elif stat.S_ISREG(info.st_mode):
            self._file(here, there, name, name)
        else:
            self._leave_out(path / name, OSError(errno.EINVAL, "neither a file nor a directory"))

    def _file(self, here: int, there: int, name: str, target_name: str) -> bool:
        try:
            source = os.open(name, _READ, dir_fd=here)
        except FileNotFoundError:
            return False
        with contextlib.closing(os.fdopen(source, "rb", buffering=0)):
            info = os.fstat(source)
            if not stat.S_ISREG(info.st_mode):
                raise OSError(errno.ENXIO, "no regular file", name)
            links = self._links if info.st_nlink > 1 else None
            if links is not None and links.link(info, there, target_name):
                self.files += 1
                return True
            target = os.open(target_name, _WRITE, 0o600, dir_fd=there)
            with contextlib.closing(os.fdopen(target, "wb", buffering=0)):
                try:
                    self._pour(source, target)
                    self._finish(source, target)
                    if links is not None:
                        links.remember(info, there, target_name)
                except OSError:  # no partial copy may stay
                    os.unlink(target_name, dir_fd=there)
                    raise
        self.files += 1
        return True

    def _pour(self, source: int, target: int) -> None:
        """Copies as many bytes as there were at the beginning: a file that grows meanwhile must not keep us for
        ever."""
        size, at = os.fstat(source).st_size, 0
        os.ftruncate(target, size)
        while at < size:
            try:
                at = os.lseek(source, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # nothing but a hole is left
                    return
                raise
            end = min(os.lseek(source, at, os.SEEK_HOLE), size)
            os.lseek(target, at, os.SEEK_SET)
            while at < end:
                copied = os.sendfile(target, source, at, min(end - at, PIECE_BYTES))
                if not copied:  # it was cut short
                    return
                at += copied
                self.bytes += copied
                self._told(self.bytes)

    def _finish(self, source: int, target: int) -> None:
        """Owner first: changing it clears mode bits."""
        info = os.fstat(source)
        if self._as_root:
            os.fchown(target, info.st_uid, info.st_gid)
        # A file that could be read here is readable in the copy, even if its rights were taken away meanwhile.
        readable = 0 if self._as_root else 0o500 if stat.S_ISDIR(info.st_mode) else 0o400
        os.fchmod(target, info.st_mode & 0o777 | readable)
        os.utime(target, ns=(info.st_atime_ns, info.st_mtime_ns))

    def _own(self, info: os.stat_result, name: str, there: int) -> None:
        if self._as_root:
            os.chown(name, info.st_uid, info.st_gid, dir_fd=there, follow_symlinks=False)
        os.utime(name, ns=(info.st_atime_ns, info.st_mtime_ns), dir_fd=there, follow_symlinks=False)

    def _leave_out(self, path: Path, error: OSError) -> None:
        self.left_out += 1
        if len(self.left_out_names) < NAMED:
            self.left_out_names.append(f"{printable(os.fsencode(path))}: {error.strerror or error}")


def measure(directory: Path) -> tuple[int, int, int]:
    """The number of regular files in it, their bytes, and the number of symlinks. Links to directories may be missing:
    which ones count as such depends on the machine. Raises OSError."""
    files = size = links = 0
    for _, _, names, here in os.fwalk(directory, onerror=_give_up):
        for name in names:
            info = os.stat(name, dir_fd=here, follow_symlinks=False)
            if stat.S_ISREG(info.st_mode):
                files, size = files + 1, size + info.st_size
            links += stat.S_ISLNK(info.st_mode)
    return files, size, links


def _give_up(error: OSError) -> None:
    raise error


def _names(directory: int) -> Iterator[str]:
    """The names in an open directory; none any more once it was removed."""
    with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            yield entry.name


@contextlib.contextmanager
def _opened(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
