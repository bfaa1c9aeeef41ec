"""A session's workspace: proven restored before its agent may start, kept while it runs, quiet before it stops.

What is on the disk is the sandbox's; what is kept is the object store's; when to go from one to the other is decided by
the cores in `sync`. For one session they meet here: restore.py brings a workspace back, sync.py keeps it, and this says
when which of them may.
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
        self._quiet = False  # no program runs and none may start: nothing changes

    # -- words for the outside ----------------------------------------------------------------------------------------

    @property
    def view(self) -> SyncView | None:
        """None while nothing can be synced: the sandbox does not run."""
        return self.sync.view

    @property
    def ready(self) -> bool:
        """Whether the workspace is proven to be what it should be."""
        return self.sync.view is not None

    @property
    def must_stay(self) -> bool:
        """Whether the sandbox may not be stopped for being idle: its files cannot be kept now, and may be soon."""
        view = self.sync.view
        return view is not None and view.failing and not self.sync.overfull

    @property
    def has_unread(self) -> bool:
        """Whether the last sync kept all but what may not be read."""
        return bool(self.sync.unread)

    @property
    def replaced(self) -> int:
        """How often a sandbox left so little that the newest generation took its place."""
        return self._restore.replaced

    @property
    def kept(self) -> dict[str, Any]:
        """What the session's state says of the newest generation."""
        return self._kept.members

    def describe(self) -> dict[str, Any]:
        """What only a loaded session knows of the member `sync` of its description."""
        return sync_members(self.sync.view, self.sync.unread, self._restore.progress)

    # -- before the agent may start -----------------------------------------------------------------------------------

    async def look(self, *, keep: bool = False) -> Newest | None:
        """The newest generation there is; None for none. Raises NotRestored if that cannot be known, or if one that was
        stored is gone, unless the disk is to `keep` its place: then if there is one after all."""
        return await self._restore.look(keep=keep)

    async def prepare(
        self, newest: Newest | None, *, empty: bool = False, keep: bool = False, visit: bool = False
    ) -> bool:
        """The sandbox runs and its agent is held: see to it that the roots hold what they should. False: they do, and
        programs in this sandbox would not see it (not asked of a `visit`, in which none runs): start it anew, then
        prepare it once more. Raises NotRestored; then nothing was pushed, and nothing that was there is gone."""
        request = await self._restore.prepare(newest, empty=empty, keep=keep, visit=visit)
        if self._restore.unseen is None:
            self.sync.proven(request=request)
        return self._restore.unseen is None

    async def release(self, within: float = math.inf) -> None:
        """Let the agent start. From here on the disk is ahead of the store, and that is known before it is so.
        Raises NotRestored, and NotWritten if the store has not answered `within` seconds."""
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
        """The sandbox runs: whether its agent is held. Raises TreeFailed, TimeoutError."""
        return (await self._restore.survey()).held

    async def find(self) -> None:
        """The sandbox runs: see whether its workspace was proven, and say so."""
        if self.ready:
            return
        try:
            if not await self.is_held():
                self.found()
        except (TreeFailed, TimeoutError) as error:
            log.info("sync.not_found", session_id=self._log.id, cause=str(error))

    # -- while it runs ------------------------------------------------------------------------------------------------

    def request(self) -> None:
        """Something may have changed: keep it soon. A hint that comes while no program runs is late: the last sync
        begins after the last program's end. An attempt for its sake would meet a sandbox that is being stopped."""
        if not self._quiet:
            self.sync.request()

    async def flush(self) -> int:
        """Keep what is there now; the generation that holds it. Raises SyncFailed, SyncRefused."""
        return await self.sync.flush()

    async def lull(self) -> None:
        """Wait for the attempt that is under way, if one is. Raises SyncFailed if that takes long."""
        await self.sync.lull()

    async def settle(self) -> int:
        """End every program, then keep what they left; from then on none may start. Raises SyncFailed, SyncRefused;
        then they may start again."""
        if not self.ready:
            raise SyncRefused("the sandbox is being found again: try again in a moment")
        try:
            await self.hold.take()
            self._quiet = True
            async with asyncio.timeout(SETTLE_SECONDS):  # the round goes on
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
        """Keep what is there now; nobody waits for it."""
        self.sync.force()

    def thaw(self) -> None:
        """Programs may start again, soon."""
        self._quiet = False
        self.hold.let_go_soon()

    def lost(self) -> None:
        """The sandbox has ended."""
        self._quiet = False
        self.hold.forget()
        self.sync.lost()

    def rest(self) -> None:
        """Nothing is synced until the sandbox is found again."""
        self._quiet = False
        self.sync.lost()

    async def forget(self) -> None:
        """The session is no more. Raises ObjectsUnavailable, ObjectsRefused."""
        await self.sync.forget()

    async def put_back(self, number: int) -> None:
        """Make an earlier generation the one to be restored next: the disk gives way to it, and is kept aside if it
        differs from it. Raises what the vault raises."""
        pointer = await self._keeping.vault.put_back(self._log.user_id, self._log.id, number)
        self._kept.newest = pointer.newest
        await self._journal.save(**self.kept, clean=True)
