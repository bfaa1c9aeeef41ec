"""The first durable stage before a remote store: writes in one SQLite file, in order, until the store has them.

Rows are columns, so that an operator can read them with SQL. The file keeps its size while it is in use and reuses
freed space. If an outage made it large, it is shrunk when it is empty.
"""

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import Collection, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from persistence import crash_points
from persistence.commit_plan import buried
from persistence.errors import CannotOpen, StoreBroken, StoreFull, StoreUnavailable
from persistence.record import DeadLetter, Record, Write
from persistence.spool.overlay import SpoolOverlay, Tail
from persistence.spool.ports import SpoolRow
from persistence.spool.rows import COLUMNS, SIZE, columns_of, row_of
from persistence.sqlite.desk import Ask, primary_code
from persistence.sqlite.file import CHECKPOINT_BYTES, SqliteFile, transaction

MAX_BYTES = 2**30
SHRINK_BYTES = 16 * 2**20  # free pages that are worth giving back
# Room that stays free on the disk, a quarter of a small one: without it the log could not be emptied, nor rows
# removed.
RESERVE_BYTES = 2 * CHECKPOINT_BYTES
ROW_LOG_BYTES = 4 * 2**10  # what each row adds to the log beyond the write: a safe guess

INSERT = f"INSERT INTO spool ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
SELECT = f"SELECT {COLUMNS} FROM spool"
TAILS = """SELECT session_id, count(*), count(seq), coalesce(max(seq), 0),
    coalesce(max(seq) FILTER (WHERE status = 'stored'), 0), coalesce(max(delivered), 0), sum(size)
    FROM spool GROUP BY session_id"""
NEWEST = """SELECT session_id, {0} FROM spool
    WHERE no IN (SELECT max(no) FROM spool WHERE {0} IS NOT NULL GROUP BY session_id)"""
POINTLESS = "session_id = ? AND no < ? AND checkpoint IS NOT NULL"
REMOVE = "DELETE FROM spool WHERE no IN (SELECT value FROM json_each(?)) RETURNING session_id, seq IS NOT NULL, size"
FORGET = "DELETE FROM spool WHERE session_id = ? RETURNING session_id, seq IS NOT NULL, size"
LOSE = """INSERT INTO lost (session_id, seq, cid, role, type, payload, created_at, status, reason, lost_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
LOST = "SELECT no, session_id, seq, cid, role, type, payload, created_at, status, reason, lost_at FROM lost"
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_SCHEMA)

T = TypeVar("T")


class Spool:
    """A FirstStage in the file at `path`, whose directory must exist. One process uses it at a time. Full at
    `max_bytes` of writes, or when the disk is nearly so."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self.tails = SpoolOverlay()
        self.last_no = 0
        self.oldest_at: float | None = None
        self._path = path
        self._max_bytes = max_bytes
        self._file = SqliteFile(path, "spool")
        self._changing = asyncio.Lock()
        self._under_way: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        await self._file.__aenter__()
        try:
            await self._recall()
        except BaseException:
            await self._file.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._under_way:
            await asyncio.wait(self._under_way)
        await self._file.close()

    async def append(self, writes: Sequence[Write]) -> list[SpoolRow]:
        return await self._whole(self._append(writes))

    async def first(self, writes: int, size: int, *, up_to: int, without: Collection[str]) -> list[SpoolRow]:
        return await self._read("replay", lambda db: _first(db, writes, size, up_to, without))

    async def remove(self, nos: Sequence[int], lost: Sequence[tuple[Record, str]] = ()) -> None:
        await self._whole(self._remove(nos, lost))

    async def forget(self, session_id: str) -> None:
        await self._whole(self._forget(session_id))

    async def records(
        self,
        session_id: str,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int = 100,
        role: str | None = None,
        type: str | None = None,
        newest: bool = False,
    ) -> tuple[list[Record], int | None]:
        sql, values = f"{SELECT} WHERE session_id = ? AND seq > ?", [session_id, after]
        for clause, value in (("seq < ?", before), ("role = ?", role), ("type = ?", type)):
            if value is not None:
                sql, values = f"{sql} AND {clause}", [*values, value]
        sql = f"{sql} ORDER BY seq {'DESC' if newest else 'ASC'} LIMIT ?"
        values.append(max(limit, 0))
        found, low = await self._read("records", lambda db: (_rows(db, sql, values), _low(db, session_id)))
        records = [row.write.append for row in found if row.write.append is not None]
        return records[::-1] if newest else records, low

    async def by_cid(self, session_id: str, cid: str) -> Record | None:
        sql = f"{SELECT} WHERE session_id = ? AND seq > 0 AND cid = ? ORDER BY seq LIMIT 1"
        found = await self._read("by_cid", lambda db: _rows(db, sql, (session_id, cid)))
        return found[0].write.append if found else None

    async def lost(self, session_id: str | None, *, after: int, limit: int) -> list[DeadLetter]:
        where, values = ("", ()) if session_id is None else ("AND session_id = ?", (session_id,))
        sql = f"{LOST} WHERE no > ? {where} ORDER BY no LIMIT ?"
        return await self._read("lost", lambda db: _letters(db, sql, (after, *values, max(limit, 0))))

    async def drop_lost(self, number: int) -> bool:
        sql = "DELETE FROM lost WHERE no = ?"
        return await self._file.write("drop", lambda db: db.execute(sql, (number,)).rowcount > 0)

    async def _recall(self) -> None:
        """Read what an earlier process left."""
        try:
            self.last_no = await self._file.read("open", _examine)
            self.tails, self.oldest_at = await self._file.read("open", _recall)
        except (StoreUnavailable, ValueError, TypeError) as error:
            raise CannotOpen(
                f"the spool {self._path} is damaged: {' '.join(str(error).split())}. It may hold accepted messages: do "
                "not remove it. Move it away to start without them, and save its content with sqlite3's .recover"
            ) from error

    async def _append(self, writes: Sequence[Write]) -> list[SpoolRow]:
        size = sum(write.size for write in writes)
        if self.tails.bytes + size > self._max_bytes:
            raise StoreFull(
                f"the spool {self._path} is full: {self.tails.bytes} bytes wait for the store. Bring the store back; "
                "HOLDFAST_SPOOL_BYTES is the bound"
            )
        now = time.time()
        rows = [SpoolRow(no, write) for no, write in enumerate(writes, self.last_no + 1)]
        log_bytes = size + ROW_LOG_BYTES * len(rows)
        freed = await self._commit(log_bytes, lambda db: self._insert(db, rows, now))
        crash_points.reached("spool.committed")
        self.last_no += len(rows)
        for write in writes:
            self.tails.add(write, write.size)
        self.tails.bytes -= freed
        if self.oldest_at is None and rows:
            self.oldest_at = now
        return rows

    def _insert(self, db: sqlite3.Connection, rows: Sequence[SpoolRow], now: float) -> int:
        """Returns the bytes of older checkpoints that it removed as pointless: an answer that streams into an outage
        keeps one, not one for each second."""
        if self._disk_is_nearly_full():
            raise StoreFull(f"the disk of {self._path} is nearly full")
        db.executemany(INSERT, [columns_of(row, now) for row in rows])
        newest = {row.write.session_id: row.no for row in rows if row.write.checkpoint is not None}
        freed = sum(_forget_checkpoints(db, session_id, no) for session_id, no in newest.items())
        crash_points.reached("spool.written")
        return freed

    def _disk_is_nearly_full(self) -> bool:
        disk = os.statvfs(self._path)
        return disk.f_bavail * disk.f_frsize < min(RESERVE_BYTES, disk.f_blocks * disk.f_frsize // 4)

    async def _remove(self, nos: Sequence[int], lost: Sequence[tuple[Record, str]]) -> None:
        def do(db: sqlite3.Connection) -> list[tuple[str, bool, int]]:
            for record, reason in lost:
                _lose(db, record, reason)
            return db.execute(REMOVE, (json.dumps(nos),)).fetchall()

        await self._take_away(len(nos), do)

    async def _forget(self, session_id: str) -> None:
        def do(db: sqlite3.Connection) -> list[tuple[str, bool, int]]:
            db.execute("DELETE FROM lost WHERE session_id = ?", (session_id,))
            return db.execute(FORGET, (session_id,)).fetchall()

        tail = self.tails.by_session.get(session_id)
        await self._take_away(tail.writes if tail else 0, do)

    async def _take_away(self, rows: int, do: Ask[list[tuple[str, bool, int]]]) -> None:
        def remove(db: sqlite3.Connection) -> tuple[list[tuple[str, bool, int]], float | None]:
            gone = do(db)
            return gone, _oldest(db)

        gone, self.oldest_at = await self._commit(rows * ROW_LOG_BYTES, remove)
        self.tails.remove(gone)
        if not self.tails.writes:
            with suppress(StoreUnavailable):  # a large file does no harm
                await self._shrink()

    async def _commit(self, log_bytes: int, do: Ask[T]) -> T:
        try:
            return await self._file.commit(log_bytes, lambda db: transaction(db, do))
        except StoreFull:
            await self._file.give_back_log()  # this may make room for the next try
            raise

    async def _shrink(self) -> None:
        """Shrink the file after a large outage, now that nothing is left to copy."""
        if self._disk_is_nearly_full() or await self._file.read("free pages", _free_bytes) >= SHRINK_BYTES:
            await self._file.commit(0, lambda db: db.execute("VACUUM"))
            await self._file.give_back_log()

    async def _read(self, what: str, ask: Ask[T]) -> T:
        try:
            return await self._file.read(what, ask)
        except StoreUnavailable as error:
            if isinstance(error.__cause__, sqlite3.Error) and primary_code(error.__cause__) in DAMAGED:
                raise StoreBroken(f"the spool {self._path} is damaged: {error}") from error
            raise

    async def _whole(self, doing: Coroutine[Any, Any, T]) -> T:
        """One change after the other, each to its end even if its caller is cancelled: the counters here must match
        the file."""

        async def in_turn() -> T:
            async with self._changing:
                return await doing

        task = asyncio.create_task(in_turn(), name="spool")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)


def _examine(db: sqlite3.Connection) -> int:
    """The number of the newest row ever. Raises sqlite3.DatabaseError if the file is damaged."""
    (answer,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if answer != "ok":
        raise sqlite3.DatabaseError(answer)
    row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'spool'").fetchone()
    return int(row[0]) if row else 0


def _recall(db: sqlite3.Connection) -> tuple[SpoolOverlay, float | None]:
    tails = SpoolOverlay()
    for session_id, writes, records, last_seq, last_stored, delivered, size in db.execute(TAILS):
        tails.by_session[session_id] = Tail(writes, records, last_seq, last_stored, delivered)
        tails.writes += writes
        tails.bytes += size
    for session_id, state in db.execute(NEWEST.format("state")):
        tails.by_session[session_id].state = state
    for session_id, spec in db.execute(NEWEST.format("spec")):
        tails.by_session[session_id].spec = spec
    for session_id, marks in db.execute("SELECT session_id, marks FROM spool WHERE marks IS NOT NULL ORDER BY no"):
        tails.by_session[session_id].marks.update(json.loads(marks))
    return tails, _oldest(db)


def _oldest(db: sqlite3.Connection) -> float | None:
    row = db.execute("SELECT spooled_at FROM spool ORDER BY no LIMIT 1").fetchone()
    return row[0] if row else None


def _forget_checkpoints(db: sqlite3.Connection, session_id: str, no: int) -> int:
    values = (session_id, no)
    (freed,) = db.execute(
        f"SELECT coalesce(sum(length(checkpoint)), 0) FROM spool WHERE {POINTLESS}", values
    ).fetchone()
    db.execute(f"UPDATE spool SET size = size - length(checkpoint), checkpoint = NULL WHERE {POINTLESS}", values)
    return int(freed)


def _first(db: sqlite3.Connection, writes: int, size: int, up_to: int, without: Collection[str]) -> list[SpoolRow]:
    sql, values = f"{SELECT} WHERE no <= ?", list[Any]([up_to])
    if without:
        sql = f"{sql} AND session_id NOT IN (SELECT value FROM json_each(?))"
        values.append(json.dumps(list(without)))
    rows: list[SpoolRow] = []
    for columns in db.execute(f"{sql} ORDER BY no LIMIT ?", (*values, writes)):
        size -= columns[SIZE]
        if rows and size < 0:
            break
        rows.append(row_of(columns))
    return rows


def _rows(db: sqlite3.Connection, sql: str, values: Sequence[Any]) -> list[SpoolRow]:
    return [row_of(columns) for columns in db.execute(sql, values)]


def _low(db: sqlite3.Connection, session_id: str) -> int | None:
    row = db.execute("SELECT min(seq) FROM spool WHERE session_id = ? AND seq IS NOT NULL", (session_id,)).fetchone()
    return row[0] if row else None


def _lose(db: sqlite3.Connection, record: Record, reason: str) -> None:
    kept = buried(record)
    values = (kept.session_id, kept.seq, kept.cid, kept.role, kept.type, kept.payload, kept.created_at)
    db.execute(LOSE, (*values, str(kept.status), reason, time.time()))


def _letters(db: sqlite3.Connection, sql: str, values: Sequence[Any]) -> list[DeadLetter]:
    return [
        DeadLetter(number, Record(*record), reason, lost_at)
        for number, *record, reason, lost_at in db.execute(sql, values)
    ]


def _free_bytes(db: sqlite3.Connection) -> int:
    (pages,), (size,) = (db.execute(f"PRAGMA {name}").fetchone() for name in ("freelist_count", "page_size"))
    return int(pages) * int(size)
