"""What belongs to users, in the store's own SQLite file, durable when a method returns."""

import sqlite3

from persistence.commit_plan import is_text
from persistence.sqlite.file import SqliteFile, transaction
from persistence.user_record import SealedCredential, UserConfig

CREDENTIAL = "user_id, provider, kind, key_id, sealed, set_at, trouble, no"
OF_PLACE = f"SELECT {CREDENTIAL} FROM credentials WHERE user_id = ? AND provider = ?"
OF_USER = f"SELECT {CREDENTIAL} FROM credentials WHERE user_id = ? ORDER BY provider"
OTHERWISE = f"SELECT {CREDENTIAL} FROM credentials WHERE key_id <> ? AND no > ? ORDER BY no LIMIT ?"
PUT = """INSERT OR REPLACE INTO credentials (user_id, provider, kind, key_id, sealed, set_at, trouble)
    VALUES (?, ?, ?, ?, ?, ?, ?)"""
DELETE = "DELETE FROM credentials WHERE user_id = ? AND provider = ?"


class SqliteUsers:
    """A UserStore in `file`, which somebody else opens and closes."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    async def credential(self, user_id: str, provider: str) -> SealedCredential | None:
        if not is_text(user_id, provider):
            return None
        return await self._file.read("credential", lambda db: _one(db, user_id, provider))

    async def credentials(self, user_id: str) -> list[SealedCredential]:
        if not is_text(user_id):
            return []
        return await self._file.read("credentials", lambda db: _rows(db, OF_USER, user_id))

    async def put_credential(self, row: SealedCredential, *, expected: int | None = None) -> int | None:
        if not is_text(row.user_id, row.provider):
            return None
        return await self._file.commit(len(row.sealed), lambda db: transaction(db, lambda db: _put(db, row, expected)))

    async def delete_credential(self, user_id: str, provider: str) -> bool:
        if not is_text(user_id, provider):
            return False
        return await self._file.commit(0, lambda db: db.execute(DELETE, (user_id, provider)).rowcount > 0)

    async def key_ids(self) -> dict[str, int]:
        sql = "SELECT key_id, count(*) FROM credentials GROUP BY key_id"
        return await self._file.read("key ids", lambda db: dict(db.execute(sql).fetchall()))

    async def sealed_otherwise(self, key_id: str, *, after: int = 0, limit: int = 100) -> list[SealedCredential]:
        return await self._file.read("sealed", lambda db: _rows(db, OTHERWISE, key_id, after, max(limit, 0)))

    async def config(self, user_id: str) -> UserConfig | None:
        if not is_text(user_id):
            return None
        sql = "SELECT user_id, body, set_at FROM user_configs WHERE user_id = ?"
        row = await self._file.read("config", lambda db: db.execute(sql, (user_id,)).fetchone())
        return UserConfig(*row) if row else None

    async def put_config(self, config: UserConfig) -> None:
        if is_text(config.user_id):
            row = (config.user_id, config.body, config.set_at)
            sql = "INSERT OR REPLACE INTO user_configs VALUES (?, ?, ?)"
            await self._file.commit(len(config.body), lambda db: db.execute(sql, row))


def _rows(db: sqlite3.Connection, sql: str, *values: str | int) -> list[SealedCredential]:
    return [SealedCredential(*row) for row in db.execute(sql, values)]


def _one(db: sqlite3.Connection, user_id: str, provider: str) -> SealedCredential | None:
    found = _rows(db, OF_PLACE, user_id, provider)
    return found[0] if found else None


def _put(db: sqlite3.Connection, row: SealedCredential, expected: int | None) -> int | None:
    if expected is not None:
        there = _one(db, row.user_id, row.provider)
        if there is None or there.number != expected:
            return None
    values = (row.user_id, row.provider, row.kind, row.key_id, row.sealed, row.set_at, row.trouble)
    return db.execute(PUT, values).lastrowid
