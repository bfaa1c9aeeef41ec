"""Two users keep the same files: nothing of the one is the other's. And what is done to one session's snapshots, by
name, is done to no other's."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from sync.format.keys import Keys
from sync.snapshots.service import SnapshotLimits, SnapshotService
from tests.campaign.size import seeded
from tests.campaign.sync.arena import Kept, SyncArena, arena_on
from tests.campaign.sync.cupboards import Directory, everything_in
from tests.support.launcher import Launcher
from tests.support.trees import differences, fill


@pytest.fixture(scope="module")
async def launcher() -> AsyncIterator[Launcher]:
    async with Launcher() as warm:
        yield warm


@asynccontextmanager
async def _arena(directory: Path, launcher: Launcher) -> AsyncIterator[SyncArena]:
    """Nothing is synced but what is asked for, so that generations can be counted."""
    seed, rng = seeded()
    cupboard = Directory(directory / "objects")
    async with arena_on(
        directory, cupboard, seed, rng, launcher=launcher, SYNC_DEBOUNCE=600, SYNC_MAX_WAIT=600
    ) as arena:
        yield arena
        arena.acquit(directory.name)


async def _filled(arena: SyncArena, session_id: str, user: str = "ada", seed: int = 1) -> Kept:
    session = await arena.create(session_id, user)
    fill(session.home.kept, Random(seed), 20)
    await session.sync()
    return session


def _of(user: str, keys: set[str]) -> set[str]:
    return {key for key in keys if key.startswith(Keys.of_user(user).prefix)}


async def test_two_users_with_the_same_files_share_no_key_and_reach_nothing_of_each_other(
    tmp_path: Path, launcher: Launcher
) -> None:
    async with _arena(tmp_path, launcher) as arena:
        ada = await _filled(arena, "of-ada", "ada")
        bob = await _filled(arena, "of-bob", "bob")
        assert set(ada.disk) == set(bob.disk)
        keys = set(await everything_in(arena.cupboard))
        assert _of("ada", keys) | _of("bob", keys) == keys
        assert _of("ada", keys) & _of("bob", keys) == set()
        names = [{key.rpartition("/")[2] for key in _of(user, keys) if "/packs/" in key} for user in ("ada", "bob")]
        assert all(names)
        assert names[0] & names[1] == set()

        before = await everything_in(arena.cupboard)
        of_ada = "/api/sandboxes/of-ada"
        routes = [
            ("GET", "/files/of-ada/"), ("GET", "/files/of-ada/d0/f1"), ("GET", "/files/of-ada/d0/f1?generation=1"),
            ("GET", f"{of_ada}/status"), ("GET", f"{of_ada}/snapshots"), ("GET", f"{of_ada}/snapshots/1"),
            ("GET", f"{of_ada}/snapshots/1/diff"), ("GET", f"{of_ada}/snapshots/1/export"),
            ("POST", f"{of_ada}/snapshots/1/branch"), ("POST", f"{of_ada}/snapshots/1/restore"),
            ("POST", f"{of_ada}/snapshots/1/release"), ("POST", f"{of_ada}/snapshots/verify"),
            ("POST", f"{of_ada}/sync"), ("POST", f"{of_ada}/sleep"), ("POST", f"{of_ada}/pause"),
            ("POST", f"{of_ada}/wake"), ("POST", f"{of_ada}/resume"), ("DELETE", of_ada),
        ]  # fmt: skip
        async with arena.gateway.http(arena.gateway.bearer("bob")) as client:
            for method, route in routes:
                answer = await client.request(method, route, json={} if method == "POST" else None)
                assert answer.status_code == 404, f"{method} {route}: {answer.status_code} {answer.text}"
            assert (await client.post("/internal/snapshots/gc", json={})).status_code in (401, 403)
        assert await everything_in(arena.cupboard) == before
        await ada.running()


async def test_deleting_a_session_leaves_its_branch_and_those_with_longer_names(
    tmp_path: Path, launcher: Launcher
) -> None:
    async with _arena(tmp_path, launcher) as arena:
        deleted, longer = await _filled(arena, "a"), await _filled(arena, "ab", seed=2)
        deleted.write("of a alone", arena.rng.randbytes(5000))
        await deleted.sync()
        branch = arena.adopt((await deleted.post("/snapshots/1/branch", status=201))["id"])
        assert branch.id.startswith("a-branch-")
        branched = deleted.ledger.known[1]
        answer = await deleted.ask("DELETE")
        assert answer is not None
        assert answer.status_code == 200, answer.text
        async with arena.cupboard.objects() as store:  # what nobody names any more goes, in two looks
            now = [time.time()]
            vault = SnapshotService(store, SnapshotLimits(grace=60), utcnow=lambda: now[0])
            await vault.collect()
            now[0] += 61
            removed = (await vault.collect()).removed
        assert removed > 0, "nothing was left over"
        keys = set(await everything_in(arena.cupboard))
        assert {key.split("/")[-2] for key in keys if "/sessions/" in key} == {"ab", branch.id}

        await branch.post("/wake")
        await branch.running()
        assert not differences(branch.disk, branched)
        await longer.sleep()
        longer.wipe(whole=True)
        await longer.post("/wake")
        await longer.check_restored()
        for session in (branch, longer):
            verified = await session.ask("POST", "/snapshots/verify", json={})
            assert verified is not None
            assert '"whole":true' in verified.text.replace(" ", "")


@pytest.mark.parametrize("way", ["branch", "restore"])
async def test_a_session_made_of_a_generation_is_one_more_pointer_and_its_origin_does_not_notice(
    tmp_path: Path, launcher: Launcher, way: str
) -> None:
    async with _arena(tmp_path, launcher) as arena:
        origin = await _filled(arena, "origin")
        origin.write("later")
        await origin.sync()
        before, disk = await everything_in(arena.cupboard), origin.disk
        told = await origin.post(f"/snapshots/1/{way}", status=201)
        word = {"branch": "branch", "restore": "restored"}[way]
        assert told["id"].startswith(f"origin-{word}-")
        after = await everything_in(arena.cupboard)
        (new,) = after.keys() - before.keys()
        assert new.endswith(f"/sessions/{told['id']}/pointer")
        assert {key: after[key] for key in before} == before

        made = arena.adopt(told["id"])
        await made.post("/wake")
        await made.running()
        assert not differences(made.disk, origin.ledger.known[1])
        made.write("its own")
        await made.sync()
        assert origin.disk == disk
        await origin.sync()
        number, stored = await origin.stored()
        assert number == 2
        assert not differences(stored, disk)


async def test_a_generation_is_put_back_in_place_only_while_paused_and_after_a_safety_generation(
    tmp_path: Path, launcher: Launcher
) -> None:
    async with _arena(tmp_path, launcher) as arena:
        session = await _filled(arena, "s0")
        session.write("later")
        await session.sync()
        before = await everything_in(arena.cupboard)
        refused = await session.post("/snapshots/1/restore", status=409, inPlace=True)
        assert refused["code"] == "not_paused"
        await session.sleep()
        await session.post("/snapshots/1/restore", status=409, inPlace=True)
        assert await everything_in(arena.cupboard) == before
        await session.post("/wake")
        await session.running()

        session.write("not synced yet")
        disk = session.disk
        await session.post("/pause")
        await session.post("/snapshots/1/restore", inPlace=True)
        number, stored = await session.stored(3)
        assert not differences(stored, disk), "what was there is a generation of its own"
        await session.post("/resume")
        await session.running()
        assert not differences(session.disk, session.ledger.known[1])
        assert (await session.status())["sync"]["generation"] == 4
        listed = await session.ask("GET", "/snapshots")
        assert listed is not None
        pinned = [each["generation"] for each in listed.json()["snapshots"] if each["pinned"]]
        assert pinned == [number]
