"""The trash of a data directory: a tree is moved there at once and removed later.

The caller waits for one rename, whatever the size of the tree and the trash. One daemon thread removes it: the
process may end at any time, and the rest is removed after the next start. Only the disk bounds the trash; its content
took the same room before.
"""

import os
import threading
from collections.abc import Callable
from pathlib import Path

from sandbox.system.safe_remove import remove_entry, throw_away


class Trash:
    """`open`, then `take` from any thread. The directory is ours alone: everything in it is removed."""

    def __init__(self, path: Path, warn: Callable[[str], None]) -> None:
        self._path = path
        self._warn = warn
        self._filled = threading.Event()
        self._closed = threading.Event()

    def open(self) -> None:
        """Begin to remove its content, also that of an earlier process."""
        self._filled.set()
        threading.Thread(target=self._run, name="trash", daemon=True).start()

    def take(self, path: Path) -> None:
        """Move `path` here; nothing there is fine. Raises OSError."""
        throw_away(path, self._path)
        self._filled.set()

    def close(self) -> None:
        """Stop after the present directory; nobody waits for it."""
        self._closed.set()
        self._filled.set()

    def _run(self) -> None:
        told: set[str] = set()
        while self._filled.wait() and not self._closed.is_set():
            self._filled.clear()
            try:
                stuck = self._empty()
            except OSError as error:  # the directory itself is gone, or no descriptor is left: the next one tries again
                self._warn(f"{self._path} could not be emptied: {error}")
                continue
            if stuck.keys() - told:
                first = next(iter(stuck.values()))
                self._warn(f"{len(stuck)} entries of {self._path} could not be removed: {first}")
            told = set(stuck)

    def _empty(self) -> dict[str, OSError]:
        """Remove everything removable; returns the errors of the rest, by name."""
        stuck: dict[str, OSError] = {}
        at = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found = True
            while found and not self._closed.is_set():
                found = False
                with os.scandir(at) as entries:
                    for entry in entries:
                        if self._closed.is_set():
                            break
                        if entry.name in stuck:
                            continue
                        found = True
                        try:
                            remove_entry(entry.name, at)
                        except OSError as error:
                            stuck[entry.name] = error
        finally:
            os.close(at)
        return stuck
