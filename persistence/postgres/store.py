"""Conversations in PostgreSQL, durable when `commit` returns. Several gateways may share one database."""

import asyncio
import os
import socket
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import asyncpg

from persistence.commit_plan import REJECTED, Head, is_text
from persistence.errors import StoreUnavailable
from persistence.heads import Remembered, RememberedHeads
from persistence.listener import NobodyListens, StoreListener
from persistence.postgres import batch as postgres_batch
from persistence.postgres.connections import READ_SECONDS, Connection, Connections, attempt, transaction
from persistence.postgres.errors import reason, refuses
from persistence.postgres.listener import PostgresListener
from persistence.postgres.users import PostgresUsers
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

CIDS_LOADED = 10_000
LARGEST = 2**63 - 1

SESSION = "id, user_id, created_at, spec, state, last_seq, delivered, first_seq"
LISTED = SESSION.replace("spec", "brief_of(spec)")
RECORD = """s.id, m.seq, m.cid, m.role, m.type, m.payload, m.created_at,
    CASE WHEN m.status = 'stored' AND m.seq <= s.delivered THEN 'delivered' ELSE m.status END AS shown"""
# A payload's length is known without reading it: payloads beyond the bound are never read.
UP_TO = """SELECT id, seq, cid, role, type, payload, created_at, shown FROM (
        SELECT *, sum(octet_length(payload)) OVER (ORDER BY seq {order}) - octet_length(payload) AS earlier
        FROM ({asked}) AS asked
    ) AS counted WHERE earlier < ${bound} ORDER BY seq {order}"""
RECORDS = f"SELECT {RECORD} FROM sessions s JOIN messages m ON m.session_no = s.no WHERE s.id = $1"
CREATE = """INSERT INTO sessions (id, user_id, created_at, spec, state) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (id) DO NOTHING"""
CLAIM = f"""UPDATE sessions SET fence = nextval('fences'), owner = $2 WHERE id = $1
    RETURNING no, version, fence, {SESSION}"""
CIDS = """SELECT cid, seq FROM messages WHERE session_no = $1 AND status NOT IN ('duplicate', 'rejected')
    ORDER BY seq DESC LIMIT $2"""
WAITING = """SELECT s.id FROM sessions s WHERE s.last_seq > s.delivered AND EXISTS
    (SELECT FROM messages m WHERE m.session_no = s.no AND m.seq > s.delivered AND m.status = 'stored') ORDER BY s.no"""
LETTERS = """SELECT d.no, s.id, d.seq, d.cid, d.role, d.type, d.payload, d.created_at, d.status, d.reason, d.buried_at
    FROM dead_letters d JOIN sessions s ON s.no = d.session_no"""
# The first record that stays, in seq order: earlier ones may go.
STAYS = """SELECT m.seq FROM messages m JOIN sessions s ON s.no = m.session_no WHERE s.no = $1 AND m.seq < $5
    AND (m.seq >= $2 OR m.status = 'open' OR (m.status = 'stored' AND m.seq > s.delivered)
         OR NOT (coalesce(m.created_at < $3, false) OR coalesce(m.seq <= s.last_seq - $4::bigint, false)))
    ORDER BY m.seq LIMIT 1"""
USAGE = """SELECT count(*), coalesce(sum(stored_bytes), 0)::bigint,
    coalesce(sum((part_of(state, 'snapshot_bytes')::text)::numeric), 0)::bigint FROM sessions WHERE user_id = $1"""
TRIM = """WITH gone AS (DELETE FROM messages WHERE session_no = $1 AND seq < $2 RETURNING octet_length(payload) AS size)
    SELECT count(*), coalesce(sum(size), 0)::bigint FROM gone"""
GROWN = """UPDATE sessions s SET stored_bytes = s.stored_bytes + $3::bigint - coalesce(
    (SELECT octet_length(m.payload) FROM messages m WHERE m.session_no = $1 AND m.seq = $2), 0) WHERE s.no = $1"""
REPLACE = """UPDATE messages SET cid = $3, role = $4, type = $5, payload = $6, created_at = $7, status = $8
    WHERE session_no = $1 AND seq = $2"""


class PostgresStore:
    """A MessageStore in the database at `url` (postgresql://user:password@host/name?sslmode=...).

    The database shows `node` as the owner of the sessions loaded here. A database that is away when the store opens
    is no error: calls raise StoreUnavailable until it can be reached.
    """

    def __init__(
        self, url: str, *, node: str | None = None, pool_size: int = 8, statement_seconds: float = 30.0
    ) -> None:
        self.heard: StoreListener = NobodyListens()
        self._node = node or f"{socket.gethostname()}:{os.getpid()}"
        self._connections = Connections(url, pool_size, statement_seconds)
        self.users = PostgresUsers(self._connections)
        self._listener = PostgresListener(self._connections, self._tell)
        self._listening: asyncio.Task[None] | None = None
        self._heads = RememberedHeads()

    async def __aenter__(self) -> Self:
        await self._connections.open()
        self._listening = asyncio.create_task(self._listener.run(), name="postgres-listener")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
        await self._connections.close()

    async def installation(self, proposed: str) -> str:
        async with self._connections.pooled("installation") as connection:
            await connection.execute("INSERT INTO installation VALUES (1, $1) ON CONFLICT DO NOTHING", proposed)
            return str(await connection.fetchval("SELECT id FROM installation"))

    async def create(self, session: Session) -> Session:
        async with self._connections.pooled("create") as connection:
            values = (session.id, session.user_id, session.created_at, session.spec, session.state)
            await connection.execute(CREATE, *values)
            kept = await _find(connection, session.id)
        if kept is None:
            raise StoreUnavailable(f"session {session.id} was removed while it was created")
        return kept

    async def find(self, session_id: str) -> Session | None:
        async with self._connections.pooled("find", seconds=READ_SECONDS) as connection:
            return await _find(connection, session_id)

    async def load(self, session_id: str) -> Loaded | None:
        if not is_text(session_id):
            return None
        async with self._connections.pooled("load") as connection, transaction(connection):
            claimed = await connection.fetchrow(CLAIM, session_id, self._node)
            if claimed is None:
                return None
            no, version, fence, *columns = claimed
            session = Session(*columns)
            loaded = await _loaded(connection, no, fence, session)
        self._heads.learn({session_id: Remembered(no, Head(session.last_seq, session.delivered, fence), version)})
        return loaded

    async def sessions(
        self, user_id: str | None = None, *, after: str | None = None, limit: int | None = None
    ) -> list[Session]:
        sql, values = f"SELECT {LISTED} FROM sessions WHERE true", list[Any]()
        if user_id is not None:
            values.append(user_id)
            sql = f"{sql} AND user_id = ${len(values)}"
        if after is not None:
            values.append(after)
            sql = f"{sql} AND no < (SELECT no FROM sessions WHERE id = ${len(values)})"
        if not is_text(*values):
            return []
        values.append(None if limit is None else _bounded(limit))
        async with self._connections.pooled("sessions", seconds=READ_SECONDS) as connection:
            found = await connection.fetch(f"{sql} ORDER BY no DESC LIMIT ${len(values)}::bigint", *values)
        return [Session(*row) for row in found]

    async def usage(self, user_id: str) -> Usage:
        if not is_text(user_id):
            return Usage()
        async with self._connections.pooled("usage", seconds=READ_SECONDS) as connection:
            ((sessions, records, snapshots),) = await connection.fetch(USAGE, user_id)
            return Usage(sessions, records, snapshots)

    async def waiting(self) -> list[str]:
        async with self._connections.pooled("waiting") as connection:
            return [row[0] for row in await connection.fetch(WAITING)]

    async def commit(self, writes: Sequence[Write]) -> list[Outcome]:
        if not writes:
            return []
        async with self._connections.committing() as connection:
            done = await postgres_batch.commit(connection, writes, self._heads)
        grown = {record.session_id for decided in done for record in decided.rows}
        self._listener.announce(grown)
        for session_id in grown:
            self.heard.grown(session_id)
        return [outcome for decided in done for outcome in decided.outcomes]

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
        if not is_text(session_id, role or "", type or ""):
            return []
        self._listener.asked(session_id)
        values: list[Any] = [session_id, _bounded(after), _bounded(limit)]
        sql = f"{RECORDS} AND m.seq > $2"
        bound = None if before is None else _bounded(before)
        for clause, value in (("m.seq <", bound), ("m.role =", role), ("m.type =", type)):
            if value is not None:
                values.append(value)
                sql = f"{sql} AND {clause} ${len(values)}"
        newest = before is not None and after <= 0
        order = "DESC" if newest else "ASC"
        sql = f"{sql} ORDER BY m.seq {order} LIMIT $3"
        if max_bytes is not None:
            values.append(max_bytes)
            sql = UP_TO.format(asked=sql, order=order, bound=len(values))
        async with self._connections.pooled("messages", seconds=READ_SECONDS) as connection:
            found = await _records(connection, sql, *values)
        return found[::-1] if newest else found

    async def by_cid(self, session_id: str, cid: str) -> Record | None:
        if not is_text(session_id, cid):
            return None
        async with self._connections.pooled("by_cid", seconds=READ_SECONDS) as connection:
            found = await _records(connection, f"{RECORDS} AND m.cid = $2", session_id, cid)
        return found[0] if found else None

    def behind(self, session_id: str) -> bool:
        return False

    async def trim(
        self, session_id: str, *, older_than: float | None, keep: int | None, below: int, limit: int = 1000
    ) -> int:
        if not is_text(session_id):
            return 0
        async with self._connections.pooled("trim") as connection, transaction(connection):
            locked = "SELECT no, first_seq, last_seq FROM sessions WHERE id = $1 FOR NO KEY UPDATE"
            row = await connection.fetchrow(locked, session_id)
            if row is None:
                return 0
            no, first, last = row
            end = min(last + 1, first + _bounded(limit))
            stays = (_bounded(below), older_than, None if keep is None else _bounded(keep))
            staying = await connection.fetchval(STAYS, no, *stays, end)
            end = end if staying is None else staying
            ((gone, size),) = await connection.fetch(TRIM, no, end)
            begins = "first_seq = greatest(first_seq, $2), stored_bytes = stored_bytes - $3::bigint"
            await connection.execute(f"UPDATE sessions SET {begins} WHERE no = $1", no, end, size)
            return int(gone)

    async def purge(self, session_id: str) -> None:
        if not is_text(session_id):
            return
        async with self._connections.pooled("purge") as connection, transaction(connection):
            # First the row that every writer must update: a writer that waits for it now will find nothing.
            no = await connection.fetchval("DELETE FROM sessions WHERE id = $1 RETURNING no", session_id)
            for table in ("messages", "checkpoints", "dead_letters"):
                await connection.execute(f"DELETE FROM {table} WHERE session_no = $1", no)
        self._heads.forget(session_id)

    async def dead_letters(
        self, session_id: str | None = None, *, after: int = 0, limit: int = 100
    ) -> list[DeadLetter]:
        where, values = ("", ()) if session_id is None else ("AND s.id = $3", (session_id,))
        if not is_text(*values):
            return []
        sql = f"{LETTERS} WHERE d.no > $1 {where} ORDER BY d.no LIMIT $2"
        async with self._connections.pooled("dead letters", seconds=READ_SECONDS) as connection:
            return [_letter(row) for row in await connection.fetch(sql, _bounded(after), _bounded(limit), *values)]

    async def retry_dead_letter(self, number: int) -> Outcome | None:
        async with self._connections.pooled("retry") as connection, transaction(connection):
            row = await connection.fetchrow(f"{LETTERS} WHERE d.no = $1 FOR UPDATE", _bounded(number))
            return await _retry(connection, _letter(row)) if row is not None else None

    async def drop_dead_letter(self, number: int) -> bool:
        async with self._connections.pooled("drop") as connection:
            return _count(await connection.execute("DELETE FROM dead_letters WHERE no = $1", _bounded(number))) > 0

    def _tell(self, session_id: str) -> None:
        self.heard.grown(session_id)


async def _find(connection: Connection, session_id: str) -> Session | None:
    if not is_text(session_id):
        return None
    row = await connection.fetchrow(f"SELECT {SESSION} FROM sessions WHERE id = $1", session_id)
    return Session(*row) if row is not None else None


async def _loaded(connection: Connection, no: int, fence: int, session: Session) -> Loaded:
    newest_first = await connection.fetch(CIDS, no, CIDS_LOADED)
    waiting = f"{RECORDS} AND m.seq > s.delivered AND m.status = 'stored' ORDER BY m.seq"
    return Loaded(
        session=session,
        fence=fence,
        checkpoint=await connection.fetchval("SELECT body FROM checkpoints WHERE session_no = $1", no) or b"",
        cids={cid: seq for cid, seq in reversed(newest_first)},  # noqa: C416 - the driver's rows are no pairs
        waiting=await _records(connection, waiting, session.id),
        open=await _records(connection, f"{RECORDS} AND m.status = 'open' ORDER BY m.seq", session.id),
    )


async def _records(connection: Connection, sql: str, *values: Any) -> list[Record]:
    return [Record(*row) for row in await connection.fetch(sql, *values)]


def _letter(row: asyncpg.Record) -> DeadLetter:
    number, *record, why, buried_at = row
    return DeadLetter(number, Record(*record), why, buried_at)


async def _retry(connection: Connection, letter: DeadLetter) -> Outcome:
    """The letter and its session are locked."""
    record = letter.record
    no = await connection.fetchval("SELECT no FROM sessions WHERE id = $1", record.session_id)
    known = "SELECT seq FROM messages WHERE session_no = $1 AND cid = $2"
    if await connection.fetchval(known, no, f"{REJECTED}{record.seq}") != record.seq:
        return Rejected("its place in the conversation is gone")
    outcome: Outcome = Stored(record.seq)
    if (first := await connection.fetchval(known, no, record.cid)) is not None:
        outcome = Duplicate(first)
    else:
        values = (record.cid, record.role, record.type, record.payload, record.created_at, record.status)
        try:
            async with attempt(connection):
                await connection.execute(GROWN, no, record.seq, len(record.payload))
                await connection.execute(REPLACE, no, record.seq, *values)
        except asyncpg.PostgresError as error:
            if not refuses(error):
                raise
            return Dead(reason(error))
    await connection.execute("DELETE FROM dead_letters WHERE no = $1", letter.number)
    return outcome


def _count(tag: str) -> int:
    """The number of rows that a statement touched, from PostgreSQL's tag: `DELETE 3`."""
    return int(tag.rpartition(" ")[2])


def _bounded(number: int) -> int:
    """The nearest value that fits a bigint column, and nothing below zero."""
    return max(0, min(number, LARGEST))
