"""The cost of an append, a resume, a read and a load after a long conversation: the second half of bench/growth.py.

One session has all the records. Each length has its own database and gateway. A resume sends a viewer the last answers,
from memory. A read gets the last records from the store. A load is the store's work for a gateway that does not have
the session yet: it reads only the ids of the last 10,000 records, so it is compared with a history of that length.
Syncs are put off, because a sync would add to the time of the next operation.
"""

import asyncio
import re
import shutil
import sqlite3
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, closing
from pathlib import Path
from random import Random

from bench.contenders import Contender, Stage
from bench.figures import Figure, Goal
from bench.load import DONE, MAX_MESSAGE, PATIENCE_SECONDS, Crowd, LoadFailed
from bench.rounds import Measure, take_turns
from persistence.sqlite.store import CIDS_LOADED, SqliteStore

SESSION = "s0"
DEPTH = 16
MISSED = 10  # answers that a resuming viewer has not seen
READ_RECORDS = 50
APPEND, RESUME, READ, LOAD = "append", "resume", "read", "load"
GOAL = Goal(1.1)
# Alternating questions and answers, all of them handled.
FILL = """WITH RECURSIVE n(no, seq) AS (SELECT no, last_seq + 1 FROM sessions UNION ALL
        SELECT no, seq + 1 FROM n WHERE seq < ?1)
    INSERT INTO messages SELECT no, seq, 'c' || seq, CASE WHEN seq % 2 THEN 'user' ELSE 'assistant' END, 'message',
    CAST('{"type":"message","content":"What was said ' || seq || ' times before."}' AS BLOB), 1700000000.0 + seq,
    CASE WHEN seq % 2 THEN 'stored' ELSE 'complete' END FROM n"""
FILLED = """UPDATE sessions SET last_seq = ?1, delivered = ?1,
    state = CAST(json_set(CAST(state AS TEXT), '$.answered', ?1) AS BLOB)"""
WELCOME = re.compile(rb'"epoch":"([^"]+)","offset":(\d+)')

Once = Callable[[], Awaitable[None]]


async def histories(made: Stage, lengths: Sequence[int], *, rounds: int, seconds: float, rng: Random) -> list[Figure]:
    steps: dict[str, dict[str, Measure]] = {APPEND: {}, RESUME: {}, READ: {}, LOAD: {}}
    async with AsyncExitStack() as open_parts:
        begun = await _begin(made)
        for length in lengths:
            home, spare = (Path(shutil.copytree(begun, made.new_home(), dirs_exist_ok=True)) for _ in range(2))
            for each in (home, spare):  # two gateways cannot share a database
                fill(each / "holdfast.db", length)
            store = await open_parts.enter_async_context(SqliteStore(spare / "holdfast.db"))
            contender = open_parts.enter_context(made.gateway(home, syncs=False))
            crowd = await open_parts.enter_async_context(Crowd(contender.target, 1))
            await crowd.in_turns(MISSED, 0.1, contender.program.cpu_seconds)
            measures = Returning(made, contender, store, seconds).measures(crowd)
            for step, measure in measures.items():
                steps[step][_named(length)] = measure
        found = await take_turns(rounds, list(steps.values()), rng)
    figures = []
    for step, peer, goal in (
        (APPEND, lengths[0], GOAL),
        (RESUME, lengths[0], GOAL),
        (READ, lengths[0], None),
        (LOAD, CIDS_LOADED if CIDS_LOADED in lengths else lengths[0], None),
    ):
        for name in (_named(length) for length in lengths if length > peer):
            claim = f"CPU per {step}, {name}"
            figure = found.figure(step, _named(peer), "us", ours=name, claim=claim, less_is_better=True, goal=goal)
            figures.append(figure)
    return figures


def _named(length: int) -> str:
    return f"{length:,} records before"


async def _begin(made: Stage) -> Path:
    """The directory that a gateway leaves after one session with one message and its answer."""
    with made.gateway() as contender:
        async with Crowd(contender.target, 1):
            pass
    return contender.home


def fill(path: Path, length: int) -> None:
    """Give the one session in the database `length` records."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(FILL, (length,))
        database.execute(FILLED, (length,))


class Returning:
    """A viewer who keeps coming back to the session, and the measures of the cost."""

    def __init__(self, made: Stage, contender: Contender, store: SqliteStore, seconds: float) -> None:
        self._made = made
        self._program = contender.program
        self._store = store
        self._seconds = seconds

    def measures(self, crowd: Crowd) -> dict[str, Measure]:
        async def append() -> Mapping[str, float]:
            count, cost = await crowd.in_turns(DEPTH, self._seconds, self._program.cpu_seconds)
            return {APPEND: cost / count * 1e6}

        async def resume() -> Mapping[str, float]:
            return {RESUME: await self._repeat(await self._resume(), self._program.cpu_seconds)}

        async def read() -> Mapping[str, float]:
            return {READ: await self._repeat(self._read, self._program.cpu_seconds)}

        async def load() -> Mapping[str, float]:
            return {LOAD: await self._repeat(self._load, time.process_time)}

        return {APPEND: append, RESUME: resume, READ: read, LOAD: load}

    async def _repeat(self, once: Once, cpu_seconds: Callable[[], float]) -> float:
        """Microseconds of CPU for each operation, over as many as the time allows."""
        await once()
        count, cpu, ends = 0, cpu_seconds(), time.monotonic() + self._seconds
        while not count or time.monotonic() < ends:
            await once()
            count += 1
        return (cpu_seconds() - cpu) / count * 1e6

    async def _resume(self) -> Once:
        """Resume after all answers but the last `MISSED`, and wait until these have come."""
        epoch, offset = await self._position()
        frames = 3 * MISSED  # each answer of the stand-in is three frames
        request = self._made.ask_holdfast(0, f"&epoch={epoch}&offset={offset - frames}")

        async def once() -> None:
            async with asyncio.timeout(PATIENCE_SECONDS):
                reader, writer = await self._ask(request)
                await reader.readuntil(b'"recovered":true')
                for _ in range(MISSED):
                    await reader.readuntil(DONE)
            writer.transport.abort()

        return once

    async def _position(self) -> tuple[str, int]:
        async with asyncio.timeout(PATIENCE_SECONDS):
            reader, writer = await self._ask(self._made.ask_holdfast(0))
            welcome = WELCOME.search(await reader.readuntil(b'"status"'))
        writer.transport.abort()
        if welcome is None:
            raise LoadFailed("no welcome came")
        return welcome[1].decode(), int(welcome[2])

    async def _read(self) -> None:
        path = f"/api/sessions/{SESSION}/messages?before={2**53 - 1}&limit={READ_RECORDS}"
        head = f"Host: 127.0.0.1\r\nAuthorization: Bearer {self._made.token(0)}\r\nConnection: close\r\n\r\n"
        async with asyncio.timeout(PATIENCE_SECONDS):
            reader, writer = await self._ask(f"GET {path} HTTP/1.1\r\n{head}".encode())
            answer = await reader.read(-1)
        writer.close()
        if answer.count(b'"cid"') != READ_RECORDS:
            raise LoadFailed(f"the last records were not read: {answer[:300]!r}")

    async def _load(self) -> None:
        if await self._store.load(SESSION) is None:
            raise LoadFailed("the session is gone")

    async def _ask(self, request: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._program.port, limit=MAX_MESSAGE)
        writer.write(request)
        return reader, writer
