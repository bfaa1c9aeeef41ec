"""Connections to one PostgreSQL database: one for commits, one to listen, a pool for everything else.

The database need not be there when the gateway starts. The first connection that reaches it, whenever that is, also
brings its schema up to date.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import asyncpg
import structlog

from persistence.errors import CannotOpen, StoreError, StoreUnavailable
from persistence.migrations import missing, shipped
from persistence.postgres.errors import DRIVER_ERRORS, cannot_open, reason, translated

log = structlog.stdlib.get_logger()

CONNECT_SECONDS = 5.0
READ_SECONDS = 5.0  # a person waits for it
COMMIT_LOCK_SECONDS = 0.25  # a session whose row is locked for longer is set aside
MIGRATION_LOCK = 0x686F6C64_66617374  # "holdfast"
MIGRATION_WAIT_SECONDS = 60.0  # for another migration to end; then the store is away, and the migration is retried
MAY_WRITE = "SELECT has_table_privilege('messages', 'INSERT')"

# Stored data must not wait for the next flush, whatever the server's default is. A stricter setting stays.
DURABLE = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"

# After these errors a connection is reusable; after any other it may be in the middle of something.
SOUND = (asyncpg.PostgresError, StoreError)

Connection: TypeAlias = "asyncpg.Connection[Any] | asyncpg.pool.PoolConnectionProxy[Any]"


class Connections:
    """At most `maximum` to the database at `url`, each statement at most `statement_seconds`. Raises StoreUnavailable
    only, and CannotOpen from `open`."""

    def __init__(self, url: str, maximum: int, statement_seconds: float) -> None:
        self._url = url
        self._statement_seconds = statement_seconds
        self._maximum = max(maximum, 3)
        self._pool: asyncpg.Pool[Any] | None = None
        self._committer: Connection | None = None
        self._one_commit = asyncio.Lock()
        self._one_migration = asyncio.Lock()
        self._open = False
        self._reached = False
        self.where = _without_secrets(url)

    async def open(self) -> None:
        """Reach the database if it is there. Raises CannotOpen if it answers and cannot be used."""
        self._open = True
        try:
            await self._reach()
        except StoreUnavailable as error:
            log.warning("store.away", where=self.where, cause=str(error))

    async def close(self) -> None:
        self._open = False
        self.drop_committer()
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.terminate()  # callers that still wait get an error

    @asynccontextmanager
    async def pooled(self, what: str, *, seconds: float | None = None) -> AsyncIterator[Connection]:
        """Any connection, for at most `seconds`, if the database can be reached. The driver's errors become
        StoreUnavailable, named after `what`."""
        await self._reach_or_be_away()
        with translated(what):
            async with asyncio.timeout(seconds), self._borrowed() as connection:
                yield connection

    @asynccontextmanager
    async def _borrowed(self) -> AsyncIterator[Connection]:
        if self._pool is None:
            self._pool = await self._make_pool()
        pool = self._pool
        connection = await pool.acquire(timeout=self._statement_seconds)
        try:
            yield connection
        except SOUND:
            raise
        except BaseException:
            connection.terminate()
            raise
        finally:
            await pool.release(connection)

    @asynccontextmanager
    async def committing(self) -> AsyncIterator[Connection]:
        """The connection for commits, one caller at a time."""
        async with self._one_commit:
            connection = self._committer
            if connection is None or connection.is_closed():
                await self._reach_or_be_away()
                with translated("connect"):
                    connection = self._committer = await self._connect(
                        lock_timeout=_milliseconds(COMMIT_LOCK_SECONDS),
                        # The plan of a batch is made once, perhaps while the tables are empty, and must be right when
                        # they are not: always by index, and never planned again for the arrays' contents.
                        plan_cache_mode="force_generic_plan",
                        enable_seqscan="off",
                    )
                    await _make_durable(connection)
            with translated("commit"):
                try:
                    yield connection
                except SOUND:
                    raise
                except BaseException:
                    self.drop_committer()
                    raise

    async def listening(self) -> Connection:
        """A connection of the caller's own, for data that need not be durable."""
        await self._reach_or_be_away()
        with translated("connect"):
            return await self._connect(synchronous_commit="off")

    def drop_committer(self) -> None:
        connection, self._committer = self._committer, None
        if connection is not None:
            connection.terminate()

    async def _reach_or_be_away(self) -> None:
        """Like `_reach`. Errors that an operator must fix make the store unavailable, but do not end a running
        gateway."""
        if not self._open:
            raise StoreUnavailable("the store is not open")
        try:
            await self._reach()
        except CannotOpen as error:
            raise StoreUnavailable(str(error)) from error

    async def _reach(self) -> None:
        if self._reached:
            return
        async with self._one_migration:
            if not self._reached:
                check_files(self._url)
                try:
                    connection = await self._connect(command_timeout=None, statement_timeout="0")
                    try:
                        await migrate(connection)
                        if not await connection.fetchval(MAY_WRITE, timeout=CONNECT_SECONDS):
                            raise CannotOpen(f"this user may not write to {self.where}: see deploy/postgres-roles.sql")
                    finally:
                        connection.terminate()  # this also releases the lock
                except DRIVER_ERRORS as error:
                    hopeless = cannot_open(self.where, error)
                    raise hopeless or StoreUnavailable(f"{self.where}: {reason(error)}") from error
                self._reached = True

    async def _connect(self, **settings: Any) -> Connection:
        connection: Connection = await asyncpg.connect(**self._arguments(**settings))
        return connection

    async def _make_pool(self) -> "asyncpg.Pool[Any]":
        arguments = self._arguments(lock_timeout=_milliseconds(CONNECT_SECONDS))
        return await asyncpg.create_pool(min_size=0, max_size=self._maximum - 2, init=_make_durable, **arguments)

    def _arguments(self, **settings: Any) -> dict[str, Any]:
        limit = _milliseconds(self._statement_seconds)
        return {
            "dsn": self._url,
            "timeout": CONNECT_SECONDS,
            # The server ends slow statements; the client waits a little longer, for a server that does not answer.
            "command_timeout": settings.pop("command_timeout", self._statement_seconds + 1),
            "server_settings": {
                "application_name": "holdfast",
                "statement_timeout": limit,
                "idle_in_transaction_session_timeout": limit,
                **settings,
            },
        }


@asynccontextmanager
async def transaction(connection: Connection) -> AsyncIterator[None]:
    """All of the block's changes, or none. Unlike the driver's own context it never waits for a connection that does
    not answer: it closes that one, which ends the transaction, too."""
    await connection.execute("BEGIN")
    try:
        yield
    except SOUND:
        await connection.execute("ROLLBACK")
        raise
    await connection.execute("COMMIT")


@asynccontextmanager
async def attempt(connection: Connection) -> AsyncIterator[None]:
    """A part of a transaction; the transaction goes on if the part fails."""
    await connection.execute("SAVEPOINT attempt")
    try:
        yield
    except SOUND:
        await connection.execute("ROLLBACK TO attempt; RELEASE attempt")
        raise
    await connection.execute("RELEASE attempt")


async def migrate(connection: Connection) -> None:
    """Bring the schema up to date. A current schema needs no right to change it. If several gateways come at once,
    one migrates and the others wait. Raises CannotOpen if the schema is newer than this code."""
    migrations = shipped("postgres")
    if not missing(migrations, await _version(connection)):
        return
    await connection.execute("SELECT pg_advisory_lock($1)", MIGRATION_LOCK, timeout=MIGRATION_WAIT_SECONDS)
    for migration in missing(migrations, await _version(connection)):
        async with transaction(connection):
            await connection.execute(migration.sql)
            done = "INSERT INTO schema_version (number, name) VALUES ($1, $2)"
            await connection.execute(done, migration.number, migration.name)


async def _version(connection: Connection) -> int:
    if await connection.fetchval("SELECT to_regclass('schema_version')", timeout=CONNECT_SECONDS) is None:
        return 0
    newest = "SELECT coalesce(max(number), 0) FROM schema_version"
    return int(await connection.fetchval(newest, timeout=CONNECT_SECONDS))


def check_files(url: str) -> None:
    """Raises CannotOpen if a file that the URL names is missing: the driver's error looks like that of a missing
    socket, which only means that the server is away."""
    for name, path in parse_qsl(urlsplit(url).query):
        if name in ("sslrootcert", "sslcert", "sslkey") and not os.path.exists(path):
            raise CannotOpen(f"there is no file {path}. Check {name} in HOLDFAST_STORE")


async def _make_durable(connection: Connection) -> None:
    await connection.execute(DURABLE)


def _milliseconds(seconds: float) -> str:
    return str(int(seconds * 1000))


def _without_secrets(url: str) -> str:
    parts = urlsplit(url)
    if "@" in f"{parts.path}{parts.query}{parts.fragment}":
        return "?"  # a password with a bare / or #, whose rest now looks like another part of the URL
    return f"{parts.path.lstrip('/')} at {parts.netloc.rpartition('@')[2]}"
