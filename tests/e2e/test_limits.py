"""Each limit on a real gateway: who is at it hears 429, why and when to come back; another user is served."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sandbox.providers.local.layout import SandboxHome
from tests.support.chat import hear, say
from tests.support.gateway import Gateway
from tests.support.waiting import until

KIB = 1024


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with Gateway(
        tmp_path_factory.mktemp("limits") / "data",
        MAX_SESSIONS_PER_USER=3,
        MAX_RUNNING_PER_USER=2,
        MAX_STORED_PER_USER=200 * KIB,
        STARTS_AT_ONCE=1,
        STARTS_AT_ONCE_PER_USER=1,
        SYNC_DEBOUNCE=0.1,
    ) as running:
        yield running


def refused(answer: httpx.Response, code: str, setting: str) -> bool:
    body = answer.json()
    assert (answer.status_code, body["code"]) == (429, code), answer.text
    assert setting in body["error"]
    return int(answer.headers["retry-after"]) >= 1


async def status(client: httpx.AsyncClient, session_id: str) -> dict[str, Any]:
    described: dict[str, Any] = (await client.get(f"/api/sandboxes/{session_id}")).json()
    return described


async def until_status(client: httpx.AsyncClient, session_id: str, wanted: str) -> None:
    async def is_so() -> bool:
        return bool((await status(client, session_id))["status"] == wanted)

    await until(is_so, f"{session_id} {wanted}")


async def metric(gateway: Gateway, name: str) -> float:
    async with gateway.http(gateway.admin) as admin:
        lines = (await admin.get("/metrics")).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


async def test_sessions_and_sandboxes(gateway: Gateway) -> None:
    async with gateway.http(gateway.bearer("sam")) as sam, gateway.http(gateway.bearer("vic")) as vic:
        for session_id in ("sam-1", "sam-2"):
            assert (await sam.post(f"/api/sandboxes/{session_id}")).status_code == 201
        assert refused(await sam.post("/api/sandboxes/sam-3"), "too_many_running", "HOLDFAST_MAX_RUNNING_PER_USER")
        assert (await vic.post("/api/sandboxes/vic-1")).status_code == 201
        for session_id in ("sam-1", "sam-2"):
            await until_status(sam, session_id, "running")
        assert (await sam.post("/api/sandboxes/sam-1/sleep")).json()["status"] == "sleeping"
        assert (await sam.post("/api/sandboxes/sam-3")).status_code == 201
        assert refused(await sam.post("/api/sandboxes/sam-1/wake"), "too_many_running", "HOLDFAST_MAX_RUNNING_PER_USER")
        assert refused(await sam.post("/api/sandboxes/sam-4"), "too_many_running", "HOLDFAST_MAX_RUNNING_PER_USER")
        await until_status(sam, "sam-3", "running")
        async with gateway.chat("sam-1", "sam") as socket:
            await hear(socket, "welcome")
            await say(socket, "message", cid="m", content="hello")
            told = await hear(socket, lambda frame: frame.get("status") == "queued")
            assert (told["position"], "HOLDFAST_MAX_RUNNING_PER_USER" in told["reason"]) == (1, True)
            assert (await status(sam, "sam-1"))["queue"]["position"] == 1
            assert (await sam.post("/api/sandboxes/sam-2/sleep")).status_code == 200
            await hear(socket, "done")
        await sam.post("/api/sandboxes/sam-3/sleep")
        assert refused(await sam.post("/api/sandboxes/sam-4"), "too_many_sessions", "HOLDFAST_MAX_SESSIONS_PER_USER")
        async with gateway.http(gateway.relay) as relay:
            served = await relay.post("/api/sandboxes/sam-4", json={"userId": "sam"})
            assert refused(served, "too_many_sessions", "HOLDFAST_MAX_SESSIONS_PER_USER"), "it would be the user's"
        branch = await sam.post("/api/sandboxes/sam-3/snapshots/1/branch")
        assert refused(branch, "too_many_sessions", "HOLDFAST_MAX_SESSIONS_PER_USER")
        limits = (await sam.get("/api/me")).json()["limits"]
        assert limits["sessions"] == {"used": 3, "max": 3, "setting": "HOLDFAST_MAX_SESSIONS_PER_USER"}
        assert (limits["running"]["used"], limits["running"]["max"]) == (1, 2)
        assert (await vic.post("/api/sandboxes/vic-2")).status_code == 201
        assert (await sam.delete("/api/sandboxes/sam-3?purge=1")).status_code == 200
        assert (await sam.post("/api/sandboxes/sam-4")).status_code == 201
        await until_status(sam, "sam-4", "running")
    assert await metric(gateway, 'holdfast_refusals_total{reason="too_many_sessions"}') == 3
    assert await metric(gateway, 'holdfast_refusals_total{reason="too_many_running"}') == 3
    assert await metric(gateway, "holdfast_sandboxes_running") >= 3


async def test_bytes_stored(gateway: Gateway) -> None:
    async with gateway.http(gateway.bearer("ben")) as ben:
        await gateway.create("ben-1", "ben")
        async with gateway.chat("ben-1", "ben") as socket:
            await hear(socket, "welcome")
            for number in range(20):
                await say(socket, "message", cid=f"m{number}", content="x" * 20 * KIB)
                told = await hear(socket, lambda frame: frame["type"] in ("ack", "nack"))
                if told["type"] == "nack":
                    break
            assert told["reason"] == "stored_too_much"
            assert "HOLDFAST_MAX_STORED_PER_USER" in told["error"]
        stored = (await ben.get("/api/me")).json()["limits"]["stored"]
        assert stored["max"] == 200 * KIB
        async with gateway.http(gateway.internal) as service:
            body = {"role": "user", "content": "more"}
            answer = await service.post("/internal/sessions/ben-1/messages", json=body)
            assert refused(answer, "stored_too_much", "HOLDFAST_MAX_STORED_PER_USER")
        assert (await ben.delete("/api/sandboxes/ben-1?purge=1")).status_code == 200
        await gateway.create("ben-2", "ben")
        async with gateway.chat("ben-2", "ben") as socket:
            await hear(socket, "welcome")
            await say(socket, "message", cid="again", content="there is room")
            assert (await hear(socket, lambda frame: frame["type"] in ("ack", "nack")))["type"] == "ack"


async def test_a_workspace_that_is_too_large_stops_like_any_other_and_keeps_its_disk(gateway: Gateway) -> None:
    """Before, it kept its sandbox running for ever, and with it one of the places that all share."""
    large = SandboxHome(gateway.data_dir, "lou-1").workspace / "large"
    async with gateway.http(gateway.bearer("lou")) as lou:
        await gateway.create("lou-1", "lou", agent=["cat"])
        await until_status(lou, "lou-1", "running")
        large.write_bytes(os.urandom(300 * KIB))
        for verb, stopped, back in (("sleep", "sleeping", "wake"), ("pause", "paused", "resume")):
            answer = await lou.post(f"/api/sandboxes/lou-1/{verb}")
            told = answer.json()
            assert (answer.status_code, told["status"]) == (200, stopped), answer.text
            assert told["sync"]["lastError"] == told["reason"]
            used = (await lou.get("/api/me")).json()["limits"]["stored"]["used"]
            assert f"may store {200 * KIB:,} bytes (HOLDFAST_MAX_STORED_PER_USER)" in told["reason"]
            assert f"has stored {used:,}, of which 0 are" in told["reason"]
            assert (await lou.post(f"/api/sandboxes/lou-1/{back}")).json()["status"] == "running"
            assert large.stat().st_size == 300 * KIB
        large.unlink()
        slept = (await lou.post("/api/sandboxes/lou-1/sleep")).json()
        assert (slept["status"], slept["reason"], slept["sync"]["lastError"]) == ("sleeping", None, None)
        assert (await lou.delete("/api/sandboxes/lou-1?purge=1")).status_code == 200


async def test_requests(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data", MAX_REQUESTS_PER_USER=1) as gateway:
        async with gateway.http(gateway.bearer("ray")) as ray, gateway.http(gateway.bearer("vic")) as vic:
            answers = await asyncio.gather(*(ray.get("/api/sandboxes") for _ in range(50)))
            late = [answer for answer in answers if answer.status_code != 200]
            assert all(refused(answer, "too_many_requests", "HOLDFAST_MAX_REQUESTS_PER_USER") for answer in late)
            assert late
            assert (await vic.get("/api/sandboxes")).status_code == 200

            async def is_served() -> bool:
                return (await ray.get("/api/sandboxes")).status_code == 200

            await until(is_served, "ray is served again")
        assert await metric(gateway, 'holdfast_refusals_total{reason="too_many_requests"}') >= len(late)
