"""`GET /api/providers` and `holdfast providers` of a real gateway: who is told what."""

import json
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.cli.commands.providers import row
from tests.gateway.http.sessions.test_lifecycle import comes_to, refused
from tests.support.gateway import PASSED_ON, Gateway
from tests.support.launcher import launch

PLAIN = {
    "name": "local", "level": "trusted", "healthy": True, "problem": None, "image": None,
    "images": [], "networks": ["none", "outbound"],
}  # fmt: skip


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with Gateway(tmp_path_factory.mktemp("providers") / "data", MAX_RUNNING=7) as running:
        yield running


async def test_a_user_is_told_what_can_be_had_and_not_how_full_it_is(gateway: Gateway) -> None:
    async with gateway.http() as ada:
        answer = await ada.get("/api/providers")
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json() == {"default": "local", "providers": [PLAIN]}


@pytest.mark.parametrize("who", ["admin", "relay"])
async def test_services_are_told_how_full_it_is(gateway: Gateway, who: str) -> None:
    await gateway.create(f"of-{who}")
    async with gateway.http(getattr(gateway, who)) as service:
        await comes_to(service, f"of-{who}", "running")
        told = (await service.get("/api/providers")).json()
        listed = (await service.get("/api/sandboxes")).json()["sandboxes"]
    assert (told["default"], told["maxRunning"]) == ("local", 7)
    (local,) = told["providers"]
    assert local["running"] == len(listed) > 0
    assert local["capacity"]["cpus"] == os.cpu_count()
    assert local["capacity"]["memory"] > 1 << 28
    assert {name: local[name] for name in PLAIN} == PLAIN


async def test_nobody_else_is_told_anything(gateway: Gateway) -> None:
    await gateway.create("shown")
    async with gateway.http() as ada:
        share = (await ada.post("/api/sandboxes/shown/shares")).json()["token"]
    for headers, status, code in [
        ({}, 401, "no_credentials"),
        (gateway.internal, 401, "bad_credentials"),
        ({"Authorization": f"Bearer {share}"}, 403, "read_only"),
    ]:
        async with gateway.http(headers) as client:
            assert refused(await client.get("/api/providers"), status, code)


async def typed(data: Path, *words: str) -> tuple[int, str, str]:
    base = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    process = await launch(
        "providers", *words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=base | {"HOLDFAST_DATA_DIR": str(data)},
    )  # fmt: skip
    out, errors = await process.communicate()
    return process.returncode or 0, out.decode(), errors.decode()


async def test_the_command_prints_a_table_or_what_the_gateway_says(gateway: Gateway) -> None:
    code, out, errors = await typed(gateway.data_dir)
    assert (code, errors) == (0, "")
    head, line = out.splitlines()
    assert head.split() == ["PROVIDER", "LEVEL", "RUNNING", "MACHINE", "IMAGE", "STATE"]
    assert line.startswith("local (default)  trusted")
    assert line.endswith("ok")
    code, out, _ = await typed(gateway.data_dir, "--json")
    assert (code, json.loads(out)["maxRunning"]) == (0, 7)
    code, out, _ = await typed(gateway.data_dir, "--json", "--token", gateway.token())
    assert (code, json.loads(out)) == (0, {"default": "local", "providers": [PLAIN]})
    code, out, errors = await typed(gateway.data_dir, "--token", "x" * 20)
    assert (code, out) == (1, "")
    assert "(401)" in errors


def test_a_provider_on_one_line() -> None:
    docker = {"name": "docker", "level": "container", "healthy": False, "problem": "no\x1b!", "image": "debian:13"}
    shown = ("docker", "container", "-", "-", "debian:13", r"no\x1b!")
    assert row(docker, "local") == shown
    told = docker | {"running": 3, "capacity": {"cpus": 2, "memory": 3 << 29}, "healthy": True, "problem": None}
    assert row(told, "docker") == ("docker (default)", "container", "3", "2 CPUs, 1.5 GiB", "debian:13", "ok")
    half = told | {"capacity": {"cpus": None, "memory": 1 << 30}}
    assert row(half, "local")[3] == "1.0 GiB"
