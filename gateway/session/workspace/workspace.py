"""A session's workspace: proven restored before its agent may start, kept while it runs, quiet before it stops.

What is on the disk is the sandbox's; what is kept is the vault's; when to go from one to the other is decided by the
cores in `sync`. Here they meet, for one session. What of it must outlive the gateway goes into the session's state, by
way of its inbox like everything else.
"""

import asyncio
import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog

from gateway.protocol import chat_frames
from gateway.session.conversation.conversation import Conversation
from gateway.session.model.ports import Host
from gateway.session.workspace.fair_semaphore import FairSemaphore
from gateway.session.workspace.freeze import Freeze
from gateway.session.workspace.parked_tree import ParkedTree
from persistence.errors import StoreUnavailable
from persistence.record_json import iso
from sandbox.ports.sandbox import Sandbox
from sandbox.ports.tree import ScannedTree, TreeFailed
from sandbox.protocol.tree import ScanAsk, Survey
from sandbox.system.problem import printable
from sync.errors import Damaged, NoSuchSnapshot, RestoreFailed, SyncFailed, SyncRefused, TooLarge
from sync.format.pointer import Generation
from sync.machine.driver import SyncDriver, SyncView
from sync.machine.history import History, Moved
from sync.machine.reconcile import Decision, Newest, decide
from sync.machine.state import State, SyncLimits, Transition
from sync.ports import ObjectsRefused, ObjectsUnavailable
from sync.snapshots.push import Pushed, Standing
from sync.snapshots.restore import RestoreProgress
from sync.snapshots.service import SnapshotService

log = structlog.get_logger()

LOOK_SECONDS = 10.0  # for the store to say what the newest generation is
SETTLE_SECONDS = 120.0  # for the last generation before a sandbox stops: so long nobody can use the session
USAGE_SECONDS = 2.0  # for the store to say what the user has
ENDED = "the session has ended here: another gateway may have it"
SHOWN_UNREAD = 20  # names of files that could not be read
TELL_SECONDS = 0.5  # between two words about how far a restore has come


class NotRestored(Exception):
    """The workspace is not what it should be, so nothing may run in it. The text says why and what to do."""


class NotWritten(Exception):
    """The store does not answer, and the agent may not start before it has."""


@dataclass(frozen=True, slots=True)
class WorkspaceLimits:
    sync: SyncLimits = field(default_factory=SyncLimits)
    rules: ScanAsk = field(default_factory=ScanAsk)
    restore_seconds: float = 60.0  # without progress
    attempt_seconds: float = 1800.0  # for one attempt at a sync
    restores_at_once: int = 4  # of one user, at most half of them
    syncs_at_once: int = 8  # likewise


class Keeping:
    """What the workspaces of all sessions share: the vault, and how much may happen at once."""

    def __init__(self, vault: SnapshotService, limits: WorkspaceLimits | None = None) -> None:
        self.vault = vault
        self.limits = limits or WorkspaceLimits()
        self.restoring = FairSemaphore(self.limits.restores_at_once)
        self.syncing = FairSemaphore(self.limits.syncs_at_once)


class Workspace:
    """`look`, then start the sandbox with `hold`, then `prepare`; from then on it may be synced, until `lost`."""

    __slots__ = (
        "_begins_with_less",
        "_cut",
        "_driver",
        "_generation",
        "_history",
        "_host",
        "_keeping",
        "_patience",
        "_progress",
        "_pushing",
        "_sandbox",
        "_talk",
        "_told_at",
        "_unread",
        "_user_id",
        "hold",
        "overfull",
        "remembered",
        "replaced",
    )

    def __init__(
        self, host: Host, conversation: Conversation, user_id: str, sandbox: Sandbox, keeping: Keeping
    ) -> None:
        self._host = host
        self._talk = conversation
        self._user_id = user_id
        self._sandbox = sandbox
        self._keeping = keeping
        self.hold = Freeze(host, sandbox)
        self._driver: SyncDriver | None = None
        self._history: History | None = None
        self._begins_with_less = False
        self.remembered = True  # the disk can be recognised as the newest generation, by a walk
        self.overfull = False  # the last attempt at a sync found more than may be kept
        self.replaced = 0  # how often a sandbox left so little that the newest generation took its place
        self._generation: Generation | None = None  # the newest one that this process has seen
        self._progress: RestoreProgress | None = None
        self._told_at = 0.0
        self._unread: dict[str, Any] = {}  # what the last sync could not read
        self._pushing = asyncio.Lock()
        self._patience: asyncio.Timeout | None = None  # with the attempt at a sync that has a slot
        self._cut = False

    # -- words for the outside ----------------------------------------------------------------------------------------

    @property
    def view(self) -> SyncView | None:
        """None while nothing can be synced: the sandbox does not run."""
        driver = self._driver
        return None if driver is None or driver.view.state is State.UNRESTORED else driver.view

    @property
    def ready(self) -> bool:
        """Whether the workspace is proven to be what it should be."""
        return self.view is not None

    @property
    def must_stay(self) -> bool:
        """Whether the sandbox may not be stopped for being idle: its files cannot be kept now, and may be soon."""
        return self.view is not None and self.view.failing and not self.overfull

    def describe(self) -> dict[str, Any]:
        """What only a loaded session knows of the member `sync` of its description."""
        described: dict[str, Any] = {}
        if (view := self.view) is not None:
            described = {
                "state": view.state,
                "generation": view.generation,
                "lastError": view.last_error,
                "dirty": view.dirty,
                "attempt": view.attempt,
            }
            if view.last_success is not None:
                described["lastSuccess"] = iso(view.last_success)
        if self._unread.get("count"):
            described["unread"] = self._unread
        if (progress := self._progress) is not None:
            described["restore"] = _progress_members(progress)
        return described

    @property
    def history(self) -> list[Moved]:
        """The last transitions of its sync that this process has seen, the oldest first."""
        return list(self._history or ())

    # -- before the agent may start -----------------------------------------------------------------------------------

    async def look(self, *, keep: bool = False) -> Newest | None:
        """The newest generation there is; None for none. Raises NotRestored if that cannot be known, or if one that was
        stored is gone, unless the disk is to `keep` its place: then if there is one after all."""
        state = self._talk.state
        try:
            async with asyncio.timeout(min(LOOK_SECONDS, self._keeping.limits.restore_seconds)):
                self._generation = await self._keeping.vault.newest(self._user_id, self._talk.id)
        except Damaged as error:
            raise NotRestored(str(error)) from error
        except (ObjectsUnavailable, ObjectsRefused, TimeoutError) as error:
            if state.generation and not keep:  # what is on the disk may do
                return Newest(state.tree, state.files)
            if state.incarnation <= 1:  # it is started for the first time
                return None
            raise NotRestored(f"the object store does not say whether there is a snapshot: {error!r}") from error
        found = self._generation
        if found is not None and keep:
            raise NotRestored(
                f"the object store has generation {found.number} of this session: resume without {{keep:true}} to have "
                "it restored"
            )
        if found is None and state.generation and not keep:
            raise NotRestored(
                f"generation {state.generation} was stored, and the object store has nothing of this session: check "
                "HOLDFAST_OBJECTS, or resume with {keep:true} to go on with the files that are on its disk, or with "
                "{empty:true} to begin anew"
            )
        return None if found is None else Newest(found.manifest, found.files)

    async def prepare(self, newest: Newest | None, *, empty: bool = False, keep: bool = False) -> None:
        """The sandbox runs and its agent is held: see to it that the roots hold what they should. Raises
        NotRestored; then nothing was pushed, and nothing that was there is gone."""
        try:
            if empty:
                async with asyncio.timeout(self._keeping.limits.restore_seconds):
                    await self._keeping.vault.set_aside(self._user_id, self._talk.id)
            survey = await self._survey()
            if keep and not survey.files:
                raise NotRestored(
                    "there is nothing on the disk of this session to keep: check HOLDFAST_OBJECTS and the data "
                    "directory, or resume with {empty:true} to begin anew"
                )
            state = self._talk.state
            keeps = empty or (state.fresh and not state.clean)
            keeps_disk = keeps or (state.overfull and survey.files > 0)
            decision = Decision.KEEP_AND_SYNC if keeps_disk else decide(survey, newest, state.clean)
            self._begins_with_less = keeps
            if decision in (Decision.RESTORE, Decision.RESTORE_ASIDE):
                await self._restore(aside=decision is Decision.RESTORE_ASIDE)
                self.replaced += state.incarnation > 1 and not state.clean
            else:
                reason = "begun empty" if empty else "kept what was on the disk" if keep else None
                self._tell("restore_skipped", reason=reason)
        except (TreeFailed, RestoreFailed, Damaged, NoSuchSnapshot, ObjectsUnavailable, ObjectsRefused) as error:
            self._progress = None
            self._tell("restore_failed", reason=str(error))
            raise NotRestored(str(error)) from error
        except TimeoutError as error:
            self._progress = None
            seconds = self._keeping.limits.restore_seconds
            reason = f"no progress for {seconds:g} s (HOLDFAST_RESTORE_TIMEOUT)"
            self._tell("restore_failed", reason=reason)
            raise NotRestored(f"the restore was given up: {reason}") from error
        self._proven(request=decision is Decision.KEEP_AND_SYNC or self._begins_with_less)

    async def release(self, within: float = math.inf) -> None:
        """Let the agent start. From here on the disk is ahead of the store, and that is known before it is so.
        Raises NotRestored, and NotWritten if the store has not answered `within` seconds."""
        saved, until = asyncio.Event(), self._host.now() + within
        runs = {"clean": False, "overfull": False, "has_workspace": True, "fresh": self._begins_with_less}
        self._talk.save_and_then(saved.set, **runs)
        while not saved.is_set():
            if self._host.ended:
                raise NotRestored(ENDED)
            if self._host.now() >= until:
                raise NotWritten
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await saved.wait()
        try:
            await self._sandbox.tree().release()
        except TreeFailed as error:
            raise NotRestored(str(error)) from error

    async def _survey(self) -> Survey:
        async with asyncio.timeout(self._keeping.limits.restore_seconds):
            return await self._sandbox.tree().survey(self._keeping.limits.rules.agent_skip)

    async def _restore(self, *, aside: bool) -> None:
        keeping, began = self._keeping, self._host.now()
        tree = self._sandbox.tree()
        self._host.asked("restore", aside=aside)
        async with keeping.restoring.of(self._user_id), asyncio.timeout(keeping.limits.restore_seconds) as patience:
            loop = asyncio.get_running_loop()

            def told(progress: RestoreProgress) -> None:
                old = self._progress
                moved = old is None or (old.files, old.bytes) != (progress.files, progress.bytes)
                if moved and not patience.expired():
                    patience.reschedule(loop.time() + keeping.limits.restore_seconds)
                self._show(progress)

            restored = await keeping.vault.restore(self._user_id, self._talk.id, tree, aside=aside, told=told)
        self._generation, self._progress = restored.generation, None
        self._begins_with_less = restored.degraded is not None
        self._host.metrics.restore_seconds.observe(self._host.now() - began)
        self._talk.save(degraded=restored.degraded or "", **(self.kept if restored.degraded else {}))
        self._tell(
            "restored", generation=restored.generation.number, degraded=restored.degraded, aside=True if aside else None
        )

    def _show(self, progress: RestoreProgress) -> None:
        first = self._progress is None
        self._progress = progress
        self._host.stirred()
        if first or self._host.now() >= self._told_at + TELL_SECONDS:
            self._told_at = self._host.now()
            self._tell("restore_started" if first else "restoring", **_progress_members(progress))

    def _tell(self, status: str, **members: Any) -> None:
        given = {name: value for name, value in members.items() if value is not None}
        self._talk.audience.tell(chat_frames.dump("session_status", status=status, **given))

    def found(self) -> None:
        """The sandbox was found running, its agent not held: an earlier gateway proved its workspace."""
        if not self.ready and not self._host.ended:
            self._begins_with_less = self._talk.state.fresh
            self._proven(request=True)

    async def find(self, *, held: bool = False) -> bool:
        """The sandbox runs: see whether its workspace was proven, and say so. If it said that its agent is `held`, one
        that was proven is asked again: its agent may have been let go since, or this is another sandbox."""
        if self.ready and not held:
            return True
        try:
            survey = await self._survey()
        except (TreeFailed, TimeoutError) as error:
            log.info("sync.not_found", session_id=self._talk.id, cause=str(error))
            return False
        if not survey.held:
            self.found()
        return self.ready and not survey.held

    def _proven(self, *, request: bool) -> None:
        state = self._talk.state
        if self._host.ended:
            raise NotRestored(ENDED)
        if self._driver is None:
            limits, host = self._keeping.limits.sync, self._host
            self._driver = SyncDriver(
                self._push, limits, rng=host.rng, utcnow=host.utcnow, told=self._heard, moved=self._moved
            )
            host.spawn(self._driver.run(), f"sync {self._talk.id}")
        number = self._generation.number if self._generation is not None else state.generation
        self._driver.restored(number, failed=state.sync_error or None, last_success=state.synced_at)
        if request:
            self._driver.request()

    # -- while it runs ------------------------------------------------------------------------------------------------

    def request(self) -> None:
        """Something may have changed: keep it soon."""
        if self._driver is not None and self.ready:
            self._driver.request()

    def force(self) -> None:
        """Keep it now; nobody waits for it."""

        async def flush() -> None:
            try:
                await self.flush()
            except (SyncFailed, SyncRefused) as error:
                log.info("sync.force_failed", session_id=self._talk.id, cause=str(error))

        view = self.view
        if view is not None and view.failing:  # its own pace is quick enough
            self.request()
        elif view is not None and (view.dirty or view.state is not State.IDLE):
            self._host.spawn(flush(), f"flush {self._talk.id}")

    async def flush(self) -> int:
        """Keep what is there now; the generation that holds it. Raises SyncFailed, SyncRefused."""
        if self._driver is None:
            raise SyncRefused("the sandbox does not run")
        return await self._driver.flush()

    async def lull(self) -> None:
        """Wait for the attempt that is under way, if one is. Raises SyncFailed if that takes long."""
        if self._driver is not None:
            try:
                async with asyncio.timeout(SETTLE_SECONDS):
                    await self._driver.lull()
            except TimeoutError as error:
                raise SyncFailed(f"a sync takes longer than {SETTLE_SECONDS:g} s: try again when it is over") from error

    async def settle(self) -> int:
        """End every program, then keep what they left; from then on none may start. Raises SyncFailed, SyncRefused;
        then they may start again."""
        if not self.ready:
            raise SyncRefused("the sandbox is being found again: try again in a moment")
        try:
            await self.hold.take()
            async with asyncio.timeout(SETTLE_SECONDS):  # the round goes on
                return await self.flush()
        except asyncio.CancelledError:
            self.hold.let_go_soon()
            raise
        except (TreeFailed, SyncFailed, SyncRefused, TimeoutError) as error:
            await self.hold.let_go()
            if isinstance(error, TimeoutError):
                raise SyncFailed(f"it takes longer than {SETTLE_SECONDS:g} s") from error
            if isinstance(error, TreeFailed):
                raise SyncFailed(str(error)) from error
            raise

    def lost(self) -> None:
        """The sandbox has ended."""
        self.hold.forget()
        if self._driver is not None and self.ready:
            self._driver.lost()

    async def forget(self) -> None:
        """The session is no more. Raises ObjectsUnavailable, ObjectsRefused."""
        if self._driver is not None:
            self._driver.end()
            self._driver = None
        async with self._pushing:  # what was being written when the session ended must not come after
            await self._keeping.vault.forget(self._user_id, self._talk.id)
        self._generation, self._unread = None, {}

    async def put_back(self, number: int) -> None:
        """Make an earlier generation the one to be restored next: the disk gives way to it, and is kept aside if it
        differs from it. Raises what the vault raises."""
        pointer = await self._keeping.vault.put_back(self._user_id, self._talk.id, number)
        self._generation = pointer.newest
        self._talk.save(**self.kept, clean=True)

    @property
    def has_unread(self) -> bool:
        """Whether the last sync kept all but what may not be read."""
        return bool(self._unread.get("count"))

    @property
    def kept(self) -> dict[str, Any]:
        """What the session's state says of the newest generation."""
        newest = self._generation
        if newest is None:
            return {}
        return {
            "generation": newest.number,
            "tree": newest.manifest,
            "files": newest.files,
            "snapshot_bytes": newest.bytes,
            "synced_at": newest.at,
        }

    async def _push(self, uploaded: Callable[[], None]) -> int:
        keeping, metrics = self._keeping, self._host.metrics
        tree = self._sandbox.tree()
        try:
            async with self._pushing:
                await tree.greet()  # one that does not answer takes nobody's slot
                async with keeping.syncing.of(self._user_id) as slot:
                    began = self._host.now()
                    pushed = await self._attempt(ParkedTree(tree, slot), uploaded)
                metrics.synced(self._host.now() - began, pushed)
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
        self._generation, self.remembered = pushed.generation, pushed.remembered and not pushed.unread_count
        self._begins_with_less = False
        return pushed.generation.number

    def _note_unread(self, pushed: Pushed) -> None:
        unread = {"count": pushed.unread_count, "paths": [printable(path) for path in pushed.unread[:SHOWN_UNREAD]]}
        if pushed.unread_count and unread != self._unread:
            log.warning("sync.unread", session_id=self._talk.id, generation=pushed.generation.number, **unread)
        self._unread = unread

    async def _attempt(self, tree: ScannedTree, uploaded: Callable[[], None]) -> Pushed:
        vault, limits = self._keeping.vault, self._keeping.limits
        rules, full = await self._rules()
        self._cut = False
        try:
            async with asyncio.timeout(limits.attempt_seconds) as self._patience:
                return await vault.push(self._user_id, self._talk.id, tree, rules, uploaded, self._standing)
        except SyncFailed as error:
            if full is None or "HOLDFAST_SYNC_MAX_BYTES" not in str(error):
                raise
            self._host.metrics.refused("stored_too_much")
            raise TooLarge(full) from error
        except TimeoutError as error:
            lasted = f"it took longer than {limits.attempt_seconds:g} s"
            raise SyncFailed("the connection to the sandbox was lost" if self._cut else lasted) from error
        finally:
            self._patience = None

    def cut(self) -> None:
        """The link to the sandbox is lost: an attempt at a sync ends with it, and its slot is free."""
        if self._patience is not None and not self._patience.expired():
            self._cut = True
            self._patience.reschedule(asyncio.get_running_loop().time())

    async def _rules(self) -> tuple[ScanAsk, str | None]:
        """What may be kept: no more than the user has room for, and what to say if that is what it fails for."""
        rules = self._keeping.limits.rules
        try:
            async with asyncio.timeout(USAGE_SECONDS):
                room, full = await self._host.quota.allowance(self._user_id, self._talk.state.snapshot_bytes)
        except (StoreUnavailable, TimeoutError):  # files are kept while the store is away
            return rules, None
        if room >= rules.limits.total_bytes:
            return rules, None
        limits = msgspec.structs.replace(rules.limits, total_bytes=room)
        return msgspec.structs.replace(rules, limits=limits), full

    @property
    def _standing(self) -> Standing:
        seen = 0 if self._generation is None else self._generation.number
        return Standing(max(seen, self._talk.state.generation), begun_without=self._begins_with_less)

    def _moved(self, transition: Transition) -> None:
        at = self._host.utcnow()
        self._history = self._history or History()
        self._history.note(transition, at)
        self._host.sync_moved(Moved(at, transition))

    def _heard(self, view: SyncView) -> None:
        self._host.post(self._note, self._driver, view)

    def _note(self, driver: SyncDriver | None, view: SyncView) -> None:
        if driver is not self._driver:  # the session was ended since
            return
        state = self._talk.state
        error = (view.last_error or "it failed") if view.failing else ""
        newest = self._generation
        moved = newest is not None and view.generation == newest.number and newest.manifest != state.tree
        if moved or error != state.sync_error:
            whole = {**self.kept, "degraded": "", "fresh": False} if moved else {}
            self._talk.save(sync_error=error, **whole)
        if error and error != state.sync_error:
            self._tell("sync_failed", reason=error, generation=view.generation)
        if view.recovered:
            self._tell("sync_recovered", generation=view.generation)


def _progress_members(progress: RestoreProgress) -> dict[str, Any]:
    return {
        "generation": progress.generation,
        "files": progress.files,
        "ofFiles": progress.of_files,
        "bytes": progress.bytes,
        "ofBytes": progress.of_bytes,
    }
