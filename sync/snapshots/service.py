"""The snapshots of all users, in the gateway's words.

A caller names a session by its owner and its id together, so no id reaches another user's snapshots.
"""

import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import msgspec
import structlog

from sandbox.ports.tree import ScannedTree, Tree
from sandbox.protocol.tree import ScanAsk
from sync.errors import Damaged, NoSuchSnapshot
from sync.format import pointer
from sync.format.keys import ROOT, Keys, prefix_in
from sync.format.manifest import Change, StoredTree, difference
from sync.format.pointer import Generation, Pointer
from sync.ports import Conflict, ObjectsRefused, ObjectStore, ObjectsUnavailable
from sync.snapshots import gc as collecting
from sync.snapshots import push, reader, verify
from sync.snapshots import restore as restoring
from sync.snapshots.gc import Collected
from sync.snapshots.push import UNKNOWN, Pushed, Standing
from sync.snapshots.repository import Repository
from sync.snapshots.restore import RestoreProgress, RestoreResult
from sync.snapshots.verify import Verdict

log = structlog.get_logger()

SHELVES_KEPT = 64  # users whose catalogue stays in memory
ENTRIES_KEPT = 300_000  # of trees that stay in memory, for clients that read files one by one; about 0.5 KiB each
SWAPS = 5


@dataclass(frozen=True, slots=True)
class SnapshotLimits:
    keep: int = 10  # generations of a session
    grace: float = 86_400.0  # seconds between the two passes before anything is removed


class SnapshotService:
    def __init__(
        self,
        store: ObjectStore,
        limits: SnapshotLimits | None = None,
        *,
        now: Callable[[], float] = time.monotonic,
        utcnow: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._limits = limits or SnapshotLimits()
        self._now, self._utcnow = now, utcnow
        self._shelves: OrderedDict[str, Repository] = OrderedDict()
        self._trees: OrderedDict[tuple[str, str], StoredTree] = OrderedDict()

    def shelf(self, user_id: str) -> Repository:
        keys = Keys.of_user(user_id)
        shelf = self._shelves.get(keys.prefix) or self._new_shelf(keys)
        self._shelves[keys.prefix] = shelf
        self._shelves.move_to_end(keys.prefix)
        while len(self._shelves) > SHELVES_KEPT:
            self._shelves.popitem(last=False)
        return shelf

    def _new_shelf(self, keys: Keys) -> Repository:
        limits = self._limits
        return Repository(self._store, keys, grace=limits.grace, keep=limits.keep, now=self._now, utcnow=self._utcnow)

    # -- for sessions
    # --------------------------------------------------------------------------------------------------

    async def newest(self, user_id: str, session_id: str) -> Generation | None:
        found = await self.shelf(user_id).pointer(session_id)
        return None if found is None else found[0].newest

    async def push(
        self,
        user_id: str,
        session_id: str,
        tree: ScannedTree,
        rules: ScanAsk,
        on_uploaded: Callable[[], None],
        standing: Standing = UNKNOWN,
    ) -> Pushed:
        """A new generation, if anything changed. Raises SyncFailed."""
        return await push.push(self.shelf(user_id), session_id, tree, rules, on_uploaded, standing)

    async def restore(
        self, user_id: str, session_id: str, tree: Tree, *, aside: bool, told: Callable[[RestoreProgress], None]
    ) -> RestoreResult:
        """Restore the newest whole generation. Generations that are passed over are pinned, because parts of them may
        still be useful. Raises RestoreFailed, Damaged, NoSuchSnapshot and the store's own."""
        shelf = self.shelf(user_id)
        kept, _ = await shelf.kept(session_id)
        restored = await restoring.restore(shelf, kept, tree, aside=aside, told=told)
        if restored.degraded is not None:
            await self._pin_damaged(user_id, session_id, restored.generation.number, restored.degraded)
        return restored

    async def _pin_damaged(self, user_id: str, session_id: str, restored: int, why: str) -> None:
        def change(old: Pointer, writer: str) -> Pointer:
            newer = [generation.number for generation in old.generations if generation.number > restored]
            return pointer.pin(old, newer, f"it could not be restored: {why}", writer)

        try:
            await self._change(user_id, session_id, change)
        except (Conflict, NoSuchSnapshot, Damaged, ObjectsUnavailable, ObjectsRefused) as error:
            log.warning("snapshots.not_pinned", session_id=session_id, cause=str(error))

    async def set_aside(self, user_id: str, session_id: str) -> None:
        """The session begins anew: a pointer that cannot be read makes room for another."""
        await self.shelf(user_id).set_aside(session_id)

    async def forget(self, user_id: str, session_id: str) -> None:
        """The session is deleted: its generations go, others' stay."""
        await self.shelf(user_id).forget(session_id)

    # -- for people
    # ----------------------------------------------------------------------------------------------------

    async def pointer(self, user_id: str, session_id: str) -> Pointer:
        """Raises NoSuchSnapshot, Damaged."""
        return (await self.shelf(user_id).kept(session_id))[0]

    async def tree(self, user_id: str, session_id: str, number: int | None) -> tuple[Generation, StoredTree]:
        """That generation, or the newest, and its tree; do not change the tree. Raises NoSuchSnapshot, Damaged."""
        shelf = self.shelf(user_id)
        generation = (await shelf.kept(session_id))[0].find(number)
        key = (shelf.keys.prefix, generation.manifest)
        tree = self._trees.pop(key, None) or await shelf.tree(generation.manifest)
        self._trees[key] = tree
        while len(self._trees) > 1 and sum(len(each.entries) for each in self._trees.values()) > ENTRIES_KEPT:
            self._trees.popitem(last=False)
        return generation, tree

    async def difference(self, user_id: str, session_id: str, before: int, after: int | None) -> Change:
        _, old = await self.tree(user_id, session_id, before)
        _, new = await self.tree(user_id, session_id, after)
        return difference(old.entries, new.entries)

    def contents(self, user_id: str, stored: StoredTree) -> reader.SnapshotReader:
        return reader.SnapshotReader(self.shelf(user_id), stored)

    def tar(self, user_id: str, stored: StoredTree) -> AsyncIterator[bytes]:
        return reader.tar(self.shelf(user_id), stored)

    async def verify(self, user_id: str, session_id: str, told: Callable[[int, int], None]) -> list[Verdict]:
        """Read everything that the session's generations name. Damaged objects are noted, so that the next sync of a
        tree with their content stores it again. Raises NoSuchSnapshot, Damaged and the store's own."""
        shelf = self.shelf(user_id)
        verdicts = await verify.verify(shelf, (await shelf.kept(session_id))[0], told)
        await shelf.note_damage([damage for verdict in verdicts for damage in verdict.damage])
        return verdicts

    async def branch(self, user_id: str, origin: str, number: int | None, session_id: str) -> Generation:
        """A new session that begins with a generation of `origin`: a new pointer, whatever the tree's size. Raises
        Conflict if the new id has snapshots already, NoSuchSnapshot and the store's own."""
        shelf = self.shelf(user_id)
        watch = shelf.stopwatch()
        wanted = (await shelf.kept(origin))[0].find(number)
        generation = msgspec.structs.replace(
            wanted, number=1, at=self._utcnow(), pinned="", note=f"from {origin}, generation {wanted.number}"
        )
        begun = pointer.first(session_id, generation, shelf.new_writer(), f"{origin}@{wanted.number}")
        if (
            watch.seconds > self._limits.grace / 2
        ):  # the origin may have dropped it meanwhile: see sync/format/gc_marks.py
            raise ObjectsUnavailable(f"the store took too long to branch from {origin}")
        await shelf.swap(begun, None)
        return generation

    async def put_back(self, user_id: str, session_id: str, number: int) -> Pointer:
        """Make an earlier generation's tree the newest. The newest so far is pinned."""
        return await self._change(
            user_id, session_id, lambda old, w: pointer.put_back(old, number, self._utcnow(), w, self._limits.keep)
        )

    async def release(self, user_id: str, session_id: str, number: int) -> Pointer:
        """Release a pinned generation: it goes when its turn comes."""
        return await self._change(
            user_id, session_id, lambda old, w: pointer.release(old, number, w, self._limits.keep)
        )

    async def _change(self, user_id: str, session_id: str, change: Callable[[Pointer, str], Pointer]) -> Pointer:
        shelf = self.shelf(user_id)
        for attempt in range(SWAPS):
            old, etag = await shelf.kept(session_id)
            new = change(old, shelf.new_writer())
            try:
                await shelf.swap(new, etag)
            except Conflict:
                if attempt == SWAPS - 1:
                    raise
            else:
                return new
        raise AssertionError("the last attempt returned or raised")

    # -- housekeeping -------------------------------------------------------------------------------------------------

    async def collect(self, *, dry_run: bool = False, told: Callable[[str], None] = lambda _: None) -> Collected:
        """One pass over every user's objects: removes those that two passes found unreferenced."""
        users: set[str] = set()
        async for found in self._store.list(ROOT):
            if (prefix := prefix_in(found.key)) is not None:
                users.add(prefix)
        total = Collected()
        for prefix in sorted(users):
            # Not among the cached shelves: a pass over all users must not push out the active ones.
            shelf = self._shelves.get(prefix) or self._new_shelf(Keys(prefix))
            total += await collecting.collect(shelf, dry_run=dry_run, told=told)
        return total


def short_id() -> str:
    """For ids of branches: 8 characters that nobody guesses by accident."""
    return secrets.token_hex(4)
