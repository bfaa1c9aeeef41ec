"""`/internal/orphans` and `holdfast orphans` of a real gateway, on a sandbox whose session the store has lost."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator

import pytest

from gateway.cli.commands.orphans import row
from sandbox.ports.fleet import SandboxSpec
from sandbox.providers.local.fleet import LocalFleet
from tests.support.gateway import PASSED_ON, Gateway
from tests.support.launcher import launch
from tests.support.waiting import until


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with Gateway(tmp_path_factory.mktemp("orphans") / "data", ORPHANS="keep") as running:
        yield running


async def holdfast(gateway: Gateway, *words: str) -> str:
    environ = {name: value for name, value in gateway.environment().items() if name in PASSED_ON}
    environ |= {"HOLDFAST_DATA_DIR": str(gateway.data_dir), "HOLDFAST_API_TOKEN": gateway.secret("api_token")}
    process = await launch(
        "orphans", "--url", gateway.url, *words, env=environ, stdout=asyncio.subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await process.communicate()
    assert process.returncode == 0, said
    return said.decode()


async def orphaned(gateway: Gateway, name: str) -> None:
    """A sandbox beside those of the gateway."""
    fleet = LocalFleet(data_dir=gateway.data_dir, level="trusted", loopback_only=True)
    await fleet.open()
    await fleet.start(SandboxSpec(name, 1, ("cat",)))
    await fleet.close()


async def test_an_operator_sees_and_removes_them(gateway: Gateway) -> None:
    await gateway.create("mine")
    async with gateway.http(gateway.admin) as admin:
        assert (await admin.get("/internal/orphans")).json() == {"orphans": []}
        await orphaned(gateway, "lost")
        expected = {"provider": "local", "name": "lost", "sessionId": "lost"}
        (found,) = (await admin.get("/internal/orphans")).json()["orphans"]
        assert {key: found[key] for key in expected} == expected
        removed = await admin.delete("/internal/orphans")
        assert (removed.status_code, removed.json()) == (200, {"orphans": [found]})
        assert (await admin.get("/internal/orphans")).json() == {"orphans": []}

        async def runs() -> bool:
            return bool((await admin.get("/api/sandboxes/mine/status")).json()["sandboxStatus"] == "connected")

        await until(runs, "the session's own sandbox")


async def test_the_command_does_the_same(gateway: Gateway) -> None:
    assert await holdfast(gateway) == "no orphans\n"
    await orphaned(gateway, "left")
    assert json.loads(await holdfast(gateway, "--json"))["orphans"][0]["sessionId"] == "left"
    assert "left" in await holdfast(gateway)
    assert "left" in await holdfast(gateway, "--remove")
    assert await holdfast(gateway, "--json") == '{"orphans": []}\n'


async def test_nobody_else_may(gateway: Gateway) -> None:
    for headers in ({}, None, gateway.internal, gateway.relay):
        async with gateway.http(headers) as client:
            for method in ("GET", "DELETE"):
                assert (await client.request(method, "/internal/orphans")).status_code == 401


def test_a_line_shows_what_an_engine_shows() -> None:
    orphan = {"provider": "docker", "sessionId": None, "name": "0123456789abcdef", "why": "it has\x1bended"}
    assert row(orphan)[:3] == ("docker", "-", "0123456789ab")
    assert "\x1b" not in row(orphan)[3]
