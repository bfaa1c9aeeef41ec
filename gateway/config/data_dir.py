"""One process per data directory: a lock that ends with its holder, and a note that names the holder.

Two things are locked: the directory itself, which cannot be removed while it has entries, and the file `lock`, which
can. The file carries the note, and keeps out gateways of earlier versions, which lock only that file. A SQLite
database, which may lie elsewhere, has a lock of its own.
"""

import errno
import fcntl
import json
import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from gateway.config.settings import SettingsError

RESTORING = "restore-unfinished"  # in a directory with an unfinished restore: no gateway may use it
_LOCK = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NO_LOCKS = {errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}


class DataDirBusy(Exception):
    """Another gateway uses the directory; the message says which."""


class DatabaseBusy(DataDirBusy):
    """Another gateway uses the database, from another data directory or this one; the message says which."""


class DataDirLock:
    """Held from `with` to its end, or until the process dies. Raises DataDirBusy if another process holds it, and
    SettingsError if the directory cannot be used.
    """

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._path = data_dir / "lock"
        self._directory = -1
        self._descriptor = -1
        self._note: dict[str, object] = {}
        self._noted = False

    def __enter__(self) -> Self:
        if os.path.lexists(self._data_dir / RESTORING):
            told = f"a restore into {self._data_dir} was cut off, or is under way"
            raise SettingsError([f"{told}: empty the directory and run `holdfast restore` again"])
        try:
            self._data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._directory = os.open(self._data_dir, _DIRECTORY)
            # Opened, never replaced: a lock file that is renamed or removed lets two holders in.
            self._descriptor = os.open(self._path, _LOCK | os.O_CREAT, 0o600)
        except OSError as exc:
            self._close()
            told = f"{self._data_dir} cannot be used: {exc.strerror or exc}; check HOLDFAST_DATA_DIR"
            raise SettingsError([told]) from exc
        if not (_lock_directory(self._directory) and _lock(self._descriptor)):
            self._close()
            raise DataDirBusy(f"{self._data_dir} is in use by another gateway{_told(read_note(self._data_dir))}")
        self._note = {"pid": os.getpid(), "since": datetime.now(UTC).isoformat(timespec="seconds")}
        self._write_note()
        return self

    def __exit__(self, *exc: object) -> None:
        with suppress(OSError):
            os.ftruncate(self._descriptor, 0)
        self._close()

    def note_address(self, address: str) -> None:
        """Note the address this gateway listens on, for a second gateway and for commands that look for it."""
        self._note["address"] = address
        self._write_note()

    def mend(self) -> bool:
        """Make the lock file again if it was removed, and write the note if the disk had no room for it. Return True if
        the file was made again. Raises DataDirBusy if another gateway has the new file, OSError."""
        if self._is_ours():
            if not self._noted:
                self._write_note()
            return False
        new = os.open(self._path, _LOCK | os.O_CREAT, 0o600)
        if not _lock(new):
            os.close(new)
            raise DataDirBusy(f"{self._path} was removed, and another gateway uses {self._data_dir} since")
        os.close(self._descriptor)
        self._descriptor = new
        self._write_note()
        return True

    def _is_ours(self) -> bool:
        try:
            return os.path.samestat(os.stat(self._path, follow_symlinks=False), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False

    def _write_note(self) -> None:
        """The lock holds without its note: a full disk must not prevent a start."""
        text = json.dumps(self._note).encode()
        try:
            self._noted = os.pwrite(self._descriptor, text, 0) == len(text)
            os.ftruncate(self._descriptor, len(text))
        except OSError:
            self._noted = False

    def _close(self) -> None:
        for descriptor in (self._descriptor, self._directory):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._directory = -1


class DatabaseLock:
    """One process per SQLite database, wherever the data directories are: a lock on a file beside it. Held from `with`
    to its end, or until the process dies. Raises DatabaseBusy. Where no such file can be made, no lock is taken: no
    database can be used there, and the store says why."""

    def __init__(self, database: Path, data_dir: Path) -> None:
        self._path = _beside(database)
        self._database = database
        self._note = f"pid {os.getpid()}, HOLDFAST_DATA_DIR={data_dir.absolute()}".encode()
        self._descriptor = -1

    def __enter__(self) -> Self:
        with suppress(OSError):
            self._descriptor = os.open(self._path, _LOCK | os.O_CREAT, 0o600)
        if self._descriptor < 0:
            return self
        if not _lock_directory(self._descriptor):
            theirs = os.pread(self._descriptor, 4096, 0).decode(errors="replace")
            os.close(self._descriptor)
            raise DatabaseBusy(f"{self._database} is in use by another gateway ({theirs})")
        with suppress(OSError):  # a full disk: the lock holds without its note
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, self._note, 0)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


def is_database_held(database: Path) -> bool:
    """True if a gateway uses the database, from any data directory. Makes no file."""
    return _is_held(_beside(database), _LOCK)


def _beside(database: Path) -> Path:
    database = database.resolve()
    return database.with_name(f"{database.name}.lock")


def holder(data_dir: Path) -> dict[str, object] | None:
    """The note of the gateway that runs on the directory, {} if it cannot be read; None if none runs. Makes no file."""
    if not data_dir.is_dir():
        return None
    held = _is_held(data_dir, _DIRECTORY) or _is_held(data_dir / "lock", _LOCK)
    return (read_note(data_dir) or {}) if held else None


def is_serving(data_dir: Path) -> bool:
    """True if a gateway on the directory has got past its start, as far as its note shows."""
    note = holder(data_dir)
    return note is not None and ("address" in note or not note)


def read_note(data_dir: Path) -> dict[str, object] | None:
    """The last note of the holder (present or killed): pid, since, address. None if there is nothing to read."""
    try:
        note = json.loads((data_dir / "lock").read_bytes())
    except (OSError, ValueError):
        return None
    return note if isinstance(note, dict) else None


def _told(note: dict[str, object] | None) -> str:
    if note is None:
        return ""
    address = f", listening on {note['address']}" if "address" in note else ""
    return f" (pid {note.get('pid')}, since {note.get('since')}{address})"


def _is_held(path: Path, flags: int) -> bool:
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        return False
    try:
        return not (_lock_directory if flags == _DIRECTORY else _lock)(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock_directory(descriptor: int) -> bool:
    """True also where the file system cannot lock it: then the data directory's own file has to do."""
    try:
        return _lock(descriptor)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return True
        raise
