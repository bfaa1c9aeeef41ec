"""Conversations in one SQLite file, durable when `commit` returns."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from persistence import crash_points
from persistence.commit_plan import REJECTED, is_text
from persistence.errors import StoreUnavailable
from persistence.listener import NobodyListens, StoreListener
from persistence.record import (
    Dead,
    DeadLetter,
    Duplicate,
    Loaded,
    Outcome,
    Record,
    Rejected,
    Session,
    Stored,
    Usage,
    Write,
)
from persistence.record_json import BRIEF_BYTES, up_to
from persistence.sqlite.batch import KNOWN, Batches
from persistence.sqlite.desk import Ask
from persistence.sqlite.file import SqliteFile, transaction
from persistence.sqlite.users import SqliteUsers

CIDS_LOADED = 10_000
WRITE_LOG_BYTES = 4 * 2**10  # log bytes of a write beyond its payload: a safe guess

SESSION = "id, user_id, created_at, spec, state, last_seq, delivered, first_seq"
BRIEF = f"""CASE WHEN length(spec) <= {BRIEF_BYTES} THEN spec
    ELSE CAST(json_remove(CAST(spec AS TEXT), '$.start', '$.pending') AS BLOB) END"""
LISTED = SESSION.replace("spec", BRIEF)
RECORD = """s.id, m.seq, m.cid, m.role, m.type, m.payload, m.created_at,
    CASE WHEN m.status = 'stored' AND m.seq <= s.delivered THEN 'delivered' ELSE m.status END"""
RECORDS = f"SELECT {RECORD} FROM sessions s JOIN messages m ON m.session_no = s.no WHERE s.id = ?"
USAGE = """SELECT count(*), coalesce(sum(stored_bytes), 0), coalesce(sum(CASE WHEN json_valid(CAST(state AS TEXT))
    THEN json_extract(CAST(state AS TEXT), '$.snapshot_bytes') END), 0) FROM sessions WHERE user_id = ?"""
WAITING = """SELECT s.id FROM sessions s WHERE EXISTS
    (SELECT 1 FROM messages m WHERE m.session_no = s.no AND m.seq > s.delivered AND m.status = 'stored')
    ORDER BY s.no"""
CREATE = """INSERT INTO sessions (id, user_id, created_at, spec, state) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (id) DO NOTHING"""
LETTERS = """SELECT d.no, s.id, d.seq, d.cid, d.role, d.type, d.payload, d.created_at, d.status, d.reason, d.buried_at
    FROM dead_letters d JOIN sessions s ON s.no = d.session_no"""
REPLACE = """UPDATE messages SET cid = ?, role = ?, type = ?, payload = ?, created_at = ?, status = ?
    WHERE session_no = (SELECT no FROM sessions WHERE id = ?) AND seq = ?"""
GROWN = """UPDATE sessions SET stored_bytes = stored_bytes + ? - coalesce(
    (SELECT length(payload) FROM messages WHERE session_no = sessions.no AND seq = ?), 0) WHERE id = ?"""
# The first record that stays, in seq order: earlier ones may go.
STAYS = """SELECT m.seq FROM messages m JOIN sessions s ON s.no = m.session_no WHERE s.no = ?1 AND m.seq < ?5
    AND (m.seq >= ?2 OR m.status = 'open' OR (m.status = 'stored' AND m.seq > s.delivered)
         OR NOT (coalesce(m.created_at < ?3, 0) OR coalesce(m.seq <= s.last_seq - ?4, 0)))
    ORDER BY m.seq LIMIT 1"""

T = TypeVar("T")


class SqliteStore:
    """A MessageStore in the file at `path`, whose directory must exist. One process writes it at a time."""

    def __init__(self, path: Path) -> None:
        self.heard: StoreListener = NobodyListens()
        self._file = SqliteFile(path, "sqlite")
        self.users = SqliteUsers(self._file)
        self._batches = Batches()  # used on the writer's thread only

    async def __aenter__(self) -> Self:
        await self._file.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._file.close()

    @property
    def full(self) -> bool:
        """Whether a write found no room on the disk, and `try_room` has found none since."""
        return self._file.full

    async def try_room(self) -> None:
        await self._file.try_room()

    async def installation(self, proposed: str) -> str:
        return await self._file.write("installation", lambda db: _installation(db, proposed))

    async def create(self, session: Session) -> Session:
        return await self._file.write("create", lambda db: _create(db, session))

    async def find(self, session_id: str) -> Session | None:
        return await self._file.read("find", lambda db: _find(db, session_id))

    async def load(self, session_id: str) -> Loaded | None:
        return await self._change("load", session_id, lambda db: _load(db, session_id))

    async def sessions(
        self, user_id: str | None = None, *, after: str | None = None, limit: int | None = None
    ) -> list[Session]:
        sql, values = f"SELECT {LISTED} FROM sessions WHERE true", list[Any]()
        if user_id is not None:
            sql, values = f"{sql} AND user_id = ?", [user_id]
        if after is not None:
            sql, values = f"{sql} AND no < (SELECT no FROM sessions WHERE id = ?)", [*values, after]
        sql = f"{sql} ORDER BY no DESC LIMIT ?"
        values.append(-1 if limit is None else max(limit, 0))
        return await self._file.read("sessions", lambda db: [Session(*row) for row in db.execute(sql, values)])

    async def usage(self, user_id: str) -> Usage:
        if not is_text(user_id):
            return Usage()
        return await self._file.read("usage", lambda db: Usage(*db.execute(USAGE, (user_id,)).fetchone()))

    async def waiting(self) -> list[str]:
        return await self._file.read("waiting", lambda db: [session_id for (session_id,) in db.execute(WAITING)])

    async def commit(self, writes: Sequence[Write]) -> list[Outcome]:
        size = sum(write.size + WRITE_LOG_BYTES for write in writes)
        decided = await self._file.commit(size, lambda db: self._batches.commit(db, writes))
        crash_points.reached("store.committed")
        for session_id in {record.session_id for record in decided.rows}:
            self.heard.grown(session_id)
        return decided.outcomes

    async def messages(
        self,
        session_id: str,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int = 100,
        role: str | None = None,
        type: str | None = None,
        max_bytes: int | None = None,
    ) -> list[Record]:
        sql, values = f"{RECORDS} AND m.seq > ?", [session_id, max(after, 0)]
        for clause, value in (("m.seq < ?", before), ("m.role = ?", role), ("m.type = ?", type)):
            if value is not None:
                sql, values = f"{sql} AND {clause}", [*values, value]
        newest = before is not None and after <= 0
        sql = f"{sql} ORDER BY m.seq {'DESC' if newest else 'ASC'} LIMIT ?"
        found = await self._file.read("messages", lambda db: _records(db, sql, (*values, max(limit, 0)), max_bytes))
        return found[::-1] if newest else found

    async def by_cid(self, session_id: str, cid: str) -> Record | None:
        if not is_text(session_id, cid):
            return None
        found = await self._file.read("by_cid", lambda db: _records(db, f"{RECORDS} AND m.cid = ?", (session_id, cid)))
        return found[0] if found else None

    def behind(self, session_id: str) -> bool:
        return False

    async def trim(
        self, session_id: str, *, older_than: float | None, keep: int | None, below: int, limit: int = 1000
    ) -> int:
        return await self._change(
            "trim", session_id, lambda db: _trim(db, session_id, (below, older_than, keep), limit)
        )

    async def purge(self, session_id: str) -> None:
        await self._change("purge", session_id, lambda db: _purge(db, session_id))

    async def _change(self, what: str, session_id: str, do: Ask[T]) -> T:
        """Change one session outside a batch: its remembered state is forgotten."""

        def change(db: sqlite3.Connection) -> T:
            self._batches.forget(session_id)
            return transaction(db, do)

        return await self._file.write(what, change)

    async def dead_letters(
        self, session_id: str | None = None, *, after: int = 0, limit: int = 100
    ) -> list[DeadLetter]:
        where, values = ("", ()) if session_id is None else ("AND s.id = ?", (session_id,))
        sql = f"{LETTERS} WHERE d.no > ? {where} ORDER BY d.no LIMIT ?"
        return await self._file.read("dead letters", lambda db: letters(db, sql, (after, *values, max(limit, 0))))

    async def retry_dead_letter(self, number: int) -> Outcome | None:
        return await self._file.write("retry", lambda db: transaction(db, lambda db: _retry(db, number)))

    async def drop_dead_letter(self, number: int) -> bool:
        sql = "DELETE FROM dead_letters WHERE no = ?"
        return await self._file.write("drop", lambda db: db.execute(sql, (number,)).rowcount > 0)


def _installation(db: sqlite3.Connection, proposed: str) -> str:
    db.execute("INSERT OR IGNORE INTO installation VALUES (1, ?)", (proposed,))
    ((found,),) = db.execute("SELECT id FROM installation")
    return str(found)


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
    session = _find(db, session_id)
    if session is None:
        return None
    claim = "UPDATE sessions SET fence = fence + 1 WHERE id = ? RETURNING no, fence"
    ((no, fence),) = db.execute(claim, (session_id,)).fetchall()
    checkpoint = db.execute("SELECT body FROM checkpoints WHERE session_no = ?", (no,)).fetchone()
    newest_first = db.execute(
        """SELECT cid, seq FROM messages WHERE session_no = ? AND status NOT IN ('duplicate', 'rejected')
        ORDER BY seq DESC LIMIT ?""",
        (no, CIDS_LOADED),
    ).fetchall()
    waiting = f"{RECORDS} AND m.seq > s.delivered AND m.status = 'stored' ORDER BY m.seq"
    return Loaded(
        session=session,
        fence=fence,
        checkpoint=checkpoint[0] if checkpoint else b"",
        cids=dict(reversed(newest_first)),
        waiting=_records(db, waiting, (session_id,)),
        open=_records(db, f"{RECORDS} AND m.status = 'open' ORDER BY m.seq", (session_id,)),
    )


def _records(db: sqlite3.Connection, sql: str, values: Sequence[Any], max_bytes: int | None = None) -> list[Record]:
    return up_to((Record(*row) for row in db.execute(sql, values)), max_bytes)


def _trim(db: sqlite3.Connection, session_id: str, stays: tuple[Any, ...], limit: int) -> int:
    row = db.execute("SELECT no, first_seq, last_seq FROM sessions WHERE id = ?", (session_id,)).fetchone()
    if row is None:
        return 0
    no, first, last = row
    end = min(last + 1, first + max(limit, 0))
    if staying := db.execute(STAYS, (no, *stays, end)).fetchone():
        (end,) = staying
    goes = "SELECT coalesce(sum(length(payload)), 0) FROM messages WHERE session_no = ? AND seq < ?"
    (size,) = db.execute(goes, (no, end)).fetchone()
    gone = db.execute("DELETE FROM messages WHERE session_no = ? AND seq < ?", (no, end)).rowcount
    begins = "UPDATE sessions SET first_seq = max(first_seq, ?), stored_bytes = stored_bytes - ? WHERE no = ?"
    db.execute(begins, (end, size, no))
    return gone


def _purge(db: sqlite3.Connection, session_id: str) -> None:
    if is_text(session_id):
        db.execute("DELETE FROM sessions WHERE id = ?", (session_id,))


def letters(db: sqlite3.Connection, sql: str, values: Sequence[Any]) -> list[DeadLetter]:
    return [
        DeadLetter(number, Record(*record), reason, buried_at)
        for number, *record, reason, buried_at in db.execute(sql, values)
    ]


def _retry(db: sqlite3.Connection, number: int) -> Outcome | None:
    found = letters(db, f"{LETTERS} WHERE d.no = ?", (number,))
    if not found:
        return None
    record = found[0].record
    outcome = prospect(db, record)
    if isinstance(outcome, Stored):
        try:
            replace_record(db, record)
        except sqlite3.DataError as error:
            return Dead(str(error))
    if not isinstance(outcome, Rejected):
        db.execute("DELETE FROM dead_letters WHERE no = ?", (number,))
    return outcome


def prospect(db: sqlite3.Connection, record: Record) -> Outcome:
    """The result that storing the dead record in its place would have: Stored, Duplicate or Rejected."""
    (no,) = db.execute("SELECT no FROM sessions WHERE id = ?", (record.session_id,)).fetchone()
    if db.execute(KNOWN, (no, f"{REJECTED}{record.seq}")).fetchone() != (record.seq,):
        return Rejected("its place in the conversation is gone")
    first = db.execute(KNOWN, (no, record.cid)).fetchone()
    return Duplicate(first[0]) if first else Stored(record.seq)


def replace_record(db: sqlite3.Connection, record: Record) -> None:
    """Put `record` at its seq, in place of any other."""
    values = (record.cid, record.role, record.type, record.payload, record.created_at, str(record.status))
    db.execute(GROWN, (len(record.payload), record.seq, record.session_id))
    db.execute(REPLACE, (*values, record.session_id, record.seq))
