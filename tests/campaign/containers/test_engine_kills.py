"""The engine is restarted and killed under load, with and without live-restore: nothing that was promised is lost, and
every session is back at the end."""

import asyncio
from pathlib import Path
from random import Random

import pytest

from sandbox.providers.local.layout import SandboxHome
from tests.campaign.places import Containers
from tests.campaign.size import seeded, sized
from tests.campaign.stage import Stage, staged
from tests.support.engine import DockerEngine
from tests.support.launcher import Launcher, Tampering

FORGIVING = Tampering(patches=("forgiving",))  # the fifth end within five minutes would be a crash loop


def _strike(engine: DockerEngine, fault: str) -> None:
    match fault:
        case "restart":
            engine.stop()
        case "kill":
            engine.kill()
        case "containerd":
            engine.kill_containerd()


async def _keep_a_file(stage: Stage, name: str) -> None:
    """One in each workspace, as if a program had left it there."""
    for session_id in stage.participants:
        file = SandboxHome(stage.gateway.data_dir, session_id).workspace / name
        file.write_text(name)
        stage.place.give(file)


async def _restored(stage: Stage, names: list[str]) -> None:
    """Put the sessions to sleep, delete their disks, wake them: everything comes back from the store."""
    for session_id in stage.participants:
        await stage.ask(session_id, "sleep")
        workspace = SandboxHome(stage.gateway.data_dir, session_id).workspace
        for file in workspace.iterdir():
            file.unlink()
        await stage.ask(session_id, "wake")
    await stage.connected()
    for session_id in stage.participants:
        workspace = SandboxHome(stage.gateway.data_dir, session_id).workspace
        assert [name for name in names if (workspace / name).read_text() != name] == []


def _faults(rng: Random, restarts: int, kills: int, containerd: int) -> list[str]:
    faults = ["restart"] * restarts + ["kill"] * kills + ["containerd"] * containerd
    rng.shuffle(faults)
    return faults


@pytest.mark.soak
@pytest.mark.parametrize("live_restore", [True, False], ids=["live-restore", "no live-restore"])
async def test_nothing_is_lost_when_the_engine_is_restarted_and_killed(
    tmp_path: Path, containers: Containers, live_restore: bool
) -> None:
    seed, rng = seeded()
    faults = _faults(rng, restarts=sized(1, 20), kills=sized(1, 10), containerd=sized(0, 5))
    sessions, messages = sized(2, 4), sized(60, 3200)
    with DockerEngine(live_restore=live_restore) as engine:
        place = Containers.of(engine, containers.kits)
        async with (
            Launcher() as launcher,
            staged(
                tmp_path, seed, rng, launcher=launcher, tampering=FORGIVING, place=place, PENDING_LIMIT=5000
            ) as stage,
        ):
            await stage.create(sessions, 2, messages, pace=0.002)
            names = [f"kept-{number}" for number in range(len(faults))]
            async with stage.playing():
                for number, fault in enumerate(faults, 1):
                    await stage.progress(number * messages // (len(faults) + 1))
                    await _keep_a_file(stage, names[number - 1])
                    stage.journal.note("fault", kind=f"engine: {fault}")
                    _strike(engine, fault)
                    await asyncio.sleep(rng.uniform(0, 1))
                    engine.start()
                await stage.all_settled()
            await stage.connected()
            name = f"engine restarts and kills, {'' if live_restore else 'no '}live-restore"
            counts = {kind: faults.count(kind) for kind in ("restart", "kill", "containerd")}
            verdict = await stage.acquit(name, files=len(names) * sessions, **counts)
            assert verdict.cases == messages
            (await stage.check(name)).acquit()
            runs = [len(stage.evidence(session_id).said) for session_id in stage.participants]
            if live_restore:
                assert set(runs) == {1}, f"seed={seed}: an agent was started again: {runs}"
            else:
                assert min(runs) > 1, f"seed={seed}: an agent outlived its engine: {runs}"
            await _restored(stage, names)
