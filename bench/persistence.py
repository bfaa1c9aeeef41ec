"""The claim: senders share commits, so that with many of them a durable record costs a fraction of one; and what a
lone sender pays for that.

Each producer is a session that stores one record, waits until it is durable, and stores the next: through the queue
into SQLite (WAL, synchronous=FULL), on one core. The peer is the same table in the same mode, written by plain
`sqlite3` with one commit for each message and nothing around it.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from bench.figures import Figure
from persistence.backlog import QueueLimits
from persistence.queue import PersistenceQueue
from persistence.record import Outcome, Record, Session, Stored, Write
from persistence.stores.sqlite import INSERT, SqliteStore

PEER = "one commit each"
PRODUCERS = (1, 64, 1000)
PAYLOAD = b'{"type":"message","cid":"0000000-000000000000","content":"%b"}' % (b"What does the fox do? " * 8)


class Cost:
    """What was stored between two looks at the clocks."""

    def __init__(self) -> None:
        self._began, self._cpu_began = time.perf_counter(), time.process_time()

    def per_record(self, records: int) -> tuple[float, float]:
        """Records per second, and microseconds of CPU each, over all threads."""
        seconds, cpu = time.perf_counter() - self._began, time.process_time() - self._cpu_began
        return records / seconds, cpu / records * 1e6


class Producer:
    """Stores one record after the other until `going_on` says no."""

    def __init__(self, queue: PersistenceQueue, session_id: str, going_on: Callable[[], bool]) -> None:
        self._queue = queue
        self._session_id = session_id
        self._going_on = going_on
        self.stored = 0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def store_next(self) -> None:
        seq = self.stored + 1
        record = Record(self._session_id, seq, f"c{seq}", "user", "message", PAYLOAD, time.time(), "stored")
        if not self._queue.put(Write(self._session_id, append=record), self._on_outcome):
            self.ended.set_exception(RuntimeError("the queue refused a record"))

    def _on_outcome(self, outcome: Outcome) -> None:
        if not isinstance(outcome, Stored):
            self.ended.set_exception(RuntimeError(f"not stored: {outcome}"))
            return
        self.stored += 1
        if self._going_on():
            self.store_next()
        else:
            self.ended.set_result(None)


async def shared(path: Path, producers: int, seconds: float) -> tuple[float, float]:
    """Through the queue."""
    async with SqliteStore(path) as store, PersistenceQueue(store, QueueLimits(), Random()) as queue:
        end = time.perf_counter() + 3600

        def going_on() -> bool:
            return time.perf_counter() < end

        crowd = [Producer(queue, f"s{number}", going_on) for number in range(producers)]
        for number in range(producers):
            await store.create(Session(f"s{number}", "u", time.time(), b"{}", b"{}"))
        cost, end = Cost(), time.perf_counter() + seconds
        for producer in crowd:
            producer.store_next()
        await asyncio.gather(*(producer.ended for producer in crowd))
        return cost.per_record(sum(producer.stored for producer in crowd))


async def alone(path: Path, seconds: float) -> tuple[float, float]:
    """One commit for each message, into a table of the same shape."""
    async with SqliteStore(path) as store:
        await store.create(Session("s0", "u", time.time(), b"{}", b"{}"))
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA synchronous = FULL")
        (number,) = database.execute("SELECT no FROM sessions").fetchone()
        cost, end, seq = Cost(), time.perf_counter() + seconds, 0
        while time.perf_counter() < end:
            seq += 1
            database.execute("BEGIN IMMEDIATE")
            database.execute(INSERT, (number, seq, f"c{seq}", "user", "message", PAYLOAD, time.time(), "stored"))
            database.execute("UPDATE sessions SET last_seq = ? WHERE no = ?", (seq, number))
            database.execute("COMMIT")
        return cost.per_record(seq)


async def run(*, quick: bool) -> list[Figure]:
    seconds = 1.0 if quick else 3.0
    figures = []
    with TemporaryDirectory(prefix="holdfast-bench-") as directory:
        for producers in PRODUCERS:
            # Before and after: what the disk takes for a commit drifts, most of all on a machine that others use.
            before = await alone(Path(directory) / f"before-{producers}.db", seconds / 3)
            rate, cpu = await shared(Path(directory) / f"shared-{producers}.db", producers, seconds)
            after = await alone(Path(directory) / f"after-{producers}.db", seconds / 3)
            each, each_cpu = ((first + second) / 2 for first, second in zip(before, after, strict=True))
            who = f"{producers:,} producer{'s' if producers > 1 else ''}"
            figures += [
                Figure(f"durable records per second, {who}", PEER, "records", rate, each),
                Figure(f"CPU per durable record, {who}", PEER, "us", cpu, each_cpu, less_is_better=True),
            ]
    return figures
