"""The SQLite store of an HTTP sink: it numbers, deduplicates and serves readers, and knows what has been posted."""

import sqlite3
from collections.abc import Mapping
from typing import NamedTuple

from persistence.commit_plan import buried, rejected_marker
from persistence.record import DeadLetter, Outcome, Record
from persistence.sqlite.batch import bury
from persistence.sqlite.file import transaction
from persistence.sqlite.store import (
    LETTERS,
    RECORDS,
    WRITE_LOG_BYTES,
    SqliteStore,
    letters,
    prospect,
    replace_record,
)

PAGE_RECORDS = 32
PAGE_BYTES = 256 * 2**10

BEHIND = """SELECT s.id, coalesce(f.seq, 0), s.last_seq, coalesce((SELECT m.created_at FROM messages m
        WHERE m.session_no = s.no AND m.seq > coalesce(f.seq, 0) ORDER BY m.seq LIMIT 1), s.created_at)
    FROM sessions s LEFT JOIN forwarded f ON f.session_no = s.no
    WHERE s.last_seq > coalesce(f.seq, 0) ORDER BY s.no"""
KEEP = """INSERT INTO forwarded SELECT no, min(?, last_seq) FROM sessions WHERE id = ?
    ON CONFLICT (session_no) DO UPDATE SET seq = max(seq, excluded.seq)"""


class Behind(NamedTuple):
    """A session with unposted records: those after `done`, up to `last`."""

    session_id: str
    done: int
    last: int
    since: float  # when the first of them was created


class SinkIndex(SqliteStore):
    """A SqliteStore with a cursor per session. Its methods raise as SqliteStore's do."""

    async def all_behind(self) -> list[Behind]:
        return await self._file.read("behind", lambda db: [Behind(*row) for row in db.execute(BEHIND)])

    async def address(self) -> str | None:
        """The service for which records were last accepted."""
        row = await self._file.read("address", lambda db: db.execute("SELECT address FROM sink").fetchone())
        return row[0] if row else None

    async def note_address(self, address: str) -> None:
        sql = "INSERT INTO sink VALUES (1, ?) ON CONFLICT (no) DO UPDATE SET address = excluded.address"
        await self._file.write("address", lambda db: db.execute(sql, (address,)))

    async def page(self, session_id: str, *, after: int, upto: int) -> list[Record]:
        """The first records with after < seq <= upto: at most 32, and no further one once they have 256 KiB."""
        return await self._file.read("page", lambda db: _page(db, session_id, after, upto))

    async def keep(self, cursors: Mapping[str, int]) -> None:
        """Note how far sessions were posted. A cursor only grows; an unknown session is ignored."""
        rows = [(seq, session_id) for session_id, seq in cursors.items()]
        await self._file.write("keep", lambda db: transaction(db, lambda db: db.executemany(KEEP, rows)))

    async def reject(self, record: Record, reason: str) -> bool:
        """Make the record a dead letter; a marker takes its place. False: it is not there any more."""
        size = 2 * (len(record.payload) + WRITE_LOG_BYTES)
        return await self._file.commit(size, lambda db: transaction(db, lambda db: _reject(db, record, reason)))

    async def letter(self, number: int) -> tuple[DeadLetter, Outcome] | None:
        """A dead letter, and the result that a retry would have in the index."""
        return await self._file.read("letter", lambda db: _letter(db, number))


def _page(db: sqlite3.Connection, session_id: str, after: int, upto: int) -> list[Record]:
    page: list[Record] = []
    size = 0
    window = f"{RECORDS} AND m.seq > ? AND m.seq <= ? ORDER BY m.seq LIMIT ?"
    for row in db.execute(window, (session_id, after, upto, PAGE_RECORDS)):
        record = Record(*row)
        page.append(record)
        size += len(record.payload)
        if size >= PAGE_BYTES:
            break
    return page


def _reject(db: sqlite3.Connection, record: Record, reason: str) -> bool:
    same = "AND m.seq = ? AND m.cid = ? AND m.created_at = ?"
    row = db.execute(f"{RECORDS} {same}", (record.session_id, record.seq, record.cid, record.created_at)).fetchone()
    if row is None:
        return False
    now = Record(*row)  # its status may have changed during the post
    replace_record(db, rejected_marker(now, reason))
    (no,) = db.execute("SELECT no FROM sessions WHERE id = ?", (record.session_id,)).fetchone()
    bury(db, no, buried(now), reason)
    db.execute(KEEP, (record.seq, record.session_id))
    return True


def _letter(db: sqlite3.Connection, number: int) -> tuple[DeadLetter, Outcome] | None:
    found = letters(db, f"{LETTERS} WHERE d.no = ?", (number,))
    return (found[0], prospect(db, found[0].record)) if found else None
