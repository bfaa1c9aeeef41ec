"""The workspace that bench/sync.py syncs, the changes made in it, and the least cost of walking it.

It has any number of files: mostly small text files that compress well, and a few of 20 MB that do not compress. The
same seed makes the same files.
"""

import os
import random
import time
from collections.abc import Iterable
from pathlib import Path

from blake3 import blake3

LARGE_BYTES = 20_000_000
MOST_BYTES = 2_000_000  # of any other file
IN_A_DIRECTORY, BRANCHES = 15, 16
CHANGED = 10
SETTLED_SECONDS = 2.5  # after this time, a later change has a different timestamp on every file system
COUNTED = 256 << 10  # bytes that a change inside a larger file counts for


class Workspace:
    """`files` files below `root`. `large` of them are LARGE_BYTES long, the others about e**scale bytes."""

    def __init__(self, root: Path, files: int, *, large: int, scale: float) -> None:
        self.root, self.files = root, files
        self._scale = scale
        self._large = [files * (2 * number + 1) // (2 * large) for number in range(large)]
        self._directories = max(1, files // IN_A_DIRECTORY)
        self._edits = 0
        self.bytes = 0

    def make(self) -> None:
        rng = random.Random(7)
        large = set(self._large)
        for number in range(self.files):
            path = self._path(number)
            if number < self._directories:
                path.parent.mkdir(parents=True, exist_ok=True)
            size = LARGE_BYTES if number in large else int(min(MOST_BYTES, rng.lognormvariate(self._scale, 1.5)))
            line = rng.randbytes(64) + b" the source of a small file, line %d\n" % number
            path.write_bytes(rng.randbytes(size) if number in large else (line * (size // len(line) + 1))[:size])
            self.bytes += size
        time.sleep(SETTLED_SECONDS)

    def change_ten(self) -> int:
        """Append to CHANGED files. Return the bytes that this counts for."""
        self._edits += 1
        return sum(self._append(self._edits * 1009 + number * 769 + 17) for number in range(CHANGED))

    def _append(self, number: int) -> int:
        path = self._path(number % self.files)
        with path.open("ab") as file:
            file.write(b"edited %d %d\n" % (self._edits, number))
            return min(file.tell(), COUNTED)

    def change_byte(self) -> int:
        """Change a byte in the middle of a large file. Return the bytes that this counts for."""
        self._edits += 1
        with self._path(self._large[self._edits % len(self._large)]).open("r+b") as file:
            at = LARGE_BYTES // 2 + self._edits
            file.seek(at)
            before = file.read(1)[0]
            file.seek(at)
            file.write(bytes([before ^ 0xFF]))
        return COUNTED

    def _path(self, number: int) -> Path:
        directory = number % self._directories
        return self.root / f"d{directory // BRANCHES}" / f"s{directory % BRANCHES}" / f"f{number}.txt"


def walk_seconds(root: Path) -> float:
    """The time of one bare walk, which lists every directory and stats every entry."""
    began = time.perf_counter()
    waiting = [os.fspath(root)]
    while waiting:
        with os.scandir(waiting.pop()) as items:
            for item in items:
                item.stat(follow_symlinks=False)
                if item.is_dir(follow_symlinks=False):
                    waiting.append(item.path)
    return time.perf_counter() - began


def fingerprint(root: Path) -> str:
    """A hash of the names and contents of all files."""
    told = blake3()
    for path in sorted(_files(root)):
        told.update(os.fsencode(path.relative_to(root)) + b"\0")
        told.update(blake3(path.read_bytes()).digest())
    return told.hexdigest()


def _files(root: Path) -> Iterable[Path]:
    for directory, _, names in os.walk(root):
        yield from (Path(directory, name) for name in names)
