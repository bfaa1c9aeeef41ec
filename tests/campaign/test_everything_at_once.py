"""Gateway killed, bridges killed and connections cut in one run: the promises hold for the combinations, too."""

import asyncio
from pathlib import Path

import pytest

from tests.campaign.size import report, seeded, sized
from tests.campaign.stage import Stage
from tests.support.gateway import Gateway
from tests.support.proxy import CuttingProxy

BRIDGE_KILLS_PER_SESSION = 2


@pytest.mark.soak
async def test_the_promises_hold_when_everything_dies_at_once(tmp_path: Path) -> None:
    seed, rng = seeded()
    sessions, messages, rounds = sized(3, 10), sized(300, 4000), sized(5, 40)
    faults = ["cut"] * (2 * rounds) + ["gateway"] * rounds
    faults += [f"s{number}" for number in range(sessions)] * BRIDGE_KILLS_PER_SESSION
    rng.shuffle(faults)
    async with Gateway(tmp_path / "data", PENDING_TTL=120) as gateway:
        async with CuttingProxy(int(gateway.url.rsplit(":", 1)[1])) as proxy:
            stage = Stage(gateway, rng)
            await stage.create(sessions, 2, messages, pace=0.002, address=lambda: f"ws://127.0.0.1:{proxy.port}")
            await stage.connected()
            async with stage.playing():
                for number, fault in enumerate(faults, 1):
                    await stage.progress(number * messages // (len(faults) + 1))
                    await asyncio.sleep(rng.uniform(0, 0.05))
                    if fault == "cut":
                        await proxy.harm_one(rng)
                    elif fault == "gateway":
                        await gateway.restart(kill=True)
                    else:
                        stage.kill_bridge_now(fault)
                await stage.all_settled()
        verdict = await stage.judge()
        assert "session.crashed" not in gateway.log, gateway.log[-6000:]
        report(verdict.line("everything at once", seed, faults=len(faults)))
        assert verdict.problems == [], "\n".join([f"seed={seed}", *verdict.problems[:40]])
        assert verdict.cases == messages
