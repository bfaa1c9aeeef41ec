"""Putting a generation back: whole, in few requests, resumable, and never over something else's back."""

import asyncio
from pathlib import Path
from random import Random

import pytest

from sandbox.ports.tree import TreeFailed
from sandbox.protocol.entry import Entry
from sync import crash_points
from sync.errors import NoSuchSnapshot, RestoreFailed
from sync.format import pack as packs
from sync.objects.memory import MemoryObjects
from sync.ports import ObjectsUnavailable
from sync.snapshots.restore import RestoreProgress
from tests.support.keeping import USER, MemorySession, push, push_tree, restore_into, restored_entries, vault_on
from tests.support.trees import DirectoryTree, Gardener, differences, fingerprint
from tests.support.watched_objects import Crash, Fault, WatchedObjects, nth


async def kept(store: MemoryObjects, files: int = 30) -> MemorySession:
    session, rng = MemorySession(), Random(files)
    for number in range(files):
        session.roots.files[b"workspace/%d" % number] = rng.randbytes(rng.randint(0, 30_000))
    await push(vault_on(store), session)
    return session


async def test_progress_goes_from_nothing_to_all() -> None:
    store = MemoryObjects()
    session, heard = await kept(store), list[RestoreProgress]()
    await vault_on(store).restore(USER, "s", MemorySession().tree, aside=False, told=heard.append)
    assert [each.bytes for each in heard] == sorted(each.bytes for each in heard)
    last = heard[-1]
    assert (last.generation, last.files, last.of_files) == (1, 30, 30)
    assert last.bytes == last.of_bytes == sum(map(len, session.roots.files.values()))
    assert heard[0].bytes == 0


async def test_a_restore_is_few_requests() -> None:
    store = WatchedObjects(MemoryObjects())
    session, rng = MemorySession(), Random(1)
    for number in range(2000):
        session.roots.files[b"workspace/%d" % number] = rng.randbytes(1000)
    await push(vault_on(store), session)
    before = len(store.requests)
    assert await restored_entries(vault_on(store), session) == session.entries()
    assert len(store.since(before)) <= 4


async def test_what_was_there_is_kept_aside_or_not(tmp_path: Path) -> None:
    vault = vault_on(store := MemoryObjects())
    await kept(store)
    for aside in (True, False):
        tree = DirectoryTree(tmp_path / f"{aside}", tmp_path / f"{aside}-state")
        (tree.home / "workspace/mine").write_bytes(b"mine")
        await vault.restore(USER, "s", tree, aside=aside, told=lambda _: None)
        assert not (tree.home / "workspace/mine").exists()
        assert bool(list(tree.home.glob(".aside-*/workspace/mine"))) == aside


async def test_a_session_without_a_snapshot_says_so() -> None:
    with pytest.raises(NoSuchSnapshot):
        await restore_into(vault_on(), MemorySession().tree)


@pytest.mark.parametrize("step", ["restore.planned", "restore.sent"])
async def test_ended_before_the_swap_nothing_has_changed_and_the_next_one_goes_on(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = WatchedObjects(MemoryObjects())
    await kept(store)  # type: ignore[arg-type]
    tree = DirectoryTree(tmp_path / "home", tmp_path / "state")
    Gardener(tree.home, Random(1), largest=30_000).edit(20)
    before = fingerprint(tree.home)

    def reached(name: str) -> None:
        if name == step:
            raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(crash_points, "reached", reached)
        with pytest.raises(Crash):
            await restore_into(vault_on(store), tree)
    assert not differences(fingerprint(tree.home), before)
    requests = len(store.requests)
    again = DirectoryTree(tmp_path / "home", tmp_path / "state")
    await restore_into(vault_on(store), again)
    fresh = DirectoryTree(tmp_path / "fresh", tmp_path / "fresh-state")
    await restore_into(vault_on(store), fresh)
    assert not differences(fingerprint(again.home), fingerprint(fresh.home))
    fetched = [request for request in store.since(requests)[:3] if request.verb == "get_range"]
    assert bool(fetched) == (step == "restore.planned")  # what came before is not fetched again


async def test_at_every_request_of_a_restore(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ended or failed at any of them: the tree is what it was, and the next restore succeeds."""
    monkeypatch.setattr(packs, "TARGET_BYTES", 50_000)
    inner = MemoryObjects()
    session = await kept(inner, files=200)
    number = 0
    for fault in (Fault.AWAY, Fault.CRASH_AFTER):
        for number in range(1, 50):
            store = WatchedObjects(inner, nth(number, fault))
            target = MemorySession()
            target.roots.files[b"workspace/mine"] = b"mine"
            before = target.entries()
            try:
                await restore_into(vault_on(store), target.tree)
            except (RestoreFailed, Crash, ObjectsUnavailable):
                assert target.entries() == before
                await restore_into(vault_on(inner), target.tree)
            else:
                break
            assert target.entries() == session.entries()
        assert 5 < number < 49


@pytest.mark.parametrize("step", ["restore", "plan", "put", "finish"])
async def test_a_sandbox_that_fails_is_no_damage_and_nothing_is_marked(step: str) -> None:
    store = MemoryObjects()
    session = await kept(store)
    vault, target = vault_on(store), MemorySession()
    target.roots.failures[step] = [TreeFailed("bad_chunk", "says the bridge")]
    with pytest.raises(RestoreFailed, match="says the bridge"):
        await restore_into(vault, target.tree)
    assert not (await vault.shelf(USER).heed()).damaged
    restored = await restore_into(vault, target.tree)
    assert restored.degraded is None
    assert target.entries() == session.entries()


async def test_a_bridge_that_asks_for_what_is_not_in_the_tree_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryObjects()
    await kept(store)

    async def plan(self: object, entries: list[Entry]) -> set[bytes]:
        return {b"x" * 32}

    monkeypatch.setattr("sandbox.providers.memory.tree.MemoryRestore.plan", plan)
    with pytest.raises(RestoreFailed, match="not in the tree"):
        await restore_into(vault_on(store), MemorySession().tree)


@pytest.mark.parametrize("trial", range(3))
async def test_content_that_two_frames_hold_comes_from_one_of_them(trial: int, tmp_path: Path) -> None:
    """Two sessions sent the same content at the same moment, so it lies in two frames, and a later tree names both."""
    store, shared = MemoryObjects(), [b"both have this %d" % trial, b"one has this %d" % trial]
    one, other = (DirectoryTree(tmp_path / name, tmp_path / f"{name}-state") for name in ("one", "other"))
    for number, content in enumerate(shared):
        (one.home / f"workspace/{number}").write_bytes(content)
    (other.home / "workspace/0").write_bytes(shared[0])
    await asyncio.gather(push_tree(vault_on(store), one, "one"), push_tree(vault_on(store), other, "other"))
    for name, content in (("1", shared[1]), ("copy", shared[0])):
        (other.home / f"workspace/{name}").write_bytes(content)
        await push_tree(vault_on(store), other, "other")
    target = DirectoryTree(tmp_path / "target", tmp_path / "target-state")
    await restore_into(vault_on(store), target, "other")
    assert not differences(fingerprint(other.home), fingerprint(target.home))
