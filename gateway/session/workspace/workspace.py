"""A session's workspace: proven restored before its agent may start, synced while it runs, frozen before it stops.

The files on the disk belong to the sandbox, the generations to the object store; the cores in `sync` decide when to go
from one to the other. For one session they meet here: restore.py brings a workspace back, sync.py stores it, and this
module says when each of them may run.
"""

import asyncio
import math
from random import Random
from typing import Any

import structlog

from gateway.limits.quota import Quota
from gateway.protocol.errors import ApiError
from gateway.session.conversation.log import SessionLog
from gateway.session.model.ports import Notices, SessionClock, SessionMetrics, Tasks
from gateway.session.workspace.description import sync_members
from gateway.session.workspace.errors import NotRestored, NotWritten
from gateway.session.workspace.freeze import Freeze
from gateway.session.workspace.journal import WorkspaceJournal
from gateway.session.workspace.keeping import Keeping
from gateway.session.workspace.kept_generation import KeptGeneration
from gateway.session.workspace.restore import WorkspaceRestore
from gateway.session.workspace.sync import ENDED, SETTLE_SECONDS, WorkspaceSync
from sandbox.ports.sandbox import Sandbox
from sandbox.ports.tree import TreeFailed
from sync.errors import SyncFailed, SyncRefused
from sync.machine.driver import SyncView
from sync.machine.reconcile import Newest

log = structlog.get_logger()


class Workspace:
    """`look`, then start the sandbox with its agent held, then `prepare`, then `release`; from `prepare` on it may be
    synced, until `lost`."""

    __slots__ = ("_clock", "_journal", "_keeping", "_kept", "_log", "_quiet", "_restore", "_sandbox", "hold", "sync")

    def __init__(
        self,
        log: SessionLog,
        clock: SessionClock,
        tasks: Tasks,
        notices: Notices,
        metrics: SessionMetrics,
        quota: Quota,
        rng: Random,
        sandbox: Sandbox,
        keeping: Keeping,
        journal: WorkspaceJournal,
    ) -> None:
        self._log = log
        self._clock = clock
        self._sandbox = sandbox
        self._keeping = keeping
        self._journal = journal
        self._kept = kept = KeptGeneration()
        self._restore = WorkspaceRestore(log, clock, journal, notices, metrics, sandbox, keeping, kept)
        self.sync = WorkspaceSync(log, clock, tasks, journal, notices, metrics, quota, rng, sandbox, keeping, kept)
        self.hold = Freeze(sandbox, tasks, rng)
        self._quiet = False  # no program runs and none may start, so no file changes

    # -- for the other parts ------------------------------------------------------------------------------------------

    @property
    def view(self) -> SyncView | None:
        """None while syncs are not possible: the sandbox does not run."""
        return self.sync.view

    @property
    def ready(self) -> bool:
        """True if the workspace is proven restored."""
        return self.sync.view is not None

    @property
    def must_stay(self) -> bool:
        """True if the sandbox may not be stopped for being idle: its files cannot be stored now, and may be soon."""
        view = self.sync.view
        return view is not None and view.failing and not self.sync.overfull

    @property
    def has_unread(self) -> bool:
        """True if the last sync stored all files but the unreadable ones."""
        return bool(self.sync.unread)

    @property
    def replaced(self) -> int:
        """How often a sandbox left so little that the newest generation took its place."""
        return self._restore.replaced

    @property
    def kept(self) -> dict[str, Any]:
        """The members of the session's state that describe the newest generation."""
        return self._kept.members

    def describe(self) -> dict[str, Any]:
        """The part of the description's member `sync` that only a loaded session has."""
        return sync_members(self.sync.view, self.sync.unread, self._restore.progress)

    # -- before the agent may start -----------------------------------------------------------------------------------

    async def look(self, *, keep: bool = False) -> Newest | None:
        """Find the newest generation; None if there is none. Raises NotRestored if the store does not answer, or if a
        generation that was stored is gone. With `keep` the disk is to take its place: then it is raised if there is a
        generation after all."""
        return await self._restore.look(keep=keep)

    async def prepare(
        self, newest: Newest | None, *, empty: bool = False, keep: bool = False, visit: bool = False
    ) -> bool:
        """The sandbox runs and its agent is held: bring the roots to the right state. False: they are right, but
        programs in this sandbox would not see it (not asked of a `visit`, in which none runs): start a new sandbox,
        then prepare once more. Raises NotRestored; then nothing was pushed, and no file that was there is gone."""
        request = await self._restore.prepare(newest, empty=empty, keep=keep, visit=visit)
        if self._restore.unseen is None:
            self.sync.proven(request=request)
        return self._restore.unseen is None

    async def release(self, within: float = math.inf) -> None:
        """Let the agent start. From here on the disk may be ahead of the store, and the state records that before it is
        so. Raises NotRestored, and NotWritten if the store has not answered `within` seconds."""
        runs = {"clean": False, "overfull": False, "has_workspace": True, "fresh": self._kept.begins_with_less}
        try:
            async with asyncio.timeout(None if math.isinf(within) else within):
                await self._journal.save_durably(**runs)
        except ApiError as error:
            raise NotRestored(ENDED) from error
        except TimeoutError:
            raise NotWritten from None
        try:
            await self._sandbox.tree().release()
        except TreeFailed as error:
            raise NotRestored(str(error)) from error

    def found(self) -> None:
        """The sandbox was found running, its agent not held: an earlier gateway proved its workspace."""
        if not self.ready and not self._log.closed:
            self._kept.begins_with_less = self._log.state.fresh
            self.sync.proven(request=True)

    async def is_held(self) -> bool:
        """Ask the running sandbox whether its agent is held. Raises TreeFailed, TimeoutError."""
        return (await self._restore.survey()).held

    async def find(self) -> None:
        """The sandbox runs: if its agent is not held, its workspace was proven, and may be synced."""
        if self.ready:
            return
        try:
            if not await self.is_held():
                self.found()
        except (TreeFailed, TimeoutError) as error:
            log.info("sync.not_found", session_id=self._log.id, cause=str(error))

    # -- while it runs ------------------------------------------------------------------------------------------------

    def request(self) -> None:
        """Files may have changed: sync soon. A hint that comes while no program runs is late: the last sync begins
        after the last program's end, and another attempt would meet a sandbox that is being stopped."""
        if not self._quiet:
            self.sync.request()

    async def flush(self) -> int:
        """Store the files as they are now; return the number of their generation. Raises SyncFailed, SyncRefused."""
        return await self.sync.flush()

    async def lull(self) -> None:
        """Wait for the running attempt, if there is one. Raises SyncFailed if that takes long."""
        await self.sync.lull()

    async def settle(self) -> int:
        """End every program, then store their files; from then on none may start. Raises SyncFailed, SyncRefused; then
        they may start again."""
        if not self.ready:
            raise SyncRefused("the sandbox is being found again: try again in a moment")
        try:
            await self.hold.take()
            self._quiet = True
            async with asyncio.timeout(SETTLE_SECONDS):  # the attempt itself goes on
                return await self.flush()
        except asyncio.CancelledError:
            self.thaw()
            raise
        except (TreeFailed, SyncFailed, SyncRefused, TimeoutError) as error:
            self._quiet = False
            await self.hold.let_go()
            if isinstance(error, TimeoutError):
                raise SyncFailed(f"it takes longer than {SETTLE_SECONDS:g} s") from error
            if isinstance(error, TreeFailed):
                raise SyncFailed(str(error)) from error
            raise

    def cut(self) -> None:
        """The link to the sandbox is lost: an attempt at a sync ends with it, and its slot is free."""
        self.sync.cut()

    def force(self) -> None:
        """Sync now; no request waits for it."""
        self.sync.force()

    def thaw(self) -> None:
        """Let programs start again, soon."""
        self._quiet = False
        self.hold.let_go_soon()

    def lost(self) -> None:
        """The sandbox has ended."""
        self._quiet = False
        self.hold.forget()
        self.sync.lost()

    def rest(self) -> None:
        """Sync no more until the sandbox is found again."""
        self._quiet = False
        self.sync.lost()

    async def forget(self) -> None:
        """The session is deleted: remove its snapshots. Raises ObjectsUnavailable, ObjectsRefused."""
        await self.sync.forget()

    async def put_back(self, number: int) -> None:
        """Make an earlier generation the one to be restored next: it will replace the disk, which is put aside if it
        differs. Raises the vault's errors."""
        pointer = await self._keeping.vault.put_back(self._log.user_id, self._log.id, number)
        self._kept.newest = pointer.newest
        await self._journal.save(**self.kept, clean=True)
