"""Gives the spool's writes to the store, in order, for as long as it takes. failover.py decides."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random

import msgspec
import structlog

from persistence import backoff, crash_points
from persistence.commit_plan import is_text
from persistence.errors import StoreBusy, StoreFull, StoreUnavailable
from persistence.ports import MessageStore
from persistence.record import Dead, Fenced, Outcome, Record, Rejected, Stored, Write
from persistence.spool.failover import BATCH_BYTES, BATCH_WRITES, Failover
from persistence.spool.ports import SpoolPort, SpoolRow

log = structlog.stdlib.get_logger()

REMIND_SECONDS = 60.0
UNREADABLE_SECONDS = 1.0  # until the spool itself is read again


class _Late(msgspec.Struct, frozen=True):
    """A batch that the store still had when its writes went into the spool."""

    batch: asyncio.Task[list[Outcome]]
    rows: Sequence[SpoolRow]
    places: Sequence[int]  # of the rows' writes in the batch

    async def answer(self) -> list[Outcome]:
        outcomes = await self.batch
        return [outcomes[place] for place in self.places]


class Drainer:
    """Takes one step after the other: the oldest rows go to the store, and leave the spool when it has decided.

    It takes only `accepted` rows: a sender gets Spooled before it gets the final outcome.
    """

    def __init__(self, remote: MessageStore, spool: SpoolPort, following: Failover, rng: Random) -> None:
        self._remote = remote
        self._spool = spool
        self._following = following
        self._rng = rng
        self._late: _Late | None = None
        self._accepted_up_to = 0
        self._told_from = 0
        self._withheld: set[str] = set()
        self._in_step = False
        self._woken = asyncio.Event()
        self._stepped = asyncio.Event()
        self._said = self._said_held = -REMIND_SECONDS
        self.steps = 0
        self.replayed = 0
        self.retries = 0
        self.dead = 0
        self.lost = 0

    def begin(self) -> None:
        """The spool is open. An earlier process accepted its rows: no sender waits for their Spooled."""
        self._loop = asyncio.get_running_loop()
        self._accepted_up_to = self._told_from = self._spool.last_no

    def accept(self, rows: Sequence[SpoolRow]) -> None:
        """The senders of these get Spooled, in this step of the loop."""
        if rows:
            self._accepted_up_to = rows[-1].no
        self._woken.set()

    def await_late(
        self, batch: asyncio.Task[list[Outcome]], rows: Sequence[SpoolRow] = (), places: Sequence[int] = ()
    ) -> None:
        """The store still has the batch of these rows: its answer comes before any further request."""
        self._late = _Late(batch, rows, places)
        self._woken.set()

    async def close(self) -> None:
        """Stop after this step: the store need not answer any more."""
        if self._late is not None:
            self._late.batch.cancel()
            await asyncio.gather(self._late.batch, return_exceptions=True)

    @property
    def busy(self) -> bool:
        """Whether a step runs."""
        return self._in_step or self._late is not None

    def end_of_this(self) -> Callable[[], bool]:
        """Returns a function that says whether the present step has ended."""
        late, steps = self._late, self.steps + self._in_step
        return lambda: self.steps >= steps and (late is None or self._late is not late)

    def withhold(self, session_id: str) -> None:
        """From the next step on, leave the session's rows where they are."""
        self._withheld.add(session_id)

    def release(self, session_id: str) -> None:
        self._withheld.discard(session_id)
        self._woken.set()

    async def step_taken(self, seconds: float | None) -> None:
        """Wait for the end of the next step, good or bad, or so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._stepped.wait()
        except TimeoutError:
            pass

    async def run(self) -> None:
        while True:
            self._woken.clear()
            self._in_step = True
            try:
                rest = await self._step()
            finally:
                self._in_step = False
            self.steps += 1
            self._stepped.set()
            self._stepped = asyncio.Event()
            if rest is None or rest > 0:
                await self._sleep(rest)

    async def _sleep(self, seconds: float | None) -> None:
        """Sleep until there is new work, or so long. While the store fails, new work does not shorten the pause."""
        if seconds is not None and self._following.failures:
            await asyncio.sleep(seconds)
            return
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            pass

    async def _step(self) -> float | None:
        """Take a step; return how long to rest after it (None: until woken)."""
        late, now = self._late, self._loop.time()
        if late is not None:
            await self._forward(late.rows, late.answer)
            self._late = None
            return self._following.pause(self._loop.time())
        if (pause := self._following.pause(now)) > 0:
            return pause
        if not self._spool.tails.writes:
            return None
        without = self._following.aside(now) | self._withheld
        try:
            rows = await self._spool.first(BATCH_WRITES, BATCH_BYTES, up_to=self._accepted_up_to, without=without)
        except StoreUnavailable as error:
            log.warning("spool.cannot_read", cause=repr(error))
            return UNREADABLE_SECONDS
        if not rows:
            return self._following.next_due(now)
        writes = [row.write for row in rows]
        self._following.ask(len(rows), now=now)
        await self._forward(rows, lambda: self._remote.commit(writes))
        return self._following.pause(self._loop.time())

    async def _forward(self, rows: Sequence[SpoolRow], answer: Callable[[], Awaitable[list[Outcome]]]) -> None:
        try:
            outcomes = await answer()
            if rows:
                outcomes = [await self._in_the_end(row, outcome) for row, outcome in zip(rows, outcomes, strict=True)]
        except StoreUnavailable as error:
            self.failed(error, {row.write.session_id for row in rows})
            return
        self.answered([row.write for row in rows])
        if rows:
            await self._settle(rows, outcomes)

    async def _in_the_end(self, row: SpoolRow, outcome: Outcome) -> Outcome:
        """If a record was stored before and another writer has loaded its session since, the record is stored."""
        record = row.write.append
        if record is None or not isinstance(outcome, Fenced | Rejected) or not is_text(record.cid):
            return outcome
        kept = await self._remote.by_cid(record.session_id, record.cid)
        return Stored(record.seq) if kept is not None and kept.seq == record.seq else outcome

    def answered(self, writes: Sequence[Write]) -> None:
        """The store has answered."""
        failures = self._following.answered({write.session_id for write in writes}, now=self._loop.time())
        if failures:
            log.info("spool.store_recovered", attempts=failures, writes=self._spool.tails.writes)

    def failed(self, error: StoreUnavailable, session_ids: set[str]) -> None:
        """The store has failed."""
        now = self._loop.time()
        self.retries += 1
        if isinstance(error, StoreBusy) and (held := error.session_ids & session_ids):
            self._following.busy(held, now=now, rng=self._rng)
            if now - self._said_held >= REMIND_SECONDS:
                self._said_held = now
                log.warning("spool.sessions_held", sessions=sorted(held)[:10], cause=str(error))
            return
        first = self._following.failures == 0
        pause = self._following.failed(now=now, rng=self._rng)
        if first or now - self._said >= REMIND_SECONDS:
            self._said = now
            log.warning(
                "spool.store_failing",
                attempt=self._following.failures,
                retry_in=pause,
                writes=self._spool.tails.writes,
                cause=repr(error),
            )

    async def _settle(self, rows: Sequence[SpoolRow], outcomes: Sequence[Outcome]) -> None:
        """The store has decided: report the outcomes, and remove the rows."""
        crash_points.reached("spool.forwarded")
        lost: dict[int, tuple[Record, str]] = {}
        for row, outcome in zip(rows, outcomes, strict=True):
            record, refused = row.write.append, _refusal(outcome)
            if refused is not None:
                log.error("spool.refused", session_id=row.write.session_id, seq=record and record.seq, reason=refused)
            if record is None:
                continue
            if refused is not None:
                lost[row.no] = (record, refused)
            self.dead += isinstance(outcome, Dead)
            if row.no > self._told_from:
                self._tell(record, outcome)
        await self._let_go([row.no for row in rows], lost)
        self.lost += len(lost)
        self.replayed += len(rows)
        crash_points.reached("spool.removed")

    def _tell(self, record: Record, outcome: Outcome) -> None:
        try:
            self._remote.heard.settled(record.session_id, record.seq, outcome)
        except Exception:  # one listener's error must not stop the storing of all others
            log.exception("spool.callback_failed")

    async def _let_go(self, nos: Sequence[int], lost: Mapping[int, tuple[Record, str]]) -> None:
        """Removing rows takes room on the disk, too: without room, remove a few at a time, again and again. Nothing
        else happens meanwhile: the spool must hold exactly what the store may lack."""
        attempt, step = 0, len(nos)
        while nos:
            try:
                await self._spool.remove(nos[:step], [lost[no] for no in nos[:step] if no in lost])
                nos = nos[step:]
            except StoreUnavailable as error:
                if isinstance(error, StoreFull) and step > 1:
                    step = max(1, step // 8)
                    continue
                if attempt == 0:
                    log.warning("spool.cannot_remove", writes=len(nos), cause=repr(error))
                await asyncio.sleep(backoff.delay(attempt, self._rng))
                attempt += 1


def _refusal(outcome: Outcome) -> str | None:
    """Why the write failed, if it did."""
    match outcome:
        case Rejected(reason):
            return reason
        case Fenced():
            return "another gateway had taken the session over"
    return None
