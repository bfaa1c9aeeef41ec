"""The owner of `spool.db`: a note in the file itself names the store for which its writes were accepted.

Settings change and data directories move. Writes that were accepted for one store are never replayed into another, and
never forgotten because the new settings need no spool: the gateway does not start until the operator has decided.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway.config.store_url import StoreUrl
from persistence.errors import CannotOpen
from persistence.sqlite.file import kind_of_refusal

BUSY_SECONDS = 5.0
_SPOOLED = "SELECT (SELECT count(*) FROM spool), (SELECT count(*) FROM lost)"
_UNPOSTED = """SELECT coalesce(sum(max(s.last_seq - coalesce(f.seq, 0), 0)), 0)
    FROM sessions s LEFT JOIN forwarded f ON f.session_no = s.no"""


@dataclass(frozen=True, slots=True)
class SpoolFile:
    """The content of the file. `kind` is the kind of store whose schema it has; None if a start died before it made
    one."""

    kind: str | None
    owner: str | None
    waiting: int  # writes or records that the owner does not have yet
    lost: int = 0  # dead letters that no other place has: only a person's decision removes them


def look(path: Path) -> SpoolFile | None:
    """Read the file; None if there is none. Raises CannotOpen."""
    if not path.exists():
        return None
    with _opened(path) as db:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        owner = db.execute("SELECT store FROM belongs_to").fetchone() if "belongs_to" in tables else None
        place = owner[0] if owner else None
        if "spool" in tables:
            return SpoolFile("postgresql", place, *db.execute(_SPOOLED).fetchone())
        if "forwarded" in tables:
            return SpoolFile("http", place, db.execute(_UNPOSTED).fetchone()[0])
        return SpoolFile(None, place, 0)


def check(path: Path, store: StoreUrl) -> None:
    """Raises CannotOpen if the records in the spool are not for `store`."""
    found = look(path)
    if found is None or found.kind is None:
        return
    ours = found.kind == store.kind and found.owner in (None, store.place)
    if found.waiting and not ours:
        raise CannotOpen(
            f"{path} holds {found.waiting} accepted messages and changes for {found.owner or 'another store'}, and "
            f"HOLDFAST_STORE is {store.place}. Start with the old HOLDFAST_STORE until they are stored, or move the "
            "file away to give them up"
        )
    if found.lost and not ours:
        raise CannotOpen(
            f"{path} holds {found.lost} dead letters of {found.owner or 'another store'}, kept nowhere else, and "
            f"HOLDFAST_STORE is {store.place}. Start with the old HOLDFAST_STORE, look at them with `holdfast "
            "dead-letters list` and `show N`, and `drop` them; or move the file away to give them up"
        )
    if store.kind != "sqlite" and found.kind != store.kind:
        raise CannotOpen(
            f"{path} was made for {found.owner or 'another kind of store'}; nothing in it waits to be stored. Move it "
            "away to start with another one"
        )


def note(path: Path, store: StoreUrl) -> None:
    """Note the owner from now on. After opening, so that there is a file. Raises CannotOpen."""
    with _opened(path) as db:
        db.execute("BEGIN IMMEDIATE")
        db.execute("CREATE TABLE IF NOT EXISTS belongs_to (store TEXT NOT NULL)")
        if db.execute("SELECT store FROM belongs_to").fetchone() != (store.place,):
            db.execute("DELETE FROM belongs_to")
            db.execute("INSERT INTO belongs_to VALUES (?)", (store.place,))
        db.execute("COMMIT")


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        with closing(sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)) as db:
            yield db
    except sqlite3.Error as error:
        raise kind_of_refusal(path, error)(
            f"cannot open the spool {path}: {error}. It may hold accepted messages: do not remove it. Check that this "
            "user may write it and that the disk has room; if it is damaged, restore it or move it away"
        ) from error
