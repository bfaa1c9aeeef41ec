"""The gateway is killed at random moments under load: nothing acked is lost, and agents do not even notice."""

import asyncio
import statistics
import time
from pathlib import Path
from random import Random

import pytest

from tests.campaign.places import CONTAINED, TRUSTED, Place
from tests.campaign.size import seeded, sized, when_large
from tests.campaign.stage import staged
from tests.support.gateway import Gateway, GatewayFailed
from tests.support.waiting import until

KILLED_WHILE_STARTING = 0.2  # of the restarts


async def _restart(gateway: Gateway, rng: Random) -> float:
    """kill -9, sometimes once more while it starts; seconds until it was ready."""
    await gateway.kill()
    if rng.random() < KILLED_WHILE_STARTING:
        starting = asyncio.create_task(gateway.start(), name="starting")
        await asyncio.wait((starting,), timeout=rng.uniform(0.05, 0.8))
        await gateway.kill()
        await asyncio.gather(starting, return_exceptions=True)
        await gateway.kill()  # it may have been killed before there was a process to kill
        if not isinstance(starting.exception(), GatewayFailed | None):
            starting.result()
    began = time.monotonic()
    await gateway.start()
    async with gateway.http({}) as client:

        async def is_ready() -> bool:
            return (await client.get("/ready")).status_code == 200

        await until(is_ready, "ready")
    return time.monotonic() - began


async def gateway_kills(tmp_path: Path, place: Place, *, sessions: int, messages: int, kills: int, name: str) -> None:
    seed, rng = seeded()
    async with staged(tmp_path, seed, rng, place=place) as stage:
        await stage.create(sessions, 2, messages, pace=0.001)
        ready: list[float] = []
        async with stage.playing():
            for number in range(1, kills + 1):
                await stage.progress(number * messages // (kills + 1))
                await asyncio.sleep(rng.uniform(0, 0.1))
                ready.append(await _restart(stage.gateway, rng))
            await stage.all_settled()
        times = f"{statistics.median(ready):.2f}s median {max(ready):.2f}s worst"
        verdict = await stage.acquit(name, kills=kills, ready=times)
        assert verdict.cases == messages
        runs = {session_id: len(stage.evidence(session_id).said) for session_id in stage.participants}
        assert set(runs.values()) == {1}, f"seed={seed}: an agent was started again: {runs}"
        assert (verdict.interrupted, verdict.expired) == (0, 0), f"seed={seed}"
        (await stage.check(name)).acquit(*when_large("resent"))


@pytest.mark.soak
async def test_a_killed_gateway_loses_nothing_and_finds_its_sandboxes_again(tmp_path: Path) -> None:
    await gateway_kills(
        tmp_path,
        TRUSTED,
        sessions=sized(3, 6),
        messages=sized(480, 6000),
        kills=sized(12, 100),
        name="gateway kills",
    )


@pytest.mark.soak
async def test_contained_sandboxes_are_found_again_too(tmp_path: Path) -> None:
    await gateway_kills(
        tmp_path,
        CONTAINED,
        sessions=sized(2, 4),
        messages=sized(120, 1200),
        kills=sized(3, 20),
        name="gateway kills, contained",
    )
