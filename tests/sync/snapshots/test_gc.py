"""What nobody names is removed after two looks, and nothing else ever is."""

import asyncio
from contextlib import suppress
from random import Random

import pytest

from sync.errors import SyncFailed
from sync.format import manifest as manifests
from sync.format.keys import ROOT, Keys
from sync.objects.memory import MemoryObjects
from sync.ports import Got, ObjectStore, ObjectsUnavailable
from sync.snapshots.service import SnapshotService
from tests.support.keeping import DAY, USER, Clock, MemorySession, problems, push, restored_entries, vault_on
from tests.support.watched_objects import Crash, Fault, Request, WatchedObjects, nth

KEYS = Keys.of_user(USER)


async def keys_of(store: ObjectStore) -> set[str]:
    return {found.key async for found in store.list("")}


async def count(store: ObjectStore, part: str) -> int:
    return sum(part in key for key in await keys_of(store))


class House:
    """A store, a clock, and a gateway on them."""

    def __init__(self, *, keep: int = 10) -> None:
        self.store, self.clock, self._keep = MemoryObjects(), Clock(), keep
        self.vault = self.gateway()

    def gateway(self, store: ObjectStore | None = None) -> SnapshotService:
        """One more; its own memory, the same time."""
        return vault_on(store or self.store, self.clock, keep=self._keep)

    async def forgotten(self, content: bytes = b"content") -> MemorySession:
        """A session that was kept and deleted: nobody names what it had."""
        session = MemorySession("forgotten")
        session.roots.files[b"workspace/f"] = content
        await push(self.vault, session)
        await self.vault.forget(USER, "forgotten")
        return session


async def test_what_nobody_names_goes_at_the_second_look_a_grace_after_the_first() -> None:
    house = House()
    await house.forgotten()
    for passed, removed in ((0.0, 0), (DAY / 2, 0), (DAY / 2 - 1, 0), (1.0, 2), (0.0, 0)):
        house.clock.seconds += passed
        assert (await house.vault.collect()).removed == removed
    assert await keys_of(house.store) == {KEYS.marks}
    assert (await house.vault.shelf(USER).marks())[0] is not None


async def test_generations_that_are_no_longer_kept_give_their_room_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that are the beginning of a row which is kept: a row that holds much that is gone is cut."""
    monkeypatch.setattr(manifests, "SMALL_WASTE", 1000)
    house, session = House(keep=2), MemorySession()
    for number in range(12):
        session.roots.files[b"workspace/f"] = Random(number).randbytes(10_000)
        await push(house.vault, session)
    await house.vault.collect()
    house.clock.seconds += DAY
    found = await house.vault.collect()
    assert found.pack_bytes - found.removed_bytes < 60_000
    assert (found.sessions, found.generations, found.problem) == (1, 2, "")
    assert await restored_entries(house.vault, session) == session.entries()
    assert not await problems(house.vault)


async def test_what_is_pinned_or_branched_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    house, session = House(keep=1), MemorySession()
    session.roots.files |= {b"workspace/%d" % number: Random(number).randbytes(2000) for number in range(10)}
    await push(house.vault, session)
    await house.vault.branch(USER, "s", None, "branch")
    whole = session.entries()
    session.roots.files = {b"workspace/0": b"lost the rest"}
    monkeypatch.setattr(manifests, "MAX_DEPTH", 0)
    await push(house.vault, session)
    for _ in range(4):
        await house.vault.collect()
        house.clock.seconds += DAY
    assert (await house.vault.tree(USER, "s", 1))[1].entries == whole
    assert not await problems(house.vault)
    assert not await problems(house.vault, "branch")
    await house.vault.release(USER, "s", 1)
    await house.vault.forget(USER, "branch")
    for _ in range(2):
        found = await house.vault.collect()
        house.clock.seconds += DAY
    assert found.removed > 0
    assert not await problems(house.vault)


@pytest.mark.parametrize("when", ["marked", "being removed"])
async def test_content_that_is_about_to_go_is_stored_again_under_another_name(when: str) -> None:
    """The same bytes come back while their old pack is marked, or while it is being removed this very moment."""
    await check_content_about_to_go(when)


async def check_content_about_to_go(when: str) -> None:
    house = House()
    await house.forgotten()
    await house.vault.collect()
    session = MemorySession()
    session.roots.files[b"workspace/f"] = b"content"
    if when == "marked":
        house.clock.seconds += DAY / 2
        assert (await push(house.vault, session)).chunks_sent == 1
    else:
        house.clock.seconds += DAY
        removing_now, pushed = asyncio.Event(), asyncio.Event()

        class Slow(WatchedObjects):
            async def delete(self, key: str) -> None:
                removing_now.set()
                await pushed.wait()
                await super().delete(key)

        removing = asyncio.create_task(house.gateway(Slow(house.store)).collect())
        await removing_now.wait()
        assert (await push(house.vault, session)).chunks_sent == 1
        pushed.set()
        assert (await removing).removed == 2
    for _ in range(3):
        house.clock.seconds += DAY
        await house.vault.collect()
    assert await restored_entries(house.gateway(), session) == session.entries()
    assert not await problems(house.gateway())


async def test_a_sync_that_began_before_the_first_mark_and_ends_after_the_removal_keeps_nothing() -> None:
    await check_a_very_slow_sync()


async def check_a_very_slow_sync() -> None:
    house = House()
    await house.forgotten()
    session = MemorySession()
    session.roots.files[b"workspace/f"] = b"content"

    async def looks() -> None:
        for _ in range(3):
            await house.gateway().collect()
            house.clock.seconds += DAY

    class Slow(WatchedObjects):
        async def put(self, key: str, content: bytes) -> str:
            if "/manifests/" in key:
                await looks()
            return await super().put(key, content)

    with pytest.raises(SyncFailed, match="begin again") as caught:
        await push(house.gateway(Slow(house.store)), session)
    assert not caught.value.permanent
    assert await house.vault.newest(USER, "s") is None
    await push(house.gateway(), session)
    assert await restored_entries(house.gateway(), session) == session.entries()


@pytest.mark.parametrize("stops", ["now", "utcnow"])
async def test_a_sync_in_a_machine_that_slept_keeps_nothing(stops: str) -> None:
    """One of its clocks stood still meanwhile."""
    house = House()
    await house.forgotten()
    session = MemorySession()
    session.roots.files[b"workspace/f"] = b"content"
    vault = house.gateway(store := WatchedObjects(house.store))
    setattr(vault, f"_{stops}", lambda: 5.0)

    def asleep(request: Request) -> None:
        if "/manifests/" in request.key:
            house.clock.seconds += DAY

    store.fault = asleep
    with pytest.raises(SyncFailed, match="begin again"):
        await push(vault, session)


async def test_a_branch_that_took_too_long_is_not_made() -> None:
    """What it would name may have been let go of by its origin, marked, and removed."""
    await check_a_very_slow_branch()


async def check_a_very_slow_branch() -> None:
    house, session = House(keep=1), MemorySession()
    session.roots.files[b"workspace/f"] = b"old"
    await push(house.vault, session)

    class Slow(WatchedObjects):
        async def get(self, key: str) -> Got | None:
            got = await super().get(key)
            session.roots.files[b"workspace/f"] = b"new"
            await push(house.vault, session)
            for _ in range(3):
                await house.vault.collect()
                house.clock.seconds += DAY
            return got

    with pytest.raises(ObjectsUnavailable, match="too long"):
        await house.gateway(Slow(house.store)).branch(USER, "s", None, "branch")
    assert await house.vault.newest(USER, "branch") is None
    assert not await problems(house.vault)


async def test_what_cannot_be_read_stops_all_removal() -> None:
    house = House()
    session = MemorySession()
    for content in (b"one", b"two"):
        session.roots.files[b"workspace/f"] = content
        await push(house.vault, session)
    await house.forgotten()
    await house.vault.collect()
    house.clock.seconds += DAY
    newest = await house.vault.newest(USER, "s")
    assert newest is not None
    bases = await house.vault.shelf(USER).bases(newest.manifest)
    for key in (KEYS.manifest(newest.manifest), KEYS.manifest(bases[0]), KEYS.pointer("s")):
        got = await house.store.get(key)
        assert got is not None
        for damaged in (None, b"", got.content[:-1], got.content[:-1] + b"x"):
            if key == KEYS.pointer("s") and damaged is None:
                continue  # a session that has no pointer has nothing
            await (house.store.delete(key) if damaged is None else house.store.put(key, damaged))
            before = await keys_of(house.store)
            found = await house.gateway().collect()
            assert found.removed == 0
            assert found.problem
            assert await keys_of(house.store) == before
        await house.store.put(key, got.content)
    assert (await house.gateway().collect()).removed == 2
    assert not await problems(house.gateway())


async def test_a_store_that_fails_at_any_request_of_a_look_loses_nothing() -> None:
    for fault in Fault:
        for number in range(1, 30):
            house, session = House(), MemorySession()
            session.roots.files[b"workspace/f"] = b"kept"
            await push(house.vault, session)
            await house.forgotten()
            await house.vault.collect()
            house.clock.seconds += DAY
            store = WatchedObjects(house.store, nth(number, fault))
            with suppress(Crash, ObjectsUnavailable):
                await house.gateway(store).collect()
            assert await restored_entries(house.gateway(), session) == session.entries()
            await house.gateway().collect()
            house.clock.seconds += DAY
            await house.gateway().collect()
            assert await count(house.store, "/packs/") == 1
            assert await count(house.store, "/manifests/") == 1
            if len(store.requests) < number:
                break
        assert 8 < number < 29


@pytest.mark.parametrize("lost", ["/packs/", "/manifests/"])
async def test_what_a_look_finds_missing_the_next_sync_stores_again(lost: str) -> None:
    house, session = House(), MemorySession()
    for content in (b"one", b"two"):
        session.roots.files[b"workspace/" + content] = content
        await push(house.vault, session)
    for key in await keys_of(house.store):
        if lost in key:
            await house.store.delete(key)
    await house.gateway().collect(dry_run=True)
    assert KEYS.marks not in await keys_of(house.store)
    assert not (await push(house.vault, session)).new  # nobody has noticed yet
    found = await house.gateway().collect()
    assert bool(found.problem) == (lost == "/manifests/")
    assert (await push(house.vault, session)).new
    assert await restored_entries(house.gateway(), session) == session.entries()
    assert not (await push(house.vault, session)).new


async def test_two_collectors_at_once_remove_the_same_and_nothing_else() -> None:
    house, session = House(), MemorySession()
    session.roots.files[b"workspace/f"] = b"kept"
    await push(house.vault, session)
    await house.forgotten()
    for _ in range(3):
        found = await asyncio.gather(*(house.gateway().collect() for _ in range(3)))
        assert any(each.problem == "" for each in found)
        house.clock.seconds += DAY
    assert await count(house.store, "/packs/") == 1
    assert not await problems(house.gateway())


async def test_a_collector_that_slept_on_old_marks_removes_nothing() -> None:
    """It read the marks and the pointers, and meanwhile somebody wrote others."""
    house = House()
    await house.forgotten()
    await house.vault.collect()
    house.clock.seconds += DAY
    store = WatchedObjects(house.store)

    async def write_marks() -> None:
        await house.store.put(KEYS.marks, b"rubbish")
        await house.gateway().collect()

    class Slow(WatchedObjects):
        async def replace(self, key: str, content: bytes, etag: str) -> str:
            await write_marks()
            return await super().replace(key, content, etag)

    found = await house.gateway(Slow(store)).collect()
    assert found.problem
    assert await count(house.store, "/packs/") == 1


async def test_a_look_that_only_looks_changes_nothing() -> None:
    house = House()
    await house.forgotten()
    await house.vault.collect()
    house.clock.seconds += DAY
    store = WatchedObjects(house.store)
    heard: list[str] = []
    found = await house.gateway(store).collect(dry_run=True, told=heard.append)
    assert (found.removed, found.marked) == (2, 2)
    assert not heard
    assert {request.verb for request in store.requests} <= {"list", "get"}
    assert (await house.vault.collect(told=heard.append)).removed == 2
    assert len(heard) == 2


async def test_objects_that_are_none_of_ours_are_left_alone() -> None:
    house, session = House(), MemorySession()
    session.roots.files[b"workspace/f"] = b"kept"
    await push(house.vault, session)
    foreign = [
        "readme",
        f"{ROOT}nobody/packs/{'0' * 64}",
        f"{KEYS.packs}{'0' * 64}.part",
        f"{KEYS.packs}{'0' * 64}/x",
        f"{KEYS.manifests}x",
        f"{KEYS.sessions}s/notes",
        f"{KEYS.sessions}.odd./pointer",
        f"{KEYS.prefix}other",
        "v2/users/x",
    ]
    for key in foreign:
        await house.store.put(key, b"mine")
    for _ in range(3):
        assert (await house.vault.collect()).problem == ""
        house.clock.seconds += DAY
    assert set(foreign) < await keys_of(house.store)
    assert not await problems(house.vault)


async def test_a_pack_whose_index_cannot_be_read_is_collected_like_any_other() -> None:
    house = House()
    for number, content in enumerate((b"", b"x", b"x" * 100, bytes(100) + b"HFPX")):
        await house.store.put(KEYS.pack(f"{number}" * 64), content)
    session = MemorySession()
    session.roots.files[b"workspace/f"] = b"kept"
    await push(house.vault, session)
    for _ in range(2):
        found = await house.vault.collect()
        house.clock.seconds += DAY
    assert found.removed == 4
    assert not await problems(house.vault)


async def test_each_users_objects_are_looked_at_alone() -> None:
    house = House()
    sessions = [MemorySession("s", f"user-{number}") for number in range(3)]
    for session in sessions:
        session.roots.files[b"workspace/f"] = session.user_id.encode()
        await push(house.vault, session)
    await house.vault.forget("user-0", "s")
    await house.store.put(Keys.of_user("user-1").pointer("s"), b"damaged")
    for _ in range(2):
        found = await house.vault.collect()
        house.clock.seconds += DAY
    assert found.removed == 2
    assert "pointer of session s" in found.problem
    assert found.packs == 3
    assert not await problems(house.vault, "s", "user-2")
    assert len(house.vault._shelves) == 3  # nobody is pushed out by a look at everybody
