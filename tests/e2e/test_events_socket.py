"""The events socket of a real gateway: what its users see of their sessions, and what a hostile one may cost."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.support.chat import hear, say
from tests.support.gateway import Gateway
from tests.support.waiting import until

PROTOCOL = "holdfast.events.v1"


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with Gateway(tmp_path_factory.mktemp("events") / "data", SYNC_DEBOUNCE=0.1) as running:
        yield running


@asynccontextmanager
async def watching(gateway: Gateway, user: str = "ada", token: str | None = None) -> AsyncIterator[ClientConnection]:
    offered = [PROTOCOL, f"token.{token or gateway.token(user)}"]
    address = gateway.url.replace("http", "ws", 1) + "/ws/events"
    async with connect(address, subprotocols=offered, compression=None, proxy=None) as socket:  # type: ignore[arg-type]
        yield socket


async def shows(socket: ClientConnection, session_id: str, **members: Any) -> dict[str, Any]:
    """The next word about the session that says this."""

    def wanted(frame: dict[str, Any]) -> bool:
        shown: dict[str, Any] = frame.get("sandbox", {})
        return {"id": session_id, **members}.items() <= shown.items()

    found: dict[str, Any] = (await hear(socket, wanted))["sandbox"]
    return found


async def closed(socket: ClientConnection, within: float = 30) -> int:
    async with asyncio.timeout(within):
        with suppress(ConnectionClosed):
            while True:
                await socket.recv()
    assert socket.close_code is not None
    return socket.close_code


async def test_a_session_is_seen_from_its_making_to_its_end(gateway: Gateway) -> None:
    async with gateway.http() as ada, watching(gateway) as page, watching(gateway, "eva") as evas:
        assert page.subprotocol == PROTOCOL
        assert await hear(page, "sandboxes") == {"type": "sandboxes", "sandboxes": []}
        await hear(evas, "sandboxes")
        made = await gateway.create("s", title="seen")
        assert (await shows(page, "s"))["createdAt"] == made["createdAt"]
        await shows(page, "s", status="running", sandboxStatus="connected")
        async with gateway.chat("s") as chat:
            await shows(page, "s", viewers=1)
            await say(chat, "message", cid="a", content="hello")
            await hear(chat, "done")
            await shows(page, "s", lastSeq=2)
        passed: list[dict[str, Any]] = []
        assert (await ada.post("/api/sandboxes/s/sync")).status_code == 200
        described = (await ada.get("/api/sandboxes/s/status")).json()
        history = described["sync"].pop("history")
        end = max(place for place, each in enumerate(history, 1) if each["state"] == "idle")  # more may have changed
        newest = history[end - 1]
        await hear(page, lambda frame: frame == {"type": "sync", "id": "s", **newest}, passed=passed)
        told = [{k: v for k, v in frame.items() if k not in ("type", "id")} for frame in passed if "at" in frame]
        assert [*told, newest] == history[end - len(told) - 1 : end]

        async def listed_as_described() -> bool:  # a late hint may come between the two looks, but not for ever
            described = (await ada.get("/api/sandboxes/s/status")).json()
            described["sync"].pop("history")
            for of_one_alone in ("terminals", "limits", "usage", "agentStatus", "needsCredentials", "models"):
                described.pop(of_one_alone)
            async with watching(gateway) as second:
                listed = (await hear(second, "sandboxes"))["sandboxes"]
            assert [{**each, "lastActiveAt": ""} for each in listed] == [{**described, "lastActiveAt": ""}]
            return True

        await until(listed_as_described, "the list says what the description says")
        assert (await ada.delete("/api/sandboxes/s?purge=1")).status_code == 200
        await hear(page, lambda frame: frame == {"type": "gone", "id": "s"})
        await say(evas, "ping", id=7)
        assert json.loads(await evas.recv()) == {"type": "pong", "id": 7}  # and not a word of all that


async def test_a_token_that_ends_is_warned_of_refreshed_and_then_closed(gateway: Gateway) -> None:
    async with watching(gateway, token=gateway.token("ada", ttl=30)) as page:
        await hear(page, "sandboxes")
        first = await hear(page, "auth_expiring")
        await say(page, "auth", token=gateway.token("eva"))
        assert (await hear(page, "error"))["code"] == "other_user"
        await say(page, "auth", token="none")
        assert (await hear(page, "error"))["error"]
        await say(page, "auth", token=gateway.token("ada", ttl=50))
        assert (await hear(page, "auth_expiring"))["at"] > first["at"]
    async with watching(gateway, token=gateway.token("ada", ttl=-25)) as page:  # within the clocks' leeway
        assert await closed(page) == 4401


@pytest.mark.parametrize("bad", ["no json", "[]", '{"type":1}', '{"type":"auth","token":1}'])
async def test_what_cannot_be_read_closes_with_4400(gateway: Gateway, bad: str) -> None:
    async with watching(gateway) as page:
        await page.send(bad)
        assert await closed(page) == 4400


async def test_a_type_that_is_not_known_is_passed_over(gateway: Gateway) -> None:
    async with watching(gateway) as page:
        await say(page, "message", content="this is no chat")
        await say(page, "ping")
        await hear(page, "pong")


async def test_who_only_looks_a_service_and_a_ticket_are_refused_before_the_upgrade(gateway: Gateway) -> None:
    await gateway.create("shared")
    async with gateway.http() as ada:
        share = (await ada.post("/api/sandboxes/shared/shares")).json()["token"]
        ticket = (await ada.post("/api/tickets", json={"sessionId": "shared"})).json()["ticket"]
    address = gateway.url.replace("http", "ws", 1) + "/ws/events"
    for url, headers, status in (
        (address, {"Authorization": f"Bearer {share}"}, 403),
        (address, gateway.admin, 401),
        (address, gateway.relay, 401),
        (f"{address}?ticket={ticket}", {}, 401),
    ):
        with pytest.raises(InvalidStatus) as refused:
            async with connect(url, additional_headers=headers, compression=None, proxy=None):
                pass
        assert refused.value.response.status_code == status


async def test_a_flood_of_pings_and_tokens_costs_its_sender_and_nobody_else(gateway: Gateway) -> None:
    await gateway.create("busy")
    async with watching(gateway) as hostile, watching(gateway) as other:
        for _ in range(2000):
            await hostile.send('{"type":"auth","token":"x"}')
            await hostile.send('{"type":"ping"}')
        await gateway.create("after-the-flood")
        await shows(other, "after-the-flood")


async def test_the_drain_says_when_to_come_back_and_closes_with_1012(gateway: Gateway) -> None:
    async with watching(gateway) as page:
        ending = asyncio.create_task(gateway.terminate())
        assert (await hear(page, "going_away"))["retryAfter"] > 0
        assert await closed(page) == 1012
        assert await ending == 0
    await gateway.start()
    async with watching(gateway) as page:
        assert {"busy", "after-the-flood"} <= {each["id"] for each in (await hear(page, "sandboxes"))["sandboxes"]}
