"""What the gateway asks of snapshots."""

import pytest

from sync.errors import NoSuchSnapshot
from sync.format.keys import Keys
from sync.objects.memory import MemoryObjects
from sync.ports import Conflict
from sync.snapshots import service as vaults
from sync.snapshots.service import short_id
from tests.support.keeping import USER, Clock, MemorySession, push, restore_into, restored_entries, vault_on
from tests.support.watched_objects import WRITES, Fault, Request, WatchedObjects


async def three_generations(store: MemoryObjects) -> MemorySession:
    session = MemorySession()
    for content in (b"one", b"two", b"three"):
        session.roots.files[b"workspace/f"] = content
        await push(vault_on(store), session)
    return session


async def test_a_branch_begins_with_any_kept_generation_and_leaves_its_origin_alone() -> None:
    store, clock = MemoryObjects(), Clock()
    session = await three_generations(store)
    vault = vault_on(store, clock)
    before = await vault.pointer(USER, "s")
    for number, content in ((1, b"one"), (None, b"three")):
        begun = await vault.branch(USER, "s", number, f"b{number}")
        assert (begun.number, begun.at, begun.note) == (1, clock.seconds, f"from s, generation {number or 3}")
        branch = MemorySession(f"b{number}")
        await restore_into(vault, branch.tree, branch.id)
        assert branch.roots.files == {b"workspace/f": content}
        assert (await vault.pointer(USER, branch.id)).origin == f"s@{number or 3}"
        branch.roots.files[b"workspace/f"] = b"another way"
        assert (await push(vault, branch)).generation.number == 2
    assert await vault.pointer(USER, "s") == before
    assert await restored_entries(vault, session) == session.entries()


async def test_a_branch_costs_two_requests_whatever_its_size() -> None:
    store = WatchedObjects(MemoryObjects())
    session = MemorySession()
    session.roots.files |= {b"workspace/%d" % number: b"%d" % number for number in range(3000)}
    await push(vault_on(store), session)
    before = len(store.requests)
    await vault_on(store).branch(USER, "s", None, "b")
    assert [request.verb for request in store.since(before)] == ["get", "create"]


async def test_a_branch_never_takes_the_place_of_a_session() -> None:
    store = MemoryObjects()
    await three_generations(store)
    vault = vault_on(store)
    with pytest.raises(Conflict):
        await vault.branch(USER, "s", 1, "s")
    with pytest.raises(NoSuchSnapshot):
        await vault.branch(USER, "s", 9, "b")
    with pytest.raises(NoSuchSnapshot):
        await vault.branch(USER, "none", None, "b")
    with pytest.raises(NoSuchSnapshot):
        await vault.branch("another user", "s", None, "b")


async def test_a_tree_that_was_put_back_is_the_newest_and_what_was_there_is_pinned() -> None:
    store = MemoryObjects()
    session = await three_generations(store)
    vault = vault_on(store)
    pointer = await vault.put_back(USER, "s", 1)
    assert pointer.newest.number == 4
    assert pointer.find(3).pinned
    other = MemorySession()
    await restore_into(vault, other.tree)
    assert other.roots.files == {b"workspace/f": b"one"}
    assert not any(each.pinned for each in (await vault.release(USER, "s", 3)).generations)
    change = await vault.difference(USER, "s", 3, None)
    assert [entry.path for entry in change.entries] == [b"workspace/f"]
    assert not await vault.difference(USER, "s", 1, 4)
    assert session.roots.files == {b"workspace/f": b"three"}


async def test_a_change_of_a_pointer_that_lost_a_race_is_made_again() -> None:
    inner = MemoryObjects()
    session = await three_generations(inner)
    races = 2

    class Raced(WatchedObjects):
        async def replace(self, key: str, content: bytes, etag: str) -> str:
            nonlocal races
            if races:
                races -= 1
                session.roots.files[b"workspace/f"] += b"!"
                await push(vault_on(inner), session)
            return await super().replace(key, content, etag)

    pointer = await vault_on(Raced(inner)).put_back(USER, "s", 1)
    assert [each.number for each in pointer.generations] == [1, 2, 3, 4, 5, 6]
    races = 1000
    with pytest.raises(Conflict):
        await vault_on(Raced(inner)).put_back(USER, "s", 1)


async def test_forgetting_a_session_leaves_the_others() -> None:
    store = MemoryObjects()
    session = await three_generations(store)
    vault = vault_on(store)
    await vault.branch(USER, "s", None, "b")
    await vault.forget(USER, "b")
    await vault.forget(USER, "never-there")
    assert await vault.newest(USER, "b") is None
    assert await restored_entries(vault, session) == session.entries()


async def test_what_is_in_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vaults, "SHELVES_KEPT", 2)
    monkeypatch.setattr(vaults, "ENTRIES_KEPT", 3)
    vault = vault_on()
    for number in range(5):
        session = MemorySession("s", f"user-{number}")
        session.roots.files |= {b"workspace/a": b"%d" % number, b"workspace/b": b"b"}
        await push(vault, session)
        for _ in range(2):
            assert len((await vault.tree(session.user_id, "s", None))[1].entries) == 2
    assert len(vault._shelves) == 2
    assert len(vault._trees) == 1
    assert vault.shelf("user-4") is vault.shelf("user-4")


async def test_one_users_trees_are_not_shown_to_another() -> None:
    vault = vault_on()
    mine, yours = MemorySession("s", "me"), MemorySession("s", "you")
    mine.roots.files[b"workspace/f"], yours.roots.files[b"workspace/f"] = b"mine", b"yours"
    for session in (mine, yours):
        await push(vault, session)
    for session in (mine, yours, mine):
        assert (await vault.tree(session.user_id, "s", None))[1].entries == session.entries()


async def test_marks_that_others_write_at_the_same_time_lose_no_damage() -> None:
    inner = MemoryObjects()
    await three_generations(inner)
    store = WatchedObjects(inner)
    vault, neighbour = vault_on(store), vault_on(inner)
    trees = [(await vault.tree(USER, "s", number))[1] for number in (1, 3)]
    packs = [next(iter(tree.places.values())).pack for tree in trees]
    for pack in packs:
        await inner.delete(Keys.of_user(USER).pack(pack))
    shelf = neighbour.shelf(USER)

    class Raced(WatchedObjects):
        raced = False

        async def create(self, key: str, content: bytes) -> str:
            if not self.raced:
                self.raced = True
                await neighbour.collect()
                await inner.put(key, content)
            return await super().create(key, content)

    await vault_on(Raced(inner)).verify(USER, "s", lambda done, of: None)
    assert set(packs) <= (await shelf.heed()).damaged


async def test_a_store_that_takes_no_marks_and_no_pins_is_no_reason_not_to_restore() -> None:
    inner = MemoryObjects()
    await three_generations(inner)

    def read_only(request: Request) -> Fault | None:
        return Fault.AWAY if request.verb in WRITES else None

    vault = vault_on(WatchedObjects(inner, read_only))
    newest = await vault.newest(USER, "s")
    assert newest is not None
    await inner.delete(Keys.of_user(USER).manifest(newest.manifest))
    target = MemorySession()
    restored = await restore_into(vault, target.tree)
    assert restored.generation.number == 2
    assert target.roots.files == {b"workspace/f": b"two"}


def test_short_ids_are_short_and_differ() -> None:
    assert len({short_id() for _ in range(1000)}) == 1000
    assert all(len(short_id()) == 8 for _ in range(10))
