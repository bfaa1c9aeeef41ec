"""The SQLite store of an HTTP sink: it numbers, deduplicates and serves readers, and knows what has been passed on."""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from persistence.batch import buried, is_text, rejected_marker
from persistence.record import DeadLetter, Outcome, Record
from persistence.sqlite_file import transaction
from persistence.stores.sqlite import (
    LETTERS,
    RECORDS,
    WRITE_LOG_BYTES,
    SqliteStore,
    bury,
    letters,
    prospect,
    purge_session,
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
PURGED = """INSERT INTO purged SELECT id, 1 FROM sessions WHERE id = ? AND last_seq > 0
    ON CONFLICT (session_id) DO UPDATE SET times = times + 1"""


class Behind(NamedTuple):
    """A session with records that were not passed on: those after `done`, up to `last`."""

    session_id: str
    done: int
    last: int
    since: float  # when the first of them was created


@dataclass(slots=True)
class Page:
    """Some records in a row, and how often their session's id was purged before."""

    records: list[Record] = field(default_factory=list)
    purged: int = 0


class SinkIndex(SqliteStore):
    """A SqliteStore with a cursor per session. Its methods raise as SqliteStore's do."""

    async def all_behind(self) -> list[Behind]:
        return await self._file.read("behind", lambda db: [Behind(*row) for row in db.execute(BEHIND)])

    async def address(self) -> str | None:
        """Whom records were last accepted for."""
        row = await self._file.read("address", lambda db: db.execute("SELECT address FROM sink").fetchone())
        return row[0] if row else None

    async def note_address(self, address: str) -> None:
        sql = "INSERT INTO sink VALUES (1, ?) ON CONFLICT (no) DO UPDATE SET address = excluded.address"
        await self._file.write("address", lambda db: db.execute(sql, (address,)))

    async def page(self, session_id: str, *, after: int, upto: int) -> Page:
        """The first records with after < seq <= upto: at most 32, and none more once they are 256 KiB."""
        return await self._file.read("page", lambda db: _page(db, session_id, after, upto))

    async def keep(self, cursors: Mapping[str, int]) -> None:
        """Note how far sessions were passed on. A cursor only grows; one of an unknown session is nothing."""
        rows = [(seq, session_id) for session_id, seq in cursors.items()]
        await self._file.write("keep", lambda db: transaction(db, lambda db: db.executemany(KEEP, rows)))

    async def reject(self, record: Record, reason: str) -> bool:
        """Bury the record: a marker takes its place. False: it does not stand there any more."""
        size = 2 * (len(record.payload) + WRITE_LOG_BYTES)
        return await self._file.commit(size, lambda db: transaction(db, lambda db: _reject(db, record, reason)))

    async def letter(self, number: int) -> tuple[DeadLetter, Outcome, int] | None:
        """A dead letter, what the index would make of it now, and how often its session's id was purged before."""
        return await self._file.read("letter", lambda db: _letter(db, number))

    async def purge(self, session_id: str) -> None:
        await self._file.write("purge", lambda db: transaction(db, lambda db: _purge_and_count(db, session_id)))


def _page(db: sqlite3.Connection, session_id: str, after: int, upto: int) -> Page:
    page = Page(purged=_times_purged(db, session_id))
    size = 0
    window = f"{RECORDS} AND m.seq > ? AND m.seq <= ? ORDER BY m.seq LIMIT ?"
    for row in db.execute(window, (session_id, after, upto, PAGE_RECORDS)):
        record = Record(*row)
        page.records.append(record)
        size += len(record.payload)
        if size >= PAGE_BYTES:
            break
    return page


def _times_purged(db: sqlite3.Connection, session_id: str) -> int:
    row = db.execute("SELECT times FROM purged WHERE session_id = ?", (session_id,)).fetchone()
    return row[0] if row else 0


def _reject(db: sqlite3.Connection, record: Record, reason: str) -> bool:
    same = "AND m.seq = ? AND m.cid = ? AND m.created_at = ?"
    row = db.execute(f"{RECORDS} {same}", (record.session_id, record.seq, record.cid, record.created_at)).fetchone()
    if row is None:
        return False
    now = Record(*row)  # its status may have changed while it was posted
    replace_record(db, rejected_marker(now, reason))
    (no,) = db.execute("SELECT no FROM sessions WHERE id = ?", (record.session_id,)).fetchone()
    bury(db, no, buried(now), reason)
    db.execute(KEEP, (record.seq, record.session_id))
    return True


def _letter(db: sqlite3.Connection, number: int) -> tuple[DeadLetter, Outcome, int] | None:
    found = letters(db, f"{LETTERS} WHERE d.no = ?", (number,))
    if not found:
        return None
    record = found[0].record
    return found[0], prospect(db, record), _times_purged(db, record.session_id)


def _purge_and_count(db: sqlite3.Connection, session_id: str) -> None:
    if is_text(session_id):
        db.execute(PURGED, (session_id,))
        purge_session(db, session_id)
