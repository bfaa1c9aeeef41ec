"""Syncs the workspace of a running sandbox when its files may have changed, and notes the outcome in the session's
state, by way of its inbox.
"""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import msgspec
import structlog

from gateway.limits.quota import Quota
from gateway.session.conversation.log import SessionLog
from gateway.session.model.ports import Notices, SessionClock, SessionMetrics, Tasks
from gateway.session.workspace.description import ALL_READ, unread_members
from gateway.session.workspace.errors import NotRestored
from gateway.session.workspace.journal import WorkspaceJournal
from gateway.session.workspace.keeping import Keeping
from gateway.session.workspace.kept_generation import KeptGeneration
from gateway.session.workspace.parked_tree import ParkedTree
from persistence.errors import StoreUnavailable
from sandbox.ports.sandbox import Sandbox
from sandbox.ports.tree import ScannedTree, TreeFailed
from sandbox.protocol.tree import ScanAsk
from sync.errors import SyncFailed, SyncRefused, TooLarge
from sync.machine.driver import SyncDriver, SyncView
from sync.machine.history import History, Moved
from sync.machine.state import State, Transition
from sync.snapshots.push import Pushed

log = structlog.get_logger()

SETTLE_SECONDS = 120.0  # for the last generation before a sandbox stops: the session cannot be used meanwhile
USAGE_SECONDS = 2.0  # for the store to report the user's usage
ENDED = "the session has ended here: another gateway may have it"


class WorkspaceSync:
    """May sync from `proven` on, until `lost`."""

    __slots__ = (
        "_clock",
        "_cut",
        "_driver",
        "_history",
        "_journal",
        "_keeping",
        "_kept",
        "_log",
        "_metrics",
        "_notices",
        "_patience",
        "_pushing",
        "_quota",
        "_rng",
        "_sandbox",
        "_tasks",
        "overfull",
        "remembered",
        "unread",
    )

    def __init__(
        self,
        log: SessionLog,
        clock: SessionClock,
        tasks: Tasks,
        journal: WorkspaceJournal,
        notices: Notices,
        metrics: SessionMetrics,
        quota: Quota,
        rng: Random,
        sandbox: Sandbox,
        keeping: Keeping,
        kept: KeptGeneration,
    ) -> None:
        self._log = log
        self._clock = clock
        self._tasks = tasks
        self._journal = journal
        self._notices = notices
        self._metrics = metrics
        self._quota = quota
        self._rng = rng
        self._sandbox = sandbox
        self._keeping = keeping
        self._kept = kept
        self._driver: SyncDriver | None = None
        self._history: History | None = None
        self._pushing: asyncio.Lock | None = None
        self._patience: asyncio.Timeout | None = None  # with the attempt at a sync that has a slot
        self._cut = False
        self.remembered = True  # a walk can recognise the disk as the newest generation
        self.overfull = False  # the last attempt found more than the bound
        self.unread = ALL_READ  # files that the last sync could not read

    @property
    def view(self) -> SyncView | None:
        """None while syncs are not possible: the sandbox does not run."""
        driver = self._driver
        return driver.view if driver is not None and driver.proven else None

    @property
    def history(self) -> list[Moved]:
        """The last transitions that this process has seen, the oldest first."""
        return list(self._history or ())

    # -- asked for ----------------------------------------------------------------------------------------------------

    def proven(self, *, request: bool) -> None:
        """The workspace is proven restored: syncs may begin. Raises NotRestored if the session has ended here."""
        state = self._log.state
        if self._log.closed:
            raise NotRestored(ENDED)
        if self._driver is None:
            self._driver = SyncDriver(
                self._push,
                self._keeping.limits.sync,
                rng=self._rng,
                utcnow=self._clock.utcnow,
                told=self._heard,
                drive=self._drive,
                moved=self._moved,
            )
        self._driver.restored(self._kept.number(state), failed=state.sync_error or None, last_success=state.synced_at)
        if request:
            self._driver.request()

    def _drive(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.spawn(work, f"sync {self._log.id}")

    def request(self) -> None:
        """Files may have changed: sync soon."""
        if (driver := self._driver) is not None and driver.proven:
            driver.request()

    def force(self) -> None:
        """Sync now; no request waits for it."""
        view = self.view
        if view is not None and view.failing:  # its retries come often enough
            self.request()
        elif view is not None and (view.dirty or view.state is not State.IDLE):
            self._tasks.spawn(self._try_to_flush(), f"flush {self._log.id}")

    async def _try_to_flush(self) -> None:
        try:
            await self.flush()
        except (SyncFailed, SyncRefused) as error:
            log.info("sync.force_failed", session_id=self._log.id, cause=str(error))

    async def flush(self) -> int:
        """Store the files as they are now; return the number of their generation. Raises SyncFailed, SyncRefused."""
        if self._driver is None:
            raise SyncRefused("the sandbox does not run")
        if self._log.closed:
            raise SyncRefused(ENDED)
        return await self._driver.flush()

    async def lull(self) -> None:
        """Wait for the running attempt, if there is one. Raises SyncFailed if that takes long."""
        if self._driver is not None:
            try:
                async with asyncio.timeout(SETTLE_SECONDS):
                    await self._driver.lull()
            except TimeoutError as error:
                raise SyncFailed(f"a sync takes longer than {SETTLE_SECONDS:g} s: try again when it is over") from error

    def lost(self) -> None:
        """The sandbox has ended."""
        if self._driver is not None and self._driver.proven:
            self._driver.lost()

    def cut(self) -> None:
        """The link to the sandbox is lost: an attempt at a sync ends with it, and its slot is free."""
        if self._patience is not None and not self._patience.expired():
            self._cut = True
            self._patience.reschedule(asyncio.get_running_loop().time())

    async def forget(self) -> None:
        """The session is deleted: remove its snapshots. Raises ObjectsUnavailable, ObjectsRefused."""
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.end()
        async with self._one_at_a_time():  # a write that was under way when the session ended must not follow
            await self._keeping.vault.forget(self._log.user_id, self._log.id)
        self._kept.newest, self.unread = None, ALL_READ

    def _one_at_a_time(self) -> asyncio.Lock:
        self._pushing = self._pushing or asyncio.Lock()
        return self._pushing

    # -- one attempt --------------------------------------------------------------------------------------------------

    async def _push(self, uploaded: Callable[[], None]) -> int:
        keeping, metrics = self._keeping, self._metrics
        tree = self._sandbox.tree()
        try:
            async with self._one_at_a_time():
                await tree.greet()  # a bridge that does not answer takes no slot
                async with keeping.syncing.of(self._log.user_id) as slot:
                    began = self._clock.now()
                    pushed = await self._attempt(ParkedTree(tree, slot), uploaded)
                metrics.synced(self._clock.now() - began, pushed)
        except TreeFailed as error:
            metrics.sync_failures.inc()
            raise SyncFailed(str(error)) from error
        except SyncFailed as error:
            self.overfull = isinstance(error, TooLarge)
            metrics.sync_failures.inc()
            raise
        self.overfull = False
        self._note_unread(pushed)
        # The disk has more than the generation: after a sleep it stays, and is not taken for another one.
        self._kept.newest, self.remembered = pushed.generation, pushed.remembered and not pushed.unread_count
        self._kept.begins_with_less = False
        return pushed.generation.number

    async def _attempt(self, tree: ScannedTree, uploaded: Callable[[], None]) -> Pushed:
        vault, limits = self._keeping.vault, self._keeping.limits
        rules, full = await self._rules()
        self._cut = False
        try:
            async with asyncio.timeout(limits.attempt_seconds) as self._patience:
                standing = self._kept.standing(self._log.state)
                return await vault.push(self._log.user_id, self._log.id, tree, rules, uploaded, standing)
        except SyncFailed as error:
            if full is None or "HOLDFAST_SYNC_MAX_BYTES" not in str(error):
                raise
            self._metrics.refused("stored_too_much")
            raise TooLarge(full) from error
        except TimeoutError as error:
            lasted = f"it took longer than {limits.attempt_seconds:g} s"
            raise SyncFailed("the connection to the sandbox was lost" if self._cut else lasted) from error
        finally:
            self._patience = None

    async def _rules(self) -> tuple[ScanAsk, str | None]:
        """The scan rules with the room that the user has left, and the text of the error if that room is too small."""
        rules = self._keeping.limits.rules
        try:
            async with asyncio.timeout(USAGE_SECONDS):
                room, full = await self._quota.allowance(self._log.user_id, self._log.state.snapshot_bytes)
        except (StoreUnavailable, TimeoutError):  # files are stored while the database is away
            return rules, None
        if room >= rules.limits.total_bytes:
            return rules, None
        limits = msgspec.structs.replace(rules.limits, total_bytes=room)
        return msgspec.structs.replace(rules, limits=limits), full

    def _note_unread(self, pushed: Pushed) -> None:
        unread = unread_members(pushed)
        if unread and unread != self.unread:
            log.warning("sync.unread", session_id=self._log.id, generation=pushed.generation.number, **unread)
        self.unread = unread

    # -- outcomes -----------------------------------------------------------------------------------------------------

    def _moved(self, transition: Transition) -> None:
        at = self._clock.utcnow()
        self._history = self._history or History()
        self._history.note(transition, at)
        self._notices.sync_moved(Moved(at, transition))

    def _heard(self, view: SyncView) -> None:
        if self._driver is not None:  # else the session was ended
            self._journal.synced(view, self._kept.newest)
