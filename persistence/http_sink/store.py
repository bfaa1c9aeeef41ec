"""Conversations at another HTTP service. A local SQLite file numbers, deduplicates and serves readers.

Everything that `commit` returned is durable in that file, for ever. A courier posts it to the service, in order per
session, until the service has it or refuses it for good. The decisions are in `scheduler.py` (whose turn) and
`responses.py` (what an answer means). The position of each session is written down about once a second: after a crash
the last posts are repeated, with the same idempotency keys.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

import structlog

from persistence import crash_points
from persistence.errors import CannotOpen, StoreBroken, StoreError, StoreUnavailable
from persistence.http_sink.client import POST_SECONDS, Connect, SinkClient
from persistence.http_sink.index import SinkIndex
from persistence.http_sink.responses import (
    Again,
    RecordRefused,
    RecordTaken,
    RetryReason,
    Verdict,
    body_of,
    is_marker,
    key_of,
    path_of,
)
from persistence.http_sink.scheduler import TURNS, Lane, SinkScheduler
from persistence.record import Dead, Outcome, Record, Spooled, Stored, Write

log = structlog.stdlib.get_logger()

KEEP_SECONDS = 1.0
LEAVE_SECONDS = 2.0
REMIND_SECONDS = 60.0
SPARE_CONNECTIONS = 4  # for retries of dead letters


class HttpStore(SinkIndex):
    """A MessageStore whose records also go to `{base_url}/internal/sessions/{id}/messages`. An append is Spooled when
    it is in the file at `index_path`; `heard.settled` reports when the service has it, or will never have it."""

    def __init__(
        self,
        base_url: str,
        token: str,
        index_path: Path,
        connect: Connect,
        *,
        rng: Random,
        post_seconds: float = POST_SECONDS,
    ) -> None:
        super().__init__(index_path)
        self._base = base_url.rstrip("/")
        self._path = index_path
        self._client = SinkClient(
            base_url, token, connect, connections=TURNS + SPARE_CONNECTIONS, post_seconds=post_seconds
        )
        self._courier = SinkScheduler(rng)
        self._cursors: dict[str, int] = {}  # not written down yet
        self._moved = asyncio.Event()  # there are cursors to write down
        self._wake = asyncio.Event()
        self._leaving = False
        self._task: asyncio.Task[None] | None = None
        self._dead: StoreBroken | None = None
        self._reason: str | None = None
        self._complained: dict[RetryReason, float] = {}  # when each was last logged
        self.posts = 0
        self.retries = 0
        self.rejected = 0

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        async with AsyncExitStack() as undo:
            await super().__aenter__()
            undo.push_async_callback(self._file.close)
            await undo.enter_async_context(self._client)
            await self._resume()
            undo.pop_all()
        self._task = asyncio.create_task(self._run(), name="sink-courier")
        self._task.add_done_callback(self._ended)
        return self

    async def _resume(self) -> None:
        behind = await self.all_behind()
        address = await self.address()
        if behind and address not in (None, self._base):
            waiting = sum(session.last - session.done for session in behind)
            raise CannotOpen(
                f"{self._path} holds {waiting} records that were accepted for {address} and have not reached it: start "
                f"with HOLDFAST_STORE={address} until none wait, or use another data directory"
            )
        await self.note_address(self._base)
        for session_id, done, last, since in behind:
            self._courier.found(session_id, done=done, last=last, since=since)
        if behind:
            log.info("sink.resumes", records=self._courier.waiting, sessions=len(behind))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Unposted records stay in the index for the next start."""
        self._leaving = True
        task, self._task = self._task, None
        async with AsyncExitStack() as last:
            last.push_async_callback(self._file.close)
            last.push_async_exit(self._client)
            last.push_async_callback(self._keep)
            if task is not None:
                self._wake.set()
                try:
                    await asyncio.wait([task], timeout=LEAVE_SECONDS)
                finally:
                    task.cancel()
                await asyncio.wait([task])
        if self._courier.waiting:
            log.warning("sink.left_behind", records=self._courier.waiting)

    @property
    def failing(self) -> str | None:
        """Why some session's last post failed; None if none did."""
        return self._reason if self._courier.troubled else None

    def stats(self) -> dict[str, float]:
        """Plain numbers for metrics."""
        oldest = self._courier.oldest_since()
        return {
            "waiting": self._courier.waiting,
            "oldest_age_seconds": 0.0 if oldest is None else max(time.time() - oldest, 0.0),
            "posts": self.posts,
            "retries": self.retries,
            "rejected": self.rejected,
            "posting": self._courier.out,
            "failing_sessions": self._courier.troubled,
            "failing": float(self.failing is not None),
        }

    def behind(self, session_id: str) -> bool:
        return self._courier.behind(session_id)

    async def commit(self, writes: Sequence[Write]) -> list[Outcome]:
        if self._dead is not None:
            raise self._dead
        committing = asyncio.ensure_future(super().commit(writes))
        try:
            outcomes = await asyncio.shield(committing)
        except asyncio.CancelledError:
            # The commit goes on, and its records must be posted although the caller is gone.
            committing.add_done_callback(lambda done: self._abandoned(writes, done))
            raise
        return self._accept(writes, outcomes)

    def _accept(self, writes: Sequence[Write], outcomes: Sequence[Outcome]) -> list[Outcome]:
        """Queue the new records for posting, except markers."""
        told = list(outcomes)
        for place, (write, outcome) in enumerate(zip(writes, outcomes, strict=True)):
            record = write.append
            if record is None or not isinstance(outcome, Stored):
                continue
            if self._courier.grew(record.session_id, record.seq, record.created_at):
                told[place] = Spooled(record.seq, unique=True)
        self._wake.set()
        return told

    def _abandoned(self, writes: Sequence[Write], done: "asyncio.Future[list[Outcome]]") -> None:
        if not done.cancelled() and done.exception() is None:
            self._accept(writes, done.result())

    async def trim(
        self, session_id: str, *, older_than: float | None, keep: int | None, below: int, limit: int = 1000
    ) -> int:
        done = self._courier.done(session_id)
        below = below if done is None else min(below, done + 1)  # the service has not got the rest
        return await super().trim(session_id, older_than=older_than, keep=keep, below=below, limit=limit)

    async def purge(self, session_id: str) -> None:
        """The service is not asked to delete anything."""
        await super().purge(session_id)
        self._courier.forget(session_id)
        self._cursors.pop(session_id, None)  # or the next session of this id would inherit it

    async def retry_dead_letter(self, number: int) -> Outcome | None:
        """Post it once more. Raises StoreUnavailable if the answer is neither yes nor no."""
        found = await self.letter(number)
        if found is None:
            return None
        letter, prospect = found
        if isinstance(prospect, Stored):
            verdict = await self._post(letter.record)
            if isinstance(verdict, RecordRefused):
                return Dead(verdict.reason)
            if isinstance(verdict, Again):
                raise StoreUnavailable(f"dead letter {number}: {verdict.reason}")
        return await super().retry_dead_letter(number)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            keeping = tasks.create_task(self._keep_now_and_then(), name="sink-cursors")
            while not self._leaving:
                while (lane := self._courier.next(self._loop.time())) is not None:
                    tasks.create_task(self._turn(lane), name=f"sink-turn {lane.session_id}")
                self._wake.clear()
                try:
                    async with asyncio.timeout_at(self._courier.wake_at):
                        await self._wake.wait()
                except TimeoutError:
                    pass
            keeping.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("sink.died", cause=repr(error))
            self._dead = StoreBroken("nothing is posted any more: the courier died")  # better none than unposted

    async def _turn(self, lane: Lane) -> None:
        try:
            stopped = await self._serve(lane)
        except StoreError as error:
            stopped = Again(RetryReason.AWAY, f"the index {self._path}: {error}")
        except Exception:  # one session's error must not stop the posts of all others
            log.exception("sink.turn_failed", session_id=lane.session_id)
            stopped = Again(RetryReason.AWAY, "unexpected error, see the gateway's log")
        if stopped is None:
            self._courier.ended(lane)
        else:
            self._complain(lane, stopped)
            self._courier.failed(lane, self._loop.time(), at_least=stopped.at_least)
        self._wake.set()

    async def _serve(self, lane: Lane) -> Again | None:
        """Post a page of the lane's records. Return why it stopped early, if a post failed."""
        upto = lane.last
        page = await self.page(lane.session_id, after=lane.done, upto=upto)
        if not page:  # trimmed after the post, before the cursor was written
            self._courier.passed(lane, upto, lane.since)
            self._tell(lane, upto, Stored(upto))
        for record in page:
            if lane.gone or self._leaving:
                break
            if is_marker(record):
                self._passed(lane, record)
                self._tell(lane, record.seq, Stored(record.seq))  # who asked about earlier ones may wait for it
                continue
            verdict = await self._post(record)
            if isinstance(verdict, Again):
                return verdict
            await self._settle(lane, record, verdict)
        return None

    async def _post(self, record: Record) -> Verdict:
        body = body_of(record)
        if isinstance(body, RecordRefused):
            return body
        self.posts += 1
        return await self._client.post(path_of(record.session_id), key_of(record), body)

    async def _settle(self, lane: Lane, record: Record, verdict: RecordTaken | RecordRefused) -> None:
        outcome: Outcome = Stored(record.seq)
        if isinstance(verdict, RecordRefused):
            if lane.gone or not await self.reject(record, verdict.reason):
                self._passed(lane, record)
                return
            self.rejected += 1
            log.warning("sink.refused", session_id=record.session_id, seq=record.seq, reason=verdict.reason)
            outcome = Dead(verdict.reason)
        crash_points.reached("sink.posted")
        self._passed(lane, record)
        self._tell(lane, record.seq, outcome)

    def _tell(self, lane: Lane, seq: int, outcome: Outcome) -> None:
        if not lane.gone:
            self.heard.settled(lane.session_id, seq, outcome)

    def _passed(self, lane: Lane, record: Record) -> None:
        if lane.gone:
            return
        self._courier.passed(lane, record.seq, record.created_at)
        self._cursors[lane.session_id] = record.seq
        self._moved.set()
        if self._complained and not self._courier.troubled:
            self._complained.clear()
            log.info("sink.recovered", waiting=self._courier.waiting)

    def _complain(self, lane: Lane, stopped: Again) -> None:
        self.retries += 1
        self._reason = stopped.reason
        now = self._loop.time()
        if now - self._complained.get(stopped.trouble, float("-inf")) < REMIND_SECONDS:
            return
        self._complained[stopped.trouble] = now
        say = log.error if stopped.trouble.is_ours else log.warning
        say(
            "sink.failing",
            trouble=str(stopped.trouble),
            reason=stopped.reason,
            session_id=lane.session_id,
            waiting=self._courier.waiting,
        )

    async def _keep_now_and_then(self) -> None:
        while True:
            await self._moved.wait()
            await asyncio.sleep(KEEP_SECONDS)  # many posts, one write
            self._moved.clear()
            await self._keep()

    async def _keep(self) -> None:
        """Write the cursors down. If that fails, they are written with the next ones, or the records are posted
        again."""
        cursors = dict(self._cursors)
        if not cursors:
            return
        try:
            await self.keep(cursors)
        except StoreUnavailable as error:
            log.warning("sink.cursors_not_kept", sessions=len(cursors), cause=repr(error))
            return
        crash_points.reached("sink.kept")
        for session_id, seq in cursors.items():
            if self._cursors.get(session_id) == seq:
                del self._cursors[session_id]
