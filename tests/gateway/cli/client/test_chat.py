"""The reconnecting client against a scripted peer: what it sends, in which order, when it returns and when not."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from random import Random
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from gateway.cli.client.chat import (
    ChatClient,
    Connected,
    ConnectionEnded,
    Event,
    FrameHeard,
    Lost,
    NotTaken,
    is_loopback,
)
from gateway.protocol.close_codes import CloseCode

Talk = Callable[[ServerConnection], Awaitable[None]]


class Peer:
    """Plays one script per connection; the last one again and again. `asked` holds each connection's query."""

    def __init__(self, *scripts: Talk) -> None:
        self._scripts = list(scripts)
        self.asked: list[dict[str, str]] = []
        self.tokens: list[str] = []
        self.refusals: list[HTTPStatus] = []

    def check(self, connection: ServerConnection, request: Request) -> Response | None:
        query = parse_qs(urlsplit(request.path).query)
        self.asked.append({name: values[0] for name, values in query.items()})
        self.tokens.append(request.headers["Authorization"])
        if self.refusals:
            return connection.respond(self.refusals.pop(0), '{"error":"not you","code":"x"}')
        return None

    async def talk(self, socket: ServerConnection) -> None:
        script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
        await script(socket)


@asynccontextmanager
async def serving(peer: Peer) -> AsyncIterator[ChatClient]:
    async with serve(peer.talk, "127.0.0.1", 0, process_request=peer.check, close_timeout=1) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        counter = iter(range(1000))
        client = ChatClient(
            f"http://127.0.0.1:{port}", "s1", lambda: f"token{next(counter)}", rng=Random(1), first_pause=0.01
        )
        try:
            yield client
        finally:
            await client.leave()


async def say(socket: ServerConnection, kind: str, **members: Any) -> None:
    await socket.send(json.dumps({"type": kind, **members}))


async def hear(socket: ServerConnection) -> dict[str, Any]:
    frame: dict[str, Any] = json.loads(await socket.recv())
    return frame


async def welcome(socket: ServerConnection, **members: Any) -> None:
    await say(socket, "welcome", **{"sessionId": "s1", "epoch": "e1", "offset": 0, "lastSeq": 0, **members})


async def collect(client: ChatClient, until: Callable[[Event], bool]) -> list[Event]:
    events = []
    async with asyncio.timeout(20):
        async for event in client.events():
            events.append(event)
            if until(event):
                break
    return events


def ends(event: Event) -> bool:
    return isinstance(event, ConnectionEnded)


def is_heard(kind: str) -> Callable[[Event], bool]:
    return lambda event: isinstance(event, FrameHeard) and event.type == kind


async def test_what_was_not_acknowledged_is_sent_again_in_order_and_nothing_else() -> None:
    seen: list[list[str]] = [[], []]

    async def first(socket: ServerConnection) -> None:
        await welcome(socket)
        frames = [await hear(socket) for _ in range(3)]
        seen[0] = [frame["content"] for frame in frames]
        await say(socket, "ack", cid=frames[0]["cid"], seq=1, stage="stored")
        await say(socket, "nack", cid=frames[1]["cid"], reason="buffer_full")
        await socket.close(CloseCode.COMING_BACK, "restart")

    async def second(socket: ServerConnection) -> None:
        await welcome(socket, recovered=True)
        for _ in range(3):
            frame = await hear(socket)
            seen[1].append(frame["content"])
            await say(socket, "ack", cid=frame["cid"], seq=len(seen[1]), stage="stored", status="delivered")
        await say(socket, "pong")
        await socket.wait_closed()

    async with serving(Peer(first, second)) as client:
        for text in ("one", "two", "three"):
            await client.send(text)
        async with asyncio.timeout(20):
            async for event in client.events():
                if isinstance(event, Lost):
                    await client.send("four")
                if is_heard("pong")(event):
                    break
        assert seen == [["one", "two", "three"], ["one", "three", "four"]], "the receipt of one may have been missed"
        assert client.unsettled == 0


async def test_it_comes_back_with_the_position_of_the_last_frame_it_saw() -> None:
    async def first(socket: ServerConnection) -> None:
        await welcome(socket)
        await say(socket, "chunk", _offset=1, text="a")
        await say(socket, "chunk", _offset=2, text="b")
        await socket.close(CloseCode.TOO_SLOW)

    async def second(socket: ServerConnection) -> None:
        await welcome(socket, offset=2, recovered=True)
        await say(socket, "chunk", _offset=2, text="b")
        await say(socket, "chunk", _offset=3, text="c")
        await socket.close(CloseCode.FINISHED)

    peer = Peer(first, second)
    async with serving(peer) as client:
        events = await collect(client, ends)
    assert peer.asked == [{"sessionId": "s1"}, {"sessionId": "s1", "epoch": "e1", "offset": "2"}]
    assert peer.tokens == ["Bearer token0", "Bearer token1"], "the token is asked for each time"
    chunks = [event.body["text"] for event in events if isinstance(event, FrameHeard) and event.type == "chunk"]
    assert chunks == ["a", "b", "c"], "a frame that comes again is shown once"
    assert [event for event in events if isinstance(event, Connected)] == [
        Connected(False, None, 0),
        Connected(True, True, 0),
    ]
    assert events[-1] == ConnectionEnded("finished", failed=False)


@pytest.mark.parametrize("code", list(CloseCode))
async def test_every_close_code_is_obeyed(code: CloseCode) -> None:
    async def closing(socket: ServerConnection) -> None:
        await welcome(socket)
        await socket.close(code, "because")

    async with serving(Peer(closing)) as client:
        events = await collect(client, lambda event: isinstance(event, Lost | ConnectionEnded))
    assert isinstance(events[-1], Lost if code.come_back else ConnectionEnded)
    assert events[-1].reason == ("finished" if code is CloseCode.FINISHED else "because")


@pytest.mark.parametrize(("code", "final"), [(1001, False), (1009, True), (1002, True), (4999, False)])
async def test_codes_of_others_end_it_only_if_the_same_would_happen_again(code: int, final: bool) -> None:
    async def closing(socket: ServerConnection) -> None:
        await socket.close(code)

    async with serving(Peer(closing)) as client:
        events = await collect(client, lambda event: isinstance(event, Lost | ConnectionEnded))
    assert isinstance(events[-1], ConnectionEnded) is final


async def test_a_cut_connection_is_made_again() -> None:
    async def cut(socket: ServerConnection) -> None:
        await welcome(socket)
        socket.transport.abort()

    async def stay(socket: ServerConnection) -> None:
        await welcome(socket, recovered=True)
        await socket.wait_closed()

    async with serving(Peer(cut, cut, stay)) as client:
        events = await collect(client, lambda event: event == Connected(True, True, 0))
    assert sum(isinstance(event, Lost) for event in events) >= 1


@pytest.mark.parametrize(
    ("status", "final"),
    [
        (HTTPStatus.UNAUTHORIZED, True),
        (HTTPStatus.NOT_FOUND, True),
        (HTTPStatus.TOO_MANY_REQUESTS, False),
        (HTTPStatus.SERVICE_UNAVAILABLE, False),
    ],
)
async def test_a_refused_upgrade_is_final_or_not_by_its_status(status: HTTPStatus, final: bool) -> None:
    async def stay(socket: ServerConnection) -> None:
        await welcome(socket)
        await socket.wait_closed()

    peer = Peer(stay)
    peer.refusals = [status, status]
    async with serving(peer) as client:
        events = await collect(client, lambda event: isinstance(event, Connected | ConnectionEnded))
    assert isinstance(events[0], ConnectionEnded if final else Lost)
    assert events[0].reason == f"not you ({status.value})"


async def test_nobody_listening_is_no_reason_to_give_up() -> None:
    client = ChatClient("http://127.0.0.1:9", "s1", lambda: "t", rng=Random(1), first_pause=0.001)
    lost = 0
    async with asyncio.timeout(20):
        async for event in client.events():
            assert isinstance(event, Lost)
            lost += 1
            if lost == 3:
                await client.leave()
    assert lost == 3


async def test_the_gateway_says_how_long_to_stay_away() -> None:
    async def leaving(socket: ServerConnection) -> None:
        await welcome(socket)
        await say(socket, "going_away", retryAfter=7.5)
        await socket.close(CloseCode.COMING_BACK)

    async with serving(Peer(leaving)) as client:
        events = await collect(client, lambda event: isinstance(event, Lost))
    assert isinstance(events[-1], Lost)
    assert 7.5 <= events[-1].retry_seconds < 8


async def test_an_expiring_token_is_renewed_on_the_open_connection() -> None:
    async def expiring(socket: ServerConnection) -> None:
        await welcome(socket)
        await say(socket, "auth_expiring", at="soon")
        assert await hear(socket) == {"type": "auth", "token": "token1"}
        await socket.close(CloseCode.FINISHED)

    async with serving(Peer(expiring)) as client:
        events = await collect(client, ends)
    assert events[-1] == ConnectionEnded("finished", failed=False)


async def test_abort_says_whether_anybody_could_hear_it() -> None:
    async def listening(socket: ServerConnection) -> None:
        await welcome(socket)
        await say(socket, "pong", heard=(await hear(socket))["type"])
        await socket.wait_closed()

    async with serving(Peer(listening)) as client:
        assert not await client.abort()
        async with asyncio.timeout(20):
            async for event in client.events():
                if is_heard("welcome")(event):
                    assert await client.abort()
                elif isinstance(event, FrameHeard):
                    assert event.body["heard"] == "abort"
                    break


async def test_another_token_is_shown_at_once_and_once() -> None:
    async def first(socket: ServerConnection) -> None:
        await welcome(socket)
        await socket.close(CloseCode.TOKEN)

    peer = Peer(first)
    async with serving(peer) as client:
        events = await collect(client, ends)
    assert peer.tokens == ["Bearer token0", "Bearer token1"]
    assert not [event for event in events if isinstance(event, Lost)]


async def test_what_is_busy_is_sent_again_after_a_pause_and_nobody_is_troubled() -> None:
    seen = []

    async def busy(socket: ServerConnection) -> None:
        await welcome(socket)
        frame = await hear(socket)
        await say(socket, "nack", cid=frame["cid"], reason="busy")
        seen.append((frame, await hear(socket)))
        await say(socket, "ack", cid=frame["cid"], seq=1, stage="stored")
        await socket.close(CloseCode.FINISHED)

    async with serving(Peer(busy)) as client:
        await client.send("hello")
        events = await collect(client, ends)
    assert [first == second for first, second in seen] == [True]
    assert [event.type for event in events if isinstance(event, FrameHeard)] == ["welcome", "ack"]


async def test_a_frame_that_is_too_long_is_given_up_and_the_others_go_on() -> None:
    seen = []

    async def strict(socket: ServerConnection) -> None:
        await welcome(socket)
        frame = await hear(socket)
        if len(frame["content"]) > 100:
            await socket.close(CloseCode.TOO_LONG)
            return
        seen.append(frame["content"])
        await say(socket, "ack", cid=frame["cid"], seq=1, stage="stored", status="delivered")
        await socket.close(CloseCode.FINISHED)

    async with serving(Peer(strict)) as client:
        cid = await client.send("x" * 101)
        await client.send("short")
        events = await collect(client, ends)
    (refused,) = [event.body for event in events if isinstance(event, FrameHeard) and event.type == "nack"]
    assert (refused["cid"], refused["reason"]) == (cid, "too_long")
    assert seen == ["short"]


async def test_what_is_too_much_is_not_taken() -> None:
    client = ChatClient("http://127.0.0.1:9", "s1", lambda: "t", rng=Random(1))
    with pytest.raises(NotTaken, match="longer than the gateway takes"):
        await client.send("x" * (1 << 20))
    for _ in range(500):
        await client.send("x")
    with pytest.raises(NotTaken, match="too much waits to be sent"):
        await client.send("x")
    assert client.unsettled == 500


async def test_what_is_no_frame_is_passed_over() -> None:
    async def odd(socket: ServerConnection) -> None:
        for text in ("{", "[1]", "7", "null", b"\xff"):
            await socket.send(text)
        await welcome(socket, lastSeq="many")
        await say(socket, "going_away", retryAfter="soon")
        await socket.close(CloseCode.FINISHED)

    async with serving(Peer(odd)) as client:
        events = await collect(client, ends)
    assert [event.type for event in events if isinstance(event, FrameHeard)] == ["welcome", "going_away"]


@pytest.mark.parametrize(
    ("url", "loopback"),
    [
        ("http://127.0.0.1:8080", True),
        ("http://[::1]:8080", True),
        ("http://localhost", True),
        ("https://gateway.example.com", False),
        ("http://10.0.0.1", False),
    ],
)
def test_loopback_is_known_by_its_address(url: str, loopback: bool) -> None:
    assert is_loopback(url) is loopback
