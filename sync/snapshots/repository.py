"""One user's part of the object store: packs, manifests, pointers, marks.

Everything read is checked against its name. A missing or damaged object raises Damaged; a store that does not answer
at the moment raises ObjectsUnavailable. Blocking work (hashing, unpacking) runs in threads.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeVar

import structlog

from sync.errors import Damaged, NoSuchSnapshot
from sync.format import gc_marks as marking
from sync.format import manifest as manifests
from sync.format import pointer as pointers
from sync.format.chunk_index import ChunkIndex
from sync.format.gc_marks import Marks
from sync.format.keys import Keys
from sync.format.manifest import Change, ChunkPlace, ManifestHead, StoredTree
from sync.format.pack import FOOTER, SALT, PackBuilder, PackedFrame, index_length, read_index
from sync.format.pointer import Pointer
from sync.ports import Conflict, Found, ObjectsRefused, ObjectStore, ObjectsUnavailable
from sync.snapshots.parallel import each

log = structlog.get_logger()

T = TypeVar("T")

AT_ONCE = 8
LIKELY_INDEX = 64 << 10  # read with the footer: most indices need no second request
MANIFESTS_KEPT = 1000  # manifests about which something is remembered
TRIES = 5  # to note damage while others write marks


class _Everything(Container[str]):
    def __contains__(self, name: object) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Avoided:
    """What a sync must not use (packs), and what it must not build on (packs and manifests)."""

    marked: Container[str]
    damaged: frozenset[str]


class Stopwatch:
    """Elapsed time by the clock that shows more: one stops while the machine sleeps, one can be set back."""

    def __init__(self, now: Callable[[], float], utcnow: Callable[[], float]) -> None:
        self._now, self._utcnow = now, utcnow
        self._began, self._began_utc = now(), utcnow()

    @property
    def seconds(self) -> float:
        return max(self._now() - self._began, self._utcnow() - self._began_utc)


class Repository:
    def __init__(
        self,
        store: ObjectStore,
        keys: Keys,
        *,
        grace: float,
        keep: int,
        now: Callable[[], float] = time.monotonic,
        utcnow: Callable[[], float] = time.time,
    ) -> None:
        self.store, self.keys, self.grace, self.keep = store, keys, grace, keep
        self.now, self.utcnow = now, utcnow
        self.catalogue = ChunkIndex()
        self._listed = False
        self._listing = asyncio.Lock()
        self._seen: dict[str, float] = {}  # pack: when it certainly existed
        self._bases: dict[str, tuple[str, ...]] = {}
        self._distrusted: set[str] = set()  # also in the marks, unless they could not be written
        self._sound: dict[str, frozenset[str]] = {}  # manifest: objects known to be damaged that are not in its tree

    def stopwatch(self) -> Stopwatch:
        return Stopwatch(self.now, self.utcnow)

    # -- pointers -----------------------------------------------------------------------------------------------------

    async def pointer(self, session_id: str) -> tuple[Pointer, str] | None:
        """The session's pointer and its etag; None if nothing is stored."""
        got = await self.store.get(self.keys.pointer(session_id))
        return None if got is None else (pointers.decode(session_id, got.content), got.etag)

    async def kept(self, session_id: str) -> tuple[Pointer, str]:
        """The same; raises NoSuchSnapshot instead of None."""
        found = await self.pointer(session_id)
        if found is None:
            raise NoSuchSnapshot(f"session {session_id} has no snapshot yet")
        return found

    async def swap(self, pointer: Pointer, etag: str | None) -> str:
        """Replace the pointer that had `etag`, None if there was none. Raises Conflict."""
        key, content = self.keys.pointer(pointer.session), pointers.encode(pointer)
        write = self.store.create(key, content) if etag is None else self.store.replace(key, content, etag)
        # A sent request cannot be called back: a caller that gives up still waits for it, so that it does not come
        # later.
        writing = asyncio.ensure_future(write)
        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait({writing})
            if not writing.cancelled():
                writing.exception()  # the caller that gave up ignores the result
            raise

    async def set_aside(self, session_id: str) -> None:
        """Move an unreadable pointer aside, so that there can be another. The objects that it named are not
        collected."""
        key = self.keys.pointer(session_id)
        got = await self.store.get(key)
        if got is None:
            return
        try:
            pointers.decode(session_id, got.content)
        except Damaged:
            await self.store.put(self.keys.set_aside(session_id, self.new_writer()), got.content)
            await self.store.delete(key)

    @staticmethod
    def new_writer() -> str:
        return secrets.token_hex(8)

    async def forget(self, session_id: str) -> None:
        """Remove the pointers that name the session's generations, or may have. Objects that nothing else names are
        collected later."""
        await self.store.delete(self.keys.pointer(session_id))
        listed = [found.key async for found in self.store.list(self.keys.session(session_id))]
        for key in filter(self.keys.is_set_aside, listed):
            await self.store.delete(key)

    # -- manifests and trees ------------------------------------------------------------------------------------------

    async def put_manifest(
        self, change: Change, places: Mapping[bytes, ChunkPlace], bases: tuple[str, ...]
    ) -> tuple[str, int]:
        """Store the manifest of `change`; its name and its size. Raises BadEntry."""
        salt = secrets.token_bytes(SALT)

        def encoded() -> tuple[str, bytes]:
            return manifests.encode(manifests.compose(change, places, bases, salt))

        name, content = await asyncio.to_thread(encoded)
        await self.store.put(self.keys.manifest(name), content)
        self._know_bases(name, bases)
        return name, len(content)

    async def bases(self, name: str) -> tuple[str, ...]:
        """The manifests of which the manifest `name` is a difference."""
        known = self._bases.get(name)
        return known if known is not None else (await self.manifest_head(name)).bases

    def _know_bases(self, name: str, bases: tuple[str, ...]) -> None:
        _keep_newest(self._bases, name, bases)

    async def manifest_head(self, name: str) -> ManifestHead:
        head = await asyncio.to_thread(manifests.decode_head, name, await self._manifest(name))
        self._know_bases(name, head.bases)
        return head

    async def _manifest(self, name: str) -> bytes:
        got = await self.store.get(self.keys.manifest(name))
        if got is None:
            raise Damaged(f"manifest {name} is missing", manifest=name)
        return got.content

    async def tree(self, name: str) -> StoredTree:
        """The whole tree of the manifest `name`, the last of its row, read from the store."""
        last = await asyncio.to_thread(manifests.decode, name, await self._manifest(name))
        if len(last.bases) > manifests.MAX_DEPTH:
            raise Damaged(f"manifest {name}: its row is too long", manifest=name)
        before = await each(self._manifest, last.bases, at_once=AT_ONCE)

        def put_together() -> StoredTree:
            row = [(base, manifests.decode(base, content)) for base, content in zip(last.bases, before, strict=True)]
            return manifests.put_together([*row, (name, last)])

        return await asyncio.to_thread(put_together)

    async def names(self, manifest: str) -> set[str]:
        """The manifests of the row that ends with `manifest`, and the packs they name."""
        last = await self.manifest_head(manifest)
        heads = await each(self.manifest_head, last.bases, at_once=AT_ONCE)
        return {manifest, *last.bases, *(pack for head in (last, *heads) for pack in head.packs)}

    async def is_sound(self, manifest: str, damaged: frozenset[str]) -> bool:
        """Whether no object of that tree is `damaged`. A second question about the same tree reads nothing."""
        if not damaged or self._sound.get(manifest) == damaged:
            return True
        if not damaged.isdisjoint(await self.names(manifest)):
            return False
        self.know_sound(manifest, damaged)
        return True

    def know_sound(self, manifest: str, damaged: frozenset[str]) -> None:
        """The tree of `manifest` was made without any object that is `damaged`."""
        _keep_newest(self._sound, manifest, damaged)

    # -- packs --------------------------------------------------------------------------------------------------------

    @staticmethod
    def new_pack() -> PackBuilder:
        return PackBuilder(secrets.token_bytes(SALT))

    async def put_pack(self, pack: PackBuilder) -> tuple[str, int]:
        """Store it, and index its content; its name and its size."""
        name, content = await asyncio.to_thread(pack.seal)
        await self.store.put(self.keys.pack(name), content)
        self._seen[name] = self.now()
        self.catalogue.add(name, pack.frames)
        return name, len(content)

    async def know_packs(self) -> None:
        """Read the indices of all packs, once; a pack whose index is unreadable is not reused."""
        async with self._listing:
            if not self._listed:
                listed = [(self.keys.pack_in(found.key), found) async for found in self.store.list(self.keys.packs)]
                unknown = [(name, found) for name, found in listed if name is not None and name not in self.catalogue]
                await each(self._learn, unknown, at_once=AT_ONCE)
                self._listed = True

    async def _learn(self, listed: tuple[str, Found]) -> None:
        name, found = listed
        try:
            self.catalogue.add(name, await self._index(name, found.size))
        except Damaged as error:
            log.warning("snapshots.damaged", key=found.key, cause=str(error))

    async def _index(self, name: str, size: int) -> Sequence[PackedFrame]:
        key = self.keys.pack(name)
        start = max(0, size - LIKELY_INDEX)
        tail = await self.store.get_range(key, start, size - start) if size else None
        footer = (tail or b"")[-FOOTER:]
        length = index_length(name, footer)
        if tail is None or length + FOOTER > len(tail):
            tail = await self.store.get_range(key, max(0, size - FOOTER - length), length + FOOTER) or b""
        index = tail[-FOOTER - length : -FOOTER]
        return await asyncio.to_thread(read_index, name, index, footer, size)

    async def gone(self, packs: Iterable[str]) -> list[str]:
        """Which of these packs are missing. A pack that certainly existed a short while ago is not checked again."""
        recent = self.now() - self.grace / 4
        asked = sorted(name for name in packs if self._seen.get(name, recent) <= recent)
        missing = []

        async def ask(name: str) -> None:
            at = self.now()
            if await self.store.head(self.keys.pack(name)) is None:
                missing.append(name)
            else:
                self._seen[name] = at

        await each(ask, asked, at_once=AT_ONCE)
        self.removed(missing)
        return missing

    def removed(self, packs: Iterable[str]) -> None:
        """These packs no longer exist."""
        for name in packs:
            self._seen.pop(name, None)
            self.catalogue.drop(name)

    # -- marks --------------------------------------------------------------------------------------------------------

    async def marks(self) -> tuple[Marks | None, str | None]:
        """The collector's marks, and the etag of their object. No marks if they are unreadable; the next writer
        begins with none."""
        got = await self.store.get(self.keys.marks)
        if got is None:
            return Marks(), None
        try:
            return marking.decode(self.keys.marks, got.content), got.etag
        except Damaged as error:
            log.warning("snapshots.damaged", key=self.keys.marks, cause=str(error))
            return None, got.etag

    async def heed(self) -> Avoided:
        """What must not be used now. If the marks cannot be read, that is everything."""
        marks, _ = await self.marks()
        if marks is None:
            return Avoided(_Everything(), frozenset(self._distrusted))
        damaged = marking.damaged_in(marks)
        if damaged - self._distrusted:
            self._suspect(damaged)
        return Avoided(marks.packs.keys() | self._distrusted, frozenset(self._distrusted))

    def _suspect(self, damaged: AbstractSet[str]) -> None:
        """An object turned out to be damaged or missing: packs that existed before are checked again."""
        self._distrusted |= damaged
        self._seen.clear()
        for name in damaged:
            self.catalogue.drop(name)

    async def write_marks(self, marks: Marks, etag: str | None) -> None:
        """Raises Conflict if another writer was first."""
        content = marking.encode(marks)
        if etag is None:
            await self.store.create(self.keys.marks, content)
        else:
            await self.store.replace(self.keys.marks, content, etag)

    async def distrust(self, damage: Iterable[Damaged]) -> None:
        """These packs and manifests were found damaged or missing: no sync may build on them. Raises Conflict and the
        store's errors if that could not be noted for others."""
        damage = list(damage)
        packs = {error.pack for error in damage if error.pack is not None}
        found = {error.manifest for error in damage if error.manifest is not None}
        if not packs and not found:
            return
        self._suspect(packs | found)
        for attempt in range(TRIES):
            marks, etag = await self.marks()
            noted = marking.distrusted(marks or Marks(), packs, found)
            if noted == marks:
                return
            try:
                return await self.write_marks(noted, etag)
            except Conflict:
                if attempt == TRIES - 1:
                    raise

    async def note_damage(self, damage: Iterable[Damaged]) -> None:
        """The same, as far as possible at the moment; the next finder tries again."""
        try:
            await self.distrust(damage)
        except (Conflict, ObjectsUnavailable, ObjectsRefused) as error:
            log.warning("snapshots.not_marked", cause=str(error))


def _keep_newest(known: dict[str, T], name: str, value: T) -> None:
    known.pop(name, None)
    known[name] = value
    while len(known) > MANIFESTS_KEPT:
        del known[next(iter(known))]
