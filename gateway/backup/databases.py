"""SQLite databases of a gateway that may be running: copied as of one moment, and read for their sessions."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import orjson

from sync.format.keys import Keys
from sync.snapshots.presence import Kept

BUSY_SECONDS = 30.0
PAGES = 1024  # at once
# A session whose disk is not copied into its place must not take an empty one for the disk it began with.
_NOT_FRESH = """UPDATE sessions SET state = CAST(json_set(CAST(state AS TEXT), '$.fresh', json('false')) AS BLOB)
    WHERE json_extract(CAST(state AS TEXT), '$.fresh')"""


class DamagedDatabase(Exception):
    """The copy is damaged; the text has SQLite's finding."""


@dataclass(frozen=True, slots=True)
class Known:
    """A session's row in a database."""

    session_id: str
    user_id: str
    generation: int  # the newest one that was stored; 0: none
    clean: bool  # the sandbox ended after it, and has not run since


def copy_database(source: Path, target: Path, told: Callable[[int, int], None] = lambda done, of: None) -> None:
    """Copy a database with SQLite's backup API: everything committed when this began, and no partial commit. `told`
    gets the bytes done and the total. Raises sqlite3.Error, OSError, DamagedDatabase."""
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    with closing(_opened(source)) as live, closing(_opened(target)) as copy:
        # Held from here to the end: without it, every commit of the gateway would make the copy begin again.
        live.execute("BEGIN")
        (page_bytes,) = live.execute("PRAGMA page_size").fetchone()
        live.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        live.backup(copy, pages=PAGES, progress=lambda _, left, of: told((of - left) * page_bytes, of * page_bytes))
        live.execute("ROLLBACK")
        (found,) = copy.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise DamagedDatabase(f"{source} is damaged: {found}")
        if "sessions" in _tables(copy):
            copy.execute(_NOT_FRESH)
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
    if os.geteuid() == 0:
        info = os.stat(source)
        os.chown(target, info.st_uid, info.st_gid)


def known_sessions(database: Path) -> Iterator[Known]:
    """All sessions of a database, in use or not, user by user. Raises sqlite3.Error."""
    if not database.exists():
        return
    with closing(_opened(database)) as db:
        if "sessions" in _tables(db):
            for session_id, user_id, state in db.execute("SELECT id, user_id, state FROM sessions ORDER BY user_id"):
                yield known(session_id, user_id, state)


def known(session_id: str, user_id: str, state: bytes) -> Known:
    """A state that cannot be parsed counts as empty."""
    try:
        members = orjson.loads(state)
        return Known(session_id, user_id, int(members.get("generation") or 0), members.get("clean") is True)
    except (ValueError, TypeError, AttributeError):
        return Known(session_id, user_id, 0, False)


def kept(sessions: Iterator[Known]) -> Iterator[Kept]:
    """The sessions that have a stored generation."""
    return (Kept(each.session_id, Keys.of_user(each.user_id), each.generation) for each in sessions if each.generation)


def count(database: Path) -> tuple[int, int]:
    """The number of sessions and of records in it."""
    if not database.exists():
        return 0, 0
    with closing(_opened(database)) as db:
        if "sessions" not in _tables(db):
            return 0, 0
        sessions, messages = db.execute(
            "SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM messages)"
        ).fetchone()
        return int(sessions), int(messages)


def _opened(path: Path) -> sqlite3.Connection:
    """To read and write: the log of a killed gateway has to be merged, which SQLite does for writers only."""
    uri = path.absolute().as_uri() + "?mode=rw"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)


def _tables(db: sqlite3.Connection) -> set[str]:
    return {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
