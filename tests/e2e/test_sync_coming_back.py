"""What a session finds when it comes back: after a crash, after a sleep, with a disk that was tampered with, and when
what is stored is damaged. Its viewers are told each time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.campaign.size import seeded
from tests.campaign.sync.arena import Described, Kept, SyncArena, arena_on
from tests.campaign.sync.cupboards import Bucket, Cupboard, Directory, everything_in
from tests.support.chat import hear
from tests.support.faulty_s3 import FaultyS3, Head
from tests.support.gateway import ClientConnection
from tests.support.launcher import Launcher, Tampering
from tests.support.s3 import S3Server
from tests.support.trees import differences


@pytest.fixture(scope="module")
async def launcher() -> AsyncIterator[Launcher]:
    async with Launcher() as warm:
        yield warm


@asynccontextmanager
async def _arena(
    directory: Path,
    launcher: Launcher,
    cupboard: Cupboard | None = None,
    *,
    restore_timeout: float = 60,
    level: str = "trusted",
) -> AsyncIterator[SyncArena]:
    """Nothing is synced but what is asked for, so that generations can be counted."""
    seed, rng = seeded()
    async with arena_on(
        directory,
        cupboard or Directory(directory / "objects"),
        seed,
        rng,
        launcher=launcher,
        SYNC_DEBOUNCE=600,
        SYNC_MAX_WAIT=600,
        RESTORE_TIMEOUT=restore_timeout,
        LOCAL_LEVEL=level,
    ) as arena:
        yield arena
        arena.acquit(directory.name)


async def _filled(arena: SyncArena, files: int = 8) -> Kept:
    """A session with a generation."""
    session = await arena.create("s0")
    for number in range(files):
        session.write(f"file-{number}", arena.rng.randbytes(3000))
    await session.sync()
    return session


async def _crash(arena: SyncArena, session: Kept) -> None:
    """The gateway dies, and the sandbox with it."""
    await arena.gateway.kill()
    await session.kill_bridge()


async def _hear_status(socket: ClientConnection, *statuses: str, passed: list[Described] | None = None) -> Described:
    """The next of these words about the session."""
    return await hear(
        socket, lambda frame: frame["type"] == "session_status" and frame["status"] in statuses, passed=passed
    )


async def test_what_was_written_before_a_crash_stays_and_becomes_the_next_generation(
    tmp_path: Path, launcher: Launcher
) -> None:
    async with _arena(tmp_path, launcher) as arena:
        session = await _filled(arena)
        session.write("newer")
        await _crash(arena, session)
        disk = session.disk
        await arena.start()
        async with arena.gateway.chat("s0") as socket:
            await hear(socket, "welcome")
            assert (await session.status())["sync"]["dirty"]
            await session.post("/wake")
            await _hear_status(socket, "restore_skipped")
        await session.running()
        assert session.disk == disk
        assert await session.sync() == 2
        assert session.asides == []


@pytest.mark.parametrize("left", [0, 3], ids=["wiped", "mostly lost"])
async def test_a_disk_that_was_lost_in_a_crash_is_restored_and_its_remains_are_kept(
    tmp_path: Path, launcher: Launcher, left: int
) -> None:
    async with _arena(tmp_path, launcher) as arena:
        session = await _filled(arena)
        await _crash(arena, session)
        for number in range(left, 8):
            (session.home.workspace / f"file-{number}").unlink()
        await arena.start()
        async with arena.gateway.chat("s0") as socket:
            await hear(socket, "welcome")
            await session.post("/wake")
            await _hear_status(socket, "restore_started")
            restored = await _hear_status(socket, "restored")
        assert (restored["generation"], restored.get("aside")) == (1, True if left else None)
        await session.check_restored()
        found = [path.name for aside in session.asides for path in (aside / "workspace").iterdir()]
        assert sorted(found) == [f"file-{number}" for number in range(left)]
        assert await session.sync() == 1


async def test_a_disk_that_was_tampered_with_after_a_sleep_is_restored(tmp_path: Path, launcher: Launcher) -> None:
    async with _arena(tmp_path, launcher) as arena:
        session = await _filled(arena)
        await session.sleep()
        session.write("stray", b"put there by somebody else")
        (session.home.workspace / "file-1").write_bytes(b"changed")
        await session.post("/wake")
        await session.check_restored()
        (aside,) = session.asides
        assert (aside / "workspace" / "stray").read_bytes() == b"put there by somebody else"
        assert (aside / "workspace" / "file-1").read_bytes() == b"changed"


async def test_a_disk_that_is_as_it_was_left_is_not_restored(tmp_path: Path, launcher: Launcher) -> None:
    async with _arena(tmp_path, launcher) as arena:
        session = await _filled(arena)
        await session.sleep()
        before = (session.home.workspace / "file-1").stat().st_ino
        async with arena.gateway.chat("s0") as socket:
            await hear(socket, "welcome")
            await session.post("/wake")
            passed: list[Described] = []
            await _hear_status(socket, "restore_skipped", passed=passed)
        assert [frame for frame in passed if frame.get("status") == "restore_started"] == []
        assert (session.home.workspace / "file-1").stat().st_ino == before


async def test_damage_to_the_newest_generation_brings_the_one_before_it_and_is_told(
    tmp_path: Path, launcher: Launcher
) -> None:
    cupboard = Directory(tmp_path / "objects")
    async with _arena(tmp_path, launcher, cupboard) as arena:
        session = await _filled(arena)
        first = set(await everything_in(cupboard))
        session.write("second", arena.rng.randbytes(5000))
        await session.sleep()
        session.wipe()
        (new_pack,) = (key for key in set(await everything_in(cupboard)) - first if "/packs/" in key)
        pack = cupboard.path / new_pack
        pack.write_bytes(bytes(byte ^ (at % 50 == 49) for at, byte in enumerate(pack.read_bytes())))
        before = await everything_in(cupboard)
        async with arena.gateway.chat("s0") as socket:
            await hear(socket, "welcome")
            await session.post("/wake")
            restored = await _hear_status(socket, "restored")
            assert restored["generation"] == 1
            assert "generation 2 is damaged" in restored["degraded"]
            told = await session.running()
            assert "generation 2 is damaged" in told["sync"]["degraded"]
            assert not differences(session.disk, session.ledger.known[1])
        # What comes next is whole: nothing is built on what is damaged. And nothing is removed.
        session.write("third")
        newest = await session.sync()
        assert newest > 2
        _, stored = await session.stored(newest)
        assert not differences(stored, session.disk)
        after = await everything_in(cupboard)
        assert {key for key in before if before[key] != after.get(key)} == {
            key for key in before if "/sessions/" in key
        }
        listed = await session.ask("GET", "/snapshots")
        assert listed is not None
        assert {1, 2, newest} <= {each["generation"] for each in listed.json()["snapshots"]}


class SlowS3(FaultyS3):
    """Packs are held back, then come one by one, `seconds` later each."""

    def __init__(self, target: int, rng: Random) -> None:
        super().__init__(target, rng)
        self._seconds = 0.0
        self._free = asyncio.Event()
        self._free.set()

    def hold(self) -> None:
        self._free.clear()

    def let_go(self, *, seconds: float) -> None:
        self._seconds = seconds
        self._free.set()

    async def _one(self, request: Head, *ends: Any) -> bool:
        if request.first[0] == "GET" and "/packs/" in request.first[1]:
            await self._free.wait()
            await asyncio.sleep(self._seconds)
        try:
            return await super()._one(request, *ends)
        except RuntimeError:  # whoever asked has gone meanwhile
            return False


async def test_a_long_restore_tells_how_far_it_is_and_a_failed_one_why(
    tmp_path: Path, launcher: Launcher, s3_server: S3Server
) -> None:
    async with SlowS3(s3_server.port, Random(0)) as slow:
        cupboard = Bucket(s3_server, s3_server.make_place(), slow.port)
        async with _arena(tmp_path, launcher, cupboard, restore_timeout=30) as arena:
            session = await arena.create("s0")
            for number in range(9):  # a pack each
                session.write(f"file-{number}", arena.rng.randbytes(5000))
                await session.sync()
            await session.sleep()
            session.wipe()
            slow.hold()
            async with arena.gateway.chat("s0") as socket:
                await hear(socket, "welcome")
                waking = asyncio.create_task(session.post("/wake"))
                started = await _hear_status(socket, "restore_started")
                assert (started["ofFiles"], started["ofBytes"]) == (9, 45_000)
                shown = (await session.status())["sync"]["restore"]
                assert (shown["generation"], shown["ofFiles"]) == (9, 9)
                slow.let_go(seconds=0.6)
                coming = await _hear_status(socket, "restoring", "restored")
                assert (coming["status"], coming["ofFiles"]) == ("restoring", 9)
                await _hear_status(socket, "restored")
                await waking
                await session.check_restored()

                slow.let_go(seconds=0.0)
                await session.sleep()
                session.wipe()
                slow.answer(403, "AccessDenied", times=1000)
                told = await session.post("/wake")
                failed = await _hear_status(socket, "restore_failed")
                await _hear_status(socket, "unrestored")
                error = await hear(socket, "error")
            assert failed["reason"]
            assert error["code"] == "unrestored"
            assert (told["status"], told["sync"]["state"]) == ("unrestored", "unrestored")
            slow.heal()
            await session.post("/wake")
            await session.check_restored()


async def test_what_was_written_just_before_a_drain_is_kept(tmp_path: Path, launcher: Launcher) -> None:
    async with _arena(tmp_path, launcher) as arena:
        session = await _filled(arena)
        for number in range(3):
            session.write(f"last-{number}")
            disk = session.disk
            assert await arena.gateway.terminate() == 0
            _, stored = await session.stored()
            assert not differences(stored, disk)
            await arena.start()
            await session.running()


async def test_a_session_can_be_begun_while_the_object_store_is_away(
    tmp_path: Path, launcher: Launcher, s3_server: S3Server
) -> None:
    async with FaultyS3(s3_server.port, Random(0)) as faults:
        faults.busy = 1.0
        cupboard = Bucket(s3_server, s3_server.make_place(), faults.port)
        async with _arena(tmp_path, launcher, cupboard, restore_timeout=2) as arena:
            session = await arena.create("s0")
            session.write("made in the dark")
            await session.until(lambda told: told["sync"]["dirty"], "dirty")
            faults.heal()
            assert await session.sync() == 1
            await session.check_stored()


@pytest.mark.parametrize("level", ["trusted", "contained"])
@pytest.mark.parametrize("point", ["restore.planned", "restore.sent", "restore.swapped"])
async def test_who_wakes_a_session_whose_gateway_died_at_its_restore_gets_it(
    tmp_path: Path, launcher: Launcher, point: str, level: str
) -> None:
    """Found held, the sandbox is begun anew; whoever asked for it before that was known still gets it."""
    async with _arena(tmp_path, launcher, level=level) as arena:
        session = await _filled(arena)
        await session.sleep()
        session.wipe()
        await arena.gateway.kill()
        await arena.start(Tampering(crash_at=(point, 1)))
        assert await session.ask("POST", "/wake", json={}) is None
        await arena.gateway.wait()
        await arena.start()
        await session.post("/wake")
        await session.check_restored()


async def test_a_restore_in_a_contained_sandbox_starts_a_second_one_and_no_other_start_does(
    tmp_path: Path, launcher: Launcher
) -> None:
    async with _arena(tmp_path, launcher, level="contained") as arena:
        session = await _filled(arena)
        assert (await session.status())["incarnation"] == 1
        await session.sleep()
        assert (await session.post("/wake"))["incarnation"] == 2
        await session.sleep()
        session.wipe(whole=True)
        async with arena.gateway.chat("s0") as socket:
            await hear(socket, "welcome")
            assert (await session.post("/wake"))["incarnation"] == 4
            passed: list[Described] = []
            await _hear_status(socket, "running", passed=passed)
        told = [frame["status"] for frame in passed if frame["type"] == "session_status"]
        assert [status for status in told if status != "restoring"] == ["starting", "restore_started", "restored"]
        await session.check_restored()
        session.write("written", b"after it")
        assert await session.sync() == 2
