"""Restores a generation into a sandbox.

The gateway sends the bridge the whole tree; the bridge answers with the chunks it lacks. The gateway fetches them by
frame, a few packs at a time, checks them, and sends them as they come. The bridge checks every hash as well, and
replaces the old tree only when everything is there. The bridge's word alone marks nothing as damaged: the gateway has
checked the chunks that it complains about.

If something of a generation is missing or damaged, the one before it is restored, and the session is marked
`degraded`: its viewers see that, nothing is deleted, and no sync builds on the damaged objects. A generation without
files does not replace one with files: that would be a new beginning, which a person has to request.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from sandbox.ports.tree import Tree, TreeFailed, TreeRestore
from sync import crash_points
from sync.errors import Damaged, RestoreFailed
from sync.format.pack import PackedFrame
from sync.format.pointer import Generation, Pointer
from sync.ports import ObjectsRefused, ObjectsUnavailable
from sync.snapshots.pack_reader import fetch, frames_of
from sync.snapshots.parallel import each
from sync.snapshots.repository import Repository

log = structlog.get_logger()

PACKS_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class RestoreProgress:
    """The progress of a restore."""

    generation: int
    files: int
    of_files: int
    bytes: int
    of_bytes: int


@dataclass(frozen=True, slots=True)
class RestoreResult:
    generation: Generation
    degraded: str | None  # why it is not the requested generation


async def restore(
    shelf: Repository,
    pointer: Pointer,
    tree: Tree,
    *,
    aside: bool,
    told: Callable[[RestoreProgress], None] = lambda _: None,
) -> RestoreResult:
    """Restore the newest generation that is whole. Raises RestoreFailed; then the sandbox's tree is as it was."""
    degraded, lost_files = None, False
    for generation in pointer.older_first:
        if lost_files and not generation.files:
            continue
        try:
            await restore_generation(shelf, generation, tree, aside=aside, told=told)
        except Damaged as error:
            log.warning("snapshots.damaged", session_id=pointer.session, generation=generation.number, cause=str(error))
            await shelf.note_damage([error])
            lost_files = lost_files or generation.files > 0
            degraded = degraded or f"generation {generation.number} is damaged: {error}"
        except (TreeFailed, ObjectsUnavailable, ObjectsRefused) as error:
            raise RestoreFailed(str(error)) from error
        else:
            return RestoreResult(generation, degraded)
    raise RestoreFailed(f"no kept generation can be restored: {degraded}")


async def restore_generation(
    shelf: Repository,
    generation: Generation,
    tree: Tree,
    *,
    aside: bool,
    told: Callable[[RestoreProgress], None],
) -> None:
    """Raises Damaged, TreeFailed, ObjectsUnavailable, ObjectsRefused."""
    stored = await shelf.tree(generation.manifest)
    of_bytes = stored.total_bytes
    async with tree.restore(generation.manifest, aside=aside) as target:

        def tell() -> None:
            files, size = target.progress()
            told(RestoreProgress(generation.number, files, generation.files, size, of_bytes))

        tell()
        needed = await target.plan(list(stored.entries.values()))
        if not needed <= stored.places.keys():
            raise TreeFailed("failed", "the bridge asks for a chunk that is not in the tree")
        crash_points.reached("restore.planned")
        await _send(shelf, frames_of(stored.places, needed), target, tell)
        crash_points.reached("restore.sent")
        await target.finish()
        crash_points.reached("restore.swapped")
        tell()


async def _send(
    shelf: Repository,
    by_pack: Mapping[str, Sequence[PackedFrame]],
    target: TreeRestore,
    tell: Callable[[], None],
) -> None:
    turn = asyncio.Lock()

    async def send(pack: str) -> None:
        async for frame, _ in fetch(shelf, pack, by_pack[pack]):
            async with turn:
                await target.put(frame)
            tell()

    await each(send, by_pack, at_once=PACKS_AT_ONCE)
