"""A verdict on each generation: damaged exactly if it cannot be restored."""

from random import Random

import pytest

from sync.errors import Damaged
from sync.format import pack as packs
from sync.format.keys import Keys
from sync.objects.memory import MemoryObjects
from sync.ports import ObjectsUnavailable
from sync.snapshots.restore import restore_generation
from tests.support.keeping import USER, MemorySession, problems, push, vault_on
from tests.support.watched_objects import Fault, WatchedObjects, nth

KEYS = Keys.of_user(USER)


async def kept(store: MemoryObjects) -> MemorySession:
    session, rng = MemorySession(), Random(1)
    for number in range(5):
        session.roots.files[b"workspace/%d" % number] = rng.randbytes(5000)
        session.roots.files[b"workspace/x"] = rng.randbytes(5000)
        session.roots.files.pop(b"workspace/%d" % (number - 2), None)
        await push(vault_on(store), session)
    return session


@pytest.mark.parametrize("damaged", [None, b"", b"HFP1"])
async def test_the_verdict_says_what_a_restore_would_find(
    damaged: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packs, "TARGET_BYTES", 100)
    store = MemoryObjects()
    await kept(store)
    for key in [found.key async for found in store.list("") if not found.key.endswith("pointer")]:
        got = await store.get(key)
        assert got is not None
        await (store.delete(key) if damaged is None else store.put(key, damaged))
        vault = vault_on(store)
        verdicts = await vault.verify(USER, "s", lambda done, of: None)
        for verdict in verdicts:
            tree, generation = MemorySession().tree, verdict.generation
            restoring = restore_generation(vault.shelf(USER), generation, tree, aside=False, told=lambda _: None)
            if not verdict.problems:
                await restoring
                continue
            with pytest.raises(Damaged) as caught:
                await restoring
            assert str(caught.value) in verdict.problems
        assert any(verdict.problems for verdict in verdicts)
        await store.put(key, got.content)
    assert not await problems(vault_on(store))


async def test_it_reads_the_store_and_not_what_is_in_memory() -> None:
    store = MemoryObjects()
    await kept(store)
    vault = vault_on(store)
    assert not await problems(vault)
    newest = (await vault.tree(USER, "s", None))[0]
    await store.delete(KEYS.manifest(newest.manifest))
    assert await problems(vault) == [f"{newest.number}: manifest {newest.manifest} is missing"]


async def test_progress_is_told_and_an_outage_is_no_damage() -> None:
    inner, heard = MemoryObjects(), list[tuple[int, int]]()
    await kept(inner)
    store = WatchedObjects(inner)
    vault = vault_on(store)
    await vault.verify(USER, "s", lambda done, of: heard.append((done, of)))
    assert heard[-1][0] == heard[-1][1] > 0
    for number in range(1, len(store.requests) + 1):
        store.requests.clear()
        store.fault = nth(number, Fault.AWAY)
        with pytest.raises(ObjectsUnavailable):
            await vault_on(store).verify(USER, "s", lambda done, of: None)


async def test_what_was_found_is_noted_once() -> None:
    store = WatchedObjects(MemoryObjects())
    await kept(store)  # type: ignore[arg-type]
    vault = vault_on(store)
    place = next(iter((await vault.tree(USER, "s", None))[1].places.values()))
    await store.delete(KEYS.pack(place.pack))
    for expected in (1, 0):
        before = len(store.requests)
        assert await problems(vault_on(store))
        writes = [request for request in store.since(before) if request.verb in ("create", "replace")]
        assert len(writes) == expected
