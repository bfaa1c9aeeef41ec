"""What a real gateway answers to anybody: health, the page, metrics, tickets, logs, and every kind of no."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from gateway.app import build_house
from gateway.config.loading import load_settings
from gateway.config.settings import resolve_secrets
from tests.support.gateway import Gateway


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with Gateway(tmp_path_factory.mktemp("pages") / "data") as running:
        await running.create("mine")
        yield running


@pytest.fixture
async def nobody(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with gateway.http({}) as client:
        yield client


async def test_health_and_readiness_ask_for_nothing(nobody: httpx.AsyncClient) -> None:
    health = (await nobody.get("/health")).json()
    assert health["status"] == "ok"
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", health["version"])
    ready = await nobody.get("/ready")
    assert (ready.status_code, ready.json()) == (200, {"status": "ready"})
    assert (await nobody.head("/health")).status_code == 200


async def test_whatever_page_there_is_lets_in_no_scripts_but_its_own(nobody: httpx.AsyncClient) -> None:
    page = await nobody.get("/", headers={"Host": "evil.example"})
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "evil.example" not in page.text, "the page repeats only what the gateway knows itself"


async def test_metrics_need_the_api_token_and_show_the_queues(gateway: Gateway, nobody: httpx.AsyncClient) -> None:
    assert (await nobody.get("/metrics")).status_code == 401
    async with gateway.http() as ada:
        assert (await ada.get("/metrics")).status_code == 401
    async with gateway.http(gateway.admin) as admin:
        text = (await admin.get("/metrics")).text
    for name in (
        "holdfast_sandboxes_created_total",
        "holdfast_wake_seconds_bucket",
        "holdfast_message_seconds_bucket",
        "holdfast_connections",
        "holdfast_queue_depth",
        "holdfast_queue_bytes",
        "holdfast_queue_batch_writes_bucket",
        "holdfast_queue_commit_seconds_bucket",
        "holdfast_dead_letters",
        "holdfast_trimmed_records_total",
        "holdfast_pending_records",
        "holdfast_refusals_total",
    ):
        assert re.search(rf"(?m)^{name}(\{{.*\}})? \d", text), name


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", "/api/sandboxes/mine/nothing", 404, "not_found"),
        ("PUT", "/health", 405, "method_not_allowed"),
        ("GET", "/ws/v2?sessionId=mine", 426, "upgrade_required"),
        ("GET", "/ws/sandboxes/mine", 426, "upgrade_required"),
        ("GET", "/api/sandboxes", 401, "no_credentials"),
        ("GET", "/../etc/passwd", 404, "not_found"),
    ],
)
async def test_every_no_has_the_same_shape(
    nobody: httpx.AsyncClient, method: str, path: str, status: int, code: str
) -> None:
    answer = await nobody.request(method, path)
    assert answer.status_code == status
    assert answer.json()["code"] == code
    assert set(answer.json()) == {"error", "code"}


async def test_a_ticket_opens_its_session_once(gateway: Gateway) -> None:
    async with gateway.http() as ada:
        issued = await ada.post("/api/tickets", json={"sessionId": "mine"})
    assert issued.status_code == 201
    assert issued.json()["expiresIn"] == 30
    address = f"ws{gateway.url.removeprefix('http')}/ws/v2?sessionId=mine&ticket={issued.json()['ticket']}"
    async with connect(address, proxy=None) as socket, asyncio.timeout(20):
        assert '"type":"welcome"' in str(await socket.recv())
    with pytest.raises(InvalidStatus) as refusal:
        await connect(address, proxy=None)
    assert refusal.value.response.status_code == 401


async def test_a_ticket_opens_no_other_session_and_no_other_page(gateway: Gateway) -> None:
    await gateway.create("other")
    for session_id, origin in (("other", None), ("mine", gateway.url)):
        async with gateway.http() as ada:
            ticket = (await ada.post("/api/tickets", json={"sessionId": "mine"})).json()["ticket"]
        address = f"ws{gateway.url.removeprefix('http')}/ws/v2?sessionId={session_id}&ticket={ticket}"
        with pytest.raises(InvalidStatus) as refusal:
            await connect(address, proxy=None, additional_headers={"Origin": origin} if origin else {})
        assert refusal.value.response.status_code == 401


@pytest.mark.parametrize("body", [{}, {"sessionId": 1}, {"sessionId": "../x"}, {"sessionId": "mine", "user": "eve"}])
async def test_a_ticket_is_asked_for_properly(gateway: Gateway, body: dict[str, Any]) -> None:
    async with gateway.http() as ada:
        assert (await ada.post("/api/tickets", json=body)).status_code == 400


async def test_logs_are_plain_text_in_which_nothing_is_hidden(gateway: Gateway) -> None:
    noisy = "import sys; sys.stderr.write('first\\n\\x1b]0;owned\\x07last\\n'); sys.stderr.flush(); sys.stdin.read()"
    await gateway.create("noisy", agent=["python3", "-c", noisy])
    async with gateway.http() as ada, asyncio.timeout(30):
        while "last" not in (logs := await ada.get("/logs/noisy")).text:
            pass
        tail = await ada.get("/logs/noisy", params={"tail": 5})
        wrong = await ada.get("/logs/noisy", params={"tail": 0})
    assert logs.headers["content-type"] == "text/plain; charset=utf-8"
    assert "first\n\\x1b]0;owned\\x07last\n" in logs.text
    assert len(tail.text) <= 5
    assert wrong.status_code == 400


async def test_a_page_of_an_unknown_origin_reads_nothing(gateway: Gateway) -> None:
    async with gateway.http() as ada:
        evil = await ada.get("/api/sandboxes", headers={"Origin": "https://evil.example"})
        own = await ada.get("/api/sandboxes", headers={"Origin": gateway.url})
    assert "access-control-allow-origin" not in evil.headers
    assert own.headers["access-control-allow-origin"] == gateway.url


async def test_readiness_follows_the_drain_and_the_store(tmp_path: Any) -> None:
    settings = load_settings({"HOLDFAST_DATA_DIR": str(tmp_path), "HOLDFAST_LOCAL_LEVEL": "trusted"})
    house = build_house(settings, resolve_secrets(settings))
    door = httpx.ASGITransport(house.app)
    async with (
        house.app.router.lifespan_context(house.app),
        httpx.AsyncClient(transport=door, base_url="http://gateway", trust_env=False, verify=False) as client,
    ):
        await asyncio.sleep(0)  # an app called in its own loop never waits: let the house's keepers begin
        assert (await client.get("/ready")).status_code == 200
        house.queue.failing = "storage_full"
        full = await client.get("/ready")
        house.queue.failing = None
        house.door.draining = True
        draining = await client.get("/ready")
        assert (await client.get("/health")).status_code == 200
    assert (full.status_code, full.json()["reasons"]) == (503, ["storage_full"])
    assert (draining.status_code, draining.json()["reasons"]) == (503, ["draining"])
    assert draining.json()["code"] == "unready"
