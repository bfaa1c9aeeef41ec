"""A session's ends and returns: crash loops, deletion, revival, a sandbox that died while nobody looked."""

import signal
from pathlib import Path
from random import Random
from typing import Any

from sandbox.providers.local.layout import SandboxHome
from sandbox.providers.local.processes import Process
from tests.campaign.stage import Stage
from tests.gateway.http.sessions.test_lifecycle import comes_to
from tests.support.chat import hear, say
from tests.support.gateway import Gateway
from tests.support.waiting import until

CRASHES = 5


async def test_an_agent_that_keeps_crashing_is_left_alone_and_says_why(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data") as gateway, gateway.http() as client:
        starts = "open('starts', 'a').write('x'); raise SystemExit(7)"
        await client.post("/api/sandboxes/loop", json={"agent": ["python3", "-c", starts]})
        described = await comes_to(client, "loop", "error")
        assert "7" in described["reason"]
        counted = SandboxHome(gateway.data_dir, "loop").workspace / "starts"
        assert len(counted.read_text()) == CRASHES
        async with gateway.chat("loop") as socket:
            assert (await hear(socket, "welcome"))["status"] == "error"
            await say(socket, "message", cid="held", content="anybody?")
            assert (await hear(socket, "ack"))["status"] == "stored"
            assert len(counted.read_text()) == CRASHES  # a message does not start it again
            assert (await client.post("/api/sandboxes/loop/wake")).status_code == 200
            await hear(socket, lambda frame: frame["type"] == "session_status" and frame["status"] == "agent_exited")
        assert len(counted.read_text()) > CRASHES  # asking by name does


async def test_a_deleted_session_keeps_its_words_and_loses_its_files(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data") as gateway, gateway.http() as client:
        await gateway.create("gone")
        async with gateway.chat("gone") as socket:
            await say(socket, "message", content="/write note.txt remember")
            await hear(socket, "done")
            home = SandboxHome(gateway.data_dir, "gone")
            assert (home.workspace / "note.txt").read_text() == "remember"
            note = home.read_note()
            assert note is not None
            assert (await client.delete("/api/sandboxes/gone")).json()["status"] == "archived"
            await socket.wait_closed()
            assert socket.close_code == 1000
        assert not home.root.exists()
        assert not Process(note.init_pid, note.init_started).alive
        words = await gateway.messages("gone")
        assert len(words) == 2
        revived = await client.post("/api/sandboxes/gone")
        assert revived.status_code == 200
        async with gateway.chat("gone") as socket:
            await say(socket, "message", content="/read note.txt")
            await hear(socket, "done")
        history = await gateway.messages("gone")
        assert history[:2] == words
        assert "could not read" in history[3]["content"]
        assert (await client.delete("/api/sandboxes/gone?purge=1")).status_code == 200
        assert (await client.get("/api/sandboxes/gone/status")).status_code == 404
        assert not home.root.exists()


async def test_a_sandbox_that_died_with_its_gateway_is_told_and_wakes_again(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data") as gateway, gateway.http() as client:
        await gateway.create("both")
        async with gateway.chat("both") as socket:
            await say(socket, "message", cid="half", content="/long 60")
            await hear(socket, "chunk")
            # Only what a checkpoint holds outlives both: it is made each second.
            await hear(socket, lambda frame: frame["type"] == "chunk" and frame["text"].startswith("tick 15"))
        note = SandboxHome(gateway.data_dir, "both").read_note()
        assert note is not None
        await gateway.kill()
        Process(note.init_pid, note.init_started).signal(signal.SIGKILL)
        await gateway.start()
        await comes_to(client, "both", "sleeping")

        async def marked() -> list[dict[str, Any]]:  # that it sleeps is told at once, and written down behind that
            half, _ = found = await gateway.messages("both")
            return found if half["status"] == "interrupted" else []

        half, answer = await until(marked, "both records, the first of them interrupted")
        assert half["cid"] == "half"
        assert answer["status"] == "incomplete"
        assert answer["content"].startswith("tick 1 tick 2")
        async with gateway.chat("both") as socket:
            await say(socket, "message", content="again")
            await hear(socket, "done")
        await Stage(gateway, Random(0)).connected_one("both")


async def test_an_idle_session_falls_asleep_and_one_that_answers_does_not(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data", SLEEP_AFTER=1) as gateway, gateway.http() as client:
        await gateway.create("busy")
        async with gateway.chat("busy") as socket:
            await say(socket, "message", content="/long 4")
            await hear(socket, "chunk")  # from here on it is busy; before, it may have slept
            incarnation = (await client.get("/api/sandboxes/busy/status")).json()["incarnation"]
            passed: list[dict[str, Any]] = []
            await hear(socket, "done", passed=passed)
            told = [frame.get("sandboxStatus") for frame in passed if frame["type"] == "connection_status"]
            assert "sleeping" not in told
            await hear(socket, lambda frame: frame.get("sandboxStatus") == "sleeping")
        assert (await comes_to(client, "busy", "sleeping"))["incarnation"] == incarnation
        assert SandboxHome(gateway.data_dir, "busy").read_note() is None
