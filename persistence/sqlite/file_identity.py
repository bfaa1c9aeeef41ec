"""Whether paths still name the files that were opened by them.

A file that is removed or replaced while it is open goes on working for its open descriptors, and is gone when they
close. While a file is open its inode is not given to another, so device and inode tell whether a path still means it.
"""

import os
from collections.abc import Iterable
from pathlib import Path


class FileIdentity:
    """Made when the files are open; a path without a file then is ignored."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._known = {path: known for path in paths if (known := _identity(path)) is not None}

    def moved(self) -> Path | None:
        """The first path that names another file now, or none."""
        return next((path for path, known in self._known.items() if _identity(path) != known), None)


def database_files(path: Path) -> tuple[Path, ...]:
    """The files of an open SQLite database: without its log, a commit is as lost as without the file itself."""
    real = str(path.resolve())  # SQLite puts the others beside the file itself, not beside a symlink to it
    return path, Path(f"{real}-wal"), Path(f"{real}-shm")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        info = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return info.st_dev, info.st_ino
