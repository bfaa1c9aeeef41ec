"""A process dies at each step of an upload and of a restore. The stored tree is the old one or the new one, never a
mix, and the interrupted sync or restore is done again."""

import asyncio
import re
import signal
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.campaign.size import seeded, sized
from tests.campaign.sync.arena import PATIENCE, Kept, SyncArena, arena_on
from tests.campaign.sync.cupboards import Bucket, Cupboard, Directory, everything_in
from tests.support.gateway import REPOSITORY
from tests.support.launcher import Launcher, Tampering
from tests.support.s3 import S3Server
from tests.support.trees import differences
from tests.support.waiting import until

UPLOAD = ("sync.pack_begun", "sync.pack_stored", "sync.uploaded", "sync.manifest_stored", "sync.swapped")
RESTORE = ("restore.planned", "restore.sent", "restore.swapped")
STEPS = (*UPLOAD, *RESTORE)
COMMITTED = "sync.swapped"  # from here on the new tree is there
LARGE_BYTES = 9 << 20  # more than a pack holds

Trial = tuple[str, str]  # a step, and who dies at it


class Steps:
    """One session, whose gateway is dead between two trials."""

    def __init__(self, arena: SyncArena, session: Kept, trace: Path) -> None:
        self._arena = arena
        self._session = session
        self._trace = trace
        self._rng = arena.rng
        self.figures: Counter[str] = Counter()

    async def upload(self, point: str, victim: str) -> None:
        """The tree is changed while no gateway runs; the next one syncs it, and `victim` dies when it comes to
        `point`."""
        arena, session = self._arena, self._session
        before, old = await session.stored()
        self._change(point)
        new = session.disk
        await self._play(point, victim, awake=True)
        number, stored = await session.stored()
        if victim == "gateway":
            self._expect(number == before + (point == COMMITTED), f"{point}: generation {number} after {before}")
            self._expect(stored == (new if point == COMMITTED else old), f"{point}: {differences(stored, new)[:4]}")
        else:  # it has gone on since
            self._expect(stored in (old, new), f"{victim} at {point}: a mix: {differences(stored, new)[:4]}")
        if victim == "gateway" and self._rng.random() < 0.5:
            await session.kill_bridge()
            session.wipe()
            await arena.start()
            await session.post("/wake")
            await session.check_restored()
        else:
            if not arena.gateway.running:
                await arena.start()
            await session.running()
            await session.clean()
            _, stored = await session.stored()
            self._expect(stored == new == session.disk, f"{victim} at {point}: the new tree was not synced after all")
        await session.sync()
        await arena.gateway.kill()

    async def restore(self, point: str, victim: str) -> None:
        """The disk is gone while no gateway runs; the next one restores it, and `victim` dies at `point`."""
        arena, session = self._arena, self._session
        await session.kill_bridge()
        session.wipe(whole=self._rng.random() < 0.5)
        kept = await everything_in(arena.cupboard)
        await self._play(point, victim, awake=False)
        if not arena.gateway.running:
            await arena.start()
        await session.post("/wake")
        await session.check_restored()
        await session.clean()
        self._expect(await everything_in(arena.cupboard) == kept, f"{victim} at {point}: what is stored has changed")
        await arena.gateway.kill()

    def _change(self, point: str) -> None:
        session = self._session
        session.gardener.edit(8)
        name = f"new-{self._rng.randbytes(8).hex()}"  # whatever else was done, there is a pack to send
        large = "pack" in point and self._rng.random() < 0.2
        session.write(name, self._rng.randbytes(LARGE_BYTES if large else 2000))

    async def _play(self, point: str, victim: str, *, awake: bool) -> None:
        """Start a gateway and have it come to `point`; when this returns, `victim` has died there."""
        arena = self._arena
        self._trace.unlink(missing_ok=True)
        at = (point, 1)
        if victim == "gateway":
            tampering = Tampering(crash_at=at, trace=self._trace)
        else:
            tampering = Tampering(halt_at=at, trace=self._trace)
        await arena.start(tampering)
        waking = asyncio.create_task(self._wake(), name="wake") if not awake else None
        if victim == "gateway":
            await arena.gateway.wait(within=PATIENCE)
        else:
            await until(lambda: arena.gateway.halted, f"it has come to {point}", within=PATIENCE)
        assert self._trace.read_text().split() == [point]
        if victim == "bridge":
            await self._kill_bridge()
        elif victim == "store":
            arena.cupboard.kill()
            arena.gateway.process.send_signal(signal.SIGCONT)
            await asyncio.sleep(self._rng.uniform(0, 0.2))
            await arena.cupboard.start()
        if waking is not None:
            await waking
        self.figures[f"{victim} killed"] += 1

    async def _kill_bridge(self) -> None:
        """At the point, or a moment after it."""
        later = self._rng.random() < 0.5
        if not later:
            await self._session.kill_bridge()
        self._arena.gateway.process.send_signal(signal.SIGCONT)
        if later:
            await asyncio.sleep(self._rng.uniform(0, 0.03))
            await self._session.kill_bridge()

    async def _wake(self) -> None:
        await self._session.ask("POST", "/wake", json={})

    def _expect(self, condition: bool, otherwise: str) -> None:
        if not condition:
            self._session.ledger.says(otherwise)


def _each(victim: str, times: int) -> list[Trial]:
    return [(point, victim) for point in STEPS for _ in range(times)]


async def _trials(directory: Path, cupboard: Cupboard, name: str, trials: list[Trial], seed: int, rng: Random) -> None:
    rng.shuffle(trials)
    async with Launcher() as launcher, arena_on(directory, cupboard, seed, rng, launcher=launcher) as arena:
        session = await arena.create("s0")
        session.gardener.edit(30)
        await session.sync()
        await arena.gateway.kill()
        steps = Steps(arena, session, directory / "trace")
        for point, victim in trials:
            await (steps.upload if point in UPLOAD else steps.restore)(point, victim)
        await arena.start()
        await session.running()
        await session.check_stored()
        arena.acquit(name, steps=len(STEPS), trials=len(trials), **steps.figures)


@pytest.mark.soak
async def test_old_or_new_whatever_dies_at_a_step_on_s3(tmp_path: Path, s3_server: S3Server) -> None:
    seed, rng = seeded()
    # A store that was killed needs its time to come back: a few of the steps, unless there is time for all of them.
    deaths = _each("store", sized(1, 4))
    deaths = rng.sample(deaths, sized(2, len(deaths)))
    trials = [*_each("gateway", sized(1, 10)), *deaths]
    await _trials(tmp_path, Bucket(s3_server, s3_server.make_place()), "upload steps on s3", trials, seed, rng)


@pytest.mark.soak
async def test_old_or_new_whatever_dies_at_a_step_in_a_directory(tmp_path: Path) -> None:
    seed, rng = seeded()
    trials = [*_each("gateway", sized(1, 10)), *_each("bridge", sized(1, 10))]
    await _trials(tmp_path, Directory(tmp_path / "objects"), "upload steps on files", trials, seed, rng)


def test_every_crash_point_of_the_code_is_one_of_these() -> None:
    named = {
        point
        for path in (REPOSITORY / "sync").rglob("*.py")
        for point in re.findall(r'crash_points\.reached\("([a-z._]+)"', path.read_text())
    }
    assert named == set(STEPS)
