"""Faults on demand, on a real gateway: each does what it says to one session, and nothing acknowledged is lost."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from tests.support.chat import hear, say
from tests.support.gateway import Gateway


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with Gateway(tmp_path_factory.mktemp("demo") / "data", DEMO="true") as running:
        yield running


@pytest.fixture
async def ada(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with gateway.http() as client:
        yield client


async def cause(client: httpx.AsyncClient, session_id: str, what: str, **members: Any) -> dict[str, Any]:
    answer = await client.post(f"/api/sandboxes/{session_id}/demo/{what}", json=members)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    assert told["what"] == what
    return told


async def code(client: httpx.AsyncClient, session_id: str, what: str, **members: Any) -> tuple[int, str]:
    answer = await client.post(f"/api/sandboxes/{session_id}/demo/{what}", json=members)
    return answer.status_code, answer.json().get("code", "")


async def ask(socket: ClientConnection, cid: str) -> None:
    await say(socket, "message", cid=cid, content="hello")
    await hear(socket, lambda frame: frame["type"] == "done")


async def end(socket: ClientConnection) -> int | None:
    """Whether it was told why: the code of the close frame that it got, None if there was none."""
    async with asyncio.timeout(30):
        with suppress(ConnectionClosed):
            while True:
                await socket.recv()
    return None if socket.protocol.close_rcvd is None else socket.protocol.close_rcvd.code


async def test_cut_ends_every_socket_of_the_session_without_a_word_and_no_other(
    gateway: Gateway, ada: httpx.AsyncClient
) -> None:
    for name in ("cut", "uncut"):
        await gateway.create(name)
    async with (
        gateway.chat("cut") as chat,
        gateway.chat("cut") as second,
        gateway.socket("/terminal/cut", dialect="native") as terminal,
        gateway.chat("uncut") as other,
        gateway.socket("/ws/events") as events,
    ):
        welcome = await hear(chat, "welcome")
        for socket in (second, other):
            await hear(socket, "welcome")
        await ask(chat, "before")
        assert json.loads(await terminal.recv())["type"] == "ready"
        assert (await cause(ada, "cut", "cut"))["sockets"] == 3
        assert [await end(socket) for socket in (chat, second, terminal)] == [None, None, None]
        await ask(other, "c")
        await say(events, "ping")
        await hear(events, "pong")
    async with gateway.chat("cut", epoch=welcome["epoch"], offset=0) as chat:
        assert (await hear(chat, "welcome"))["lastSeq"] == 2
        await ask(chat, "after")
    assert (await cause(ada, "cut", "cut"))["sockets"] == 0


async def test_a_killed_agent_is_started_again_and_nothing_acknowledged_is_lost(
    gateway: Gateway, ada: httpx.AsyncClient
) -> None:
    await gateway.create("agent")
    async with gateway.chat("agent") as chat:
        await hear(chat, "welcome")
        await ask(chat, "one")
        await cause(ada, "agent", "kill-agent")
        told = await hear(chat, lambda frame: frame.get("status") == "agent_exited")
        assert told["signal"] == "SIGKILL"
        await ask(chat, "two")
        described = (await ada.get("/api/sandboxes/agent/status")).json()
        assert (described["status"], described["incarnation"]) == ("running", 1)
    said = [record["cid"] for record in await gateway.messages("agent") if record["role"] == "user"]
    assert said == ["one", "two"]


async def test_a_killed_bridge_is_replaced_and_the_conversation_goes_on(
    gateway: Gateway, ada: httpx.AsyncClient
) -> None:
    await gateway.create("bridge")
    async with gateway.chat("bridge") as chat:
        await hear(chat, "welcome")
        await ask(chat, "one")
        await cause(ada, "bridge", "kill-bridge")
        await hear(chat, lambda frame: frame.get("sandboxStatus") in ("connecting", "disconnected"))
        await ask(chat, "two")
        described = (await ada.get("/api/sandboxes/bridge/status")).json()
        assert (described["status"], described["incarnation"]) == ("running", 2)
    assert (await ada.post("/api/sandboxes/bridge/sleep")).status_code == 200
    assert await code(ada, "bridge", "kill-bridge") == (409, "not_running")
    assert await code(ada, "bridge", "kill-agent") == (409, "not_running")


async def test_a_paused_store_delays_the_acks_of_one_session(gateway: Gateway, ada: httpx.AsyncClient) -> None:
    for name in ("held", "free"):
        await gateway.create(name)
    async with gateway.chat("held") as held, gateway.chat("free") as free:
        for socket in (held, free):
            await hear(socket, "welcome")
            await ask(socket, "before")
        assert await cause(ada, "held", "pause-store", seconds=60) == {"what": "pause-store", "seconds": 60}
        await say(held, "message", cid="late", content="x")
        await say(free, "message", cid="now", content="x")
        await hear(free, lambda frame: frame["type"] == "ack" and frame["cid"] == "now")
        assert "late" not in [record["cid"] for record in await gateway.messages("held")]
        await cause(ada, "held", "pause-store", seconds=1)  # instead of the rest of the minute
        await hear(held, lambda frame: frame["type"] == "ack" and frame["cid"] == "late")
        await hear(held, "done")
    assert "late" in [record["cid"] for record in await gateway.messages("held")]


async def test_a_drain_does_not_wait_for_a_paused_store(gateway: Gateway, ada: httpx.AsyncClient) -> None:
    await gateway.create("drained")
    async with gateway.chat("drained") as chat:
        await hear(chat, "welcome")
        await ask(chat, "before")
        await cause(ada, "drained", "pause-store", seconds=60)
        await say(chat, "message", cid="held", content="x")
        await say(chat, "ping")
        await hear(chat, "pong")
        ending = asyncio.create_task(gateway.terminate())
        await hear(chat, lambda frame: frame["type"] == "ack" and frame["cid"] == "held")
        assert await ending == 0
    assert "drain_unfinished" not in gateway.log
    await gateway.start()
    assert "held" in [record["cid"] for record in await gateway.messages("drained")]


async def test_what_is_wrong_is_refused_and_what_is_known_is_listed(gateway: Gateway, ada: httpx.AsyncClient) -> None:
    await gateway.create("asked")
    assert (await ada.get("/api/me")).json()["demo"] is True
    answer = await ada.post("/api/sandboxes/asked/demo/explode")
    assert (answer.status_code, answer.json()["code"]) == (400, "unknown_fault")
    assert all(what in answer.json()["error"] for what in ("cut", "kill-agent", "kill-bridge", "pause-store"))
    for seconds in (0, 61, 1.5, "3", None, True):
        assert await code(ada, "asked", "pause-store", seconds=seconds) == (400, "bad_member")
    assert await code(ada, "asked", "pause-store") == (400, "bad_member")
    for seconds in (3, 61, "3", None):
        assert await code(ada, "asked", "cut", seconds=seconds) == (400, "unknown_member")
    assert await code(ada, "nobodys", "cut") == (404, "unknown_session")
    share = (await ada.post("/api/sandboxes/asked/shares")).json()["token"]
    for headers, refused in (
        ({"Authorization": f"Bearer {share}"}, 403),
        (gateway.bearer("eva"), 404),
        (gateway.admin, 401),
        (gateway.relay, 401),
        (gateway.internal, 401),
    ):
        async with gateway.http(headers) as client:
            assert (await code(client, "asked", "cut"))[0] == refused


async def test_it_is_not_there_unless_it_is_turned_on_and_warned_of_where_others_can_reach_it(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "off") as gateway, gateway.http() as ada:
        await gateway.create("s")
        assert await code(ada, "s", "cut") == (404, "not_found")
        assert (await ada.get("/api/me")).json()["demo"] is False
        assert "house.demo" not in gateway.log
    async with Gateway(tmp_path / "on", DEMO="true", HOST="0.0.0.0") as gateway:
        assert "house.demo" in gateway.log
