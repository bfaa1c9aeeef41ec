"""A remote store with the spool before it: a store that is away or slow stops no conversation.

Readers see accepted records together with stored ones. `persistence/spool/failover.py` decides where a write goes.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from random import Random
from types import TracebackType
from typing import Self, TypeVar

import structlog
from msgspec.structs import replace

from persistence.commit_plan import is_text
from persistence.errors import StoreUnavailable
from persistence.listener import StoreListener
from persistence.ports import MessageStore, UserStore
from persistence.record import DeadLetter, Duplicate, Loaded, Outcome, Record, Rejected, Session, Usage, Write
from persistence.record_json import brief
from persistence.spool.drainer import Drainer
from persistence.spool.failover import STALLED_SECONDS, Failover
from persistence.spool.overlay import merge
from persistence.spool.ports import SpoolPort
from persistence.spool.router import WriteRouter

log = structlog.stdlib.get_logger()

UNAVAILABLE = "storage_unavailable"
LOST_FROM = 2**52  # numbers of letters in the spool begin here, above any store's own
CLEAR_SECONDS = 10.0  # how long `load` and `purge` wait for the drainer
LEAVE_SECONDS = 5.0  # how long leaving waits for it
FEW = 4  # records
FAILING_SECONDS = 1.0  # how long readers wait for a failing store: it may be back

T = TypeVar("T")


class SpooledStore:
    """A MessageStore: `remote`, with `spool` before it. Nobody else writes to either.

    `commit` answers Stored while the remote store answers in time, else Spooled: then the write is in the spool, and
    the remote store follows. If the drainer dies, `on_death` is called and no write is taken any more.
    """

    def __init__(
        self,
        remote: MessageStore,
        spool: SpoolPort,
        rng: Random,
        *,
        on_death: Callable[[BaseException], None] | None = None,
    ) -> None:
        self._remote = remote
        self._spool = spool
        self._on_death = on_death
        self._following = Failover()
        self._drainer = Drainer(remote, spool, self._following, rng)
        self._task: asyncio.Task[None] | None = None
        self._intake = WriteRouter(remote, spool, self._following, self._drainer)

    @property
    def heard(self) -> StoreListener:
        return self._remote.heard

    @heard.setter
    def heard(self, heard: StoreListener) -> None:
        self._remote.heard = heard

    @property
    def users(self) -> UserStore:
        """The remote store's: users' data are not spooled."""
        return self._remote.users

    @property
    def failing(self) -> str | None:
        """Why the remote store does not follow at the moment."""
        running = self._task is not None and self._following.failing(self._loop.time())
        return UNAVAILABLE if running else None

    def stats(self) -> dict[str, float]:
        """Plain numbers for metrics."""
        oldest, tails = self._spool.oldest_at, self._spool.tails
        return {
            "rows": tails.writes,
            "bytes": tails.bytes,
            "sessions": len(tails.by_session),
            "oldest_age_seconds": 0.0 if oldest is None else max(0.0, time.time() - oldest),
            "spooling": float(tails.writes > 0),
            "failing": float(self.failing is not None),
            "spooled": self._intake.spooled,
            "replayed": self._drainer.replayed,
            "retries": self._drainer.retries,
            "dead": self._drainer.dead,
            "lost": self._drainer.lost,
        }

    # -- opening and leaving ------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        await self._spool.__aenter__()
        try:
            await self._remote.__aenter__()
        except BaseException:
            await self._spool.__aexit__(None, None, None)
            raise
        self._drainer.begin()
        if self._spool.tails.writes:
            log.info("spool.replaying", writes=self._spool.tails.writes, sessions=len(self._spool.tails.by_session))
        self._task = asyncio.create_task(self._drainer.run(), name="spool-drainer")
        self._task.add_done_callback(self._ended)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        try:
            if task is not None:
                await self._leave(task)
        finally:
            try:
                await self._spool.__aexit__(None, None, None)
            finally:
                await self._remote.__aexit__(kind, error, trace)

    async def _leave(self, task: asyncio.Task[None]) -> None:
        """Let the drainer give the store what it takes in a moment; the rest stays in the spool."""
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(LEAVE_SECONDS):
                    while not task.done() and (self._spool.tails.writes or self._drainer.busy):
                        if self._following.failures:
                            break
                        await self._drainer.step_taken(LEAVE_SECONDS / 10)
        finally:
            task.cancel()
            await asyncio.wait([task])
            await self._drainer.close()
        if self._spool.tails.writes:
            log.warning(
                "spool.left", writes=self._spool.tails.writes, sessions=len(self._spool.tails.by_session)
            )  # replayed at the next start

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("spool.died", cause=repr(error), writes=self._spool.tails.writes)
            if self._on_death is not None:
                self._on_death(error)

    # -- writing ------------------------------------------------------------------------------------------------------

    async def commit(self, writes: Sequence[Write]) -> list[Outcome]:
        if self._task is None:
            raise StoreUnavailable("commit: the store is not open")
        return await self._intake.commit(writes, self._task)

    # -- waiting for the spool
    # ------------------------------------------------------------------------------------------

    async def load(self, session_id: str) -> Loaded | None:
        # A fence raised over accepted writes would refuse them.
        await self._until(lambda: session_id not in self._spool.tails.by_session, f"load {session_id}")
        return await self._remote.load(session_id)

    async def purge(self, session_id: str) -> None:
        async with self._intake.committing:  # afterwards the present batch is in the store or in the spool
            self._drainer.withhold(session_id)
        try:
            await self._until(self._drainer.end_of_this(), f"purge {session_id}")
            await self._remote.find(session_id)  # if it cannot be asked, nothing is forgotten here either
            # The spool first: the next session of this id would read the rows of the old one.
            await self._spool.forget(session_id)
            await self._remote.purge(session_id)
            self._following.forget(session_id)
        finally:
            self._drainer.release(session_id)

    async def _until(self, clear: Callable[[], bool], what: str) -> None:
        """Wait for the drainer. Raises StoreUnavailable if that is hopeless or takes too long."""
        deadline = self._loop.time() + CLEAR_SECONDS
        while not clear():
            left = deadline - self._loop.time()
            if self._task is None or self._task.done() or self.failing is not None or left <= 0:
                raise StoreUnavailable(f"{what}: the store is behind, {self._spool.tails.writes} writes wait for it")
            await self._drainer.step_taken(min(left, STALLED_SECONDS))

    # -- reading ------------------------------------------------------------------------------------------------------

    async def installation(self, proposed: str) -> str:
        return await self._asked(self._remote.installation(proposed))

    async def create(self, session: Session) -> Session:
        return self._newer(await self._remote.create(session))

    async def find(self, session_id: str) -> Session | None:
        found = await self._asked(self._remote.find(session_id))
        return None if found is None else self._newer(found)

    async def sessions(
        self, user_id: str | None = None, *, after: str | None = None, limit: int | None = None
    ) -> list[Session]:
        found = await self._asked(self._remote.sessions(user_id, after=after, limit=limit))
        newer = [self._newer(session) for session in found]
        return [replace(session, spec=brief(session.spec)) for session in newer]

    async def _asked(self, answer: Awaitable[T]) -> T:
        """The remote store's answer. Raises StoreUnavailable soon while it fails."""
        try:
            async with asyncio.timeout(None if self.failing is None else FAILING_SECONDS):
                return await answer
        except TimeoutError:
            raise StoreUnavailable("the store fails, and does not answer") from None

    def _newer(self, session: Session) -> Session:
        tail = self._spool.tails.by_session.get(session.id)
        return session if tail is None else tail.over(session)

    async def usage(self, user_id: str) -> Usage:
        return await self._asked(self._remote.usage(user_id))

    async def waiting(self) -> list[str]:
        """May include a session without waiting records while the remote store is behind."""
        tails = self._spool.tails.by_session.items()
        here = [session_id for session_id, tail in tails if tail.last_stored > tail.delivered]
        stored = await self._remote.waiting()
        return [*stored, *(session_id for session_id in here if session_id not in set(stored))]

    async def messages(
        self,
        session_id: str,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int = 100,
        role: str | None = None,
        type: str | None = None,
        max_bytes: int | None = None,
    ) -> list[Record]:
        if session_id not in self._spool.tails.by_session or limit <= 0:
            return await self._asked(
                self._remote.messages(
                    session_id, after=after, before=before, limit=limit, role=role, type=type, max_bytes=max_bytes
                )
            )
        if max_bytes is not None:  # two places are read, and neither knows the other's records: so a few at a time
            limit = min(limit, FEW)
        newest = before is not None and after <= 0
        # The spool first: rows that leave it meanwhile are in the store by the time that is read.
        spooled, low = await self._spool.records(
            session_id, after=max(after, 0), before=before, limit=limit, role=role, type=type, newest=newest
        )
        # From `low` on, the spool has every record.
        alone = low is not None and (low <= max(after, 0) + 1 or (newest and len(spooled) == limit))
        stored: list[Record] = []
        if not alone:
            stored = await self._asked(
                self._remote.messages(session_id, after=after, before=before, limit=limit, role=role, type=type)
            )
        return merge(stored, spooled, self._spool.tails.by_session.get(session_id), limit, newest=newest)

    async def by_cid(self, session_id: str, cid: str) -> Record | None:
        if session_id in self._spool.tails.by_session and is_text(cid):
            found = await self._spool.by_cid(session_id, cid)
            if found is not None:
                tail = self._spool.tails.by_session.get(session_id)
                return found if tail is None else tail.seen(found)
        kept = await self._asked(self._remote.by_cid(session_id, cid))
        tail = self._spool.tails.by_session.get(session_id)
        return kept if kept is None or tail is None else tail.seen(kept)

    def behind(self, session_id: str) -> bool:
        tail = self._spool.tails.by_session.get(session_id)
        return tail is not None and tail.records > 0

    async def trim(
        self, session_id: str, *, older_than: float | None, keep: int | None, below: int, limit: int = 1000
    ) -> int:
        if session_id in self._spool.tails.by_session:
            return 0  # the store may have spooled records already, and must recognise them at the retry
        return await self._remote.trim(session_id, older_than=older_than, keep=keep, below=below, limit=limit)

    # -- dead letters: the remote store's, and those in the spool
    # -----------------------------------------------------

    async def dead_letters(
        self, session_id: str | None = None, *, after: int = 0, limit: int = 100
    ) -> list[DeadLetter]:
        found = []
        if after < LOST_FROM:
            found = await self._remote.dead_letters(session_id, after=after, limit=limit)
        lost = await self._spool.lost(session_id, after=max(after - LOST_FROM, 0), limit=max(limit, 0) - len(found))
        return [*found, *(replace(letter, number=letter.number + LOST_FROM) for letter in lost)]

    async def retry_dead_letter(self, number: int) -> Outcome | None:
        if number < LOST_FROM:
            return await self._remote.retry_dead_letter(number)
        found = await self._spool.lost(None, after=number - LOST_FROM - 1, limit=1)
        if not found or found[0].number != number - LOST_FROM:
            return None
        record = found[0].record
        kept = await self._remote.by_cid(record.session_id, record.cid)
        if kept is None:
            return Rejected("its place in the conversation is gone")
        await self._spool.drop_lost(found[0].number)
        return Duplicate(kept.seq)

    async def drop_dead_letter(self, number: int) -> bool:
        if number < LOST_FROM:
            return await self._remote.drop_dead_letter(number)
        return await self._spool.drop_lost(number - LOST_FROM)
