"""The one way to store a conversation: in order per session, in batches across sessions, retried for ever."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from random import Random
from types import TracebackType
from typing import Self

import structlog

from persistence import backoff, crash_points
from persistence.errors import StoreFull, StoreUnavailable
from persistence.ports import MessageStore
from persistence.queue.backlog import QueueLimits, Then, WriteBacklog
from persistence.record import Dead, Outcome, Spooled, Write

log = structlog.stdlib.get_logger()

UNAVAILABLE = "storage_unavailable"
FULL = "storage_full"
REMIND_SECONDS = 60.0
TOLD_AT_ONCE = 64


class PersistenceQueue:
    """Stores writes in the order they came, and reports to each sender when its write is durable.

    Full (10,000 writes or 64 MiB by default), or while the disk is full: a refusable append is refused at once, and
    no accepted write is dropped. The queue is memory: a crash loses writes that were not yet reported as `Stored`,
    which nobody was promised. An outage of the store only makes the line longer; batches are retried for ever. An
    error after which the disk cannot be trusted ends the queue: it makes no further callback but `on_death`.
    """

    def __init__(
        self,
        store: MessageStore,
        limits: QueueLimits,
        rng: Random,
        *,
        on_death: Callable[[BaseException], None] | None = None,
        on_commit: Callable[[int, float], None] | None = None,
    ) -> None:
        self._store = store
        self._limits = limits
        self._rng = rng
        self._on_death = on_death
        self.on_commit = on_commit  # called with the size of each stored batch, and the seconds it took
        self._backlog = WriteBacklog(limits)
        self._arrived = asyncio.Event()
        self._settled = asyncio.Event()  # nothing waits, or nothing will ever move again
        self._settled.set()
        self._task: asyncio.Task[None] | None = None
        self._holds: dict[str, asyncio.TimerHandle] = {}
        self.failing: str | None = None  # why nothing can be stored at the moment
        self.refused = 0
        self.retries = 0
        self.dead = 0  # records that became dead letters at once
        self.commits = 0
        self.committed_writes = 0
        self.batch_sizes: dict[int, int] = {}  # the number of batches with at most so many writes (1, 2, 4, 8, ...)

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._run(), name="persistence-queue")
        self._task.add_done_callback(self._ended)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = self._task
        if task is None:
            return
        try:
            left = await self.flush(self._limits.flush_seconds)
            if left:
                log.error("queue.left_behind", writes=left, sessions=self._backlog.by_session())
        finally:
            self._task = None
            task.cancel()
            await asyncio.wait([task])
        if self._on_death is None and not task.cancelled() and (death := task.exception()) is not None:
            raise death

    @property
    def depth(self) -> int:
        """Writes that are not durable yet."""
        return self._backlog.depth

    @property
    def queued_bytes(self) -> int:
        return self._backlog.bytes

    @property
    def coalesced(self) -> int:
        return self._backlog.coalesced

    @property
    def alive(self) -> bool:
        return self._task is not None and not self._task.done()

    def oldest_age(self, now: float) -> float:
        """The age of the oldest write in seconds at loop time `now`; 0 if none waits."""
        since = self._backlog.oldest_since
        return 0.0 if since is None else now - since

    def stats(self) -> dict[str, float]:
        """Plain numbers for metrics."""
        return {
            "depth": self.depth,
            "bytes": self.queued_bytes,
            "oldest_age_seconds": self.oldest_age(self._loop.time()) if self._task else 0.0,
            "refused": self.refused,
            "retries": self.retries,
            "dead": self.dead,
            "commits": self.commits,
            "committed_writes": self.committed_writes,
            "coalesced": self.coalesced,
            "failing": float(self.failing is not None),
        }

    def room(self, size: int) -> str | None:
        """Why an append of `size` bytes (Write.size) would be refused now, or None."""
        if self.failing == FULL:
            return FULL
        return None if self.alive and self._backlog.has_room(size) else UNAVAILABLE

    def put(self, write: Write, then: Then | None = None, *, refusable: bool = True) -> bool:
        """Take the write; `then` runs on the loop once its outcome is durable, after those of earlier writes of its
        session. False: it was refused and nothing will happen. Only a `refusable` append is ever refused, unless the
        queue has ended. `then` must not raise; an exception of it is logged and harms nobody else."""
        disk_full = self.failing == FULL and refusable and write.append is not None
        if (
            disk_full
            or not self.alive
            or not self._backlog.offer(write, then, now=self._loop.time(), refusable=refusable)
        ):
            self.refused += 1
            return False
        self._settled.clear()
        self._arrived.set()
        return True

    def hold(self, session_id: str, seconds: float) -> None:
        """Delay this session's writes by so many seconds; no other session waits. The delay ends early if much waits
        (a quarter of the queue), if the session is released, or if the queue is flushed. A crash loses these writes
        like all others that were not reported as durable."""
        self._backlog.hold(session_id)
        if (hold := self._holds.pop(session_id, None)) is not None:
            hold.cancel()
        self._holds[session_id] = self._loop.call_later(seconds, self.release, session_id)

    def release(self, session_id: str | None = None) -> None:
        """Release the held writes of this session, or of all."""
        for each in list(self._holds) if session_id is None else [session_id]:
            if (hold := self._holds.pop(each, None)) is not None:
                hold.cancel()
                self._backlog.release(each)
                if self.alive:  # else nothing moves any more, and no caller may wait for it
                    self._settled.clear()
                    self._arrived.set()

    async def flush(self, deadline_seconds: float) -> int:
        """Wait until everything is stored and reported, at most so long; return how many writes are left."""
        self.release()
        try:
            async with asyncio.timeout(deadline_seconds):
                await self._settled.wait()
        except TimeoutError:
            pass
        return self.depth

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            await self._store_all()
            self._settled.set()

    async def _store_all(self) -> None:
        owed: list[tuple[Then, Outcome]] = []
        while True:
            batch = self._backlog.take()
            if batch:
                crash_points.reached("queue.taken")
                outcomes = await (self._commit_and_tell(batch, owed) if owed else self._commit(batch))
                crash_points.reached("queue.committed")
                owed = self._backlog.settle(outcomes)
            elif not owed:
                return
            # A sender hears Spooled before the store says more: no await between the store's answer and here.
            if not batch or any(isinstance(outcome, Spooled) for _, outcome in owed):
                self._tell(owed)
                owed = []

    async def _commit_and_tell(self, batch: list[Write], owed: list[tuple[Then, Outcome]]) -> list[Outcome]:
        """The store works on a batch while the outcomes of the last are reported, a few at a time: so it never waits
        for that."""
        left = iter(owed)
        telling = asyncio.create_task(self._tell_by_and_by(left), name="persistence-telling")
        try:
            return await self._commit(batch)
        finally:
            telling.cancel()
            self._tell(left)  # before any outcome of this batch is reported

    async def _tell_by_and_by(self, left: Iterator[tuple[Then, Outcome]]) -> None:
        while some := list(islice(left, TOLD_AT_ONCE)):
            self._tell(some)
            await asyncio.sleep(0)

    async def _commit(self, batch: list[Write]) -> list[Outcome]:
        attempt = 0
        began = said = self._loop.time()
        while True:
            asked = self._loop.time()
            try:
                outcomes = await self._store.commit(batch)
                break
            except StoreUnavailable as error:
                self.failing = FULL if isinstance(error, StoreFull) else UNAVAILABLE
                if self.failing == FULL and len(batch) > 1:  # there may be room for a part of it
                    batch = self._backlog.halve()
                    continue
                pause = backoff.delay(attempt, self._rng)
                now = self._loop.time()
                if attempt == 0 or now - said >= REMIND_SECONDS:
                    said = now
                    log.warning("queue.store_failing", reason=self.failing, attempt=attempt, cause=repr(error))
            attempt += 1
            self.retries += 1
            await asyncio.sleep(pause)
        self.failing = None
        if attempt:
            log.info("queue.store_recovered", attempts=attempt, seconds=self._loop.time() - began)
        self.commits += 1
        self.committed_writes += len(batch)
        self.dead += sum(isinstance(outcome, Dead) for outcome in outcomes)
        if self.on_commit is not None:
            self.on_commit(len(batch), self._loop.time() - asked)
        bound = 1 << (len(batch) - 1).bit_length()
        self.batch_sizes[bound] = self.batch_sizes.get(bound, 0) + 1
        return outcomes

    def _tell(self, owed: Iterable[tuple[Then, Outcome]]) -> None:
        for then, outcome in owed:
            try:
                then(outcome)
            except Exception:  # one session's error must not stop the storing of all others
                log.exception("queue.callback_failed")
        crash_points.reached("queue.told")

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._settled.set()  # callers of `flush` learn at once that nothing will move any more
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failing = self.failing or UNAVAILABLE
            log.error("queue.died", cause=repr(error), writes=self.depth)
            if self._on_death is not None:
                self._on_death(error)
