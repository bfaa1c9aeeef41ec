"""A generation is the tree that was there, and costs what changed."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from sandbox.protocol.entry import ROOTS, Frame
from sandbox.protocol.tree import Batch, ScanAsk, ScanDone
from sync.errors import NoSuchSnapshot, SyncFailed
from sync.format import manifest as manifests
from sync.format import pack as packs
from sync.format.keys import Keys
from sync.objects.files import FileObjects
from sync.objects.memory import MemoryObjects
from sync.ports import ObjectStore
from tests.support.keeping import (
    USER,
    MemorySession,
    problems,
    push,
    push_tree,
    restore_into,
    restored_entries,
    restores_to,
    vault_on,
)
from tests.support.trees import DirectoryScan, DirectoryTree, Gardener, differences, fill, fingerprint
from tests.support.watched_objects import WRITES, Fault, WatchedObjects

FIXED_BYTES = 64 << 10


@pytest.fixture
def tree(tmp_path: Path) -> DirectoryTree:
    return DirectoryTree(tmp_path / "home", tmp_path / "state")


@pytest.fixture
def store() -> WatchedObjects:
    return WatchedObjects(MemoryObjects())


# -- what is kept is what was there -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
async def test_every_generation_restores_to_the_tree_it_was_made_of(
    tree: DirectoryTree, tmp_path: Path, seed: int
) -> None:
    vault, gardener = vault_on(), Gardener(tree.home, Random(seed))
    made: set[str] = set()
    for round_number in range(25):
        made |= set(gardener.edit(10))
        await push_tree(vault, tree)
        assert not await restores_to(vault, tree, tmp_path / f"{round_number}")
    assert not await problems(vault)
    assert len(made) > 15


async def test_a_store_of_files_keeps_it_as_well(tree: DirectoryTree, tmp_path: Path) -> None:
    gardener = Gardener(tree.home, Random(7))
    async with FileObjects(tmp_path / "objects") as objects:
        for round_number in range(5):
            gardener.edit(20)
            await push_tree(vault_on(objects), tree)
            assert not await restores_to(vault_on(objects), tree, tmp_path / f"{round_number}")
        assert not await problems(vault_on(objects))


async def test_all_kept_generations_stay_what_they_were(tmp_path: Path, tree: DirectoryTree) -> None:
    vault, gardener, history = vault_on(keep=6), Gardener(tree.home, Random(5)), {}
    for _ in range(10):
        gardener.edit(12)
        pushed = await push_tree(vault, tree)
        history[pushed.generation.number] = fingerprint(tree.home)
    pointer = await vault.pointer(USER, "s")
    assert len(pointer.generations) >= 6
    for generation in pointer.generations:
        await vault.branch(USER, "s", generation.number, f"b{generation.number}")
        home = tmp_path / f"b{generation.number}"
        await restore_into(vault, DirectoryTree(home, home / ".state"), f"b{generation.number}")
        assert not differences(history[generation.number], fingerprint(home))


@pytest.mark.parametrize("most", [1, 3])
async def test_a_long_row_of_differences_is_cut_by_a_whole_tree(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "MAX_DEPTH", most)
    vault, session = vault_on(), MemorySession()
    depths = []
    for number in range(3 * most + 3):
        session.roots.files[b"workspace/f%d" % (number % 4)] = b"%d" % number
        session.roots.files.pop(b"workspace/f%d" % ((number + 2) % 4), None)
        depths.append((await push(vault, session)).generation.depth)
        assert await restored_entries(vault, session) == session.entries()
    assert depths == [number % (most + 1) for number in range(3 * most + 3)]
    assert not await problems(vault)


async def test_a_row_that_outgrew_its_whole_tree_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "SMALL_ROW", 1000)
    vault, session, depths = vault_on(), MemorySession(), []
    for number in range(12):
        session.roots.files[b"workspace/" + Random(number).randbytes(100).replace(b"/", b"").replace(b"\0", b"")] = b""
        depths.append((await push(vault, session)).generation.depth)
    assert 0 in depths[2:]
    assert max(depths) > 2
    assert await restored_entries(vault, session) == session.entries()


async def test_an_empty_workspace_is_a_generation_as_well() -> None:
    vault, session = vault_on(), MemorySession()
    assert (await push(vault, session)).new
    assert await restored_entries(vault, session) == {}
    assert not (await push(vault, session)).new


async def test_large_content_goes_into_several_packs(monkeypatch: pytest.MonkeyPatch, store: WatchedObjects) -> None:
    monkeypatch.setattr(packs, "TARGET_BYTES", 100_000)
    vault, session, rng = vault_on(store), MemorySession(), Random(1)
    for number in range(40):
        session.roots.files[b"workspace/%d" % number] = rng.randbytes(60_000)
    pushed = await push(vault, session)
    assert len([request for request in store.requests if "/packs/" in request.key and request.verb == "put"]) > 4
    assert pushed.sent_bytes == store.sent_bytes - next(r.sent_bytes for r in store.requests if r.verb == "create")
    assert await restored_entries(vault_on(store.inner), session) == session.entries()


async def test_a_number_never_means_two_trees() -> None:
    vault, session = vault_on(keep=2), MemorySession()
    numbers = []
    for content in (b"a", b"b", b"c"):
        session.roots.files[b"workspace/f"] = content
        numbers.append((await push(vault, session)).generation.number)
    await vault.put_back(USER, "s", 2)
    session.roots.files[b"workspace/f"] = b"d"
    numbers.append((await push(vault, session)).generation.number)
    assert numbers == [1, 2, 3, 5]


# -- cost follows change ----------------------------------------------------------------------------------------------


def written(store: WatchedObjects, since: int) -> tuple[int, int]:
    """How many requests that write, and how many bytes they sent."""
    writes = [request for request in store.since(since) if request.verb in WRITES]
    return len(writes), sum(request.sent_bytes for request in writes)


async def test_nothing_changed_makes_no_generation_and_no_write(tree: DirectoryTree, store: WatchedObjects) -> None:
    fill(tree.home, Random(1), 300)
    vault = vault_on(store)
    first = await push_tree(vault, tree)
    before = len(store.requests)
    again = await push_tree(vault, tree)
    assert not again.new
    assert again.generation == first.generation
    assert written(store, before) == (0, 0)
    assert len(store.since(before)) <= 2


async def test_ten_changed_files_of_many_cost_what_changed(tree: DirectoryTree, store: WatchedObjects) -> None:
    fill(tree.home, Random(1), 2000)
    vault = vault_on(store)
    await push_tree(vault, tree)
    rng, changed = Random(2), 0
    for number in range(0, 2000, 200):
        content = rng.randbytes(5000)
        (tree.home / f"workspace/d{number // 100}/f{number}").write_bytes(content)
        changed += len(content)
    before = len(store.requests)
    await push_tree(vault, tree)
    requests, sent = written(store, before)
    assert sent <= 1.2 * changed + FIXED_BYTES
    assert requests == 3
    assert len(store.since(before)) <= 5


async def test_one_byte_in_a_large_file_costs_a_few_chunks(tree: DirectoryTree, store: WatchedObjects) -> None:
    content = bytearray(Random(3).randbytes(20 << 20))
    large = tree.home / "workspace/large"
    large.write_bytes(content)
    vault = vault_on(store)
    await push_tree(vault, tree)
    content[10 << 20] ^= 1
    large.write_bytes(content)
    before = len(store.requests)
    await push_tree(vault, tree)
    requests, sent = written(store, before)
    assert sent <= 1.2 * (256 << 10) + FIXED_BYTES
    assert requests == 3


async def test_a_rename_sends_no_content(tree: DirectoryTree, store: WatchedObjects) -> None:
    fill(tree.home, Random(1), 500, smallest=5000, largest=6000)
    vault = vault_on(store)
    await push_tree(vault, tree)
    (tree.home / "workspace/d1").rename(tree.home / "workspace/elsewhere")
    (tree.home / "workspace/d2/f200").chmod(0o600)
    before = len(store.requests)
    pushed = await push_tree(vault, tree)
    requests, sent = written(store, before)
    assert pushed.chunks_sent == 0
    assert requests == 2
    assert sent <= FIXED_BYTES


async def test_a_second_session_of_a_user_sends_next_to_nothing(tmp_path: Path, store: WatchedObjects) -> None:
    for name in ("one", "two"):
        tree = DirectoryTree(tmp_path / name / "home", tmp_path / name / "state")
        fill(tree.home, Random(1), 1000, smallest=500, largest=1500)
        before = len(store.requests)
        pushed = await push_tree(vault_on(store), tree, name)  # another process each time: it has to find out by itself
        requests, sent = written(store, before)
    assert pushed.chunks_sent == 0
    assert pushed.chunks_reused > 500
    assert sent <= 100 * 1000 + FIXED_BYTES  # the manifest of a thousand files
    assert requests == 2


async def test_a_branch_sends_only_what_it_changed(store: WatchedObjects) -> None:
    session, rng = MemorySession(), Random(1)
    for number in range(200):
        session.roots.files[b"workspace/%d" % number] = rng.randbytes(5000)
    await push(vault_on(store), session)
    before = len(store.requests)
    vault, branch = vault_on(store), MemorySession("b")
    await vault.branch(USER, "s", None, "b")
    assert len(store.since(before)) == 2
    await restore_into(vault, branch.tree, "b")
    branch.roots.files[b"workspace/7"] = b"new"
    before = len(store.requests)
    await push(vault, branch)
    requests, sent = written(store, before)
    assert requests == 3
    assert sent < 4000
    assert await restored_entries(vault, session) == session.entries()
    assert await restored_entries(vault, branch) == branch.entries()


async def test_no_key_of_one_user_is_touched_for_another(store: WatchedObjects) -> None:
    vault = vault_on(store)
    one, other = MemorySession("same-id", "one"), MemorySession("same-id", "other")
    for session in (one, other):
        session.roots.files[b"workspace/secret"] = Random(1).randbytes(50_000)
        before = len(store.requests)
        pushed = await push(vault, session)
        await restored_entries(vault, session)
        assert not await problems(vault, session.id, session.user_id)
        prefix = Keys.of_user(session.user_id).prefix
        assert all(request.key.startswith(prefix) for request in store.since(before))
        assert pushed.chunks_sent > 0
    await vault.forget("one", "same-id")
    assert await restored_entries(vault, other) == other.entries()
    with pytest.raises(NoSuchSnapshot):
        await vault.pointer("one", "same-id")


async def test_what_a_failed_attempt_sent_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "TARGET_BYTES", 50_000)
    session, rng = MemorySession(), Random(1)
    for number in range(20):
        session.roots.files[b"workspace/%d" % number] = rng.randbytes(20_000)
    store = WatchedObjects(
        MemoryObjects(), lambda request: Fault.AWAY if request.verb == "create" and "pointer" in request.key else None
    )
    with pytest.raises(SyncFailed):
        await push(vault_on(store), session)
    store.fault = lambda _: None
    pushed = await push(vault_on(store), session)
    assert pushed.chunks_sent == 0
    assert await restored_entries(vault_on(store), session) == session.entries()


async def test_syncs_of_many_sessions_at_once_do_not_disturb_each_other(store: WatchedObjects) -> None:
    vault = vault_on(store)
    sessions = [MemorySession(f"s{number}") for number in range(6)]
    for round_number in range(4):
        for number, session in enumerate(sessions):
            rng = Random(round_number * 3 + number % 3)
            session.roots.files[b"agent/%d" % round_number] = rng.randbytes(30_000)
        await asyncio.gather(*(push(vault, session) for session in sessions))
    for session in sessions:
        assert await restored_entries(vault, session) == session.entries()
        assert not await problems(vault, session.id)


# -- limits and refusals ----------------------------------------------------------------------------------------------


async def test_two_syncs_of_one_session_at_once_leave_one_whole_generation(store: ObjectStore) -> None:
    session, twin = MemorySession(), MemorySession()
    vaults = vault_on(store), vault_on(store)
    session.roots.files[b"workspace/a"] = b"a"
    twin.roots.files[b"workspace/b"] = b"b"
    results = await asyncio.gather(push(vaults[0], session), push(vaults[1], twin), return_exceptions=True)
    assert [isinstance(result, SyncFailed) for result in results].count(True) == 1
    assert await restored_entries(vaults[0], session) in (session.entries(), twin.entries())


async def test_the_roots_are_there_in_every_tree(tree: DirectoryTree, tmp_path: Path) -> None:
    for root in ROOTS:
        (tree.home / root.decode() / "f").write_bytes(root)
    await push_tree(vault := vault_on(), tree)
    assert {entry.path for entry in (await vault.tree(USER, "s", None))[1].entries.values()} == {
        root + b"/f" for root in ROOTS
    }
    assert not await restores_to(vault, tree, tmp_path / "r")


# -- what is moved while it is read -----------------------------------------------------------------------------------


class Mover(DirectoryTree):
    """Two directories exchange a file each, when the first of them has been listed and the second has not."""

    def lay(self, rng: Random) -> None:
        for name in ("p", "q"):
            inside = self.home / "workspace" / name
            inside.mkdir(parents=True)
            (inside / "large").write_bytes(rng.randbytes(9 << 20))  # more than a batch: the scan waits in the middle
            (inside / f"of-{name}").write_text(name)
        self.moves = 0

    @asynccontextmanager
    async def scan(self, asked: ScanAsk) -> AsyncIterator[DirectoryScan]:
        async with super().scan(asked) as scan:
            first = await scan.next()
            if self.moves < 2:
                here, there = ("p", "q") if self.moves % 2 == 0 else ("q", "p")
                workspace = self.home / "workspace"
                (workspace / here / "of-p").rename(workspace / there / "of-p")
                (workspace / there / "of-q").rename(workspace / here / "of-q")
                self.moves += 1
            yield Resumed(scan, first)


class Resumed(DirectoryScan):
    """A scan whose first word was heard by somebody else."""

    def __init__(self, scan: DirectoryScan, first: Batch | ScanDone) -> None:
        self._inner, self._first = scan, [first]

    async def next(self) -> Batch | ScanDone:
        return self._first.pop() if self._first else await self._inner.next()

    def fetch(self, wanted: Sequence[int]) -> AsyncIterator[Frame]:
        return self._inner.fetch(wanted)

    async def remember(self, token: str) -> None:
        await self._inner.remember(token)


async def test_what_goes_from_one_directory_to_another_during_a_scan_is_not_missed(tmp_path: Path) -> None:
    tree, vault = Mover(tmp_path / "home", tmp_path / "state"), vault_on()
    tree.lay(Random(1))
    await push_tree(vault, tree)
    assert tree.moves == 2
    assert not await restores_to(vault, tree, tmp_path / "copy")


async def test_without_looking_again_it_would_be_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the test above can fail."""
    monkeypatch.setattr("sync.snapshots.push.SCANS", 1)
    tree, vault = Mover(tmp_path / "home", tmp_path / "state"), vault_on()
    tree.lay(Random(1))
    await push_tree(vault, tree)
    assert await restores_to(vault, tree, tmp_path / "copy")
