"""One attempt at a new generation: scan, send what is missing, check, commit.

    scan     the bridge reports the differences from the newest generation and offers content by its hash
    send     content that is not stored yet comes in frames, is checked and stored, while the scan goes on
             (sync/snapshots/ingest.py)
    check    every chunk that the new entries name has a place
    commit   every reused pack exists; then the manifest, then the pointer, in one conditional write

A crash at any point leaves the old pointer and at most some unreferenced packs. The next attempt finds what this one
has sent. In memory are a few packs and one batch, and the entries that changed.

Nothing is built on a newest generation that is known to be damaged: the bridge then offers the whole tree, and the
content of damaged packs is stored again. So after one sync the newest generation is whole again.
"""

import asyncio
from collections import ChainMap
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import msgspec
import structlog

from sandbox.ports.tree import ScannedTree, TreeFailed
from sandbox.protocol.entry import BadEntry
from sandbox.protocol.tree import MAX_SKIPPED, ScanAsk, ScanDone
from sync import crash_points
from sync.errors import Damaged, SyncFailed, TooLarge
from sync.format import pointer as pointers
from sync.format.manifest import Change, ChunkPlace, StoredTree, check_tree, difference, wants_whole
from sync.format.pointer import Generation, Pointer
from sync.ports import Conflict, ObjectsRefused, ObjectsUnavailable
from sync.snapshots.ingest import ScanIngest, bound, weight
from sync.snapshots.repository import Avoided, Repository

log = structlog.get_logger()

SCANS = 3  # of a tree whose directories change all the time; then the last scan counts
TOO_MUCH = ("too_large", "too_many", "too_deep")


@dataclass(frozen=True, slots=True)
class Pushed:
    """The result of an attempt. `new` is False if nothing had changed."""

    generation: Generation
    new: bool
    read_bytes: int = 0
    sent_bytes: int = 0
    chunks_sent: int = 0
    chunks_reused: int = 0
    remembered: bool = True  # the bridge knows this tree by the generation's name
    unread: tuple[bytes, ...] = ()  # unreadable: kept as stored last, or left out; only some are named
    unread_count: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """What a session knows of its generations, whatever the store has."""

    number: int = 0  # of its newest one; the next is above it
    begun_without: bool = False  # its tree did not begin with the newest stored generation, which must stay


UNKNOWN = Standing()


class _Moved(Exception):
    """Directories changed while they were listed: something may have been missed. Scan again."""


class _NotEnough(Exception):
    """The bridge's report can be kept only with a damaged or missing object: the bridge must offer everything."""


async def push(
    shelf: Repository,
    session_id: str,
    tree: ScannedTree,
    rules: ScanAsk,
    on_uploaded: Callable[[], None] = lambda: None,
    standing: Standing = UNKNOWN,
) -> Pushed:
    """Store the tree as it is now. `on_uploaded` is called once, before the commit. Raises SyncFailed; then readers
    see no change, unless the answer to the last write was lost. In that case the next attempt finds that generation
    and, if nothing else changed, returns it."""
    anew, scans = False, 1
    try:
        while True:
            try:
                attempt = _Attempt(shelf, session_id, rules, standing, anew=anew, patient=scans < SCANS)
                return await attempt.run(tree, on_uploaded)
            except _Moved:
                scans += 1
            except _NotEnough:
                if anew:
                    raise
                anew = True
    except TreeFailed as error:
        raise (TooLarge if error.code in TOO_MUCH else SyncFailed)(str(error)) from error
    except (BadEntry, _NotEnough) as error:
        raise SyncFailed(f"the sandbox sent something that is no file: {error}") from error
    except Conflict as error:
        raise SyncFailed("another writer changed the snapshots at the same time") from error
    except ObjectsUnavailable as error:
        raise SyncFailed(str(error)) from error
    except (ObjectsRefused, Damaged) as error:  # a damaged pointer; other damage was dealt with above
        raise SyncFailed(str(error), permanent=True) from error


@dataclass(frozen=True, slots=True)
class _Plan:
    """A manifest to be: its content, where that is, and the generation that it is a difference from."""

    change: Change
    places: Mapping[bytes, ChunkPlace]
    base: Generation | None = None  # None: it is whole
    bases: tuple[str, ...] = ()


class _Attempt:
    """`anew`: build on nothing that is stored. `patient`: store nothing of which a part may have been missed."""

    def __init__(
        self,
        shelf: Repository,
        session_id: str,
        rules: ScanAsk,
        standing: Standing,
        *,
        anew: bool,
        patient: bool,
    ) -> None:
        self._shelf = shelf
        self._session_id = session_id
        self._rules = rules
        self._standing = standing
        self._anew = anew
        self._patient = patient
        self._watch = shelf.stopwatch()

    async def run(self, tree: ScannedTree, on_uploaded: Callable[[], None]) -> Pushed:
        heeded = await self._shelf.heed()
        kept = await self._shelf.pointer(self._session_id)
        base = None
        if kept is not None and not self._anew and await self._is_sound(kept[0].newest, heeded):
            base = kept[0].newest
        asked = msgspec.structs.replace(self._rules, base=base.manifest if base is not None else None)
        intake = ScanIngest(self._shelf, heeded)
        async with tree.scan(asked) as scan:
            done = await intake.take(scan, asked)
            crash_points.reached("sync.uploaded")
            if done.moved and self._patient:
                raise _Moved
            before = await self._tree_of(base) if base is not None and done.base is None else None
            change = _change(intake, done, before)
            if base is not None and not change:
                on_uploaded()
                remembered = before is None or await _is_done(scan.remember(base.manifest))
                return _pushed(base, intake, done, new=False, remembered=remembered)
            plan = await self._plan(intake, base, before, change, done)
            on_uploaded()
            generation, size = await self._commit(kept, intake, plan, done)
            self._shelf.know_sound(generation.manifest, heeded.damaged)
            remembered = await _is_done(scan.remember(generation.manifest))
            return _pushed(generation, intake, done, new=True, manifest_bytes=size, remembered=remembered)

    # -- what can be built on -----------------------------------------------------------------------------------------

    async def _is_sound(self, newest: Generation, heeded: Avoided) -> bool:
        """Whether none of its objects is known to be damaged."""
        try:
            return await self._shelf.is_sound(newest.manifest, heeded.damaged)
        except Damaged as error:
            await self._distrust(error)
            return False

    async def _tree_of(self, base: Generation) -> StoredTree:
        try:
            return await self._shelf.tree(base.manifest)
        except Damaged as error:
            await self._distrust(error)
            raise _NotEnough(str(error)) from error

    async def _row_of(self, base: Generation) -> tuple[str, ...]:
        try:
            return (*await self._shelf.bases(base.manifest), base.manifest)
        except Damaged as error:
            await self._distrust(error)
            raise _NotEnough(str(error)) from error

    async def _distrust(self, error: Damaged) -> None:
        log.warning("snapshots.damaged", session_id=self._session_id, cause=str(error))
        await self._shelf.distrust([error])

    # -- check --------------------------------------------------------------------------------------------------------

    async def _plan(
        self, intake: ScanIngest, base: Generation | None, before: StoredTree | None, change: Change, done: ScanDone
    ) -> _Plan:
        lacking = _chunks(change) - intake.places.keys()
        if before is not None:
            lacking -= before.places.keys()
        if lacking:  # the bridge did not offer it, because it was stored before; it may be gone since
            await self._shelf.know_packs()
            lacking = {chunk for chunk in lacking if not intake.find(chunk)}
        whole = base is None or _is_long(base, done)
        if base is not None and before is None and (whole or lacking):
            before = await self._tree_of(base)
            lacking -= before.places.keys()
        if lacking:
            raise _NotEnough("content that was neither sent nor is known")
        places = ChainMap(intake.places, before.places if before is not None else {})
        if base is None or whole:
            return _Plan(await asyncio.to_thread(_everything, change, before, self._rules), places)
        return _Plan(change, places, base, await self._row_of(base))

    # -- commit -------------------------------------------------------------------------------------------------------

    async def _commit(
        self, kept: tuple[Pointer, str] | None, intake: ScanIngest, plan: _Plan, done: ScanDone
    ) -> tuple[Generation, int]:
        """The generation, and the size of its manifest."""
        shelf, base = self._shelf, plan.base
        gone = await shelf.gone({place.pack for place in intake.places.values()})
        if gone:
            raise SyncFailed(f"{len(gone)} packs are gone: their content has to be sent again")
        name, size = await shelf.put_manifest(plan.change, plan.places, plan.bases)
        crash_points.reached("sync.manifest_stored")
        generation = Generation(
            number=max(kept[0].newest.number if kept is not None else 0, self._standing.number) + 1,
            manifest=name,
            at=shelf.utcnow(),
            files=done.files,
            bytes=done.total_bytes,
            depth=len(plan.bases),
            row_bytes=base.row_bytes + size if base is not None else 0,
            whole_bytes=base.whole_bytes if base is not None else size,
            held_bytes=base.held_bytes + intake.sent_bytes if base is not None else done.total_bytes,
        )
        await self._swap(kept, generation)
        crash_points.reached("sync.swapped")
        return generation, size

    async def _swap(self, kept: tuple[Pointer, str] | None, generation: Generation) -> None:
        shelf = self._shelf
        # Unmarked objects stay reliable for a while, not for ever: see sync/format/gc_marks.py.
        if self._watch.seconds > shelf.grace / 2:
            raise SyncFailed("it took so long that its objects may have been collected: it has to begin again")
        writer = shelf.new_writer()
        if kept is None:
            await shelf.swap(pointers.first(self._session_id, generation, writer), None)
        else:
            without = self._standing.begun_without
            followed = pointers.follow(kept[0], generation, writer, shelf.keep, begun_without=without)
            await shelf.swap(followed, kept[1])


def _change(intake: ScanIngest, done: ScanDone, before: StoredTree | None) -> Change:
    """The scan's result, as a difference from the base of the new generation."""
    change = Change(list(intake.entries.values()), list(intake.removed) if done.base is not None else [])
    if before is not None:
        change = difference(before.entries, intake.entries)
    skipped = (*done.skipped, *done.unread)[:MAX_SKIPPED]
    return Change(change.entries, change.removed, skipped, done.skipped_count + done.unread_count)


def _is_long(base: Generation, done: ScanDone) -> bool:
    held, now = base.held_bytes, done.total_bytes
    return wants_whole(base.depth, base.row_bytes, base.whole_bytes, held_bytes=held, tree_bytes=now)


def _chunks(change: Change) -> set[bytes]:
    return {chunk.id for entry in change.entries for chunk in entry.chunks if chunk.id}


def _everything(change: Change, before: StoredTree | None, rules: ScanAsk) -> Change:
    """The whole tree. Raises BadEntry if it is not one, SyncFailed if it is too large."""
    entries = dict(before.entries) if before is not None else {}
    for path in change.removed:
        entries.pop(path, None)
    entries.update((entry.path, entry) for entry in change.entries)
    check_tree(entries)
    bound(rules.limits, len(entries), sum(map(weight, entries.values())))
    return Change(list(entries.values()), [], change.skipped, change.skipped_count)


def _pushed(
    generation: Generation, intake: ScanIngest, done: ScanDone, *, new: bool, remembered: bool, manifest_bytes: int = 0
) -> Pushed:
    sent_bytes, chunks = intake.sent_bytes + manifest_bytes, (intake.chunks_sent, intake.chunks_reused)
    return Pushed(generation, new, done.read_bytes, sent_bytes, *chunks, remembered, done.unread, done.unread_count)


async def _is_done(remembering: Awaitable[None]) -> bool:
    """The generation is stored, even if the bridge does not hear of it: then it reports the whole tree next time."""
    try:
        await remembering
    except TreeFailed:
        return False
    return True
