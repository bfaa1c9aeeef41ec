"""Garbage collection: an object is deleted only if two passes, `grace` apart, found it unreferenced.

A pass reads every pointer of a user, follows its generations to their manifests and those to their packs, and compares
that with the stored objects. It marks what it finds unreferenced, and deletes what was marked at least a grace ago and
is unreferenced still. If anything on the way cannot be read, nothing is deleted: nobody knows what an unreadable
manifest names. Damaged or missing objects are noted, and no sync builds on them.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial

import structlog

from sync.errors import Damaged
from sync.format import gc_marks as marking
from sync.format.gc_marks import Marks
from sync.ports import Conflict, Found
from sync.snapshots.parallel import each
from sync.snapshots.repository import AT_ONCE, Repository

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Collected:
    """The result of a pass: objects and bytes."""

    sessions: int = 0
    generations: int = 0
    packs: int = 0
    pack_bytes: int = 0
    marked: int = 0
    removed: int = 0
    removed_bytes: int = 0
    problem: str = ""  # why nothing was removed

    def __add__(self, other: "Collected") -> "Collected":
        return Collected(
            self.sessions + other.sessions,
            self.generations + other.generations,
            self.packs + other.packs,
            self.pack_bytes + other.pack_bytes,
            self.marked + other.marked,
            self.removed + other.removed,
            self.removed_bytes + other.removed_bytes,
            self.problem or other.problem,
        )


async def collect(
    shelf: Repository, *, dry_run: bool = False, told: Callable[[str], None] = lambda _: None
) -> Collected:
    """One pass over one user's objects. Raises ObjectsUnavailable, ObjectsRefused."""
    store, keys = shelf.store, shelf.keys
    began = shelf.utcnow()
    # List the stored objects before reading the references: then objects that a sync stores and references meanwhile
    # are not in the list.
    packs = await _listed(store.list(keys.packs), keys.pack_in)
    manifests = await _listed(store.list(keys.manifests), keys.manifest_in)
    marks, etag = await shelf.marks()
    before = marks or Marks()
    try:
        sessions, generations, named_manifests, named_packs = await _named(shelf)
    except Damaged as error:
        log.warning("snapshots.not_collected", cause=str(error))
        if not dry_run:
            await shelf.note_damage([error])
        return Collected(packs=len(packs), pack_bytes=sum(packs.values()), problem=str(error))
    look = partial(marking.look, began=began, now=shelf.utcnow(), grace=shelf.grace)
    after_packs, old_packs = look(packs, named_packs, before.packs)
    after_manifests, old_manifests = look(manifests, named_manifests, before.manifests)
    doomed = {keys.pack(name): packs[name] for name in old_packs}
    doomed |= {keys.manifest(name): manifests[name] for name in old_manifests}
    found = Collected(
        sessions=sessions,
        generations=generations,
        packs=len(packs),
        pack_bytes=sum(packs.values()),
        marked=len(after_packs) + len(after_manifests),
        removed=len(doomed),
        removed_bytes=sum(doomed.values()),
    )
    if dry_run:
        return found
    after = Marks(after_packs, after_manifests)
    if after != marks or doomed:  # before anything is removed, its marks must still be in force
        try:
            await shelf.write_marks(after, etag)
        except Conflict:
            return Collected(problem="another writer changed the marks at the same time")

    async def remove(key: str) -> None:
        told(key)
        await store.delete(key)

    shelf.removed(old_packs)
    await each(remove, doomed, at_once=AT_ONCE)
    await _note_missing(shelf, named_packs - packs.keys())
    return found


async def _note_missing(shelf: Repository, packs: set[str]) -> None:
    """Packs that are referenced and not listed: stored since, or lost. The next sync stores the content of lost ones
    again."""
    lost = [Damaged(f"pack {name} is missing", pack=name) for name in await shelf.gone(packs)]
    for error in lost:
        log.warning("snapshots.damaged", cause=str(error))
    await shelf.note_damage(lost)


async def _listed(found: AsyncIterator[Found], name_in: Callable[[str], str | None]) -> dict[str, int]:
    """Names and sizes of our objects."""
    listed = [(name_in(each.key), each.size) async for each in found]
    return {name: size for name, size in listed if name is not None}


async def _named(shelf: Repository) -> tuple[int, int, set[str], set[str]]:
    """The number of sessions and generations, and the manifests and packs they name. Raises Damaged."""
    stored = [found.key async for found in shelf.store.list(shelf.keys.sessions)]
    for key in filter(shelf.keys.is_set_aside, stored):
        raise Damaged(f"{key}: nobody knows what this pointer named; remove it to have the rest collected")
    listed = map(shelf.keys.session_in, stored)
    kept = await each(shelf.pointer, [session_id for session_id in listed if session_id is not None], at_once=AT_ONCE)
    pointers = [found[0] for found in kept if found is not None]  # some may be deleted since they were listed
    named: set[str] = set()
    packs: set[str] = set()
    waiting = {generation.manifest for pointer in pointers for generation in pointer.generations}
    while waiting:
        heads = await each(shelf.manifest_head, sorted(waiting), at_once=AT_ONCE)
        named |= waiting
        packs.update(pack for head in heads for pack in head.packs)
        waiting = {base for head in heads for base in head.bases} - named
    return len(pointers), sum(len(pointer.generations) for pointer in pointers), named, packs
