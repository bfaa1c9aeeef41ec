"""A sync that failed is remembered, and made good at the next start without anybody asking: whether the sandbox still
runs by then, has died, or the session is gone."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from tests.campaign.size import seeded
from tests.campaign.sync.arena import PATIENCE, Described, Kept, SyncArena, arena_on
from tests.campaign.sync.cupboards import Bucket, everything_in
from tests.support.chat import hear
from tests.support.faulty_s3 import FaultyS3
from tests.support.launcher import Launcher, Tampering
from tests.support.s3 import S3Server
from tests.support.trees import differences

SOON = Tampering(patches=("rescue_soon",))


@pytest.fixture(scope="module")
async def launcher() -> AsyncIterator[Launcher]:
    async with Launcher() as warm:
        yield warm


@asynccontextmanager
async def _failed(
    directory: Path, launcher: Launcher, server: S3Server
) -> AsyncIterator[tuple[SyncArena, Kept, FaultyS3]]:
    """A session with one generation and newer files that could not be kept."""
    seed, rng = seeded()
    async with FaultyS3(server.port, Random(seed)) as faults:
        cupboard = Bucket(server, server.make_place(), faults.port)
        async with arena_on(directory, cupboard, seed, rng, launcher=launcher, SYNC_ATTEMPTS=1) as arena:
            session = await arena.create("s0")
            session.gardener.edit(10)
            await session.sync()
            faults.answer(403, "AccessDenied", times=10_000)
            session.write("newer")
            told = await session.until(lambda told: told["sync"]["state"] == "failed", "failed")
            assert told["sync"]["dirty"]
            assert told["sync"]["lastError"]
            await session.durable()
            yield arena, session, faults
            arena.acquit(directory.name)


async def _is_kept(session: Kept) -> None:
    """All that is on the disk is in the newest generation, and the failure is forgotten."""
    told = await session.until(lambda told: not told["sync"]["dirty"], "clean")
    assert (told["sync"]["state"], told["sync"]["lastError"]) == ("idle", None)
    number, stored = await session.stored()
    assert number == told["sync"]["generation"]
    assert not differences(stored, session.disk)


async def test_a_failed_sync_is_shown_after_a_restart_and_recovered_when_the_store_is_back(
    tmp_path: Path, launcher: Launcher, s3_server: S3Server
) -> None:
    async with _failed(tmp_path, launcher, s3_server) as (arena, session, faults):
        await arena.gateway.restart(kill=True)
        told = await session.status()
        assert (told["sync"]["state"], told["sync"]["dirty"]) in (
            ("failed", True),
            ("pending", True),
            ("syncing", True),
        )
        assert told["sync"]["lastError"]
        async with arena.gateway.chat("s0") as socket:
            await hear(socket, "welcome")
            faults.heal()
            recovered = await hear(socket, lambda frame: frame.get("status") == "sync_recovered", within=PATIENCE)
        assert recovered["generation"] > session.ledger.reported
        await _is_kept(session)


@pytest.mark.parametrize("sandbox", ["lives", "has died"])
async def test_a_failed_sync_is_made_good_at_the_next_start(
    tmp_path: Path, launcher: Launcher, s3_server: S3Server, sandbox: str
) -> None:
    async with _failed(tmp_path, launcher, s3_server) as (arena, session, faults):
        await arena.gateway.kill()
        if sandbox == "has died":
            await session.kill_bridge()
        faults.heal()
        mark = len(arena.gateway.log)
        await arena.start(SOON)
        await arena.logs("sync.recovered", after=mark)  # unasked
        await _is_kept(session)
        told = await session.status()
        assert told["status"] == ("running" if sandbox == "lives" else "sleeping")


async def test_what_a_dead_sandbox_left_is_kept_when_the_store_comes_back_long_after_the_start(
    tmp_path: Path, launcher: Launcher, s3_server: S3Server
) -> None:
    async with _failed(tmp_path, launcher, s3_server) as (arena, session, faults):
        await arena.gateway.kill()
        await session.kill_bridge()
        mark = len(arena.gateway.log)
        await arena.start(SOON)
        await arena.logs("sync.not_kept", after=mark)
        assert (await session.status())["sync"]["state"] == "failed"
        async with arena.gateway.chat("s0") as socket:
            await hear(socket, "welcome")
            faults.heal()
            await hear(socket, lambda frame: frame.get("status") == "sync_recovered", within=PATIENCE)
            await _is_kept(session)
            passed: list[Described] = []
            await session.post("/wake")
            await hear(socket, lambda frame: frame.get("status") == "running", passed=passed)
        assert [frame for frame in passed if frame.get("status") == "sync_recovered"] == []  # it is said once


async def test_a_deleted_session_is_not_recovered(tmp_path: Path, launcher: Launcher, s3_server: S3Server) -> None:
    """DELETE forgets also that a sync had failed: at the next start nobody starts a sandbox for it."""
    async with _failed(tmp_path, launcher, s3_server) as (arena, session, faults):
        faults.heal()
        answer = await session.ask("DELETE")
        assert answer is not None
        assert answer.status_code == 200, answer.text
        assert [key for key in await everything_in(arena.cupboard) if "/sessions/" in key] == []
        mark = len(arena.gateway.log)
        await arena.gateway.restart(kill=True)
        await arena.logs("registry.ready", after=mark)
        told = await session.status()
        assert (told["status"], told["sync"]["state"], told["sync"]["lastError"]) == ("archived", "idle", None)
        other = await arena.create("s1")  # by the time this runs, a sandbox for the other would
        await other.sync()
        assert not session.home.root.exists()
        assert [key for key in await everything_in(arena.cupboard) if "/s0/" in key] == []
