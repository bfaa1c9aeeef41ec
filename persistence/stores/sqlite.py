"""Conversations in one SQLite file, durable when `commit` returns (WAL, synchronous=FULL).

Two threads, each with its own connection: one writes, one reads. Readers see a snapshot and never wait for a commit.
Checkpoints of the log run on the writer's thread after the answer has gone out, and not automatically: SQLite hides the
errors of automatic ones, and a failed fsync that is tried again may succeed without the bytes.
"""

import asyncio
import json
import os
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from persistence.batch import Head, Plan, is_text, plan, questions
from persistence.errors import CannotOpen, StoreBroken, StoreFull, StoreUnavailable
from persistence.migrations import missing, shipped
from persistence.record import Loaded, Outcome, Record, Session, Write

CIDS_LOADED = 10_000
BUSY_SECONDS = 2.0
CHECKPOINT_BYTES = 16 * 2**20  # of log, roughly
JOURNAL_LIMIT_BYTES = 64 * 2**20
COMMIT_LOG_BYTES = 16 * 2**10  # what a commit, and each write of it, adds to the log beyond the payload: a safe guess
WRITE_LOG_BYTES = 4 * 2**10

SESSION = "id, user_id, created_at, spec, state, last_seq, delivered"
RECORD = """s.id, m.seq, m.cid, m.role, m.type, m.payload, m.created_at,
    CASE WHEN m.status = 'stored' AND m.seq <= s.delivered THEN 'delivered' ELSE m.status END"""
RECORDS = f"SELECT {RECORD} FROM sessions s JOIN messages m ON m.session_no = s.no WHERE s.id = ?"
HEADS = "SELECT id, no, last_seq, delivered FROM sessions WHERE id IN (SELECT value FROM json_each(?))"
KNOWN = "SELECT seq FROM messages WHERE session_no = ? AND cid = ?"
INSERT = "INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
MARK = "UPDATE messages SET status = ? WHERE session_no = ? AND seq = ?"
HEAD = "UPDATE sessions SET last_seq = ?, delivered = ? WHERE no = ?"
STATE = "UPDATE sessions SET state = ? WHERE no = ?"
SPEC = "UPDATE sessions SET spec = ? WHERE no = ?"
WAITING = """SELECT s.id FROM sessions s WHERE EXISTS
    (SELECT 1 FROM messages m WHERE m.session_no = s.no AND m.seq > s.delivered AND m.status = 'stored')
    ORDER BY s.no"""
CHECKPOINT = "INSERT INTO checkpoints VALUES (?, ?) ON CONFLICT (session_no) DO UPDATE SET body = excluded.body"
CREATE = """INSERT INTO sessions (id, user_id, created_at, spec, state) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (id) DO NOTHING"""

T = TypeVar("T")


class SqliteStore:
    """A MessageStore in the file at `path`, whose directory must exist. One process writes it at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer = _Desk("sqlite-writer", self._open_writer)
        self._reader = _Desk("sqlite-reader", self._open_reader)
        self._logged_bytes = 0  # since the last checkpoint; used on the writer's thread only
        self._broken: StoreBroken | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._writer.open()
            await self._reader.open()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        await self._reader.close()
        await self._writer.close()

    async def create(self, session: Session) -> Session:
        return await self._writer.run("create", lambda db: _create(db, session))

    async def find(self, session_id: str) -> Session | None:
        return await self._reader.run("find", lambda db: _find(db, session_id))

    async def load(self, session_id: str) -> Loaded | None:
        return await self._reader.run("load", lambda db: _load(db, session_id))

    async def sessions(self, user_id: str | None = None) -> list[Session]:
        where, values = ("", ()) if user_id is None else ("WHERE user_id = ?", (user_id,))
        sql = f"SELECT {SESSION} FROM sessions {where} ORDER BY no DESC"
        return await self._reader.run("sessions", lambda db: [Session(*row) for row in db.execute(sql, values)])

    async def waiting(self) -> list[str]:
        return await self._reader.run("waiting", lambda db: [session_id for (session_id,) in db.execute(WAITING)])

    async def commit(self, writes: Sequence[Write]) -> list[Outcome]:
        return await self._writer.run("commit", lambda db: self._commit(db, writes))

    async def messages(
        self, session_id: str, *, after: int = 0, before: int | None = None, limit: int = 100
    ) -> list[Record]:
        before_clause, values = ("", ()) if before is None else ("AND m.seq < ?", (before,))
        newest = before is not None and after <= 0
        order = "DESC" if newest else "ASC"
        sql = f"{RECORDS} AND m.seq > ? {before_clause} ORDER BY m.seq {order} LIMIT ?"
        found = await self._reader.run(
            "messages", lambda db: _records(db, sql, (session_id, max(after, 0), *values, max(limit, 0)))
        )
        return found[::-1] if newest else found

    async def by_cid(self, session_id: str, cid: str) -> Record | None:
        if not is_text(session_id, cid):
            return None
        found = await self._reader.run("by_cid", lambda db: _records(db, f"{RECORDS} AND m.cid = ?", (session_id, cid)))
        return found[0] if found else None

    async def purge(self, session_id: str) -> None:
        await self._writer.run("purge", lambda db: _purge(db, session_id))

    def _commit(self, db: sqlite3.Connection, writes: Sequence[Write]) -> list[Outcome]:
        if self._broken is not None:
            raise self._broken
        try:
            # Asking for every cid costs as much as storing it, so the unique index is the question, and only a batch
            # that collides is asked about and done again.
            try:
                decided = _transact(db, writes, trusting=True)
            except sqlite3.IntegrityError:
                decided = _transact(db, writes, trusting=False)
        except sqlite3.Error as error:
            code = _primary_code(error)
            if code == sqlite3.SQLITE_FULL or _code(error) == sqlite3.SQLITE_IOERR_SHMSIZE:
                raise StoreFull(f"commit to {self._path}") from error
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise StoreUnavailable(f"commit to {self._path}") from error
            self._broken = StoreBroken(f"commit to {self._path}")
            raise self._broken from error
        self._logged_bytes += sum(write.size + WRITE_LOG_BYTES for write in writes) + COMMIT_LOG_BYTES
        if self._logged_bytes >= CHECKPOINT_BYTES:
            self._logged_bytes = 0
            self._writer.later(self._checkpoint)
        return decided.outcomes

    def _checkpoint(self, db: sqlite3.Connection) -> None:
        try:
            db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.Error as error:
            if _primary_code(error) not in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                self._broken = StoreBroken(f"checkpoint of {self._path}: {error}")

    def _open_writer(self) -> sqlite3.Connection:
        try:
            _make_private(self._path)
            db = self._connect()
            try:
                db.execute("PRAGMA journal_mode = WAL")
                db.execute("PRAGMA synchronous = FULL")
                db.execute("PRAGMA wal_autocheckpoint = 0")
                db.execute(f"PRAGMA journal_size_limit = {JOURNAL_LIMIT_BYTES}")
                _migrate(db)
            except BaseException:
                db.close()
                raise
        except (sqlite3.Error, OSError) as error:
            raise CannotOpen(
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


class _Desk:
    """One thread with one connection; it does what is asked of it in order, and finishes what it began even if the
    asker has gone."""

    def __init__(self, name: str, connect: Callable[[], sqlite3.Connection]) -> None:
        self._name = name
        self._connect = connect
        self._thread: ThreadPoolExecutor | None = None
        self._db: sqlite3.Connection | None = None  # touched on the thread only

    async def open(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=self._name)
        await asyncio.wrap_future(self._thread.submit(self._sit_down))

    async def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            closing = thread.submit(self._stand_up)
            thread.shutdown(wait=False)
            await asyncio.shield(asyncio.wrap_future(closing))  # a cancel must not leave the file open

    async def run(self, what: str, ask: Callable[[sqlite3.Connection], T]) -> T:
        if self._thread is None:
            raise StoreUnavailable(f"{what}: the store is not open")
        return await asyncio.wrap_future(self._thread.submit(self._answer, what, ask))

    def later(self, do: Callable[[sqlite3.Connection], None]) -> None:
        """Do it after what is asked already, or never if the desk closes first. Called on the desk's own thread."""
        thread = self._thread
        if thread is not None:
            with suppress(RuntimeError):  # closed in this very moment
                thread.submit(self._answer, "later", do)

    def _sit_down(self) -> None:
        self._db = self._connect()

    def _stand_up(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()

    def _answer(self, what: str, ask: Callable[[sqlite3.Connection], T]) -> T:
        if self._db is None:
            raise StoreUnavailable(f"{what}: the store is not open")
        try:
            return ask(self._db)
        except sqlite3.Error as error:
            kind = StoreFull if _primary_code(error) == sqlite3.SQLITE_FULL else StoreUnavailable
            raise kind(f"{what}: {error}") from error


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", -1)


def _primary_code(error: sqlite3.Error) -> int:
    return _code(error) & 0xFF


def _transact(db: sqlite3.Connection, writes: Sequence[Write], *, trusting: bool) -> Plan:
    """Plan and perform in one transaction. `trusting`: that a new seq has a new cid, or IntegrityError."""
    db.execute("BEGIN IMMEDIATE")
    try:
        ids = json.dumps(list({write.session_id for write in writes}))
        numbers: dict[str, int] = {}
        heads: dict[str, Head] = {}
        for session_id, no, last_seq, delivered in db.execute(HEADS, (ids,)):
            numbers[session_id] = no
            heads[session_id] = Head(last_seq, delivered)
        cids: dict[tuple[str, str], int] = {}
        for session_id, cid in questions(writes, heads, retries_only=trusting):
            row = db.execute(KNOWN, (numbers[session_id], cid)).fetchone()
            if row is not None:
                cids[session_id, cid] = row[0]
        decided = plan(writes, heads, cids)
        _perform(db, decided, numbers)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return decided


def _perform(db: sqlite3.Connection, decided: Plan, numbers: dict[str, int]) -> None:
    # str(): the driver takes a slow road for a subclass such as Status
    db.executemany(
        INSERT,
        [
            (numbers[r.session_id], r.seq, r.cid, r.role, r.type, r.payload, r.created_at, r.status)
            for r in decided.rows
        ],
    )
    if decided.marks:
        db.executemany(MARK, [(str(status), numbers[session_id], seq) for status, session_id, seq in decided.marks])
    if decided.heads:
        changed = decided.heads.items()
        db.executemany(HEAD, [(head.last_seq, head.delivered, numbers[session_id]) for session_id, head in changed])
    if decided.states:
        db.executemany(STATE, [(state, numbers[session_id]) for session_id, state in decided.states.items()])
    if decided.specs:
        db.executemany(SPEC, [(spec, numbers[session_id]) for session_id, spec in decided.specs.items()])
    kept = [(numbers[session_id], body) for session_id, body in decided.checkpoints.items() if body]
    removed = [(numbers[session_id],) for session_id, body in decided.checkpoints.items() if not body]
    if kept:
        db.executemany(CHECKPOINT, kept)
    if removed:
        db.executemany("DELETE FROM checkpoints WHERE session_no = ?", removed)


def _create(db: sqlite3.Connection, session: Session) -> Session:
    db.execute(CREATE, (session.id, session.user_id, session.created_at, session.spec, session.state))
    kept = _find(db, session.id)
    if kept is None:
        raise StoreUnavailable(f"session {session.id} was removed while it was created")
    return kept


def _find(db: sqlite3.Connection, session_id: str) -> Session | None:
    if not is_text(session_id):
        return None
    row = db.execute(f"SELECT {SESSION} FROM sessions WHERE id = ?", (session_id,)).fetchone()
    return Session(*row) if row else None


def _load(db: sqlite3.Connection, session_id: str) -> Loaded | None:
    db.execute("BEGIN")  # one snapshot for all that follows
    try:
        session = _find(db, session_id)
        if session is None:
            return None
        (no,) = db.execute("SELECT no FROM sessions WHERE id = ?", (session_id,)).fetchone()
        checkpoint = db.execute("SELECT body FROM checkpoints WHERE session_no = ?", (no,)).fetchone()
        newest_first = db.execute(
            "SELECT cid, seq FROM messages WHERE session_no = ? AND status != 'duplicate' ORDER BY seq DESC LIMIT ?",
            (no, CIDS_LOADED),
        ).fetchall()
        waiting = f"{RECORDS} AND m.seq > s.delivered AND m.status = 'stored' ORDER BY m.seq"
        return Loaded(
            session=session,
            checkpoint=checkpoint[0] if checkpoint else b"",
            cids=dict(reversed(newest_first)),
            waiting=_records(db, waiting, (session_id,)),
            open=_records(db, f"{RECORDS} AND m.status = 'open' ORDER BY m.seq", (session_id,)),
        )
    finally:
        db.execute("ROLLBACK")


def _records(db: sqlite3.Connection, sql: str, values: Sequence[Any]) -> list[Record]:
    return [Record(*row) for row in db.execute(sql, values)]


def _purge(db: sqlite3.Connection, session_id: str) -> None:
    if is_text(session_id):
        db.execute("DELETE FROM sessions WHERE id = ?", (session_id,))


def _migrate(db: sqlite3.Connection) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    for migration in missing(shipped("sqlite"), version):
        try:
            db.executescript(f"BEGIN IMMEDIATE; {migration.sql}; PRAGMA user_version = {migration.number}; COMMIT;")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise


def _make_private(path: Path) -> None:
    """Make the file readable by its owner alone (its log gets the same mode), and its name survive a power cut."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
