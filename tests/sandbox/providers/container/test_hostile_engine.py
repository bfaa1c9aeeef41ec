"""An engine that is silent, lies or is away, under a gateway with sessions: nothing is stopped, nothing is lost, and
people are told why they wait."""

from pathlib import Path

from sandbox.providers.local.layout import SandboxHome
from tests.gateway.http.sessions.test_lifecycle import comes_to
from tests.support.chat import Frame, hear, say
from tests.support.engine import DockerEngine
from tests.support.gateway import Gateway
from tests.support.launcher import Tampering
from tests.support.lying_engine import LyingEngine, Mood
from tests.support.waiting import until


def _waits(frame: Frame) -> bool:
    return frame["type"] == "session_status" and frame["status"] == "starting" and bool(frame.get("reason"))


async def test_whatever_an_engine_says_sessions_that_run_go_on_and_others_wait_in_words(
    docker_engine: DockerEngine, tmp_path: Path
) -> None:
    async with LyingEngine(tmp_path / "engine.sock", docker_engine.socket) as engine:
        there = {"SANDBOX": "docker", "DOCKER": f"unix://{engine.path}", "DOCKER_IMAGE": docker_engine.image}
        gateway = Gateway(tmp_path / "data", **there)
        gateway.tampering = Tampering(patches=("impatient_with_engines",))
        async with gateway, gateway.http() as ada:
            for session_id in ("runs", "sleeps"):
                await gateway.create(session_id)
                await comes_to(ada, session_id, "running")
            note = SandboxHome(gateway.data_dir, "runs").note
            before = note.read_bytes()
            for mood in Mood:
                if mood is Mood.HONEST:
                    continue
                assert (await ada.post("/api/sandboxes/sleeps/sleep")).status_code == 200, mood
                await comes_to(ada, "sleeps", "sleeping")
                await engine.become(mood)
                async with gateway.chat("sleeps") as waiting, gateway.chat("runs") as running:
                    await say(waiting, "message", content=f"while it is {mood.name}")
                    await hear(waiting, _waits)
                    told = (await ada.get("/api/sandboxes/sleeps/status")).json()
                    assert (told["status"], told["sandboxStatus"]) == ("starting", "connecting"), told
                    assert told["reason"], told
                    await say(running, "message", content="and here?")
                    await hear(running, "done")
                    await until(lambda: engine.asked > 1, f"{mood}: it is asked again")
                    refused = await ada.post("/api/sandboxes/runs/sleep")
                    assert (refused.status_code, refused.json()["code"]) == (503, "sandbox_unavailable")
                    await engine.become(Mood.HONEST)
                    await hear(waiting, "done")
                    await say(running, "message", content="still?")
                    await hear(running, "done")
                assert note.read_bytes() == before, f"{mood}: another sandbox"
        docker_engine.client("rm", "--force", *docker_engine.client("ps", "--all", "--quiet").split())
