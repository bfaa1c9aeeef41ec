"""Who may put a program on the host's network: users as far as the setting says, services always."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.gateway.http.sessions.test_lifecycle import comes_to
from tests.support.chat import hear, say
from tests.support.gateway import Gateway

OUTBOUND = {"network": "outbound"}


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    """One that others can reach: nobody has said what users may ask for."""
    async with Gateway(tmp_path_factory.mktemp("network") / "data", HOST="0.0.0.0") as running:
        yield running


@pytest.fixture
async def ada(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with gateway.http() as client:
        yield client


def names_the_setting(answer: httpx.Response) -> bool:
    body = answer.json()
    assert (answer.status_code, body["code"]) == (403, "network_not_allowed"), answer.text
    return "HOLDFAST_NETWORK_MAX" in body["error"]


async def test_a_user_is_refused_what_nobody_allowed_and_gets_the_rest(ada: httpx.AsyncClient) -> None:
    assert names_the_setting(await ada.post("/api/sandboxes/net-1", json=OUTBOUND))
    assert (await ada.get("/api/sandboxes/net-1")).status_code == 404, "nothing was made of it"
    assert (await ada.get("/api/me")).json()["network"] == {"default": "none", "max": "none"}
    created = await ada.post("/api/sandboxes/net-1")
    assert (created.status_code, created.json()["network"]) == (201, "none")


async def test_a_repository_that_would_need_it_is_refused_in_the_same_words(ada: httpx.AsyncClient) -> None:
    answer = await ada.post("/api/sandboxes/net-2", json={"repoUrl": "https://example.com/a.git"})
    assert names_the_setting(answer)
    assert "repoUrl" in answer.json()["error"]


async def test_a_service_may_ask_for_all_of_it_and_the_user_may_wake_that(
    gateway: Gateway, ada: httpx.AsyncClient
) -> None:
    async with gateway.http(gateway.relay) as relay:
        created = await relay.post("/api/sandboxes/net-3", json={**OUTBOUND, "userId": "ada"})
    assert (created.status_code, created.json()["network"]) == (201, "outbound")
    await comes_to(ada, "net-3", "running")
    await ada.post("/api/sandboxes/net-3/sleep")
    assert (await ada.post("/api/sandboxes/net-3/wake")).json()["status"] == "running"
    await ada.delete("/api/sandboxes/net-3")
    assert names_the_setting(await ada.post("/api/sandboxes/net-3", json=OUTBOUND)), "reviving is asking"


async def test_what_was_made_with_more_is_refused_at_its_next_start_until_it_is_allowed(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data", NETWORK="outbound") as gateway:
        await gateway.create("old")
        async with gateway.http() as ada:
            assert (await comes_to(ada, "old", "running"))["network"] == "outbound", "that is what it gets by default"
            gateway.settings |= {"NETWORK": "none", "NETWORK_MAX": "none"}
            await gateway.restart()
            assert (await comes_to(ada, "old", "running", "error"))["status"] == "running", "what runs goes on"
            await ada.post("/api/sandboxes/old/sleep")
            refused = (await ada.post("/api/sandboxes/old/wake")).json()
            assert refused["status"] == "error"
            assert "HOLDFAST_NETWORK_MAX" in refused["reason"]
            async with gateway.chat("old") as socket:
                await hear(socket, "welcome")
                await say(socket, "message", cid="m", content="hello")
                assert "HOLDFAST_NETWORK_MAX" in (await hear(socket, "error"))["error"]
                async with gateway.http(gateway.relay) as relay:
                    again = await relay.post("/api/sandboxes/old", json={**OUTBOUND, "userId": "ada"})
                assert again.status_code == 200
                await hear(socket, "done")
            assert (await comes_to(ada, "old", "running"))["reason"] is None
