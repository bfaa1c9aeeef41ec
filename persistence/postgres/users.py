"""What belongs to users, in PostgreSQL, durable when a method returns."""

from typing import Any

from persistence.commit_plan import is_text
from persistence.postgres.connections import READ_SECONDS, Connections
from persistence.user_record import SealedCredential, UserConfig

LARGEST = 2**63 - 1
CREDENTIAL = "user_id, provider, kind, key_id, sealed, set_at, trouble, no"
OF_PLACE = f"SELECT {CREDENTIAL} FROM credentials WHERE user_id = $1 AND provider = $2"
OF_USER = f"SELECT {CREDENTIAL} FROM credentials WHERE user_id = $1 ORDER BY provider"
OTHERWISE = f"SELECT {CREDENTIAL} FROM credentials WHERE key_id <> $1 AND no > $2 ORDER BY no LIMIT $3"
CHANGED = """no = nextval('credential_changes'), kind = $3, key_id = $4, sealed = $5, set_at = $6, trouble = $7"""
PUT = f"""INSERT INTO credentials (user_id, provider, kind, key_id, sealed, set_at, trouble, no)
    VALUES ($1, $2, $3, $4, $5, $6, $7, nextval('credential_changes'))
    ON CONFLICT (user_id, provider) DO UPDATE SET {CHANGED} RETURNING no"""
PUT_EXPECTED = f"UPDATE credentials SET {CHANGED} WHERE user_id = $1 AND provider = $2 AND no = $8 RETURNING no"
DELETE = "DELETE FROM credentials WHERE user_id = $1 AND provider = $2 RETURNING no"
PUT_CONFIG = """INSERT INTO user_configs VALUES ($1, $2, $3)
    ON CONFLICT (user_id) DO UPDATE SET body = $2, set_at = $3"""


class PostgresUsers:
    """A UserStore by `connections`, which somebody else opens and closes."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def credential(self, user_id: str, provider: str) -> SealedCredential | None:
        found = await self._rows(OF_PLACE, user_id, provider) if is_text(user_id, provider) else []
        return found[0] if found else None

    async def credentials(self, user_id: str) -> list[SealedCredential]:
        return await self._rows(OF_USER, user_id) if is_text(user_id) else []

    async def put_credential(self, row: SealedCredential, *, expected: int | None = None) -> int | None:
        if not is_text(row.user_id, row.provider):
            return None
        values = (row.user_id, row.provider, row.kind, row.key_id, row.sealed, row.set_at, row.trouble)
        async with self._connections.pooled("put credential") as connection:
            if expected is None:
                number: int | None = await connection.fetchval(PUT, *values)
            else:
                number = await connection.fetchval(PUT_EXPECTED, *values, expected)
        return number

    async def delete_credential(self, user_id: str, provider: str) -> bool:
        if not is_text(user_id, provider):
            return False
        async with self._connections.pooled("delete credential") as connection:
            return await connection.fetchval(DELETE, user_id, provider) is not None

    async def key_ids(self) -> dict[str, int]:
        sql = "SELECT key_id, count(*) FROM credentials GROUP BY key_id"
        async with self._connections.pooled("key ids", seconds=READ_SECONDS) as connection:
            return {row[0]: row[1] for row in await connection.fetch(sql)}

    async def sealed_otherwise(self, key_id: str, *, after: int = 0, limit: int = 100) -> list[SealedCredential]:
        return await self._rows(OTHERWISE, key_id, after, max(0, min(limit, LARGEST)))

    async def config(self, user_id: str) -> UserConfig | None:
        if not is_text(user_id):
            return None
        sql = "SELECT user_id, body, set_at FROM user_configs WHERE user_id = $1"
        async with self._connections.pooled("config", seconds=READ_SECONDS) as connection:
            row = await connection.fetchrow(sql, user_id)
        return UserConfig(*row) if row is not None else None

    async def put_config(self, config: UserConfig) -> None:
        if is_text(config.user_id):
            async with self._connections.pooled("put config") as connection:
                await connection.execute(PUT_CONFIG, config.user_id, config.body, config.set_at)

    async def _rows(self, sql: str, *values: Any) -> list[SealedCredential]:
        async with self._connections.pooled("credentials", seconds=READ_SECONDS) as connection:
            return [SealedCredential(*row) for row in await connection.fetch(sql, *values)]
