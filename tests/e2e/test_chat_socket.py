"""The chat socket of a running gateway with the demo agent: what a browser lives through in an ordinary week."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from sandbox.protocol.websocket_frames import TEXT
from tests.campaign.stage import Stage
from tests.support.chat import Frame, hear, say
from tests.support.gateway import ClientConnection, Gateway
from tests.support.raw_client import RawClient, masked, upgrade
from tests.support.waiting import until

LEEWAY_SECONDS = 30


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with Gateway(tmp_path_factory.mktemp("chat") / "data", CREATE_ON_ATTACH="true") as running:
        yield running


def socket_url(gateway: Gateway, session_id: str, **query: str) -> str:
    url = httpx.URL(gateway.url.replace("http", "ws", 1) + "/ws/v2", params={"sessionId": session_id, **query})
    return str(url)


async def talk(socket: ClientConnection, content: str) -> tuple[str, Frame]:
    """Say something; the streamed text of the answer, and its `done`."""
    passed: list[Frame] = []
    await say(socket, "message", content=content)
    done = await hear(socket, "done", passed=passed)
    return "".join(frame["text"] for frame in passed if frame["type"] == "chunk"), done


async def closed_with(socket: ClientConnection, *, within: float = 30) -> int:
    async with asyncio.timeout(within):
        await socket.wait_closed()
    assert socket.close_code is not None
    return socket.close_code


# What is said, and what is stored of it


async def test_an_answer_is_streamed_then_stored_then_told(gateway: Gateway) -> None:
    await gateway.create("talk")
    async with gateway.chat("talk") as socket:
        welcome = json.loads(await socket.recv())
        assert (welcome["type"], welcome["sessionId"], welcome["lastSeq"]) == ("welcome", "talk", 0)
        assert "recovered" not in welcome
        passed: list[Frame] = []
        await say(socket, "message", cid="c1", content="one two three four five")
        done = await hear(socket, "done", passed=passed)
    kinds = [frame["type"] for frame in passed]
    assert kinds.index("ack") < kinds.index("chunk")
    receipt = next(frame for frame in passed if frame["type"] == "receipt")
    assert (receipt["cid"], receipt["stage"]) == ("c1", "delivered")
    offsets = [frame["_offset"] for frame in [*passed, done] if "_offset" in frame]
    assert offsets == list(range(1, len(offsets) + 1))
    first, second = await gateway.messages("talk")
    assert (first["cid"], first["seq"], first["role"], first["status"]) == ("c1", 1, "user", "delivered")
    assert (second["id"], second["seq"]) == (done["messageId"], done["seq"])
    assert (second["content"], second["status"]) == ("one two three four five", "complete")


async def test_an_unread_frame_is_nacked_and_an_unreadable_one_ends_the_connection(gateway: Gateway) -> None:
    async with gateway.chat("frames") as socket:
        await say(socket, "message", cid="bad", content=17)
        assert (await hear(socket, "nack"))["reason"] == "invalid"
        await say(socket, "message", cid="agent:x:1", content="mine?")
        assert (await hear(socket, "nack"))["cid"] == "agent:x:1"
        await socket.send("{")
        assert await closed_with(socket) == 4400


async def test_a_start_that_is_too_long_is_refused_in_words_and_the_one_before_it_stays(gateway: Gateway) -> None:
    long = "x" * (64 << 10)
    async with gateway.chat("starts") as socket:
        await hear(socket, "welcome")
        await say(socket, "start", model="short")
        await say(socket, "start", cid="named", model=long)
        nack = await hear(socket, "nack")
        assert (nack["cid"], nack["reason"]) == ("named", "start_too_large")
        await say(socket, "start", model=long)
        error = await hear(socket, "error")
        assert error["code"] == "start_too_large"
        assert "65536 bytes" in error["error"]
        await talk(socket, "still here")


async def test_every_viewer_sees_the_same_and_a_cut_one_gets_what_it_missed(gateway: Gateway) -> None:
    await gateway.create("shared")
    async with gateway.chat("shared") as first, gateway.chat("shared") as second:
        await hear(first, "welcome")
        epoch = (await hear(first, lambda frame: frame["type"] == "welcome" and frame["epoch"] != ""))["epoch"]
        await hear(second, "welcome")
        await talk(first, "hello there")
        shown: list[Frame] = []
        done = await hear(second, "done", passed=shown)
        await second.close()
        text, later = await talk(first, "and now without you")
    async with gateway.chat("shared", epoch=epoch, offset=done["_offset"]) as again:
        welcome = await hear(again, "welcome")
        assert (welcome["recovered"], welcome["offset"]) == (True, done["_offset"])
        missed: list[Frame] = []
        last = await hear(again, "done", passed=missed)
    assert last == later
    assert "".join(frame["text"] for frame in missed if frame["type"] == "chunk") == text
    async with gateway.chat("shared", epoch="no-such-epoch", offset=3) as lost:
        assert (await hear(lost, "welcome"))["recovered"] is False


async def test_abort_ends_the_turn_and_keeps_what_was_said(gateway: Gateway) -> None:
    await gateway.create("long")
    async with gateway.chat("long") as socket:
        await say(socket, "message", content="/long 60")
        await hear(socket, "chunk")
        await say(socket, "abort")
        await hear(socket, "done")
        assert (await talk(socket, "still there?"))[0] == "still there?"
    answers = [record for record in await gateway.messages("long") if record["role"] == "assistant"]
    assert [record["status"] for record in answers] == ["aborted", "complete"]
    assert answers[0]["content"].startswith("tick 1")


async def test_a_crash_is_told_its_words_are_kept_and_the_next_message_finds_a_new_agent(gateway: Gateway) -> None:
    await gateway.create("crash")
    async with gateway.chat("crash") as socket:
        await say(socket, "message", cid="boom", content="/crash")
        interrupted = await hear(socket, "interrupted")
        assert interrupted["cid"] == "boom"
        assert (await talk(socket, "hello again"))[0] == "hello again"
    history = {record["seq"]: record for record in await gateway.messages("crash")}
    assert history[1]["status"] == "interrupted"
    assert (history[2]["status"], history[2]["content"]) == ("incomplete", "I am about to ")
    assert [history[seq]["status"] for seq in (3, 4)] == ["delivered", "complete"]


async def test_the_raw_socket_adds_nothing(gateway: Gateway) -> None:
    await gateway.create("raw")
    await Stage(gateway, Random(0)).connected_one("raw")
    async with gateway.socket("/ws/sandboxes/raw") as socket:
        await socket.send(json.dumps({"type": "message", "content": "plain"}))
        frame: Frame = {}
        async with asyncio.timeout(30):
            while frame.get("type") != "done":
                frame = json.loads(await socket.recv())
                assert "_offset" not in frame
                assert frame["type"] in ("stream_start", "chunk", "stream_end", "sdk_message", "done")
    kept = (await gateway.messages("raw"))[0]
    assert (kept["type"], json.loads(kept["content"])["content"]) == ("raw", "plain")


# Questions outlive everybody


@pytest.mark.parametrize("command", ["/permission sudo", "/ask Which?"])
async def test_a_question_outlives_a_killed_gateway_and_is_answered_once(tmp_path: Path, command: str) -> None:
    asks = "tool_permission_request" if command.startswith("/permission") else "ask_user_question"
    replies = "permission_response" if command.startswith("/permission") else "ask_user_answer"
    async with Gateway(tmp_path / "data") as gateway:
        await gateway.create("asked")
        async with gateway.chat("asked") as socket:
            await say(socket, "message", content=command)
            request = await hear(socket, asks)
            await hear(socket, lambda frame: frame["type"] == "record" and frame["record"]["status"] == "open")
        await gateway.restart(kill=True)
        await Stage(gateway, Random(0)).connected_one("asked")
        async with gateway.chat("asked") as socket, gateway.chat("asked") as other:
            welcome = await hear(socket, "welcome")
            assert [each["content"]["requestId"] for each in welcome["open"]] == [request["requestId"]]
            assert (await hear(socket, asks))["requestId"] == request["requestId"]
            await hear(other, "welcome")
            answer = {"requestId": request["requestId"], "allow": True, "answers": {"Which?": "red"}}
            await say(socket, replies, cid="first", **answer)
            assert (await hear(socket, "ack"))["cid"] == "first"
            await say(other, replies, cid="second", **answer)
            assert (await hear(other, "nack"))["reason"] == "already_answered"
            await hear(socket, "done")
        types = [(record["type"], record["status"]) for record in await gateway.messages("asked")]
        kind = "permission" if command.startswith("/permission") else "question"
        reply = "permission_response" if kind == "permission" else "question_answer"
        asked = "permission_request" if kind == "permission" else "question"
        assert types == [("message", "delivered"), (asked, "answered"), (reply, "delivered"), ("message", "complete")]


# Who may stay


async def test_a_token_is_warned_of_refreshed_by_its_own_user_only_and_then_closed(gateway: Gateway) -> None:
    await gateway.create("expiry")
    ends = time.time() + 4 - LEEWAY_SECONDS  # still good for four seconds, by the leeway
    headers = {"Authorization": f"Bearer {gateway.token(ttl=ends - time.time())}"}
    async with connect(socket_url(gateway, "expiry"), additional_headers=headers, proxy=None) as socket:
        assert json.loads(await socket.recv())["type"] == "welcome"
        await hear(socket, "auth_expiring")
        await say(socket, "auth", token=gateway.token("eva"))
        assert (await hear(socket, "error"))["code"] == "other_user"
        await say(socket, "auth", token="x.y.z")
        await hear(socket, "error")
        await say(socket, "auth", token=gateway.token(ttl=6 - LEEWAY_SECONDS))
        await hear(socket, "auth_expiring")
        assert time.time() < ends + LEEWAY_SECONDS + 30
        assert await closed_with(socket) == 4401


async def test_tokens_that_come_too_often_are_refused_in_words_and_each_is_looked_at_alone(gateway: Gateway) -> None:
    """A flood of `auth` once made a task for each frame."""
    await gateway.create("renewals")
    async with gateway.chat("renewals") as socket:
        codes = []
        while "too_many_tokens" not in codes:
            await say(socket, "auth", token="x.y.z")
            codes.append((await hear(socket, "error"))["code"])
        assert len(codes) > 10
        await until(lambda: _renews(gateway, socket), "a good token to be taken again")


async def _renews(gateway: Gateway, socket: ClientConnection) -> bool:
    await say(socket, "auth", token=gateway.token("eva"))
    return bool((await hear(socket, "error"))["code"] == "other_user")


async def test_a_refreshed_socket_outlives_its_first_token(gateway: Gateway) -> None:
    await gateway.create("refreshed")
    first_end = time.time() + 2
    headers = {"Authorization": f"Bearer {gateway.token(ttl=2 - LEEWAY_SECONDS)}"}
    async with connect(socket_url(gateway, "refreshed"), additional_headers=headers, proxy=None) as socket:
        await hear(socket, "auth_expiring")
        await say(socket, "auth", token=gateway.token())
        while time.time() < first_end + 1:
            await say(socket, "ping", id=1)
            await hear(socket, "pong")
            await asyncio.sleep(0.2)


async def test_what_came_with_the_handshake_is_heard(gateway: Gateway) -> None:
    """Its first message was once offered to an app that threw it away."""
    await gateway.create("hasty")
    at = httpx.URL(gateway.url)
    assert at.port is not None
    async with asyncio.timeout(30), await RawClient.connect(at.host, at.port) as client:
        said = [b'{"type":"ping","id":%d}' % number for number in range(3)]
        head = upgrade("/ws/v2?sessionId=hasty", f"Authorization: Bearer {gateway.token()}")
        await client.send(head + b"".join(masked(TEXT, text) for text in said))
        assert (await client.head())[0] == 101
        heard: list[int] = []
        while len(heard) < 3:
            frame = json.loads((await client.frame())[1])
            if frame["type"] == "pong":
                heard.append(frame["id"])
        assert heard == [0, 1, 2]


async def test_the_sub_protocol_is_answered_and_the_token_never(gateway: Gateway) -> None:
    await gateway.create("sub")
    offered = [Subprotocol("holdfast.chat.v2"), Subprotocol(f"token.{gateway.token()}")]
    async with connect(socket_url(gateway, "sub"), subprotocols=offered, proxy=None) as socket:
        assert socket.subprotocol == "holdfast.chat.v2"
        assert socket.response is not None
        assert "token." not in str(socket.response.headers)
        await hear(socket, "welcome")
    async with connect(socket_url(gateway, "sub", token=gateway.token()), proxy=None) as socket:
        await hear(socket, "welcome")
    assert gateway.token()[:20] not in gateway.log


async def test_an_unknown_id_becomes_the_users_own_where_that_is_asked_for(gateway: Gateway) -> None:
    async with gateway.chat("made-by-attaching", "eva") as socket:
        await hear(socket, "welcome")
        assert (await hear(socket, "connection_status"))["sandboxStatus"] == "sleeping"
        assert (await talk(socket, "hi"))[0] == "hi"
    async with gateway.http(gateway.bearer("eva")) as client:
        assert (await client.get("/api/sandboxes/made-by-attaching/status")).json()["userId"] == "eva"
    async with gateway.http() as client:
        assert (await client.get("/api/sandboxes/made-by-attaching/status")).status_code == 404
