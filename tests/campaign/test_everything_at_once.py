"""Gateways, bridges and agents killed, connections cut, sessions put to sleep and held, all in one run: the promises
hold for the combinations, too."""

import asyncio
from pathlib import Path

import pytest

from tests.campaign.places import TRUSTED, Place
from tests.campaign.size import seeded, sized, when_large
from tests.campaign.stage import Stage, cutting, staged
from tests.support.launcher import Launcher, Tampering
from tests.support.proxy import CuttingProxy

TO_EACH_SESSION = ("bridge", "bridge", "agent", "agent", "sleep", "pause")
FORGIVING = Tampering(patches=("forgiving",))  # on a busy machine a start may be too slow, and would count as a crash


async def _do(fault: tuple[str, str], stage: Stage, proxy: CuttingProxy) -> None:
    match fault:
        case ("cut", _):
            await proxy.harm_one(stage.rng)
        case ("gateway", _):
            await stage.gateway.restart(kill=True)
        case ("bridge", session_id):
            stage.kill_bridge_now(session_id)
        case ("agent", session_id):
            stage.kill_agent_now(session_id)
        case ("sleep", session_id):
            await stage.ask(session_id, "sleep")
        case ("pause", session_id):
            await stage.ask(session_id, "pause")
            await asyncio.sleep(stage.rng.uniform(0, 0.2))
            await stage.ask(session_id, "resume")


async def everything_at_once(
    tmp_path: Path, place: Place, *, sessions: int, messages: int, rounds: int, name: str
) -> None:
    seed, rng = seeded()
    faults = [("cut", "")] * (2 * rounds) + [("gateway", "")] * rounds
    faults += [(kind, f"s{number}") for number in range(sessions) for kind in TO_EACH_SESSION]
    rng.shuffle(faults)
    async with (
        Launcher() as launcher,
        staged(tmp_path, seed, rng, launcher=launcher, tampering=FORGIVING, place=place) as stage,
    ):
        async with cutting(stage.gateway) as proxy:
            await stage.create(sessions, 2, messages, pace=0.002, address=lambda: f"ws://127.0.0.1:{proxy.port}")
            async with stage.playing():
                for number, fault in enumerate(faults, 1):
                    await stage.progress(number * messages // (len(faults) + 1))
                    await asyncio.sleep(rng.uniform(0, 0.05))
                    await _do(fault, stage, proxy)
                await stage.all_settled()
        verdict = await stage.acquit(name, faults=len(faults))
        assert verdict.cases == messages
        (await stage.check(name)).acquit(*when_large("resent"))


@pytest.mark.soak
async def test_the_promises_hold_when_everything_happens_at_once(tmp_path: Path) -> None:
    await everything_at_once(
        tmp_path,
        TRUSTED,
        sessions=sized(3, 10),
        messages=sized(300, 4000),
        rounds=sized(4, 40),
        name="everything at once",
    )
