"""Giving a directory tree that a hostile program made to another user.

No symlink is followed, and depth costs neither stack nor descriptors: one directory is open at a time. The way back up
is checked, for a directory may have been moved meanwhile.
"""

import errno
import os
from pathlib import Path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def give_tree(path: Path, uid: int, gid: int) -> None:
    """Make `uid` and `gid` own the directory `path` and all in it. Raises OSError."""
    at = os.open(path, _DIRECTORY)
    above: list[tuple[tuple[int, int], list[str]]] = []  # of each directory on the way: which it is, what it has left
    try:
        left = _give(at, uid, gid)
        while left or above:
            if left:
                above.append((_which(at), left))
                at = _step(at, left.pop())
                left = _give(at, uid, gid)
            else:
                known, left = above.pop()
                at = _step(at, "..")
                if _which(at) != known:
                    raise OSError(errno.ESTALE, "a directory was moved while it was given away", str(path))
    finally:
        os.close(at)


def _give(at: int, uid: int, gid: int) -> list[str]:
    """Give the open directory and its entries to the user; return the names of its directories."""
    os.fchown(at, uid, gid)
    inner = []
    with os.scandir(at) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                inner.append(entry.name)
            else:
                os.chown(entry.name, uid, gid, dir_fd=at, follow_symlinks=False)
    return inner


def _step(at: int, name: str) -> int:
    """Open `name` of the open directory, in its place. If that fails, the open directory stays."""
    entered = os.open(name, _DIRECTORY, dir_fd=at)
    os.close(at)
    return entered


def _which(at: int) -> tuple[int, int]:
    found = os.fstat(at)
    return found.st_dev, found.st_ino
