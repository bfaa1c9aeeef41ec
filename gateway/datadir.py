"""One process per data directory: a lock that ends with its holder, and a note that says who that is."""

import fcntl
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from gateway.settings import SettingsError


class DataDirBusy(Exception):
    """Another gateway uses the directory; the message says which."""


class DataDirLock:
    """Held from `with` to its end, or until the process dies. Raises DataDirBusy if somebody else holds it, and
    SettingsError if the directory cannot be used.
    """

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._path = data_dir / "lock"
        self._descriptor = -1
        self._note: dict[str, object] = {}

    def __enter__(self) -> Self:
        try:
            self._data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Opened, never replaced: a lock file that is renamed or removed lets two holders in.
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as exc:
            told = f"{self._data_dir} cannot be used: {exc.strerror or exc}; check HOLDFAST_DATA_DIR"
            raise SettingsError([told]) from exc
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = self._holder()
            os.close(self._descriptor)
            raise DataDirBusy(f"{self._data_dir} is in use by another gateway{holder}") from None
        self._note = {"pid": os.getpid(), "since": datetime.now(UTC).isoformat(timespec="seconds")}
        self._write_note()
        return self

    def __exit__(self, *exc: object) -> None:
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)

    def note_address(self, address: str) -> None:
        """Say where this gateway listens, for the second one and for commands that look for it."""
        self._note["address"] = address
        self._write_note()

    def _write_note(self) -> None:
        text = json.dumps(self._note).encode()
        os.pwrite(self._descriptor, text, 0)
        os.ftruncate(self._descriptor, len(text))

    def _holder(self) -> str:
        note = read_note(self._data_dir)
        if note is None:
            return ""
        address = f", listening on {note['address']}" if "address" in note else ""
        return f" (pid {note.get('pid')}, since {note.get('since')}{address})"


def read_note(data_dir: Path) -> dict[str, object] | None:
    """What the holder (present or killed) last noted: pid, since, address. None if there is nothing to read."""
    try:
        note = json.loads((data_dir / "lock").read_bytes())
    except (OSError, ValueError):
        return None
    return note if isinstance(note, dict) else None
