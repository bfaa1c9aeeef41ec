"""Removes a directory tree that a hostile program made.

No symlink is followed, no permission bit stops it, and depth costs neither stack nor descriptors: a directory found
inside is first moved up beside the root of the removal, so there are never more than two levels open.
"""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: Path, trash: Path) -> None:
    """Remove `path` and everything in it. No error if it is missing. `trash` is a directory of ours on the same file
    system, in which every directory is emptied; the next call removes what an interrupted one left in it. Raises
    OSError."""
    throw_away(path, trash)
    for _ in emptying(trash):
        pass


def throw_away(path: Path, trash: Path) -> None:
    """The quick half of `remove_tree`: nothing is at `path` any more, and all of it is in the trash. Raises OSError."""
    trash.mkdir(mode=0o700, parents=True, exist_ok=True)
    at = os.open(trash, _DIRECTORY)
    try:
        with contextlib.suppress(FileNotFoundError):
            with contextlib.suppress(NotADirectoryError):
                _unlock(str(path), None)
            os.rename(path, _fresh(), dst_dir_fd=at)
    finally:
        os.close(at)


def emptying(trash: Path) -> Iterator[None]:
    """The other half: remove the trash's content, a directory at each step. Several callers may do this at the same
    time. Raises OSError."""
    at = os.open(trash, _DIRECTORY)
    try:
        while True:
            found = False
            with os.scandir(at) as entries:
                for entry in entries:
                    found = True
                    remove_entry(entry.name, at)
                    yield
            if not found:
                return
    finally:
        os.close(at)


def remove_entry(name: str, trash: int) -> None:
    """Remove one entry of the open directory `trash`; its own directories become entries of the trash. A missing
    entry is fine. If entries are added while it is read, it stays. Names are read a few at a time, because a
    directory may hold millions. Raises OSError."""
    try:
        _unlock(name, trash)
        fd = os.open(name, _DIRECTORY, dir_fd=trash)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=trash)
        return
    try:
        with os.scandir(fd) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    try:
                        os.unlink(entry.name, dir_fd=fd)
                    except IsADirectoryError:
                        _unlock(entry.name, fd)
                        os.rename(entry.name, _fresh(), src_dir_fd=fd, dst_dir_fd=trash)
    finally:
        os.close(fd)
    try:
        os.rmdir(name, dir_fd=trash)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
            raise


def _unlock(name: str, directory: int | None) -> None:
    """Give ourselves all rights on a directory; without them it cannot even be moved. Raises NotADirectoryError for
    anything else, also for a symlink."""
    fd = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        os.chmod(f"/proc/self/fd/{fd}", 0o700)
    finally:
        os.close(fd)


def _fresh() -> str:
    return secrets.token_hex(12)
