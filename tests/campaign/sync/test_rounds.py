"""Files are edited, synced, lost and restored while the gateway, the bridges and the object store are killed at
random. A restored tree is always one that was committed, and never older than one that was reported."""

import asyncio
import json
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from tests.campaign.places import CONTAINED, TRUSTED, Place
from tests.campaign.size import SOAK, seeded, sized, when_large
from tests.campaign.sync.arena import Kept, SyncArena, arena_on
from tests.campaign.sync.checker import Tree, files_in, is_replaced
from tests.campaign.sync.cupboards import Bucket, Cupboard, Directory
from tests.support.launcher import Launcher
from tests.support.s3 import S3Server
from tests.support.trees import Print

WAYS = ("stay", "sleep", "sleep and wipe", "sleep and tamper", "crash", "crash and wipe", "crash and wipe")

DEATHS = ("gateway killed", "bridge killed", "crashes", "no answer")
COLLECTED = 0.3  # of the steps


class Rounds:
    """Steps, each a round of every session."""

    def __init__(self, arena: SyncArena) -> None:
        self._arena = arena
        self._rng = arena.rng
        self.figures: Counter[str] = Counter()
        self._faults = ["none", "gateway", "gateway", "bridge", *(["store"] * 2 if arena.cupboard.mortal else [])]

    async def step(self) -> None:
        arena, rng = self._arena, self._rng
        async with asyncio.TaskGroup() as together:
            for session in arena.sessions:
                together.create_task(self._work(session))
            together.create_task(self._strike(rng.choice(self._faults)))
        if not arena.gateway.running:
            await arena.start()
        if rng.random() < COLLECTED:
            await self._collect()
        await arena.cupboard.comes_to_itself()  # a store that fails for longer than an attempt lasts keeps nothing
        ways = {session: rng.choice(WAYS) for session in arena.sessions}
        async with asyncio.TaskGroup() as together:
            for session, way in ways.items():
                if not way.startswith("crash"):
                    together.create_task(self._come_back(session, way))
        if crashed := {session: way for session, way in ways.items() if way.startswith("crash")}:
            await self._crash(crashed)
        self.figures["rounds"] += len(arena.sessions)

    async def _collect(self) -> None:
        """Unreferenced objects go in two passes; referenced ones stay, as every later restore shows."""
        gateway = self._arena.gateway
        try:
            async with gateway.http(gateway.admin) as client:
                answer = await client.post("/internal/snapshots/gc", json={})
        except httpx.TransportError:  # the store has not come to itself yet
            return
        assert answer.status_code == 200, answer.text
        result = json.loads(answer.text.splitlines()[-1])["result"]
        assert result["problem"] is None, result
        self.figures["looks of the collector"] += 1
        self.figures["objects removed"] += result["removed"]

    async def _work(self, session: Kept) -> None:
        """Edit for a while, and request a sync or not, while processes die."""
        rng = session.rng
        for _ in range(rng.randint(1, 3)):
            session.gardener.edit(rng.randint(1, 6))
            await asyncio.sleep(rng.uniform(0, 0.05))
        how = rng.choice(("sync", "sync", "sync while editing", "nothing"))
        if how == "sync":
            await self._asked(session, session.disk)
        elif how == "sync while editing":
            async with asyncio.TaskGroup() as both:
                both.create_task(self._asked(session))
                for _ in range(rng.randint(1, 10)):
                    session.gardener.edit()
                    await asyncio.sleep(rng.uniform(0, 0.02))

    async def _asked(self, session: Kept, disk: Tree | None = None) -> None:
        answer = await session.ask("POST", "/sync", json={})
        self.figures["no answer" if answer is None else f"sync {answer.status_code}"] += 1
        if answer is not None and answer.status_code == 200:
            session.ledger.told(answer.json()["sync"]["generation"], disk)

    async def _strike(self, fault: str) -> None:
        arena, rng = self._arena, self._rng
        await asyncio.sleep(rng.uniform(0, 0.35))
        if fault == "gateway":
            await arena.gateway.kill()
        elif fault == "bridge":
            await rng.choice(arena.sessions).kill_bridge()
        elif fault == "store":
            arena.cupboard.kill()
            await asyncio.sleep(rng.uniform(0, 0.3))
            await arena.cupboard.start(patiently=not SOAK or rng.random() < 0.5)
        if fault != "none":
            self.figures[f"{fault} killed"] += 1

    async def _come_back(self, session: Kept, way: str) -> None:
        """Put to sleep and woken, or simply still there."""
        await session.running()
        if way == "stay":
            await session.sync()
            await session.check_stored()
            return
        await session.sleep()
        if way == "sleep and wipe":
            session.wipe(whole=session.rng.random() < 0.5)
        elif way == "sleep and tamper":
            session.gardener.edit(3)
            session.write(f"tampered-{session.rng.randbytes(8).hex()}")
        await session.post("/wake")
        await session.check_restored()

    async def _crash(self, ways: dict[Kept, str]) -> None:
        """The machine stops: the gateway first, then the sandboxes, perhaps with their disks."""
        arena = self._arena
        for session in ways:
            await session.running()
            session.gardener.edit(session.rng.randint(0, 4))
        await asyncio.sleep(self._rng.uniform(0, 0.1))
        await arena.gateway.kill()
        died = time.time()
        self.figures["crashes"] += len(ways)
        disks: dict[Kept, Tree] = {}
        for session, way in ways.items():
            await session.kill_bridge()
            if way == "crash and wipe":
                session.wipe(whole=session.rng.random() < 0.5)
            disks[session] = session.disk
        await arena.start()
        async with asyncio.TaskGroup() as together:
            for session, disk in disks.items():
                together.create_task(self._after_crash(session, disk, died))

    async def _after_crash(self, session: Kept, disk: Tree, died: float) -> None:
        """The disk is newer than the store and stays, unless most of its files were deleted."""
        await session.post("/wake")
        await session.running()
        if is_replaced(disk, await session.stored_at(died)):
            if files_in(disk):
                self.figures["disks replaced"] += 1
                if not session.has_aside(disk):
                    session.ledger.says("what was left of its files is not kept beside them")
            return await session.check_restored()
        if session.disk != disk:
            session.ledger.says("what was newer than the store did not stay as it was")
        await session.sync()


async def sync_rounds(
    directory: Path,
    cupboard: Cupboard,
    name: str,
    *reached: str,
    rounds: int,
    sessions: int = 4,
    place: Place = TRUSTED,
) -> None:
    """So many rounds; if there are many, they must see every outcome of `reached`."""
    seed, rng = seeded()
    async with (
        Launcher() as launcher,
        arena_on(
            directory,
            cupboard,
            seed,
            rng,
            launcher=launcher,
            patches=("short_grace",),
            place=place,
            SNAPSHOT_KEEP=5,
        ) as arena,
    ):
        for number in range(sessions):
            session = await arena.create(f"s{number}")
            session.gardener.edit(20)
            await session.sync()  # so that there is a generation, whatever is wiped first
        played = Rounds(arena)
        while played.figures["rounds"] < rounds:
            await played.step()
        for session in arena.sessions:
            await session.running()
            await session.sync()
            await session.check_stored()
            assert (await session.status())["sync"]["degraded"] is None
        arena.acquit(name, **played.figures)
        missed = [what for what in when_large(*reached) if not played.figures[what]]
        assert missed == [], f"seed={seed}: never reached"


@pytest.mark.parametrize(("left", "replaced"), [(0, True), (49, True), (50, False), (100, False)])
def test_a_disk_with_fewer_than_half_of_the_files_is_expected_to_be_replaced(left: int, replaced: bool) -> None:
    stored = {b"workspace/%d" % number: Print("file", 0o644, number, 0, b"") for number in range(100)}
    assert is_replaced(dict(list(stored.items())[:left]), stored) is replaced


async def test_what_a_crash_left_of_a_disk_is_beside_what_came_back(tmp_path: Path) -> None:
    cupboard, (seed, rng) = Directory(tmp_path / "objects"), seeded()
    async with (
        Launcher() as launcher,
        arena_on(
            tmp_path,
            cupboard,
            seed,
            rng,
            launcher=launcher,
            LOCAL_LEVEL="trusted",
            SYNC_DEBOUNCE=600,  # deletions are not synced before the crash
            SYNC_MAX_WAIT=600,
        ) as arena,
    ):
        session = await arena.create("s0")
        for number in range(100):
            session.write(f"{number}")
        await session.sync()
        for number in range(90):
            (session.home.workspace / f"{number}").unlink()
        played = Rounds(arena)
        await played._crash({session: "crash"})
        arena.acquit("a disk that lost most of its files", **played.figures)
        assert played.figures["disks replaced"] == 1


@pytest.mark.soak
async def test_every_tree_that_comes_back_was_committed_on_s3(tmp_path: Path, s3_server: S3Server) -> None:
    cupboard, rounds = Bucket(s3_server, s3_server.make_place()), sized(16, 300)
    await sync_rounds(
        tmp_path, cupboard, "sync rounds on s3", *DEATHS, "store killed", "objects removed", rounds=rounds
    )


@pytest.mark.soak
async def test_every_tree_that_comes_back_was_committed_in_a_directory(tmp_path: Path) -> None:
    cupboard, rounds = Directory(tmp_path / "objects"), sized(8, 160)
    await sync_rounds(tmp_path, cupboard, "sync rounds on files", *DEATHS, "objects removed", rounds=rounds)


@pytest.mark.soak
async def test_every_tree_that_comes_back_was_committed_contained(tmp_path: Path) -> None:
    cupboard, rounds = Directory(tmp_path / "objects"), sized(4, 40)
    await sync_rounds(
        tmp_path, cupboard, "sync rounds, contained", "crashes", rounds=rounds, sessions=2, place=CONTAINED
    )
