"""Sessions that store records through the queue: as fast as they can, or at a fixed rate independent of the store."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from persistence.listener import NobodyListens
from persistence.ports import MessageStore
from persistence.queue.queue import PersistenceQueue
from persistence.record import Outcome, Record, Spooled, Stored, Write

PAYLOAD = b'{"type":"message","cid":"0000000-000000000000","content":"%b"}' % (b"What does the fox do? " * 8)
TICK_SECONDS = 0.001


class Cost(NamedTuple):
    rate: float  # records per second
    cpu: float  # microseconds for each record, over all threads of this process
    seconds: list[float]  # the time until each record was stored, sorted

    def percentile(self, percent: float) -> float:
        """A percentile of `seconds`, in milliseconds."""
        return self.seconds[min(len(self.seconds) - 1, int(len(self.seconds) * percent / 100))] * 1000


@dataclass(slots=True)
class Producer:
    """One session: what it has stored so far, and since when it waits for each record that is not stored yet."""

    session_id: str
    fence: int
    last_seq: int
    waiting: dict[int, float] = field(default_factory=dict)  # seq: since when


class Crowd(NobodyListens):
    """Producers on one queue. A record counts when it is stored, not when it is only accepted."""

    def __init__(self, store: MessageStore, queue: PersistenceQueue) -> None:
        self._store = store
        self._queue = queue
        self._producers: dict[str, Producer] = {}
        self._took: list[float] = []
        self._again_until = 0.0
        self._idle = asyncio.Event()
        self._under_way = 0
        store.heard = self

    async def join(self, session_ids: Sequence[str]) -> None:
        for session_id in session_ids:
            loaded = await self._store.load(session_id)
            assert loaded is not None
            self._producers[session_id] = Producer(session_id, loaded.fence, loaded.session.last_seq)

    async def as_fast_as_they_can(self, producers: int, seconds: float) -> Cost:
        """Each stores one record, waits until it is stored, and stores the next."""
        began, cpu_began = self._begin()
        self._again_until = began + seconds
        for producer in list(self._producers.values())[:producers]:
            self._put(producer, time.perf_counter())
        return await self._end(began, cpu_began)

    async def at_rate(self, rate: float, seconds: float) -> Cost:
        """Store `rate` records in a second, independent of the store: a few in each millisecond, from one session after
        the other. Time counts from the millisecond in which a record was due."""
        began, cpu_began = self._begin()
        self._again_until = 0.0
        producers, sent = list(self._producers.values()), 0
        for tick in range(1, int(seconds / TICK_SECONDS) + 1):
            due = began + tick * TICK_SECONDS
            if (early := due - time.perf_counter()) > 0:
                await asyncio.sleep(early)
            while sent < int(rate * tick * TICK_SECONDS):
                if self._queue.room(len(PAYLOAD)) is not None:  # the store is too slow: what came so far counts
                    return await self._end(began, cpu_began)
                self._put(producers[sent % len(producers)], due)
                sent += 1
            if tick % 10 == 0:
                await asyncio.sleep(0)  # yields even when it is late
        return await self._end(began, cpu_began)

    def settled(self, session_id: str, seq: int, outcome: Outcome) -> None:
        """A store that had only accepted the record reports its outcome."""
        self._stored(self._producers[session_id], outcome, seq)

    def _begin(self) -> tuple[float, float]:
        self._took = []
        self._idle.clear()
        return time.perf_counter(), time.process_time()

    async def _end(self, began: float, cpu_began: float) -> Cost:
        await self._idle.wait()
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu_began
        return Cost(len(self._took) / seconds, cpu / len(self._took) * 1e6, sorted(self._took))

    def _put(self, producer: Producer, since: float) -> None:
        producer.last_seq = seq = producer.last_seq + 1
        record = Record(producer.session_id, seq, f"c{seq}", "user", "message", PAYLOAD, time.time(), "stored")
        producer.waiting[seq] = since
        self._under_way += 1
        write = Write(producer.session_id, append=record, fence=producer.fence)
        if not self._queue.put(write, lambda outcome: self._on_outcome(producer, outcome, seq)):
            raise RuntimeError("the queue refused a record: the rate is above what the store can do")

    def _on_outcome(self, producer: Producer, outcome: Outcome, seq: int) -> None:
        if not isinstance(outcome, Spooled):
            self._stored(producer, outcome, seq)

    def _stored(self, producer: Producer, outcome: Outcome, seq: int) -> None:
        if not isinstance(outcome, Stored):
            raise RuntimeError(f"not stored: {outcome}")
        now = time.perf_counter()
        self._took.append(now - producer.waiting.pop(seq))
        self._under_way -= 1
        if now < self._again_until:
            self._put(producer, now)
        elif self._under_way == 0:
            self._idle.set()
