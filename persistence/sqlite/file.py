"""One SQLite file with two threads, each with its own connection: one writes, one reads. A commit is durable when
`commit` returns (WAL, synchronous=FULL); readers see a snapshot and never wait for a commit.

Checkpoints of the log run on the writer's thread after the answer has gone out, and not automatically: SQLite hides
the errors of automatic ones, and a failed fsync that is tried again may succeed without the bytes. So after an error
of the disk the file is broken for good: nobody is told `durable` any more. The same holds for a file that was removed
or replaced while it is open: its commits are gone with the process, unless the file is rescued at the end.
"""

import errno
import os
import sqlite3
import time
from collections.abc import Awaitable
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import structlog

from persistence.errors import CannotOpen, NoRoom, StoreBroken, StoreFull, StoreUnavailable
from persistence.migrations import missing, shipped
from persistence.sqlite.desk import Ask, Desk, is_full, primary_code
from persistence.sqlite.file_identity import FileIdentity, database_files

log = structlog.get_logger()

BUSY_SECONDS = 2.0
CHECKPOINT_BYTES = 16 * 2**20  # of log, roughly
JOURNAL_LIMIT_BYTES = 64 * 2**20
COMMIT_LOG_BYTES = 16 * 2**10  # log bytes of a commit beyond its payload: a safe guess
ROOM_BYTES = 2**20  # on a disk with less room a database does not even open

_DISK_ERRORS = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
REPLACED = "was removed or replaced while the gateway had it open"

T = TypeVar("T")


class SqliteFile:
    """The file at `path`, whose directory must exist, with the schema of `persistence/sql/<schema>`. One process writes
    it at a time."""

    def __init__(self, path: Path, schema: str) -> None:
        self._path = path
        self._schema = schema
        self._writer = Desk("sqlite-writer", self._open_writer)
        self._reader = Desk("sqlite-reader", self._open_reader)
        self._logged_bytes = 0  # since the last checkpoint; used on the writer's thread only
        self._broken: StoreBroken | None = None
        self.full = False  # a write found no room; until `try_room` finds some
        self._files = FileIdentity(())

    async def __aenter__(self) -> Self:
        try:
            await self._writer.open()
            await self._reader.open()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._reader.close()
        if self._files.moved() is not None:
            with suppress(StoreUnavailable):
                await self._writer.run("rescue", self._rescue)
        await self._writer.close()

    def _rescue(self, db: sqlite3.Connection) -> None:
        """Nobody can open this file any more, and all of it is still here: write it to a new file beside its old
        place."""
        rescued = self._path.with_name(f"{self._path.name}.rescued-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
        part = rescued.with_name(f"{rescued.name}.part")
        try:
            _make_private(part)
            with closing(sqlite3.connect(part)) as copy:
                db.backup(copy)
            part.rename(rescued)
            _flush_directory(rescued.parent)
        except (sqlite3.Error, OSError) as error:
            log.error("store.not_rescued", path=str(rescued), cause=str(error))
        else:
            log.warning("store.rescued", path=str(rescued))

    async def read(self, what: str, ask: Ask[T]) -> T:
        """Ask the reader. Raises StoreUnavailable, named after `what`."""
        return await self._reader.run(what, ask)

    async def write(self, what: str, ask: Ask[T]) -> T:
        """Write something that need not be durable. Raises StoreUnavailable, StoreFull."""
        return await self._noting_full(self._writer.run(what, lambda db: self._write(db, ask)))

    def _write(self, db: sqlite3.Connection, ask: Ask[T]) -> T:
        result = ask(db)
        if (moved := self._files.moved()) is not None:
            raise StoreUnavailable(f"{moved} {REPLACED}")
        return result

    async def commit(self, size: int, ask: Ask[T]) -> T:
        """Write something that callers will report as durable; `size` is roughly its bytes. Raises StoreUnavailable,
        StoreFull, and StoreBroken when a commit may or may not have reached the disk."""
        return await self._noting_full(self._writer.run("commit", lambda db: self._commit(db, size, ask)))

    def _commit(self, db: sqlite3.Connection, size: int, ask: Ask[T]) -> T:
        if self._broken is not None:
            raise self._broken
        try:
            result = ask(db)
        except sqlite3.Error as error:
            code = primary_code(error)
            if is_full(error):
                raise StoreFull(f"commit to {self._path}") from error
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise StoreUnavailable(f"commit to {self._path}") from error
            self._broken = StoreBroken(f"commit to {self._path}")
            raise self._broken from error
        if (moved := self._files.moved()) is not None:
            self._broken = StoreBroken(f"{moved} {REPLACED}")
            raise self._broken
        self._logged_bytes += size + COMMIT_LOG_BYTES
        if self._logged_bytes >= CHECKPOINT_BYTES:
            self._logged_bytes = 0
            self._writer.later(self._checkpoint)
        return result

    async def _noting_full(self, asked: Awaitable[T]) -> T:
        try:
            return await asked
        except StoreFull:
            self.full = True
            raise

    async def try_room(self) -> None:
        """Check for room, by a write that changes nothing. Raises StoreUnavailable."""
        with suppress(StoreFull):
            await self.write("room", _write_version_again)
            self.full = False

    async def give_back_log(self) -> None:
        """Empty the log, and give its room on the disk back, if nobody reads at the moment."""
        await self._writer.run("checkpoint", lambda db: self._checkpoint(db, "TRUNCATE"))

    def _checkpoint(self, db: sqlite3.Connection, mode: str = "PASSIVE") -> None:
        try:
            db.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
        except sqlite3.Error as error:
            if primary_code(error) not in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                self._broken = StoreBroken(f"checkpoint of {self._path}: {error}")

    def _open_writer(self) -> sqlite3.Connection:
        # A supervisor restarts an ended gateway: an empty database must not take the place of a rescued one.
        if not self._path.exists() and (found := sorted(self._path.parent.glob(f"{self._path.name}.rescued-*"))):
            raise CannotOpen(
                f"{self._path} is gone, and its content was written to {found[-1]}: move that, or a backup, to "
                f"{self._path}; or move it away to begin with an empty database"
            )
        try:
            _make_private(self._path)
            db = self._connect()
            try:
                db.execute("PRAGMA journal_mode = WAL")
                db.execute("PRAGMA synchronous = FULL")
                db.execute("PRAGMA wal_autocheckpoint = 0")
                db.execute(f"PRAGMA journal_size_limit = {JOURNAL_LIMIT_BYTES}")
                self._migrate(db)
                self._files = FileIdentity(database_files(self._path))
            except BaseException:
                db.close()
                raise
        except (sqlite3.Error, OSError) as error:
            raise kind_of_refusal(self._path, error)(
                f"cannot open the database {self._path}: {error}. Check that its directory exists, that this user may "
                "write there, that the disk has room and that the file is a Holdfast database"
            ) from error
        return db

    def _open_reader(self) -> sqlite3.Connection:
        db = self._connect()
        db.execute("PRAGMA query_only = ON")
        return db

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)
        db.execute("PRAGMA foreign_keys = ON")
        return db

    def _migrate(self, db: sqlite3.Connection) -> None:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        for migration in missing(shipped(self._schema), version):
            try:
                db.executescript(f"BEGIN IMMEDIATE; {migration.sql}; PRAGMA user_version = {migration.number}; COMMIT;")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise


def transaction(db: sqlite3.Connection, do: Ask[T]) -> T:
    """All changes of `do`, or none."""
    db.execute("BEGIN IMMEDIATE")
    try:
        result = do(db)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return result


def _write_version_again(db: sqlite3.Connection) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    db.execute(f"PRAGMA user_version = {version}")


def kind_of_refusal(path: Path, error: sqlite3.Error | OSError) -> type[CannotOpen]:
    """NoRoom if a full disk explains why the database at `path` could not be opened."""
    if isinstance(error, OSError):
        return NoRoom if error.errno in (errno.ENOSPC, errno.EDQUOT) else CannotOpen
    if is_full(error):
        return NoRoom
    with suppress(OSError):
        disk = os.statvfs(path.parent)
        if disk.f_bavail * disk.f_frsize < ROOM_BYTES and primary_code(error) in _DISK_ERRORS:
            return NoRoom
    return CannotOpen


def _make_private(path: Path) -> None:
    """Make the file readable by its owner alone (its log gets the same mode), and its name survive a power cut."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return
    _flush_directory(path.parent)


def _flush_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
