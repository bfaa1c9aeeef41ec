"""Before the agent may start, the workspace is brought to the right generation, and proven to be that."""

import asyncio

from gateway.session.conversation.log import SessionLog
from gateway.session.model.ports import Notices, SessionClock, SessionMetrics
from gateway.session.workspace.description import progress_members
from gateway.session.workspace.errors import NotRestored
from gateway.session.workspace.journal import WorkspaceJournal
from gateway.session.workspace.keeping import Keeping
from gateway.session.workspace.kept_generation import KeptGeneration
from gateway.session.workspace.starting_point import (
    begins_with_disk,
    newest_found,
    newest_unknown,
    restored_before,
    starting_point,
)
from sandbox.ports.sandbox import Sandbox
from sandbox.ports.tree import TreeFailed
from sandbox.protocol.tree import Survey
from sync.errors import Damaged, NoSuchSnapshot, RestoreFailed
from sync.format.pointer import Generation
from sync.machine.reconcile import Decision, Newest
from sync.ports import ObjectsRefused, ObjectsUnavailable
from sync.snapshots.restore import RestoreProgress

LOOK_SECONDS = 10.0  # for the store to name the newest generation
TELL_SECONDS = 0.5  # between two progress reports


class WorkspaceRestore:
    """`look`, then start the sandbox with its agent held, then `prepare`; if `unseen` is set then, start the sandbox
    again and `prepare` once more."""

    __slots__ = (
        "_clock",
        "_journal",
        "_keeping",
        "_kept",
        "_log",
        "_metrics",
        "_notices",
        "_sandbox",
        "_told_at",
        "progress",
        "replaced",
        "unseen",
    )

    def __init__(
        self,
        log: SessionLog,
        clock: SessionClock,
        journal: WorkspaceJournal,
        notices: Notices,
        metrics: SessionMetrics,
        sandbox: Sandbox,
        keeping: Keeping,
        kept: KeptGeneration,
    ) -> None:
        self._log = log
        self._clock = clock
        self._journal = journal
        self._notices = notices
        self._metrics = metrics
        self._sandbox = sandbox
        self._keeping = keeping
        self._kept = kept
        self._told_at = 0.0
        self.progress: RestoreProgress | None = None  # of the restore under way
        self.unseen: Newest | None = None  # restored, but programs of the sandbox that restored it do not see it
        self.replaced = 0  # how often a sandbox left so little that the newest generation took its place

    async def look(self, *, keep: bool) -> Newest | None:
        state, self.unseen = self._log.state, None
        try:
            async with asyncio.timeout(min(LOOK_SECONDS, self._keeping.limits.restore_seconds)):
                self._kept.newest = await self._keeping.vault.newest(self._log.user_id, self._log.id)
        except Damaged as error:
            raise NotRestored(str(error)) from error
        except (ObjectsUnavailable, ObjectsRefused, TimeoutError) as error:
            return newest_unknown(state, error, keep=keep)
        return newest_found(self._kept.newest, state, keep=keep)

    async def survey(self) -> Survey:
        """Ask the bridge about its disk. Raises TreeFailed, TimeoutError."""
        async with asyncio.timeout(self._keeping.limits.restore_seconds):
            return await self._sandbox.tree().survey(self._keeping.limits.rules.agent_skip)

    async def prepare(self, newest: Newest | None, *, empty: bool, keep: bool, visit: bool) -> bool:
        """Bring the disk to the right state. Return True if it is to be synced then. Raises NotRestored."""
        unseen, self.unseen = self.unseen, None
        try:
            if unseen is not None and not empty:
                decision = restored_before(await self.survey(), unseen)
            else:
                decision = await self._prepare(newest, empty=empty, keep=keep, visit=visit)
        except (TreeFailed, RestoreFailed, Damaged, NoSuchSnapshot, ObjectsUnavailable, ObjectsRefused) as error:
            self._failed(str(error))
            raise NotRestored(str(error)) from error
        except TimeoutError as error:
            seconds = self._keeping.limits.restore_seconds
            reason = f"no progress for {seconds:g} s (HOLDFAST_RESTORE_TIMEOUT)"
            self._failed(reason)
            raise NotRestored(f"the restore was given up: {reason}") from error
        return decision is Decision.KEEP_AND_SYNC or self._kept.begins_with_less

    async def _prepare(self, newest: Newest | None, *, empty: bool, keep: bool, visit: bool) -> Decision:
        if empty:
            async with asyncio.timeout(self._keeping.limits.restore_seconds):
                await self._keeping.vault.set_aside(self._log.user_id, self._log.id)
        survey, state = await self.survey(), self._log.state
        decision = starting_point(survey, newest, state, empty=empty, keep=keep)
        self._kept.begins_with_less = begins_with_disk(state, empty=empty)
        if decision in (Decision.RESTORE, Decision.RESTORE_ASIDE):
            restored = await self._restore(aside=decision is Decision.RESTORE_ASIDE)
            if self._sandbox.mounts_roots and not visit:
                self.unseen = Newest(restored.manifest, restored.files)
            self.replaced += state.incarnation > 1 and not state.clean
        else:
            reason = "begun empty" if empty else "kept what was on the disk" if keep else None
            self._journal.tell("restore_skipped", reason=reason)
        return decision

    async def _restore(self, *, aside: bool) -> Generation:
        keeping, began = self._keeping, self._clock.now()
        tree = self._sandbox.tree()
        self._notices.asked("restore", aside=aside)
        async with keeping.restoring.of(self._log.user_id), asyncio.timeout(keeping.limits.restore_seconds) as patience:
            loop = asyncio.get_running_loop()

            def told(progress: RestoreProgress) -> None:
                old = self.progress
                moved = old is None or (old.files, old.bytes) != (progress.files, progress.bytes)
                if moved and not patience.expired():
                    patience.reschedule(loop.time() + keeping.limits.restore_seconds)
                self._show(progress)

            restored = await keeping.vault.restore(self._log.user_id, self._log.id, tree, aside=aside, told=told)
        self._kept.newest, self.progress = restored.generation, None
        self._kept.begins_with_less = restored.degraded is not None
        self._metrics.restore_seconds.observe(self._clock.now() - began)
        await self._journal.save(degraded=restored.degraded or "", **(self._kept.members if restored.degraded else {}))
        self._journal.tell(
            "restored", generation=restored.generation.number, degraded=restored.degraded, aside=True if aside else None
        )
        return restored.generation

    def _show(self, progress: RestoreProgress) -> None:
        first = self.progress is None
        self.progress = progress
        self._notices.stirred()
        if first or self._clock.now() >= self._told_at + TELL_SECONDS:
            self._told_at = self._clock.now()
            self._journal.tell("restore_started" if first else "restoring", **progress_members(progress))

    def _failed(self, reason: str) -> None:
        self.progress = None
        self._journal.tell("restore_failed", reason=reason)
