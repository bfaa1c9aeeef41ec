"""One user's part of the store: what is known of packs and manifests, and what is asked for."""

import asyncio
import gc
from random import Random
from typing import Any

import pytest

from sandbox.protocol.chunk_frames import pack as pack_frame
from sandbox.protocol.entry import Chunk, chunk_id
from sync.errors import Damaged
from sync.format.keys import Keys
from sync.format.manifest import MAX_DEPTH, Change
from sync.format.pointer import Generation, first
from sync.objects.memory import MemoryObjects
from sync.ports import Conflict, ObjectsUnavailable
from sync.snapshots import repository as shelves
from sync.snapshots.repository import Repository
from tests.support.keeping import DAY, Clock
from tests.support.watched_objects import Fault, WatchedObjects

KEYS = Keys.of_user("u")


def shelf_on(store: WatchedObjects, clock: Clock | None = None) -> Repository:
    clock = clock or Clock()
    return Repository(store, KEYS, grace=DAY, keep=3, now=clock, utcnow=clock)


@pytest.fixture
def store() -> WatchedObjects:
    return WatchedObjects(MemoryObjects())


def chunk(number: int) -> Chunk:
    return Chunk(chunk_id(b"%d" % number), len(b"%d" % number))


async def put_pack(shelf: Repository, chunks: range) -> str:
    """A pack with one frame for each number."""
    pack = shelf.new_pack()
    for number in chunks:
        pack.add(pack_frame([(chunk(number), b"%d" % number)]))
    return (await shelf.put_pack(pack))[0]


@pytest.mark.parametrize("chunks", [1, 3000])
async def test_another_process_learns_what_is_stored_also_from_a_long_index(store: WatchedObjects, chunks: int) -> None:
    name = await put_pack(shelf_on(store), range(chunks))
    other = shelf_on(store)
    before = len(store.requests)
    await other.know_packs()
    assert len(store.since(before)) == (2 if chunks == 1 else 3)
    for number in range(chunks):
        place = other.catalogue.find(chunk(number).id, ())
        assert place is not None
        assert place.pack == name
        assert place.frame.chunks == (chunk(number),)
    before = len(store.requests)
    await other.know_packs()
    assert not store.since(before)


async def test_what_cannot_be_read_is_not_known_and_not_in_the_way(store: WatchedObjects) -> None:
    shelf = shelf_on(store)
    good = await put_pack(shelf, range(3))
    for number, content in enumerate(
        (b"", b"x" * 10, bytes(24), bytes(20) + b"HFPX", b"\xff" * 4 + bytes(16) + b"HFPX")
    ):
        await store.put(KEYS.pack(f"{number}" * 64), content)
    long_claim = (5000).to_bytes(4, "little") + bytes(16) + b"HFPX"
    await store.put(KEYS.pack("a" * 64), b"short" + long_claim)
    other = shelf_on(store)
    await other.know_packs()
    assert good in other.catalogue
    assert len(other.catalogue) == 3


async def test_an_outage_while_packs_are_learned_comes_out_as_it_is_and_is_made_up_for(store: WatchedObjects) -> None:
    for number in range(5):
        await put_pack(shelf_on(store), range(number, number + 1))
    other = shelf_on(store)
    store.fault = lambda request: Fault.AWAY if request.verb == "get_range" else None
    with pytest.raises(ObjectsUnavailable):
        await other.know_packs()
    store.fault = lambda _: None
    await other.know_packs()
    assert len(other.catalogue) == 5


async def test_a_pack_is_asked_for_once_a_while(store: WatchedObjects) -> None:
    clock = Clock()
    writer, shelf = shelf_on(store), shelf_on(store, clock)
    names = [await put_pack(writer, range(number, number + 1)) for number in range(3)]
    await shelf.know_packs()
    for expected in (3, 0):
        before = len(store.requests)
        assert await shelf.gone(names) == []
        assert [request.verb for request in store.since(before)] == ["head"] * expected
    own = await put_pack(shelf, range(9, 10))
    before = len(store.requests)
    assert await shelf.gone([own]) == []
    assert not store.since(before)
    await store.inner.delete(KEYS.pack(names[0]))
    assert await shelf.gone(names) == []
    clock.seconds += DAY / 4
    assert await shelf.gone(names) == [names[0]]
    assert shelf.catalogue.find(chunk(0).id, ()) is None
    assert shelf.catalogue.find(chunk(1).id, ()) is not None


async def test_manifests_know_their_row(store: WatchedObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelves, "MANIFESTS_KEPT", 2)
    shelf, row = shelf_on(store), list[str]()
    for number in range(5):
        change = Change([], [b"workspace/%d" % number])
        row.append((await shelf.put_manifest(change, {}, tuple(row)))[0])
        assert len(shelf._bases) <= 2
    for at, name in enumerate(row):
        assert await shelf.bases(name) == tuple(row[:at])
        assert await shelf.names(name) == set(row[: at + 1])
    assert (await shelf.tree(row[-1])).entries == {}


async def test_a_damaged_manifest_anywhere_in_a_row_is_named(store: WatchedObjects) -> None:
    shelf, row = shelf_on(store), list[str]()
    for _ in range(4):
        row.append((await shelf.put_manifest(Change([], []), {}, tuple(row)))[0])
    for name in row:
        got = await store.get(KEYS.manifest(name))
        assert got is not None
        for content in (None, b"", got.content[:-1]):
            await (store.delete(KEYS.manifest(name)) if content is None else store.put(KEYS.manifest(name), content))
            for read in (shelf.tree, shelf_on(store).names):
                with pytest.raises(Damaged) as caught:
                    await read(row[-1])
                assert caught.value.manifest == name
        await store.put(KEYS.manifest(name), got.content)
    assert await shelf.names(row[-1]) == set(row)


async def test_whether_a_tree_is_sound_is_found_out_once(store: WatchedObjects) -> None:
    shelf = shelf_on(store)
    name, _ = await shelf.put_manifest(Change([], []), {}, ())
    for damaged, is_sound, requests in (
        (frozenset[str](), True, 0),
        (frozenset({"x"}), True, 1),
        (frozenset({"x"}), True, 0),
        (frozenset({"x", name}), False, 1),
        (frozenset({"x", name}), False, 1),
    ):
        before = len(store.requests)
        assert await shelf.is_sound(name, damaged) == is_sound
        assert len(store.since(before)) == requests
    shelf.know_sound(name, frozenset({"y"}))
    before = len(store.requests)
    assert await shelf.is_sound(name, frozenset({"y"}))
    assert not store.since(before)


async def test_a_row_without_end_is_damaged(store: WatchedObjects) -> None:
    shelf = shelf_on(store)
    name, _ = await shelf.put_manifest(Change([], []), {}, ("0" * 64,) * (MAX_DEPTH + 1))
    with pytest.raises(Damaged, match="too long"):
        await shelf.tree(name)


async def test_damage_is_noted_for_everybody_and_kept_in_mind_if_that_fails(store: WatchedObjects) -> None:
    shelf, other = shelf_on(store), shelf_on(store)
    pack = await put_pack(shelf, range(2))
    await other.know_packs()
    damage = [Damaged("x", pack=pack), Damaged("y", manifest="0" * 64), Damaged("neither")]
    store.fault = lambda request: Fault.AWAY if request.verb == "create" else None
    with pytest.raises(ObjectsUnavailable):
        await shelf.distrust(damage)
    assert (await shelf.heed()).damaged == {pack, "0" * 64}
    assert (await other.heed()).damaged == frozenset()
    store.fault = lambda _: None
    await shelf.distrust(damage)
    for each in (shelf, other):
        heeded = await each.heed()
        assert heeded.damaged == {pack, "0" * 64}
        assert pack in heeded.marked
        assert each.catalogue.find(chunk(0).id, ()) is None
    before = len(store.requests)
    await shelf.distrust(damage)
    await shelf.distrust([Damaged("neither")])
    assert [request.verb for request in store.since(before)] == ["get"]


async def test_marks_that_always_lose_the_race_are_given_up_after_a_while(store: WatchedObjects) -> None:
    class Raced(WatchedObjects):
        async def create(self, key: str, content: bytes) -> str:
            raise Conflict("always")

    with pytest.raises(Conflict):
        await shelf_on(Raced(MemoryObjects())).distrust([Damaged("x", pack="0" * 64)])


async def test_if_marks_cannot_be_read_nothing_may_be_used(store: WatchedObjects) -> None:
    shelf = shelf_on(store)
    pack = await put_pack(shelf, range(1))
    assert pack not in (await shelf.heed()).marked
    await store.put(KEYS.marks, Random(1).randbytes(100))
    assert pack in (await shelf.heed()).marked


async def test_of_two_clocks_the_one_that_says_more_is_believed() -> None:
    clocks = {"now": 0.0, "utc": 0.0}
    shelf = Repository(MemoryObjects(), KEYS, grace=1, keep=1, now=lambda: clocks["now"], utcnow=lambda: clocks["utc"])
    watch = shelf.stopwatch()
    assert watch.seconds == 0
    clocks |= {"now": 5.0, "utc": -100.0}
    assert watch.seconds == 5
    clocks |= {"utc": 7.0}
    assert watch.seconds == 7


class LateConflict(MemoryObjects):
    """Somebody else was quicker, as one hears in the end."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.answer = asyncio.Event(), asyncio.Event()

    async def create(self, key: str, content: bytes) -> str:
        self.asked.set()
        await self.answer.wait()
        raise Conflict(f"{key} exists")


async def test_a_write_that_was_given_up_fails_without_a_word() -> None:
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    store = LateConflict()
    shelf = shelf_on(WatchedObjects(store))
    writing = asyncio.ensure_future(shelf.swap(first("s", Generation(1, "a" * 64, 0.0, 0, 0), "w"), None))
    await store.asked.wait()
    writing.cancel()
    await asyncio.sleep(0)
    assert not writing.done(), "what was sent cannot be called back"
    store.answer.set()
    await asyncio.wait({writing})
    assert writing.cancelled()
    del writing
    gc.collect()
    assert unheard == []
