"""PostgreSQL for the benchmark: databases with a history, and peers that write to the same table without Holdfast."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import asyncpg

from bench.producers import PAYLOAD, Cost, Crowd
from persistence.postgres.store import PostgresStore
from persistence.queue.backlog import QueueLimits
from persistence.queue.queue import PersistenceQueue
from persistence.spool.spool import Spool
from persistence.spool.store import SpooledStore
from tests.support.postgres import PostgresServer, execute

SESSIONS = 1000
HISTORY = """INSERT INTO sessions (id, user_id, created_at, spec, state, last_seq)
    SELECT 's' || n, 'ann', 1, '{{}}', '{{}}', {records} FROM generate_series(0, {sessions} - 1) n;
    INSERT INTO messages SELECT no, seq, 'c' || seq, 'user', 'message', '{payload}', 1, 'complete'
    FROM generate_series(1, {records}) seq, sessions"""
COLUMNS = ["bigint[]", "bigint[]", "text[]", "text[]", "text[]", "bytea[]", "double precision[]", "text[]"]
UNNEST = "INSERT INTO messages SELECT * FROM unnest({})".format(
    ", ".join(f"${number}::{column}" for number, column in enumerate(COLUMNS, 1))
)

Row = tuple[int, int, str, str, str, bytes, float, str]


async def make_database(server: PostgresServer, records: int) -> str:
    """Make a database with `records` records in each of its sessions."""
    url = server.create_database()
    async with PostgresStore(url):
        pass
    execute(url, HISTORY.format(records=records, sessions=SESSIONS, payload=PAYLOAD.decode()), "VACUUM ANALYZE")
    return url


@asynccontextmanager
async def holdfast(url: str, spool: Path) -> AsyncIterator[Crowd]:
    """A crowd on the queue, the spool and the store, connected as in the gateway."""
    async with (
        Spool(spool) as first_stage,
        SpooledStore(PostgresStore(url), first_stage, Random()) as store,
        PersistenceQueue(store, QueueLimits(), Random()) as queue,
    ):
        crowd = Crowd(store, queue)
        await crowd.join([f"s{number}" for number in range(SESSIONS)])
        yield crowd


class Peers:
    """One connection that only writes to the table of messages: no check, no order, no answer."""

    def __init__(self, connection: "asyncpg.Connection[Any]") -> None:
        self._connection = connection
        self._written = 0

    async def single(self, seconds: float) -> Cost:
        """One INSERT after the other, each awaited."""
        insert = await self._connection.prepare("INSERT INTO messages VALUES ($1, $2, $3, $4, $5, $6, $7, $8)")
        return await self._repeat(1, seconds, lambda rows: insert.fetch(*rows[0]))

    async def unnest(self, seconds: float) -> Cost:
        """500 records in one INSERT."""
        insert = await self._connection.prepare(UNNEST)
        return await self._repeat(500, seconds, lambda rows: insert.fetch(*map(list, zip(*rows, strict=True))))

    async def copy(self, seconds: float) -> Cost:
        """5,000 records in one COPY."""
        table = self._connection.copy_records_to_table
        return await self._repeat(5000, seconds, lambda rows: table("messages", records=rows))

    async def _repeat(self, size: int, seconds: float, write: Callable[[list[Row]], Awaitable[object]]) -> Cost:
        took: list[float] = []
        began, cpu_began = time.perf_counter(), time.process_time()
        while time.perf_counter() < began + seconds:
            start = time.perf_counter()
            await write([self._row() for _ in range(size)])
            took.append(time.perf_counter() - start)
        elapsed, records = time.perf_counter() - began, len(took) * size
        return Cost(records / elapsed, (time.process_time() - cpu_began) / records * 1e6, sorted(took))

    def _row(self) -> Row:
        self._written += 1
        session_no = -1 - self._written % SESSIONS
        return (
            session_no,
            self._written,
            f"c{self._written}",
            "user",
            "message",
            PAYLOAD,
            time.time(),
            "stored",
        )
