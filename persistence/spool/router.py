"""Takes batches: gives them to the store or puts them into the spool. failover.py decides."""

import asyncio
from collections.abc import Sequence

from persistence.errors import StoreBroken, StoreUnavailable
from persistence.ports import MessageStore
from persistence.record import Outcome, Spooled, Write
from persistence.spool.drainer import Drainer
from persistence.spool.failover import Failover, WritePath, misfit, patience
from persistence.spool.ports import SpoolPort, SpoolRow


class WriteRouter:
    """One batch at a time, in the order they come."""

    def __init__(self, remote: MessageStore, spool: SpoolPort, following: Failover, drainer: Drainer) -> None:
        self._remote = remote
        self._spool = spool
        self._following = following
        self._drainer = drainer
        self.committing = asyncio.Lock()  # held while a batch is neither stored nor in the spool
        self.spooled = 0

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    async def commit(self, writes: Sequence[Write], draining: asyncio.Task[None]) -> list[Outcome]:
        """As a MessageStore does. `draining` is the drainer's task: without it no write is taken."""
        async with self.committing:
            since, steps = self._loop.time(), self._drainer.steps
            while True:
                if draining.done():
                    raise StoreBroken("the spool is not drained any more")
                now = self._loop.time()
                tails, taken = self._spool.tails, self._drainer.steps - steps
                match self._following.way(writes=tails.writes, size=tails.bytes, since=since, steps=taken, now=now):
                    case WritePath.DIRECT:
                        return await self._direct(writes)
                    case WritePath.SPOOL:
                        return await self._accept(writes)
                await self._drainer.step_taken(patience(len(writes)))

    async def _direct(self, writes: Sequence[Write]) -> list[Outcome]:
        """Give the batch to the remote store, which has no other; put it into the spool if that takes too long."""
        self._following.ask(len(writes), now=self._loop.time())
        batch = self._loop.create_task(self._remote.commit(writes), name="spool-direct")
        try:
            await _done_within(batch, patience(len(writes)))
            if not batch.done():
                return await self._accept_late(batch, writes)
        except BaseException:
            if self._following.has_asked:
                self._drainer.await_late(batch)  # no sender got an answer, but the store has it
            raise
        if (outcomes := self._answer(batch, writes)) is not None:
            return outcomes
        return await self._accept(writes)

    async def _accept_late(self, batch: asyncio.Task[list[Outcome]], writes: Sequence[Write]) -> list[Outcome]:
        try:
            outcomes, rows, places = await self._append(writes)
        except StoreUnavailable:  # the spool is full: the remote store is the last hope
            await asyncio.wait((batch,))
            if (stored := self._answer(batch, writes)) is not None:
                return stored
            raise
        self._drainer.await_late(batch, rows, places)
        self._tell(rows)
        return outcomes

    def _answer(self, batch: asyncio.Task[list[Outcome]], writes: Sequence[Write]) -> list[Outcome] | None:
        """The remote store's answer; None if it failed."""
        try:
            outcomes = batch.result()
        except StoreUnavailable as error:
            self._drainer.failed(error, {write.session_id for write in writes})
            return None
        self._drainer.answered(writes)
        return outcomes

    async def _accept(self, writes: Sequence[Write]) -> list[Outcome]:
        outcomes, rows, _ = await self._append(writes)
        self._tell(rows)
        return outcomes

    async def _append(self, writes: Sequence[Write]) -> tuple[list[Outcome], list[SpoolRow], list[int]]:
        """Put the writes into the spool, except those without effect and those that no store would take. Returns all
        outcomes, the rows, and the places of their writes in the batch."""
        outcomes: list[Outcome] = []
        places: list[int] = []
        for place, write in enumerate(writes):
            refused = misfit(write)
            outcomes.append(refused or Spooled(write.append.seq if write.append else 0))
            if refused is None and write != Write(write.session_id, fence=write.fence):
                places.append(place)
        rows = await self._spool.append([writes[place] for place in places]) if places else []
        return outcomes, rows, places

    def _tell(self, rows: Sequence[SpoolRow]) -> None:
        """No await from here to the return of `commit`: the sender hears Spooled before anything else."""
        self._drainer.accept(rows)
        self.spooled += len(rows)
        for session_id in {row.write.session_id for row in rows if row.write.append}:
            self._remote.heard.grown(session_id)


async def _done_within(task: asyncio.Task[list[Outcome]], seconds: float) -> None:
    """Wait for the end of the task, or so long. It does what `asyncio.wait` does in half the time: every batch passes
    here."""
    loop = task.get_loop()
    over = loop.create_future()

    def end(_: object = None) -> None:
        if not over.done():
            over.set_result(None)

    task.add_done_callback(end)
    timer = loop.call_later(seconds, end)
    try:
        await over
    finally:
        timer.cancel()
        task.remove_done_callback(end)
