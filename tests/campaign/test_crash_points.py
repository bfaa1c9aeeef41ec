"""The gateway is killed at every place where dying could matter, and at random: nothing acknowledged is lost."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from tests.campaign.database import accepted, come_back, leave, on_postgres
from tests.campaign.size import seeded, sized
from tests.campaign.stage import Stage, staged
from tests.support.gateway import REPOSITORY, GatewayFailed
from tests.support.launcher import UNTOUCHED, Launcher, Tampering
from tests.support.postgres import PostgresServer
from tests.support.proxy import StoreProxy
from tests.support.sink import TOKEN, Rule, SinkProcess
from tests.support.waiting import until

SESSION = (
    "session.loaded", "frame.parsed", "message.put", "ack.queued", "ack.sent", "deliver.sent", "deliver.taken",
    "answer.put", "answer.stored", "done.shown", "checkpoint.put", "queue.taken", "queue.committed", "queue.told",
)  # fmt: skip
SQLITE = (*SESSION, "store.written", "store.committed")
SPOOL = ("spool.written", "spool.committed", "spool.forwarded", "spool.removed")
POSTGRES = (*SESSION, "store.sent", "store.committed", *SPOOL)
SINK = (*SESSION, "store.written", "store.committed", "sink.posted", "sink.kept")
TIMES = {"checkpoint.put": 1, "session.loaded": 3, "sink.kept": 2} | dict.fromkeys(SPOOL, 2)  # rarer than the others
REACHED_WITHIN = 15.0
TRIES = 3

Meanwhile = Callable[[str | None], Awaitable[None]]


async def _nothing(_: str | None) -> None:
    pass


async def _die(stage: Stage, point: str | None, meanwhile: Meanwhile, trace: Path) -> None:
    """Start the gateway, and let it die: at `point`, or at a random moment."""
    gateway, rng = stage.gateway, stage.rng
    crash_at = (point, rng.randint(1, TIMES.get(point, 20))) if point is not None else None
    gateway.tampering = Tampering(crash_at=crash_at, trace=trace)
    try:
        await gateway.start()
        await meanwhile(point)
        if point is None:
            await asyncio.sleep(rng.uniform(0, 0.4))
        else:
            await gateway.wait(within=REACHED_WITHIN)
    except (GatewayFailed, TimeoutError):
        pass  # it died while it started; or it never came to that point, which is counted
    await gateway.kill()
    stage.journal.note("fault", kind="kill")


async def _campaign(
    stage: Stage, kills: int, points: tuple[str, ...], trace: Path, name: str, meanwhile: Meanwhile = _nothing
) -> None:
    await stage.create(3, 2, kills * 240, pace=0.001, pause=0.01)
    faults: list[str | None] = [points[number % len(points)] for number in range(max(kills // 2, len(points)))]
    faults += [None] * (kills - len(faults))
    stage.rng.shuffle(faults)
    async with stage.playing():
        await stage.gateway.kill()
        for fault in faults:
            await _die(stage, fault, meanwhile, trace)
        for point in points * TRIES:  # on a busy machine one may not be reached in time
            if point not in trace.read_text().split():
                await _die(stage, point, meanwhile, trace)
        stage.gateway.tampering = UNTOUCHED
        await stage.gateway.start()
        stage.enough()
        await stage.all_settled()
    died_at = trace.read_text().split()
    verdict = await stage.acquit(name, kills=kills, points=f"{len(set(died_at))}/{len(points)}")
    assert (verdict.interrupted, verdict.expired) == (0, 0), f"seed={stage.seed}"
    assert set(points) == set(died_at), f"seed={stage.seed}: never died at {set(points) - set(died_at)}"


@pytest.mark.soak
async def test_nothing_is_lost_wherever_the_gateway_dies_on_sqlite(tmp_path: Path) -> None:
    seed, rng = seeded()
    name = "kills on sqlite"
    async with Launcher() as launcher, staged(tmp_path, seed, rng, launcher=launcher) as stage:
        await _campaign(stage, sized(100, 1000), SQLITE, tmp_path / "crashes", name)
        (await stage.check(name)).acquit("kill", "resent", "ack lost")


@pytest.mark.soak
async def test_nothing_is_lost_wherever_the_gateway_dies_on_postgres(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    seed, rng = seeded()
    name = "kills on postgres"
    async with Launcher() as launcher:
        staging = partial(staged, tmp_path, seed, rng, launcher=launcher)
        async with on_postgres(postgres_server, staging) as (stage, proxy):
            meanwhile = partial(_spool_something, stage, proxy)
            await _campaign(stage, sized(30, 200), POSTGRES, tmp_path / "crashes", name, meanwhile)
            (await stage.check(name)).acquit("kill", "resent", "ack lost", "accepted", "store away")


@pytest.mark.soak
async def test_nothing_is_lost_wherever_the_gateway_dies_on_a_service(tmp_path: Path) -> None:
    seed, rng = seeded()
    name = "kills on a service"
    async with (
        Launcher() as launcher,
        SinkProcess() as sink,
        staged(tmp_path, seed, rng, launcher=launcher, STORE=sink.url, INTERNAL_TOKEN=TOKEN) as stage,
    ):
        stage.database = f"sqlite:///{stage.gateway.data_dir}/spool.db"
        await sink.misbehave(Rule(cut=True, keep=True, times=6), Rule(status=503, times=6))
        await _campaign(stage, sized(20, 200), SINK, tmp_path / "crashes", name)
        (await stage.check(name)).acquit("kill", "resent", "ack lost", "accepted", "stored after accepted")
        assert (await sink.figures())["conflicts"] == []
        for session_id in stage.participants:
            assert await sink.seqs(session_id) == [record["seq"] for record in await stage.gateway.messages(session_id)]


async def _spool_something(stage: Stage, proxy: StoreProxy, point: str | None) -> None:
    """Points of the spool are reached when the database goes away under load, and comes back."""
    if point not in SPOOL:
        return

    async def until_dead_or(count: Callable[[], int], more: int) -> None:
        goal = count() + more
        await until(lambda: not stage.gateway.running or count() >= goal, f"{point} or {more} more")

    await until_dead_or(lambda: stage.settled, 5)
    leave(stage, proxy)
    await until_dead_or(lambda: accepted(stage), 3)
    come_back(stage, proxy)


def test_every_crash_point_of_the_code_is_one_of_these() -> None:
    sources = [path for package in ("gateway", "persistence") for path in (REPOSITORY / package).rglob("*.py")]
    named = {
        point
        for path in sources
        if path.name != "crash_points.py"
        for point in re.findall(r'crash_points\.reached(?:\(|, )"([a-z.]+)"', path.read_text())
    }
    assert named == {*SQLITE, *POSTGRES, *SINK}
    assert len(named) >= 16
