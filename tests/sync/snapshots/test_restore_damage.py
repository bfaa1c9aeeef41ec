"""A stored object that is missing or not what it was: the generation before it, said aloud, healed by the next sync.
Never a tree that was not kept, never silence, nothing deleted (F8)."""

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from sandbox.protocol import chunk_frames
from sandbox.protocol.entry import Entry
from sandbox.protocol.tree import ScanAsk
from sync.errors import Damaged, NoSuchSnapshot, RestoreFailed, SyncFailed
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
    restore_into,
    restored_entries,
    vault_on,
)
from tests.support.trees import DirectoryTree, Gardener, differences, fingerprint

DAMAGES = ("flipped", "cut", "empty", "gone", "other")


async def contents_of(store: ObjectStore) -> dict[str, bytes]:
    """Every object; in the order of their keys."""
    found = {}
    for key in sorted([found.key async for found in store.list("")]):
        got = await store.get(key)
        assert got is not None
        found[key] = got.content
    return found


async def damage(store: ObjectStore, key: str, how: str, rng: Random) -> None:
    got = await store.get(key)
    assert got is not None
    content = bytearray(got.content)
    if how == "flipped":
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    elif how == "cut":
        del content[rng.randrange(len(content)) :]
    elif how == "empty":
        content.clear()
    elif how == "other":
        content = bytearray(rng.randbytes(len(content)))
    if how == "gone":
        await store.delete(key)
    else:
        await store.put(key, bytes(content))


@dataclass
class Past:
    """A session with some generations, and what each of them was."""

    store: MemoryObjects = field(default_factory=MemoryObjects)
    session: MemorySession = field(default_factory=MemorySession)
    trees: dict[int, dict[bytes, Entry]] = field(default_factory=dict)

    @classmethod
    async def made(cls, rng: Random, generations: int = 4) -> "Past":
        past = cls()
        vault, files = vault_on(past.store), past.session.roots.files
        for _ in range(generations):
            for _ in range(6):
                files[b"workspace/%d" % rng.randrange(30)] = rng.randbytes(rng.randint(1, 20_000))
            files.pop(rng.choice(sorted(files)))
            number = (await push(vault, past.session)).generation.number
            past.trees[number] = past.session.entries()
        return past


async def check_never_silent(past: Past, vault: SnapshotService, before: dict[str, bytes], broken: str) -> str:
    """Restore after `broken` was damaged; what came of it."""
    newest = max(past.trees)
    target = MemorySession()
    target.roots.files[b"workspace/mine"] = b"mine"
    mine = target.entries()
    expected: tuple[type[Exception], ...] = (RestoreFailed, Damaged)
    if broken == Keys.of_user(USER).pointer("s"):
        expected += (NoSuchSnapshot,)
    try:
        restored = await restore_into(vault, target.tree)
    except expected:
        assert target.entries() == mine
        outcome = "failed"
    else:
        assert target.entries() == past.trees[restored.generation.number]
        assert (restored.degraded is None) == (restored.generation.number == newest)
        outcome = "degraded" if restored.degraded else "whole"
        if restored.degraded:
            assert f"generation {newest} is damaged" in restored.degraded
    keys = Keys.of_user(USER)
    after = await contents_of(past.store)
    noted = {keys.marks, keys.pointer("s")} if outcome == "degraded" else {keys.marks}
    assert {key: after[key] for key in before if key not in noted} == {
        key: before[key] for key in before if key not in noted
    }
    if outcome == "degraded":  # what was passed over stays, however many come after it
        pointer = await vault.pointer(USER, "s")
        assert [each.number for each in pointer.generations] == sorted(past.trees)
        for generation in pointer.generations:
            assert bool(generation.pinned) == (generation.number > restored.generation.number)
    return outcome


async def test_an_empty_generation_does_not_take_the_place_of_damaged_files() -> None:
    """The first sync often finds nothing yet. Restored years later for want of anything better, it would be a session
    begun empty without anybody having asked for that."""
    vault, session = vault_on(store := MemoryObjects()), MemorySession()
    for content in (b"", b"1", b"2", b"", b"3"):
        packs_before = {key for key in await contents_of(store) if "/packs/" in key}
        session.roots.files.clear()
        if content:
            session.roots.files[b"workspace/file"] = content * 1000
        await push(vault, session)
    assert [each.files for each in (await vault.pointer(USER, "s")).generations] == [0, 1, 1, 0, 1]
    (newest,) = {key for key in await contents_of(store) if "/packs/" in key} - packs_before
    await store.delete(newest)
    target = MemorySession()
    restored = await restore_into(vault_on(store), target.tree)
    assert (restored.generation.number, target.roots.files) == (3, {b"workspace/file": b"2" * 1000})
    for key in packs_before:
        await store.delete(key)
    with pytest.raises(RestoreFailed, match="generation 5 is damaged"):
        await restore_into(vault_on(store), target.tree)
    await vault_on(store).put_back(USER, "s", 1)
    assert (await restore_into(vault_on(store), target.tree)).generation.number == 6, "somebody asked for it"
    assert target.roots.files == {}


async def check_healed(past: Past, vault: SnapshotService, broken: str, *, noticed: bool) -> None:
    """The sandbox goes on with what it has on its disk, and one sync later the newest generation is whole."""
    past.session.roots.files[b"agent/since then"] = b"written after the damage was done"
    pushed = await push(vault, past.session)
    bad = {problem.split(":")[0] for problem in await problems(vault_on(past.store))}
    assert str(pushed.generation.number) not in bad
    assert await restored_entries(vault_on(past.store), past.session) == past.session.entries()
    if noticed:  # else it is in a part that nobody needs
        assert broken.rpartition("/")[2] not in await vault.shelf(USER).names(pushed.generation.manifest)


@pytest.mark.soak
@pytest.mark.parametrize("how", DAMAGES)
async def test_damage_to_any_object_is_never_silent(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "TARGET_BYTES", 30_000)
    monkeypatch.setattr(chunk_frames, "FRAME_BYTES", 30_000)
    outcomes: dict[str, int] = {}
    keys = Keys.of_user(USER)
    for seed in range(sized(2, 12)):
        for number in range(sized(14, 30)):
            rng = Random(f"{how} {seed} {number}")
            past = await Past.made(Random(seed))
            stored = sorted(await contents_of(past.store))
            if number >= len(stored):
                break
            await damage(past.store, stored[number], how, rng)
            vault, before = vault_on(past.store), await contents_of(past.store)
            outcome = await check_never_silent(past, vault, before, stored[number])
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
            if stored[number] != keys.pointer("s"):
                process = vault if seed % 2 else vault_on(past.store)
                await check_healed(past, process, stored[number], noticed=outcome != "whole")
    assert outcomes["degraded"] > 2
    report(f"{how}: {sum(outcomes.values())} cases, 0 silent, {outcomes}")


@pytest.mark.parametrize("noticed", [False, True])
@pytest.mark.parametrize("place", [0, -1])
async def test_a_sync_that_comes_upon_a_damaged_manifest_by_itself_builds_on_nothing(place: int, noticed: bool) -> None:
    """The bridge tells a difference from a generation whose manifest, or the first one of its row, is gone. Whether or
    not damage to something else is known already."""
    past = await Past.made(Random(1))
    vault = vault_on(past.store)
    newest = (await vault.pointer(USER, "s")).newest
    row = (*await vault.shelf(USER).bases(newest.manifest), newest.manifest)
    await past.store.delete(Keys.of_user(USER).manifest(row[place]))
    if noticed:
        await vault.shelf(USER).distrust([Damaged("something else", pack="0" * 64)])
    past.session.roots.files[b"workspace/more"] = b"more"
    pushed = await push(vault_on(past.store), past.session)
    assert pushed.new
    if place == -1 or noticed:  # else nobody has to read it for a difference more
        assert await restored_entries(vault_on(past.store), past.session) == past.session.entries()


async def test_all_generations_damaged_leaves_the_disk_as_it_is(tmp_path: Path) -> None:
    past = await Past.made(Random(1))
    for key in sorted(await contents_of(past.store)):
        if "/manifests/" in key:
            await damage(past.store, key, "flipped", Random(1))
    before = await contents_of(past.store)
    tree = DirectoryTree(tmp_path / "home", tmp_path / "state")
    Gardener(tree.home, Random(1), largest=20_000).edit(20)
    disk = fingerprint(tree.home)
    with pytest.raises(RestoreFailed, match="no kept generation can be restored: generation 4 is damaged"):
        await restore_into(vault_on(past.store), tree)
    assert not differences(fingerprint(tree.home), disk)
    after = await contents_of(past.store)
    del after[Keys.of_user(USER).marks]
    assert after == before


async def test_a_damaged_pointer_is_neither_restored_from_nor_written_over() -> None:
    past = await Past.made(Random(1))
    key = Keys.of_user(USER).pointer("s")
    await damage(past.store, key, "flipped", Random(2))
    before = await contents_of(past.store)
    vault = vault_on(past.store)
    target = MemorySession()
    with pytest.raises(Damaged, match="pointer of session s"):
        await restore_into(vault, target.tree)
    past.session.roots.files[b"workspace/more"] = b"more"
    with pytest.raises(Exception, match="pointer of session s") as caught:
        await push(vault, past.session)
    assert getattr(caught.value, "permanent", False)
    assert (await contents_of(past.store))[key] == before[key]


async def test_damaged_marks_stop_no_sync_and_are_made_anew_by_the_collector() -> None:
    past = await Past.made(Random(1))
    vault = vault_on(past.store)
    await vault.collect()
    key = Keys.of_user(USER).marks
    await past.store.put(key, b"rubbish")
    past.session.roots.files[b"workspace/more"] = b"more"
    assert (await push(vault, past.session)).new
    assert await restored_entries(vault, past.session) == past.session.entries()
    assert (await vault.collect()).problem == ""
    assert (await vault.shelf(USER).marks())[0] is not None


async def test_a_healed_generation_does_not_depend_on_what_the_bridge_remembers(tmp_path: Path) -> None:
    """On a disk: the bridge remembers the damaged generation, and would tell no difference."""
    tree = DirectoryTree(tmp_path / "home", tmp_path / "state")
    Gardener(tree.home, Random(3), largest=50_000).edit(40)
    async with FileObjects(tmp_path / "objects") as objects:
        await push_tree(vault_on(objects), tree)
        for key in await contents_of(objects):
            if "/packs/" in key:
                await damage(objects, key, "other", Random(1))
        vault = vault_on(objects)
        assert not (await push_tree(vault, tree)).new  # nobody has noticed yet
        assert await problems(vault)
        healed = await push_tree(vault_on(objects), tree)
        assert healed.new
        assert not [each for each in await problems(vault) if each.startswith(f"{healed.generation.number}:")]
        target = DirectoryTree(tmp_path / "r", tmp_path / "r-state")
        restored = await restore_into(vault_on(objects), target)
        assert restored.degraded is None
        assert not differences(fingerprint(tree.home), fingerprint(target.home))
        assert not (await push_tree(vault_on(objects), tree)).new


@pytest.mark.parametrize("how", ["gone", "other"])
async def test_a_pack_that_one_session_found_damaged_is_used_by_none(how: str) -> None:
    past = await Past.made(Random(1))
    twin = MemorySession("twin")
    twin.roots.files.update(past.session.roots.files)
    vault, neighbour = vault_on(past.store), vault_on(past.store)
    for process in (vault, neighbour):
        twin.roots.files[b"workspace/more"] = b"%d" % id(process)
        assert (await push(process, twin)).chunks_sent == 1
    broken = next(iter((await vault.tree(USER, "s", None))[1].places.values())).pack
    await damage(past.store, Keys.of_user(USER).pack(broken), how, Random(1))
    assert await problems(vault)
    for process in (vault, neighbour, vault_on(past.store)):
        twin.roots.files[b"workspace/more"] += b"!"
        pushed = await push(process, twin)
        assert broken not in await process.shelf(USER).names(pushed.generation.manifest)
        assert await restored_entries(vault_on(past.store), twin) == twin.entries()


async def test_when_one_pack_is_missing_all_are_asked_for_before_they_are_used_again() -> None:
    """Whoever removed one may have removed more, such as a bucket's rule about old objects."""
    past = await Past.made(Random(1))
    vault, neighbour = vault_on(past.store), vault_on(past.store)
    for process in (vault, neighbour):
        past.session.roots.files[b"workspace/more"] = b"%d" % id(process)
        await push(process, past.session)
    for key in await contents_of(past.store):
        if "/packs/" in key:
            await past.store.delete(key)
    with pytest.raises(RestoreFailed):
        await restore_into(vault, MemorySession().tree)
    for process in (vault, neighbour):
        past.session.roots.files[b"workspace/more"] += b"!"
        with suppress(SyncFailed):  # it finds that packs are gone, and the next one sends them
            await push(process, past.session)
        await push(process, past.session)
        assert await restored_entries(vault_on(past.store), past.session) == past.session.entries()


async def test_what_the_bridge_did_not_offer_and_is_gone_is_asked_for_again(tmp_path: Path) -> None:
    """The bridge remembers a generation that the session no longer keeps, and tells its entries without their content.
    The packs it lay in are gone, so all has to be offered."""
    store = MemoryObjects()
    tree = DirectoryTree(tmp_path / "home", tmp_path / "state")
    Gardener(tree.home, Random(5), largest=30_000).edit(30)
    await push_tree(vault_on(store), tree)
    elsewhere = DirectoryTree(tmp_path / "other", tmp_path / "other-state")
    (elsewhere.home / "workspace/f").write_bytes(b"another tree")
    await vault_on(store).forget(USER, "s")
    await push_tree(vault_on(store), elsewhere)
    for key in await contents_of(store):
        if "/packs/" in key:
            got = await store.get(key)
            if got is not None and b"HFP1" in got.content[:4] and len(got.content) > 2000:
                await store.delete(key)
    uploaded: list[None] = []
    pushed = await vault_on(store).push(USER, "s", tree, ScanAsk(), lambda: uploaded.append(None))
    assert pushed.new
    assert len(uploaded) == 1
    target = DirectoryTree(tmp_path / "r", tmp_path / "r-state")
    await restore_into(vault_on(store), target)
    assert not differences(fingerprint(tree.home), fingerprint(target.home))
