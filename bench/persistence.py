"""The claims: senders share commits, so with many senders a durable record costs a fraction of a commit; a lone sender
pays a measured price for that; and a long history changes neither.

Each producer is a session that stores one record through the queue, waits until it is stored, and stores the next, on
one core. With PostgreSQL (fsync on, on the other core) the peers write to the same table of the same server over one
connection, without checks. With SQLite (WAL, synchronous=FULL) the peer writes to the same table in the same mode with
plain `sqlite3`, one commit for each message. Peers and producers take turns, because a disk's commit time drifts. Times
at a share of the ceiling are those of producers that do not wait.
"""

import itertools
import sqlite3
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory

import asyncpg

from bench.figures import Figure, Goal, compare
from bench.postgres import SESSIONS, Peers, holdfast, make_database
from bench.processes import LOAD, UNDER_TEST, pin
from bench.producers import PAYLOAD, Cost, Crowd
from bench.rounds import Measure, Rounds, take_turns
from persistence.queue.backlog import QueueLimits
from persistence.queue.queue import PersistenceQueue
from persistence.record import Session
from persistence.sqlite.batch import INSERT
from persistence.sqlite.store import SqliteStore
from tests.support.postgres import PostgresServer

PRODUCERS = (1, 64, 1000)
SHARES = (10, 50, 90)  # percent of the ceiling
ALONE, AWAITED, BATCHES, COPY = "one commit each", "awaited INSERTs", "INSERTs of 500", "COPY of 5,000"
RATE, CPU, P50, P99 = "rate", "cpu", "p50", "p99"
HISTORY = 50  # records in each session; the other database has ten times as many
GOALS = {(64, AWAITED): Goal(12), (1000, COPY): Goal(0.3, 0.4)}
LONE_GOAL = Goal(1.5)


async def run(*, quick: bool) -> list[Figure]:
    rng, rounds, seconds = Random(), 2 if quick else 9, 0.4 if quick else 0.5
    with TemporaryDirectory(prefix="holdfast-bench-") as name:
        directory = Path(name)
        pin(0, UNDER_TEST)  # children inherit the core
        with PostgresServer({"shared_buffers": "256MB"}) as server:
            pin(0, LOAD)
            figures = await in_postgres(server, directory, rounds=rounds, seconds=seconds, rng=rng)
            figures += await history(server, directory, rounds=rounds, seconds=seconds, rng=rng)
        return figures + await in_sqlite(directory, rounds=rounds, seconds=seconds, rng=rng)


async def in_postgres(
    server: PostgresServer, directory: Path, *, rounds: int, seconds: float, rng: Random
) -> list[Figure]:
    where, url = "PostgreSQL", await make_database(server, HISTORY)
    connection = await asyncpg.connect(url)
    peers = Peers(connection)
    async with holdfast(url, directory / "spool.db") as crowd:
        await crowd.as_fast_as_they_can(SESSIONS, seconds)  # warms up every session
        turns = _producers(crowd, seconds) | {
            AWAITED: _turn(lambda: peers.single(seconds)),
            BATCHES: _turn(lambda: peers.unnest(seconds)),
            COPY: _turn(lambda: peers.copy(seconds)),
        }
        found = await take_turns(rounds, [turns], rng)
        shares = await _times_at(crowd, found, 2 * seconds)
    await connection.close()
    figures = [_rates(where, found, producers, AWAITED) for producers in PRODUCERS]
    figures += [_rates(where, found, PRODUCERS[-1], peer) for peer in (BATCHES, COPY)]
    claim = f"{where}, a lone sender: time until stored, p50"
    figures.append(found.figure(P50, AWAITED, "ms", ours=_crowd(1), claim=claim, less_is_better=True, goal=LONE_GOAL))
    return figures + _shares(where, AWAITED, shares, found)


async def history(server: PostgresServer, directory: Path, *, rounds: int, seconds: float, rng: Random) -> list[Figure]:
    """The same load with ten times the history. The two take turns."""
    urls = [await make_database(server, HISTORY * times) for times in (1, 10)]
    async with holdfast(urls[0], directory / "short.db") as short, holdfast(urls[1], directory / "long.db") as long:
        steps = []
        for crowd in (short, long):
            await crowd.as_fast_as_they_can(SESSIONS, seconds)
        for producers in PRODUCERS:
            step = f"{RATE} of {producers}"
            steps.append(
                {
                    "short": _turn(lambda each=producers: short.as_fast_as_they_can(each, seconds), step),  # type: ignore[misc]
                    "long": _turn(lambda each=producers: long.as_fast_as_they_can(each, seconds), step),  # type: ignore[misc]
                }
            )
        found = await take_turns(rounds, steps, rng)
    peer = f"{SESSIONS * HISTORY:,} stored before"
    where = f"PostgreSQL, {SESSIONS * HISTORY * 10:,} stored before"
    return [
        compare(
            _rate_claim(where, each),
            peer,
            "records",
            found.of(f"{RATE} of {each}", "long"),
            found.of(f"{RATE} of {each}", "short"),
        )
        for each in PRODUCERS
    ]


async def in_sqlite(directory: Path, *, rounds: int, seconds: float, rng: Random) -> list[Figure]:
    where, numbers = "SQLite", itertools.count()
    async with (
        SqliteStore(directory / "shared.db") as store,
        PersistenceQueue(store, QueueLimits(), Random()) as queue,
    ):
        for number in range(SESSIONS):
            await store.create(Session(f"s{number}", "ann", time.time()))
        crowd = Crowd(store, queue)
        await crowd.join([f"s{number}" for number in range(SESSIONS)])
        bare = _turn(lambda: alone(directory / f"alone-{next(numbers)}.db", seconds))
        found = await take_turns(rounds, [_producers(crowd, seconds) | {ALONE: bare}], rng)
        shares = await _times_at(crowd, found, 2 * seconds)
    figures = [_rates(where, found, producers, ALONE) for producers in PRODUCERS]
    for name in map(_crowd, PRODUCERS):
        claim = f"{where}, CPU per durable record, {name}"
        figures.append(found.figure(CPU, ALONE, "us", ours=name, claim=claim, less_is_better=True))
    return figures + _shares(where, ALONE, shares, found)


def _producers(crowd: Crowd, seconds: float) -> dict[str, Measure]:
    return {
        _crowd(producers): _turn(lambda each=producers: crowd.as_fast_as_they_can(each, seconds))  # type: ignore[misc]
        for producers in PRODUCERS
    }


def _turn(work: Callable[[], Awaitable[Cost]], rate: str = RATE) -> Measure:
    async def measure() -> Mapping[str, float]:
        cost = await work()
        return {rate: cost.rate, CPU: cost.cpu, P50: cost.percentile(50), P99: cost.percentile(99)}

    return measure


async def _times_at(crowd: Crowd, found: Rounds, seconds: float) -> dict[int, Cost]:
    ceiling = median(found.of(RATE, _crowd(PRODUCERS[-1])))
    return {share: await crowd.at_rate(ceiling * share / 100, seconds) for share in SHARES}


async def alone(path: Path, seconds: float) -> Cost:
    """The cost of one commit for each message, into a table of the same shape."""
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


def _rates(where: str, found: Rounds, producers: int, peer: str) -> Figure:
    claim, goal = _rate_claim(where, producers), GOALS.get((producers, peer))
    return found.figure(RATE, peer, "records", ours=_crowd(producers), claim=claim, goal=goal)


def _rate_claim(where: str, producers: int) -> str:
    return f"{where}: durable records per second, {_crowd(producers)}"


def _shares(where: str, peer: str, shares: dict[int, Cost], found: Rounds) -> list[Figure]:
    return [
        Figure(
            f"{where} at {share} % of the ceiling: time until stored, {name}",
            peer,
            "ms",
            cost.percentile(percent),
            median(found.of(name, peer)),
            less_is_better=True,
        )
        for share, cost in shares.items()
        for name, percent in ((P50, 50), (P99, 99))
    ]


def _crowd(producers: int) -> str:
    return f"{producers:,} producer{'s' if producers > 1 else ''}"
