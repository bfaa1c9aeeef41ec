"""The claim: senders share commits, so that with many of them a durable record costs a fraction of one; what a lone
sender pays for that; and that a long history changes neither.

Each producer is a session that stores one record, waits until it is stored, and stores the next, through the queue, on
one core. In PostgreSQL (fsync on, on the other core) the peers write to the same table of the same server over one
connection, and check nothing. In SQLite (WAL, synchronous=FULL) the peer is the same table in the same mode, written by
plain `sqlite3` with one commit for each message. Peers and producers take turns, because what a disk takes for a commit
drifts, most of all on a machine that others use. Times at a share of the ceiling are of producers that do not wait.
"""

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory

import asyncpg

from bench.figures import Figure
from bench.postgres import SESSIONS, Peers, holdfast, make_database
from bench.processes import LOAD, UNDER_TEST, pin
from bench.producers import PAYLOAD, Cost, Crowd
from persistence.queue.backlog import QueueLimits
from persistence.queue.queue import PersistenceQueue
from persistence.record import Session
from persistence.sqlite.store import INSERT, SqliteStore
from tests.support.postgres import PostgresServer

PRODUCERS = (1, 64, 1000)
SHARES = (10, 50, 90)  # percent of the ceiling
ALONE, AWAITED, BATCHES, COPY = "one commit each", "awaited INSERTs", "INSERTs of 500", "COPY of 5,000"
HISTORY = 50  # records in each session; ten times as many in the other database


async def run(*, quick: bool) -> list[Figure]:
    with TemporaryDirectory(prefix="holdfast-bench-") as name:
        directory = Path(name)
        pin(0, UNDER_TEST)  # where its children stay
        with PostgresServer({"shared_buffers": "256MB"}) as server:
            pin(0, LOAD)
            figures = await in_postgres(server, directory, rounds=1 if quick else 3, seconds=0.5 if quick else 1.0)
            figures += await history(server, directory, rounds=1 if quick else 3, seconds=0.3 if quick else 0.5)
        return figures + await in_sqlite(directory, rounds=1 if quick else 3, seconds=0.5 if quick else 1.0)


async def in_postgres(server: PostgresServer, directory: Path, *, rounds: int, seconds: float) -> list[Figure]:
    url = await make_database(server, HISTORY)
    connection = await asyncpg.connect(url)
    peers = Peers(connection)
    found: dict[str | int, list[Cost]] = {}
    async with holdfast(url, directory / "spool.db") as crowd:
        await crowd.as_fast_as_they_can(SESSIONS, seconds / 2)  # everybody has been there once
        for _ in range(rounds):
            for name, peer in ((AWAITED, peers.single), (BATCHES, peers.unnest), (COPY, peers.copy)):
                found.setdefault(name, []).append(await peer(seconds))
            for producers in PRODUCERS:
                found.setdefault(producers, []).append(await crowd.as_fast_as_they_can(producers, seconds))
        ceiling = median(cost.rate for cost in found[PRODUCERS[-1]])
        shares = await times_at(crowd, ceiling, 2 * seconds)
    await connection.close()
    figures = [_rates("PostgreSQL", producers, AWAITED, found[producers], found[AWAITED]) for producers in PRODUCERS]
    figures += [
        _rates("PostgreSQL", PRODUCERS[-1], peer, found[PRODUCERS[-1]], found[peer]) for peer in (BATCHES, COPY)
    ]
    figures.append(_times("PostgreSQL, a lone sender", 50, AWAITED, found[1], found[AWAITED]))
    return figures + _shares("PostgreSQL", AWAITED, shares, found[AWAITED])


async def history(server: PostgresServer, directory: Path, *, rounds: int, seconds: float) -> list[Figure]:
    """The same with ten times the history, in turns."""
    urls = [await make_database(server, HISTORY * times) for times in (1, 10)]
    found: dict[tuple[str, int], list[Cost]] = {}
    async with holdfast(urls[0], directory / "short.db") as short, holdfast(urls[1], directory / "long.db") as long:
        for crowd in (short, long):
            await crowd.as_fast_as_they_can(SESSIONS, seconds / 2)
        for producers in PRODUCERS:
            for _ in range(rounds):
                for name, crowd in (("short", short), ("long", long)):
                    cost = await crowd.as_fast_as_they_can(producers, seconds)
                    found.setdefault((name, producers), []).append(cost)
    peer = f"{SESSIONS * HISTORY:,} stored before"
    where = f"PostgreSQL, {SESSIONS * HISTORY * 10:,} stored before"
    return [_rates(where, each, peer, found["long", each], found["short", each]) for each in PRODUCERS]


async def in_sqlite(directory: Path, *, rounds: int, seconds: float) -> list[Figure]:
    found: dict[str | int, list[Cost]] = {}
    async with (
        SqliteStore(directory / "shared.db") as store,
        PersistenceQueue(store, QueueLimits(), Random()) as queue,
    ):
        for number in range(SESSIONS):
            await store.create(Session(f"s{number}", "ann", time.time()))
        crowd = Crowd(store, queue)
        await crowd.join([f"s{number}" for number in range(SESSIONS)])
        for number in range(rounds):
            found.setdefault(ALONE, []).append(await alone(directory / f"alone-{number}.db", seconds))
            for producers in PRODUCERS:
                found.setdefault(producers, []).append(await crowd.as_fast_as_they_can(producers, seconds))
        shares = await times_at(crowd, median(cost.rate for cost in found[PRODUCERS[-1]]), 2 * seconds)
    figures = [_rates("SQLite", producers, ALONE, found[producers], found[ALONE]) for producers in PRODUCERS]
    figures += [
        Figure(
            f"SQLite, CPU per durable record, {_crowd(producers)}",
            ALONE,
            "us",
            median(cost.cpu for cost in found[producers]),
            median(cost.cpu for cost in found[ALONE]),
            less_is_better=True,
        )
        for producers in PRODUCERS
    ]
    return figures + _shares("SQLite", ALONE, shares, found[ALONE])


async def times_at(crowd: Crowd, ceiling: float, seconds: float) -> dict[int, Cost]:
    return {share: await crowd.at_rate(ceiling * share / 100, seconds) for share in SHARES}


async def alone(path: Path, seconds: float) -> Cost:
    """One commit for each message, into a table of the same shape."""
    async with SqliteStore(path) as store:
        await store.create(Session("s0", "ann", time.time()))
    took: list[float] = []
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA synchronous = FULL")
        (number,) = database.execute("SELECT no FROM sessions").fetchone()
        began, cpu_began = time.perf_counter(), time.process_time()
        while (start := time.perf_counter()) < began + seconds:
            seq = len(took) + 1
            database.execute("BEGIN IMMEDIATE")
            database.execute(INSERT, (number, seq, f"c{seq}", "user", "message", PAYLOAD, time.time(), "stored"))
            database.execute("UPDATE sessions SET last_seq = ? WHERE no = ?", (seq, number))
            database.execute("COMMIT")
            took.append(time.perf_counter() - start)
        elapsed, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    return Cost(len(took) / elapsed, cpu / len(took) * 1e6, sorted(took))


def _rates(where: str, producers: int, peer: str, ours: list[Cost], theirs: list[Cost]) -> Figure:
    rounds = tuple((one.rate, other.rate) for one, other in zip(ours, theirs, strict=True))
    claim = f"{where}: durable records per second, {_crowd(producers)}"
    return Figure(claim, peer, "records", median(a for a, _ in rounds), median(b for _, b in rounds), rounds=rounds)


def _times(where: str, percent: int, peer: str, ours: list[Cost], theirs: list[Cost]) -> Figure:
    claim = f"{where}: time until stored, p{percent}"
    mine, other = (median(cost.percentile(percent) for cost in costs) for costs in (ours, theirs))
    return Figure(claim, peer, "ms", mine, other, less_is_better=True)


def _shares(where: str, peer: str, shares: dict[int, Cost], theirs: list[Cost]) -> list[Figure]:
    return [
        _times(f"{where} at {share} % of the ceiling", percent, peer, [cost], theirs)
        for share, cost in shares.items()
        for percent in (50, 99)
    ]


def _crowd(producers: int) -> str:
    return f"{producers:,} producer{'s' if producers > 1 else ''}"
