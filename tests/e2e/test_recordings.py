"""A gateway that records its sessions: each recording can be done again, and holds no secret."""

import asyncio
import json
import secrets
import stat
import sys
from pathlib import Path

import pytest
from websockets.asyncio.client import ClientConnection, connect

from gateway.session.replay import replay
from tests.gateway.http.sessions.test_lifecycle import comes_to
from tests.gateway.session.test_replay import STRANGERS
from tests.support.chat import hear, say
from tests.support.gateway import Gateway, GatewayFailed
from tests.support.waiting import files_with, until

SESSION = "recorded"


async def a_day(gateway: Gateway, canary: str, hidden: list[str]) -> None:
    """Messages, answers, a terminal, a share, a crash of the bridge, a pause, a resume, a kill of the gateway, a
    delete. Adds what must stand nowhere."""
    hidden += [gateway.secret(name) for name in ("jwt_secret", "api_token", "internal_token", "relay_secret")]
    async with gateway.http() as ada:
        await gateway.create(SESSION, envVars={"API_KEY": canary, "QUOTED": f'"{canary}" \\ and more'})
        async with gateway.chat(SESSION) as socket:
            await hear(socket, "welcome")
            for number, words in enumerate(
                ("hello", f"my key is {canary}", f'and "{canary}" \\ and more', "/ask now?")
            ):
                await say(socket, "message", cid=f"c{number}", content=words)
                await hear(socket, "done" if number < 3 else "ask_user_question")
            token = gateway.token(ttl=7200)
            await say(socket, "auth", token=token)
            hidden.append(token)
            async with gateway.socket(f"/terminal/{SESSION}") as terminal:
                await terminal.send(f"echo {canary}\n".encode())
                await until_shown(terminal, canary)
            shared = (await ada.post(f"/api/sandboxes/{SESSION}/shares", json={"label": "eva"})).json()
            hidden.append(shared["token"])
            ticket = (await ada.post("/api/tickets", json={"sessionId": SESSION})).json()["ticket"]
            hidden.append(ticket)
            url = gateway.url.replace("http", "ws", 1)
            async with connect(f"{url}/ws/v2?sessionId={SESSION}&ticket={ticket}", proxy=None) as guest:
                await hear(guest, "welcome")
            await ada.patch(f"/api/sandboxes/{SESSION}", json={"title": "a name"})
            await ada.delete(f"/api/sandboxes/{SESSION}/shares/{shared['number']}")
            assert (await ada.post(f"/api/sandboxes/{SESSION}/demo/kill-bridge")).status_code == 200
            await hear(socket, lambda frame: frame.get("sandboxStatus") == "connecting")
            await say(socket, "message", cid="then", content="still there?")
            await hear(socket, "done")
            assert (await ada.post(f"/api/sandboxes/{SESSION}/pause")).status_code == 200
            assert (await ada.post(f"/api/sandboxes/{SESSION}/resume", json={})).status_code == 200
            await say(socket, "message", cid="again", content="and now?")
            await hear(socket, "done")
        await gateway.kill()
        await gateway.start()
    async with gateway.http() as ada:
        resumed = await ada.post(f"/api/sandboxes/{SESSION}/resume", json={"envVars": {"API_KEY": canary}})
        assert resumed.status_code in (200, 409), resumed.text
        await comes_to(ada, SESSION, "running")
        async with gateway.chat(SESSION) as socket:
            await say(socket, "message", cid="last", content=f"{canary} once more")
            await hear(socket, "done")
        assert (await ada.delete(f"/api/sandboxes/{SESSION}")).json()["status"] == "archived"


async def until_shown(terminal: ClientConnection, text: str) -> None:
    shown = b""
    async with asyncio.timeout(60):
        while text.encode() not in shown:
            came = await terminal.recv()
            shown += came if isinstance(came, bytes) else came.encode()


async def test_what_a_gateway_recorded_can_be_done_again_and_holds_no_secret(tmp_path: Path) -> None:
    canary, hidden = f"canary-{secrets.token_hex(12)}", list[str]()
    directory = tmp_path / "recordings"
    async with Gateway(tmp_path / "data", RECORD_SESSIONS=directory, DEMO="true") as gateway:
        await a_day(gateway, canary, hidden)
        assert await gateway.terminate() == 0
        assert "house.records" in gateway.log
    recordings = sorted(directory.iterdir())
    assert len(recordings) >= 2, "one for each time it was loaded"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in recordings} == {0o600}
    strangers: set[str] = set()
    for path in recordings:
        lines = path.read_bytes().splitlines(keepends=True)
        done = await replay(lines)
        assert done.difference is None, f"{path.name}: {done.difference}"
        assert done.events > 0
        handlers = [json.loads(line)["on"] for line in lines[1:-1]]
        strangers |= {on["="] for on in handlers if on["!"] != "handler"}
    assert strangers <= STRANGERS, "the replay leaves them out"
    for secret in (canary, *hidden):
        assert files_with(secret.encode(), directory) == [], "a secret was recorded"
    whole = b"".join(path.read_bytes() for path in recordings)
    assert b"my key is *******" in whole
    command = [sys.executable, "-m", "gateway.session.replay", str(recordings[0])]
    told = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await told.communicate()
    assert (told.returncode, b"all as recorded" in output) == (0, True)


async def test_a_directory_that_cannot_be_used_is_told_of_at_the_start(tmp_path: Path) -> None:
    wide = tmp_path / "wide"
    wide.mkdir()
    wide.chmod(0o755)
    (tmp_path / "file").touch()
    for path, reason in ((wide, "others may look into"), (tmp_path / "file" / "below", "HOLDFAST_RECORD_SESSIONS")):
        gateway = Gateway(tmp_path / "data", RECORD_SESSIONS=path)
        with pytest.raises(GatewayFailed, match="HOLDFAST_RECORD_SESSIONS") as failed:
            async with gateway:
                pass
        assert reason in str(failed.value)


async def test_a_disk_that_is_full_ends_a_recording_and_no_session(tmp_path: Path) -> None:
    directory = tmp_path / "recordings"
    async with Gateway(tmp_path / "data", RECORD_SESSIONS=directory) as gateway:
        directory.rmdir()
        await gateway.create("unrecorded")
        async with gateway.chat("unrecorded") as socket:
            await say(socket, "message", content="hello")
            await hear(socket, "done")
        await until(lambda: "recording.not_begun" in gateway.log, "a word in the log")
