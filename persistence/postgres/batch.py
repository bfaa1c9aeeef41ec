"""A batch of writes in PostgreSQL: one statement if its sessions are as the gateway left them, else a careful
transaction.

The quick way. The gateway is nearly always its sessions' only writer, so it remembers their last state (`heads.py`),
plans the batch on that assumption, and sends the plan as one statement. Another gateway may have written since, so
the statement itself checks the assumption, row by row and under the rows' locks: if one session differs, or one cid
is known, it fails and nothing is stored. One round trip, one fsync, and the fence is checked where the rows are
written. Each batch raises its sessions' version. A batch whose connection was lost may reach a slow server after
newer ones; it fails on that version. A lone record has a shorter statement of the same effect.

The careful way, for everything else: a session that is not remembered or that another gateway changed, a resend, a
refusal. The rows are locked and read, and the plan is performed. If the database refuses the data, the batch is
halved, and again, until the refused writes are alone. Those are planned once more as poison. All in one transaction.

Locks are always taken in the order of the sessions' numbers, so that two commits never wait for each other.
"""

import time
from asyncio import get_running_loop
from collections.abc import Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import Any

import asyncpg

from persistence import crash_points
from persistence.commit_plan import Head, Plan, is_text, plan, questions
from persistence.errors import StoreBusy
from persistence.heads import Remembered, RememberedHeads
from persistence.postgres.connections import Connection, attempt, transaction
from persistence.postgres.errors import LOCKED, NotAsBelieved, reason, refuses, sqlstate
from persistence.record import Fenced, Record, Rejected, Write

LOCK = """SELECT id, no, version, last_seq, delivered, fence FROM sessions WHERE id = ANY ($1::text[])
    ORDER BY no FOR NO KEY UPDATE"""
KNOWN = """SELECT s.id, m.cid, m.seq FROM unnest($1::text[], $2::text[]) AS asked (id, cid)
    JOIN sessions s ON s.id = asked.id JOIN messages m ON m.session_no = s.no AND m.cid = asked.cid"""
HELD = """SELECT id FROM sessions WHERE id = ANY ($1::text[]) EXCEPT
    SELECT id FROM (SELECT id FROM sessions WHERE id = ANY ($1::text[]) FOR NO KEY UPDATE SKIP LOCKED) AS free"""


async def commit(connection: Connection, writes: Sequence[Write], heads: RememberedHeads) -> list[Plan]:
    """Store the batch and return the outcomes, in order. Raises StoreBusy and the driver's errors: then nothing was
    stored, or the connection is lost and the retry will find out."""
    session_ids = dict.fromkeys(write.session_id for write in writes)
    believed = heads.take(session_ids)
    try:
        done = await _quickly(connection, writes, believed) if len(believed) == len(session_ids) else None
        if done is None:
            done, believed = await _carefully(connection, writes)
    except asyncpg.PostgresError as error:
        if sqlstate(error) in LOCKED:
            await _blame(connection, list(session_ids), error)
        raise
    crash_points.reached("store.committed")
    heads.learn(believed)
    return done


async def _quickly(
    connection: Connection, writes: Sequence[Write], believed: Mapping[str, Remembered]
) -> list[Plan] | None:
    """None if the batch needs care. On success `believed` is brought up to date."""
    heads = {session_id: remembered.head for session_id, remembered in believed.items()}
    if questions(writes, heads, retries_only=True):
        return None
    decided = plan(writes, heads, {})
    if any(isinstance(outcome, Rejected | Fenced) for outcome in decided.outcomes):
        return None  # an assumption is no reason to refuse a write
    try:
        await _perform(connection, decided, believed)
    except asyncpg.PostgresError as error:
        if isinstance(error, NotAsBelieved) or refuses(error):  # a known cid violates a constraint, too
            return None
        raise
    return [decided]


async def _carefully(connection: Connection, writes: Sequence[Write]) -> tuple[list[Plan], dict[str, Remembered]]:
    async with transaction(connection):
        session_ids = sorted({write.session_id for write in writes if is_text(write.session_id)})
        found = {
            session_id: Remembered(no, Head(last_seq, delivered, fence), version)
            for session_id, no, version, last_seq, delivered, fence in await connection.fetch(LOCK, session_ids)
        }
        return await _piecewise(connection, writes, found), found


async def _piecewise(connection: Connection, writes: Sequence[Write], found: Mapping[str, Remembered]) -> list[Plan]:
    try:
        return [await _ask_and_perform(connection, writes, found, {})]
    except asyncpg.PostgresError as error:
        if not refuses(error):
            raise
        poison = {0: reason(error)}
    if len(writes) > 1:
        half = len(writes) // 2
        first = await _piecewise(connection, writes[:half], found)
        return first + await _piecewise(connection, writes[half:], found)
    try:
        return [await _ask_and_perform(connection, writes, found, poison)]
    except asyncpg.PostgresError as error:
        if not refuses(error):
            raise
        # The database refuses even the marker: the conversation cannot move on until a person looks at the database.
        held = frozenset({writes[0].session_id})
        raise StoreBusy(
            f"the database refuses what session {writes[0].session_id} writes: {poison[0]}", held
        ) from error


async def _ask_and_perform(
    connection: Connection, writes: Sequence[Write], found: Mapping[str, Remembered], poison: Mapping[int, str]
) -> Plan:
    """The sessions in `found` are locked; on success they are brought up to date."""
    heads = {session_id: remembered.head for session_id, remembered in found.items()}
    asked = sorted(questions(writes, heads, retries_only=False))
    names, cids = [session_id for session_id, _ in asked], [cid for _, cid in asked]
    known = await connection.fetch(KNOWN, names, cids) if asked else []
    decided = plan(writes, heads, {(session_id, cid): seq for session_id, cid, seq in known}, poison)
    touched = {write.session_id: found[write.session_id] for write in writes if write.session_id in found}
    async with attempt(connection):
        await _perform(connection, decided, touched)
    return decided


async def _blame(connection: Connection, session_ids: list[str], error: asyncpg.PostgresError) -> None:
    """Raise StoreBusy with the sessions that others lock, if that can still be seen."""
    ids = [session_id for session_id in session_ids if is_text(session_id)]
    if held := frozenset(row[0] for row in await connection.fetch(HELD, ids)):
        raise StoreBusy(f"{len(held)} sessions are locked by another connection", held) from error


async def _perform(connection: Connection, decided: Plan, believed: Mapping[str, Remembered]) -> None:
    """Send the plan. It fails unless all sessions are as `believed`; on success they are brought up to date."""
    if not believed:
        return
    rows: dict[str, list[Any]] = {
        "stepped": _steps(decided, believed),
        "added": _added(decided, believed),
        "marked": _marked(decided, believed),
        "kept": [(believed[session_id].no, body) for session_id, body in decided.checkpoints.items() if body],
        "removed": [believed[session_id].no for session_id, body in decided.checkpoints.items() if not body],
        "buried": _buried(decided, believed),
    }
    needed = tuple(part for part in rows if rows[part])
    get_running_loop().call_soon(crash_points.reached, "store.sent")
    if needed == ("stepped", "added") and len(rows["stepped"]) == len(rows["added"]) == 1:
        if not await connection.fetchval(LONE, *rows["stepped"][0], *rows["added"][0][1:]):
            raise NotAsBelieved("the session is not as its writer believed")
    else:
        await connection.fetchval(_statement(needed), len(believed), *(rows[part] for part in needed))
    for session_id, remembered in believed.items():
        remembered.version += 1
        remembered.head = decided.after[session_id]


def _steps(decided: Plan, believed: Mapping[str, Remembered]) -> list[Any]:
    """For each session the assumed state and the new one, in the order of the locks."""
    steps = []
    grown = decided.grown
    for session_id, remembered in believed.items():
        head = decided.after[session_id]
        steps.append(
            (
                remembered.no,
                remembered.version,
                remembered.head.fence,
                head.last_seq,
                head.delivered,
                decided.states.get(session_id),
                decided.specs.get(session_id),
                grown.get(session_id, 0),
            )
        )
    steps.sort(key=itemgetter(0))
    return steps


def _added(decided: Plan, believed: Mapping[str, Remembered]) -> list[Any]:
    # A statement does not see its own rows, so a record that the same batch marks gets its mark as it is added.
    marks = {(session_id, seq): status for status, session_id, seq in decided.marks}
    return [
        _row(record, believed, marks.get((record.session_id, record.seq), record.status) if marks else record.status)
        for record in decided.rows
    ]


def _row(record: Record, believed: Mapping[str, Remembered], status: str) -> tuple[Any, ...]:
    no = believed[record.session_id].no
    return no, record.seq, record.cid, record.role, record.type, record.payload, record.created_at, status


def _marked(decided: Plan, believed: Mapping[str, Remembered]) -> list[Any]:
    last = {(session_id, seq): status for status, session_id, seq in decided.marks}
    return [
        (believed[session_id].no, seq, status)
        for (session_id, seq), status in last.items()
        if seq <= believed[session_id].head.last_seq
    ]


def _buried(decided: Plan, believed: Mapping[str, Remembered]) -> list[Any]:
    now = time.time()
    return [(_row(record, believed, record.status), why, now) for record, why in decided.dead]


# Each part takes its rows as one array, in place of %s.
PARTS = {
    "stepped": """UPDATE sessions s SET version = s.version + 1, last_seq = x.last_seq, delivered = x.delivered,
        state = coalesce(x.state, s.state), spec = coalesce(x.spec, s.spec),
        stored_bytes = s.stored_bytes + x.grown_bytes
        FROM unnest(%s::session_stride[]) x WHERE s.no = x.no
        AND s.version = x.was_version AND s.fence = x.was_fence RETURNING 1""",
    "added": """INSERT INTO messages (session_no, seq, cid, role, type, payload, created_at, status)
        SELECT * FROM unnest(%s::new_message[])""",
    "marked": """UPDATE messages m SET status = x.status FROM unnest(%s::new_mark[]) x
        WHERE m.session_no = x.session_no AND m.seq = x.seq""",
    "kept": """INSERT INTO checkpoints (session_no, body) SELECT * FROM unnest(%s::new_checkpoint[])
        ON CONFLICT (session_no) DO UPDATE SET body = excluded.body""",
    "removed": "DELETE FROM checkpoints WHERE session_no = ANY (%s::bigint[])",
    "buried": """INSERT INTO dead_letters
        (session_no, seq, cid, role, type, payload, created_at, status, reason, buried_at)
        SELECT (x.message).*, x.reason, x.buried_at FROM unnest(%s::new_dead_letter[]) x""",
}

# A session's step and its one record: the first two parts for one row each, as plain values. There is no record
# without the step. Returns true; no row if the session was not as assumed: then nothing was done.
LONE = """WITH stepped AS (
        UPDATE sessions SET version = version + 1, last_seq = $4, delivered = $5,
        state = coalesce($6, state), spec = coalesce($7, spec), stored_bytes = stored_bytes + $8::bigint
        WHERE no = $1 AND version = $2 AND fence = $3 RETURNING no)
    INSERT INTO messages (session_no, seq, cid, role, type, payload, created_at, status)
    SELECT no, $9::bigint, $10, $11, $12, $13::bytea, $14::double precision, $15 FROM stepped RETURNING true"""


@cache
def _statement(parts: tuple[str, ...]) -> str:
    """The parts as one statement. $1 is the number of sessions that must match; then come the parts' rows."""
    steps = ", ".join(f"{part} AS ({PARTS[part] % f'${place}'})" for place, part in enumerate(parts, 2))
    return f"WITH {steps} SELECT all_as_believed((SELECT count(*) FROM stepped), $1)"
