"""SIGTERM under load: everybody is told to come back, nothing acked is lost, sandboxes go on."""

import asyncio
import signal
from functools import partial
from pathlib import Path

from tests.campaign.participant import Participant
from tests.campaign.size import report, seeded
from tests.campaign.stage import Stage
from tests.support.gateway import GatewayByCommandLine
from tests.support.waiting import until

MESSAGES = 400


def _was_told(participant: Participant, drains: int) -> bool:
    assert participant.goodbyes >= drains, participant.goodbyes
    assert participant.closes[-1:] == [1012], participant.closes
    return True


async def test_a_drain_under_load_loses_nothing_and_the_next_gateway_goes_on(tmp_path: Path) -> None:
    seed, rng = seeded()
    async with GatewayByCommandLine(tmp_path / "data", PENDING_TTL=120) as gateway:
        stage = Stage(gateway, rng)
        await stage.create(2, 2, MESSAGES, pace=0.001, address=lambda: gateway.url.replace("http", "ws", 1))
        await stage.connected()
        async with stage.playing():
            for drains in (1, 2):
                await stage.progress(drains * MESSAGES // 3)
                await stage.all_connected(drains)  # others' messages may be settled before the last one is back
                gateway.process.send_signal(signal.SIGTERM)
                await asyncio.sleep(rng.uniform(0, 0.02))
                if gateway.running:
                    gateway.process.send_signal(signal.SIGTERM)  # again: it only drains once
                assert await gateway.wait() == 0, gateway.log[-4000:]
                for participant in stage.everybody:  # the process has ended; what it said last may still be unread
                    await until(partial(_was_told, participant, drains), f"seed={seed}: {participant.name} was told")
                await gateway.start()
            await stage.all_settled()
        verdict = await stage.judge()
        report(verdict.line("drain", seed))
        assert verdict.problems == [], "\n".join([f"seed={seed}", *verdict.problems[:40]])
        assert verdict.cases == MESSAGES
        assert [len(stage.evidence(session_id).said) for session_id in stage.participants] == [1, 1]
        assert (verdict.interrupted, verdict.expired) == (0, 0)
        assert "drain_unfinished" not in gateway.log
        # The gateway once stored what the agent said after its viewers had gone: they came back to a hole.
        assert verdict.recovered == [True] * 8, f"seed={seed}: {verdict.recovered}"


async def test_a_drain_with_nobody_there_is_quick_and_leaves_the_sandbox_running(tmp_path: Path) -> None:
    async with GatewayByCommandLine(tmp_path / "data") as gateway:
        await gateway.create("kept")
        stage = Stage(gateway, seeded()[1])
        await stage.connected_one("kept")
        async with gateway.http() as client:
            before = (await client.get("/api/sandboxes/kept/status")).json()
        assert await gateway.terminate() == 0
        await gateway.start()
        await stage.connected_one("kept")
        async with gateway.http() as client:
            after = (await client.get("/api/sandboxes/kept/status")).json()
        assert after["incarnation"] == before["incarnation"]
        assert after["status"] == "running"
