"""Ended at any step of a sync: the old tree or the new one, never a mix, and the next sync puts it right (F6)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from sandbox.protocol import chunk_frames
from sandbox.protocol.entry import Entry
from sync import crash_points
from sync.errors import SyncFailed
from sync.format import manifest as manifests
from sync.format import pack as packs
from sync.format.keys import Keys
from sync.objects.files import FileObjects
from sync.objects.memory import MemoryObjects
from sync.ports import ObjectStore
from sync.snapshots.service import SnapshotService
from tests.campaign.size import report, sized
from tests.support.keeping import (
    USER,
    MemorySession,
    problems,
    push,
    push_tree,
    restored_entries,
    restores_to,
    vault_on,
)
from tests.support.trees import DirectoryTree, Gardener, differences, fingerprint
from tests.support.watched_objects import Crash, Fault, Request, WatchedObjects, nth

STEPS = ("sync.pack_begun", "sync.pack_stored", "sync.uploaded", "sync.manifest_stored", "sync.swapped")


@dataclass
class Scene:
    """A session with something kept, and something that is not kept yet."""

    store: MemoryObjects
    session: MemorySession
    old: dict[bytes, Entry] | None  # None: nothing was ever kept
    old_number: int


async def first_sync(rng: Random) -> Scene:
    session = MemorySession()
    for number in range(12):
        session.roots.files[b"workspace/%d" % number] = rng.randbytes(rng.randint(1, 40_000))
    return Scene(MemoryObjects(), session, None, 0)


async def next_sync(rng: Random) -> Scene:
    scene = await first_sync(rng)
    session = scene.session
    for _ in range(3):
        number = (await push(vault_on(scene.store), session)).generation.number
        scene.old, scene.old_number = session.entries(), number
        session.roots.files[b"workspace/%d" % rng.randrange(12)] = rng.randbytes(30_000)
        session.roots.files[b"agent/%d" % rng.randrange(10**6)] = rng.randbytes(30_000)
        session.roots.files.pop(b"workspace/%d" % rng.randrange(12), None)
        session.roots.symlinks[b"agent/link"] = b"%d" % rng.randrange(10**6)
    return scene


async def with_content_of_another_session(rng: Random) -> Scene:
    scene = await next_sync(rng)
    other = MemorySession("other")
    other.roots.files[b"workspace/theirs"] = rng.randbytes(50_000)
    await push(vault_on(scene.store), other)
    scene.session.roots.files[b"workspace/mine"] = other.roots.files[b"workspace/theirs"]
    return scene


async def on_a_damaged_generation(rng: Random) -> Scene:
    """The newest generation is known to be damaged: the sync puts that right as well."""
    scene = await next_sync(rng)
    keys = Keys.of_user(USER)
    newest = await vault_on(scene.store).newest(USER, "s")
    assert newest is not None
    await scene.store.put(keys.manifest(newest.manifest), b"")
    assert await problems(vault_on(scene.store))
    return scene


SCENES: dict[str, Callable[[Random], Awaitable[Scene]]] = {
    "first sync": first_sync,
    "next sync": next_sync,
    "content of another session": with_content_of_another_session,
    "a damaged generation": on_a_damaged_generation,
}


@pytest.fixture(params=["one pack", "many packs", "whole manifests"])
def shape(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "many packs":
        monkeypatch.setattr(packs, "TARGET_BYTES", 30_000)
        monkeypatch.setattr(chunk_frames, "FRAME_BYTES", 30_000)
    if request.param == "whole manifests":
        monkeypatch.setattr(manifests, "MAX_DEPTH", 1)


async def attempt(vault: SnapshotService, session: MemorySession) -> None:
    """A sync to whatever end it comes to."""
    with suppress(SyncFailed, Crash, asyncio.CancelledError):
        await push(vault, session)


async def check_old_or_new(scene: Scene, vault: SnapshotService) -> str:
    """After an attempt that came to any end: what is kept is the old tree or the new one; then it is the new one."""
    damaged = {problem.split(":")[0] for problem in await problems(vault)} if await vault.newest(USER, "s") else set()
    assert damaged <= {str(scene.old_number)}
    newest, new = await vault.newest(USER, "s"), scene.session.entries()
    if newest is None:
        assert scene.old is None
        found = "nothing"
    elif newest.number == scene.old_number:
        if not damaged:
            assert (await vault.tree(USER, "s", None))[1].entries == scene.old
        found = "old"
    else:
        assert newest.number == scene.old_number + 1
        assert (await vault.tree(USER, "s", None))[1].entries == new
        found = "new"
    pushed = await push(vault, scene.session)
    assert pushed.generation.number == scene.old_number + 1
    assert pushed.new == (found != "new")
    assert await restored_entries(vault, scene.session) == new
    assert await restored_entries(vault_on(scene.store), scene.session) == new
    assert {problem.split(":")[0] for problem in await problems(vault_on(scene.store))} <= damaged
    return found


async def check_each_request(scene_name: str, fault: Fault, *, lives: bool, seed: int = 1) -> set[str]:
    """`fault` at each request of a sync in turn; what was found. If it `lives`, the process goes on, else another."""
    found: set[str] = set()
    for number in range(1, 100):
        scene = await SCENES[scene_name](Random(seed))
        store = WatchedObjects(scene.store, nth(number, fault))
        vault = vault_on(store)
        await attempt(vault, scene.session)
        reached = len(store.requests) >= number
        store.fault = lambda _: None
        found.add(await check_old_or_new(scene, vault if lives else vault_on(scene.store)))
        if not reached:
            assert number > 5
            return found
    raise AssertionError("a sync has an end")


@pytest.mark.usefixtures("shape")
@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("scene_name", SCENES)
async def test_at_every_request_of_a_sync(scene_name: str, fault: Fault) -> None:
    for lives in (False, True) if fault in (Fault.AWAY, Fault.LOST_REPLY) else (False,):
        found = await check_each_request(scene_name, fault, lives=lives)
        assert "new" in found
        assert len(found) == 2


@pytest.mark.usefixtures("shape")
@pytest.mark.parametrize("scene_name", SCENES)
async def test_cancelled_at_every_request_of_a_sync(scene_name: str) -> None:
    for number in range(1, 100):
        scene = await SCENES[scene_name](Random(2))
        store = WatchedObjects(scene.store)
        vault = vault_on(store)
        task = asyncio.ensure_future(attempt(vault, scene.session))

        def here(request: Request, number: int = number, task: "asyncio.Future[None]" = task) -> None:
            if request.number == number:
                task.cancel()

        store.fault = here
        await task
        reached = len(store.requests) >= number
        store.fault = lambda _: None
        await check_old_or_new(scene, vault)
        if not reached:
            return


@contextmanager
def ending_at(step: str, hit: int) -> Iterator[list[str]]:
    """The process ends when `step` is reached for the so-manieth time; what was reached."""
    seen: list[str] = []

    def reached(name: str) -> None:
        seen.append(name)
        if name == step and seen.count(step) == hit:
            raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crash_points, "reached", reached)
        yield seen


@pytest.mark.soak
@pytest.mark.usefixtures("shape")
@pytest.mark.parametrize("step", STEPS)
async def test_killed_at_each_step_of_an_upload(step: str) -> None:
    ended = 0
    for seed in range(sized(1, 10)):
        for scene_name in SCENES:
            for hit in range(1, 20):
                scene = await SCENES[scene_name](Random(seed))
                with ending_at(step, hit) as seen:
                    await attempt(vault_on(scene.store), scene.session)
                found = await check_old_or_new(scene, vault_on(scene.store))
                if seen.count(step) < hit:
                    break
                ended += 1
                assert (found == "new") == (step == "sync.swapped")
    assert ended >= sized(4, 40)
    report(f"{step}: {ended} kills, 0 mixed trees")


@pytest.mark.parametrize("bridge_lives", [True, False])
@pytest.mark.parametrize("step", STEPS)
async def test_on_a_disk_with_and_without_the_bridge(step: str, bridge_lives: bool, tmp_path: Path) -> None:
    home, state, rng = tmp_path / "home", tmp_path / "state", Random(step)
    tree, gardener = DirectoryTree(home, state), Gardener(home, rng, largest=100_000)
    async with FileObjects(tmp_path / "objects") as objects:
        gardener.edit(30)
        await push_tree(vault_on(objects), tree)
        for number in range(3):
            old = fingerprint(home)
            gardener.edit(6)
            with ending_at(step, 1), suppress(Crash):
                await push_tree(vault_on(objects), tree)
            if not bridge_lives:
                tree = DirectoryTree(home, state)
            await check_disk(objects, old, fingerprint(home), tmp_path / f"r{number}")
            await push_tree(vault_on(objects), tree)
            assert not await restores_to(vault_on(objects), tree, tmp_path / f"n{number}")
            assert not await problems(vault_on(objects))


async def check_disk(objects: ObjectStore, old: object, new: object, elsewhere: Path) -> None:
    tree = DirectoryTree(elsewhere / "home", elsewhere / "state")
    await vault_on(objects).restore(USER, "s", tree, aside=False, told=lambda _: None)
    assert fingerprint(tree.home) in (old, new), differences(fingerprint(tree.home), new)  # type: ignore[arg-type]


async def test_a_lost_answer_to_the_swap_loses_nothing_and_doubles_nothing() -> None:
    """The generation is there; the next sync finds it, whether or not more has changed."""
    for more in (False, True):
        scene = await next_sync(Random(3))
        store = WatchedObjects(scene.store, lambda request: Fault.LOST_REPLY if request.verb == "replace" else None)
        vault = vault_on(store)
        with pytest.raises(SyncFailed) as caught:
            await push(vault, scene.session)
        assert not caught.value.permanent
        store.fault = lambda _: None
        if more:
            scene.session.roots.files[b"workspace/more"] = b"more"
        pushed = await push(vault, scene.session)
        assert pushed.generation.number == scene.old_number + 1 + more
        assert pushed.new == more
        assert await restored_entries(vault, scene.session) == scene.session.entries()
        pointer = await vault.pointer(USER, "s")
        assert [each.number for each in pointer.generations] == list(range(1, scene.old_number + 2 + more))
