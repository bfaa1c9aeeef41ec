"""A canary in `envVars` goes through a session's whole life, and is then looked for everywhere it must not be."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import httpx
import pytest

from tests.campaign.stage import Stage
from tests.support.chat import hear, say
from tests.support.gateway import Gateway, GatewayByCommandLine
from tests.support.waiting import files_with


def _command_lines_with(needle: bytes) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if needle in path.read_bytes():
                found.append(str(path))
        except OSError:
            continue
    return found


@asynccontextmanager
async def _recording(gateway: Gateway, seen: list[str]) -> AsyncIterator[httpx.AsyncClient]:
    """A client whose every answer is kept."""

    async def keep(answer: httpx.Response) -> None:
        seen.append((await answer.aread()).decode(errors="replace"))

    async with gateway.http() as client:
        client.event_hooks = {"response": [keep]}
        yield client


async def _ask(gateway: Gateway, session_id: str, content: str, until: str) -> list[str]:
    async with gateway.chat(session_id) as socket:
        passed: list[dict[str, object]] = []
        await hear(socket, "welcome")
        await say(socket, "message", content=content)
        await hear(socket, until, passed=passed)
        return [str(frame) for frame in passed]


@pytest.mark.parametrize("level", ["trusted", "contained"])
async def test_a_canary_is_found_nowhere_but_in_its_own_agent(tmp_path: Path, level: str) -> None:
    canary = f"canary-{secrets.token_hex(12)}"
    needle = canary.encode()
    seen: list[str] = []
    async with GatewayByCommandLine(tmp_path / "data", LOCAL_LEVEL=level, LOG_LEVEL="debug") as gateway:
        stage = Stage(gateway, Random(0))
        async with _recording(gateway, seen) as client:
            env = {"envVars": {"API_KEY": canary}}
            assert (await client.post("/api/sandboxes/kept", json=env)).status_code == 201
            await stage.connected_one("kept")
            assert _command_lines_with(needle) == []
            assert any("API_KEY is set" in text for text in await _ask(gateway, "kept", "/env API_KEY", "done"))
            seen += await _ask(gateway, "kept", "/crash", "interrupted")

            for wrong in ({"envVars": {"1": canary}}, {"envVars": {"A": [canary]}}, {"envVars": canary}):
                assert (await client.post("/api/sandboxes/wrong", json=wrong)).status_code == 400
            broken = {**env, "agent": ["/does/not/exist"]}
            await client.post("/api/sandboxes/broken", json=broken)
            await client.post("/api/sandboxes/broken/wake")
            await stage.connected_one("kept")

            for route in ("api/sandboxes/kept/status", "api/sandboxes", "logs/kept", "logs/broken"):
                assert (await client.get(f"/{route}")).status_code == 200
            assert (await client.get("/metrics", headers=gateway.admin)).status_code == 200
            assert (await client.get("/api/sessions/kept/messages")).status_code == 200

            await client.post("/api/sandboxes/kept/sleep")
            await gateway.restart(kill=True)
            woken = (await client.post("/api/sandboxes/kept/wake")).json()
            assert woken["status"] == "needs_env"
            assert (await client.post("/api/sandboxes/kept/resume", json=env)).json()["status"] == "running"
            await stage.connected_one("kept")
            assert any("API_KEY is set" in text for text in await _ask(gateway, "kept", "/env API_KEY", "done"))
            assert _command_lines_with(needle) == []
        assert await gateway.terminate() == 0
        assert files_with(needle, tmp_path) == []
        assert canary not in gateway.log
        assert canary not in gateway.printed
        assert [text for text in seen if canary in text] == []
        assert (tmp_path / "data" / "holdfast.db").stat().st_size > 0

        # The search can fail: the token that every bridge is told is where it should be, and found.
        token = next((tmp_path / "data" / "sandboxes").glob("*/bridge.json")).read_text().split('"token": "')[1][:20]
        assert [path.name for path in files_with(token.encode(), tmp_path)] == ["bridge.json"]


async def test_what_must_be_private_on_disk_is(tmp_path: Path) -> None:
    async with GatewayByCommandLine(tmp_path / "data") as gateway:
        await gateway.create("s1")
        await Stage(gateway, Random(0)).connected_one("s1")
        private = [*(gateway.data_dir / "secrets").iterdir(), gateway.data_dir / "sandboxes" / "s1" / "bridge.json"]
        assert len(private) >= 5
        for path in [*private, gateway.data_dir / "holdfast.db"]:
            assert path.stat().st_mode & 0o077 == 0, path
        for path in (gateway.data_dir / "secrets").iterdir():
            value = path.read_text().strip()
            assert value not in gateway.log
            assert value not in gateway.printed
