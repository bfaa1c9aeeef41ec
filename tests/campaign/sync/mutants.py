"""Deliberately broken gateways, for campaigns about workspaces: see tests/campaign/mutants.py."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gateway import app
from gateway.session import drain
from gateway.session.model import idle_policy
from gateway.session.workspace import errors, starting_point, workspace
from sandbox.protocol.entry import Frame
from sync.errors import Damaged, RestoreFailed
from sync.format import keys
from sync.format.pack import PackBuilder, PackedFrame
from sync.format.pointer import Pointer
from sync.machine import reconcile, state
from sync.snapshots import pack_reader, repository, restore
from sync.snapshots.service import SnapshotService
from tests.campaign.mutants import put

LATER_SECONDS = 0.2
GRACE_SECONDS = 20.0

# -- no mistakes: settings that make a fault quick
# --------------------------------------------------------------------


def rescue_soon() -> None:
    """The files of a dead sandbox are kept when nobody has requested that for a moment."""
    put(idle_policy, "RESCUE_SECONDS", 0.1)


def short_patience() -> None:
    """A request that waits for the store is answered after half a second that the store does not answer."""
    make = app._session_limits
    put(app, "_session_limits", lambda settings: replace(make(settings), durable_seconds=0.5))


def short_grace() -> None:
    """Unreferenced objects go after seconds, not a day."""
    make = SnapshotService._new_shelf

    def new_shelf(self: SnapshotService, of: keys.Keys) -> repository.Repository:
        made = make(self, of)
        made.grace = GRACE_SECONDS
        return made

    put(SnapshotService, "_new_shelf", new_shelf)


# -- mistakes in keeping ----------------------------------------------------------------------------------------------


def pointer_before_packs() -> None:
    """A pack counts as stored when it is sent; it is there a moment later, and nothing checks that."""
    under_way: set[asyncio.Task[None]] = set()

    async def keep_later(self: repository.Repository, pack: PackBuilder) -> tuple[str, int]:
        name, content = pack.seal()

        async def later() -> None:
            await asyncio.sleep(LATER_SECONDS)
            await self.store.put(self.keys.pack(name), content)

        task = asyncio.create_task(later())
        under_way.add(task)
        task.add_done_callback(under_way.discard)
        self.catalogue.add(name, pack.frames)
        self._seen[name] = self.now()
        return name, len(content)

    put(repository.Repository, "put_pack", keep_later)


def answered_by_an_earlier_sync() -> None:
    """A request during a sync is answered by that sync."""
    succeed = state.SyncState._succeed

    def succeed_for_all(self: state.SyncState) -> list[state.Effect]:
        self.scanned, self._forced = self.asked, False
        return succeed(self)

    put(state.SyncState, "_succeed", succeed_for_all)


def sleeps_without_sync() -> None:
    """The programs end, and nothing is synced."""

    async def settle(self: workspace.Workspace) -> int:
        await self._sandbox.tree().quiet()
        return self._log.state.generation

    put(workspace.Workspace, "settle", settle)


def leaves_without_sync() -> None:
    """A drain keeps conversations only."""

    async def nothing(self: drain.SessionDrain, actors: list[Any]) -> None:
        return None

    put(drain.SessionDrain, "_keep_workspaces", nothing)


# -- mistakes in coming back ------------------------------------------------------------------------------------------


def always_clean() -> None:
    """After any end of a sandbox, its disk counts as the newest generation, and newer files as another tree's."""
    put(starting_point, "decide", lambda survey, newest, clean: reconcile.decide(survey, newest, True))


def disk_is_always_right() -> None:
    """The disk is kept, however few files it has."""
    put(starting_point, "decide", lambda survey, newest, clean: reconcile.Decision.KEEP_AND_SYNC)


def starts_anyway() -> None:
    """A workspace that could not be restored is a small one."""
    prepare = workspace.Workspace.prepare

    async def prepare_something(self: workspace.Workspace, newest: Any, **how: Any) -> bool:
        try:
            return await prepare(self, newest, **how)
        except errors.NotRestored:
            self.sync.proven(request=True)
            return True

    put(workspace.Workspace, "prepare", prepare_something)


def forgets_what_it_cannot_restore() -> None:
    """Unusable snapshots are removed."""
    bring_back = SnapshotService.restore

    async def restore_or_forget(self: SnapshotService, user_id: str, session_id: str, *given: Any, **more: Any) -> Any:
        try:
            return await bring_back(self, user_id, session_id, *given, **more)
        except (Damaged, RestoreFailed):
            await self.forget(user_id, session_id)
            raise

    put(SnapshotService, "restore", restore_or_forget)


def hashes_unchecked() -> None:
    """Content from the store is not checked against its hash."""

    async def fetch_anything(
        on: repository.Repository, pack: str, frames: Sequence[PackedFrame]
    ) -> AsyncIterator[tuple[Frame, list[memoryview]]]:
        for frame in frames:
            content = await on.store.get_range(on.keys.pack(pack), frame.offset, frame.length)
            yield Frame(frame.chunks, content or b""), []

    for module in (pack_reader, restore):
        put(module, "fetch", fetch_anything)


def falls_back_silently() -> None:
    """An older generation than the newest is restored, and nobody is told."""
    bring_back = restore.restore

    async def restore_silently(
        on: repository.Repository, pointer: Pointer, *given: Any, **more: Any
    ) -> restore.RestoreResult:
        return restore.RestoreResult((await bring_back(on, pointer, *given, **more)).generation, None)

    put(restore, "restore", restore_silently)


# -- mistakes between sessions ----------------------------------------------------------------------------------------


def prefix_without_slash() -> None:
    """Who deletes `a` deletes `ab`."""

    async def forget(self: repository.Repository, session_id: str) -> None:
        async for found in self.store.list(self.keys.sessions):
            if found.key.startswith(f"{self.keys.sessions}{session_id}"):
                await self.store.delete(found.key)

    put(repository.Repository, "forget", forget)


def one_shelf_for_all() -> None:
    """Users share equal content."""
    put(keys.Keys, "of_user", classmethod(lambda cls, user_id: cls(f"{keys.ROOT}{'0' * 32}/")))


PATCHES: Mapping[str, Callable[[], None]] = {
    patch.__name__: patch
    for patch in (
        rescue_soon,
        short_patience,
        short_grace,
        pointer_before_packs,
        answered_by_an_earlier_sync,
        sleeps_without_sync,
        leaves_without_sync,
        always_clean,
        disk_is_always_right,
        starts_anyway,
        forgets_what_it_cannot_restore,
        hashes_unchecked,
        falls_back_silently,
        prefix_without_slash,
        one_shelf_for_all,
    )
}
