"""Copies files with several names once: otherwise a program could fill the backup's disk with the names of one file.

While a tree is copied, a directory in its copy holds one more name of each such file, made of the original's inode
number. So nothing is held in memory, and no path is needed. The number may be another file's by then, or the file may
have changed: then it is copied again, a few times. Where the target knows no hard links, each name gets a copy.
"""

import errno
import os
import secrets
import shutil
from types import TracebackType
from typing import Self

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
VERSIONS = 3  # of one file that changes meanwhile


class HardLinks:
    """For one tree, whose copy is the open directory `root`. Leaves nothing behind in it."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._name = f".links-{secrets.token_hex(8)}"
        self._pool: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            os.close(self._pool)
            shutil.rmtree(self._name, dir_fd=self._root)

    def link(self, original: os.stat_result, there: int, name: str) -> bool:
        """Give the copy of `original` one more name; False if it is to be copied. Raises OSError, also if it was copied
        often enough."""
        for version in range(VERSIONS):
            try:
                copy = os.stat(_key(original, version), dir_fd=self._opened())
            except FileNotFoundError:
                return False
            last = version == VERSIONS - 1  # target file systems may round times: there the size decides in the end
            if copy.st_size != original.st_size or (copy.st_mtime_ns != original.st_mtime_ns and not last):
                continue
            try:
                _link(self._opened(), _key(original, version), there, name)
                return True
            except OSError as error:
                if error.errno != errno.EMLINK:
                    raise
        raise OSError(errno.EBUSY, "it has too many names, or changes all the time")

    def remember(self, original: os.stat_result, there: int, name: str) -> None:
        """`name` is its newest copy."""
        for version in range(VERSIONS):
            try:
                _link(there, name, self._opened(), _key(original, version))
            except FileExistsError:
                continue
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS):
                    raise
            return

    def _opened(self) -> int:
        if self._pool is None:
            os.mkdir(self._name, 0o700, dir_fd=self._root)
            self._pool = os.open(self._name, _DIRECTORY, dir_fd=self._root)
        return self._pool


def _key(original: os.stat_result, version: int) -> str:
    return f"{original.st_dev:x}-{original.st_ino:x}-{version}"


def _link(here: int, name: str, there: int, other: str) -> None:
    os.link(name, other, src_dir_fd=here, dst_dir_fd=there, follow_symlinks=False)
