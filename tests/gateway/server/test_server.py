"""The launcher: a true address, a drain that keeps sockets open, and an end that tells how it went."""

import asyncio
import contextlib
import gc
import signal
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import websockets
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from gateway.config.settings import Settings
from gateway.protocol.close_codes import CloseCode
from gateway.server.front_door import FrontDoor
from gateway.server.http import GuardedHttp
from gateway.server.message_socket import MessageSocket
from gateway.server.server import EXIT_FAILED, EXIT_OK, EXIT_STARTUP, CannotListen, address_of, bind, serve
from gateway.server.websocket import GuardedSocket
from gateway.sockets.attach import outlet_of
from tests.support.front_door import Door, token
from tests.support.waiting import until

AUTH = {"Authorization": f"Bearer {token()}"}


async def ended(door: Door) -> int:
    await until(lambda: door.process.poll() is not None)
    return int(door.process.returncode)


async def draining(door: Door, number: int = signal.SIGTERM) -> None:
    door.process.send_signal(number)
    assert door.process.stdout is not None
    assert door.process.stdout.readline() == "draining\n"


def connect(door: Door, path: str = "/ws/v2?sessionId=s") -> websockets.connect:
    return websockets.connect(f"ws://{door.host}:{door.port}{path}", additional_headers=AUTH)


async def test_while_it_drains_sockets_stay_open_and_new_work_is_refused() -> None:
    with Door.open() as door:
        async with connect(door) as socket_, httpx.AsyncClient(base_url=door.address) as client:
            assert (await client.get("/api/sandboxes", headers=AUTH)).status_code == 200
            await draining(door)
            await socket_.send("still open")
            assert await socket_.recv() == "still open"
            refused = await client.get("/api/sandboxes", headers=AUTH)
            assert (refused.status_code, refused.json()["code"]) == (503, "draining")
            with pytest.raises(websockets.InvalidStatus) as caught:
                await connect(door)
            assert caught.value.response.status_code == 503
            for path in ("/health", "/ready"):
                assert (await client.get(path)).status_code == 200
            door.process.send_signal(signal.SIGTERM)  # the platform insists: nothing happens twice
            await until(lambda: door.log.count("server.signal") == 2)
            await socket_.send("still open")
            assert await socket_.recv() == "still open"
            door.process.send_signal(signal.SIGUSR1)
            with pytest.raises(websockets.ConnectionClosed):
                await socket_.recv()
            assert socket_.close_code == 1012
        assert await ended(door) == EXIT_OK
        assert "server.drained" in door.log


async def test_a_drain_that_does_not_end_is_cut_at_its_deadline() -> None:
    with Door.open(drain_timeout="200ms") as door:
        async with connect(door):
            await draining(door)
            assert await ended(door) == EXIT_OK
        assert "server.drain_unfinished" in door.log


async def test_a_second_interrupt_cuts_the_drain_short() -> None:
    with Door.open() as door:
        await draining(door, signal.SIGINT)
        door.process.send_signal(signal.SIGINT)
        assert await ended(door) == EXIT_OK
        assert "server.drain_unfinished" in door.log


async def test_a_dead_part_of_the_house_ends_the_process_in_an_orderly_way() -> None:
    with Door.open() as door:
        await draining(door, signal.SIGUSR2)
        door.process.send_signal(signal.SIGUSR1)
        assert await ended(door) == EXIT_FAILED
        assert "server.fatal" in door.log
        assert "the queue died" in door.log


async def nothing() -> None:
    pass


async def test_a_house_that_cannot_open_is_told_by_the_exit_code() -> None:
    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        for problem in [RuntimeError("the store is locked")]:
            raise problem
        yield

    settings = Settings(port=0)
    ready: list[str] = []
    app = Starlette(lifespan=lifespan)
    code = await serve(app, settings, door=FrontDoor(settings), drain=nothing, on_ready=ready.append)
    assert code == EXIT_STARTUP
    assert ready == []


async def test_a_drain_that_fails_does_not_stop_the_end() -> None:
    async def drain() -> None:
        raise RuntimeError("no")

    settings = Settings(port=0)
    door = FrontDoor(settings)

    def ready(address: str) -> None:
        host, _, port = address.removeprefix("http://").rpartition(":")
        socket.create_connection((host, int(port)), timeout=5).close()
        door.stop()

    assert await serve(Starlette(), settings, door=door, drain=drain, on_ready=ready) == EXIT_OK
    assert door.draining


async def test_a_sweep_that_dies_is_fatal() -> None:
    settings = Settings(port=0)
    door = FrontDoor(settings)

    class Broken:
        def check(self, now: float, late: float) -> None:
            raise RuntimeError("broken")

    object.__setattr__(door.limits, "sweep_seconds", 0.01)
    door.sockets.add(Broken())
    code = await serve(Starlette(), settings, door=door, drain=nothing, on_ready=lambda _: None)
    assert code == EXIT_FAILED
    assert str(door.failure) == "broken"


def test_an_address_in_use_says_what_to_set() -> None:
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        assert address_of(first) == f"http://127.0.0.1:{port}"
        with pytest.raises(CannotListen, match="HOLDFAST_PORT"):
            bind("127.0.0.1", port)
    with bind("::1", 0) as sixth:
        assert address_of(sixth).startswith("http://[::1]:")
    with pytest.raises(CannotListen):
        bind("no-such-host.invalid", 80)


def test_all_addresses_of_ipv6_are_those_of_ipv4_too() -> None:
    with bind("::", 0) as listener:
        assert listener.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) == 0
        port = listener.getsockname()[1]
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port), timeout=10).close()


async def test_two_pauses_of_reading_keep_the_order() -> None:
    with Door.open() as door:
        async with connect(door, "/terminal/s") as client:
            sent = [str(number) for number in range(50)]
            for number, text in enumerate(sent):
                if number in (10, 20):
                    await client.send("pause")
                await client.send(text)
            assert [await client.recv() for _ in sent] == sent
        await until(lambda: "the app saw the disconnect" in door.log)


async def test_a_client_that_vanishes_ends_the_apps_receive() -> None:
    with Door.open() as door:
        async with connect(door, "/terminal/s") as client:
            client.transport.abort()
        await until(lambda: "the app saw the disconnect" in door.log)
        await until(lambda: "socket.closed" in door.log)  # written after the app has returned


async def test_the_token_protocol_is_never_the_one_answered() -> None:
    with Door.open() as door:
        url = f"ws://{door.host}:{door.port}/ws/v2?sessionId=s"
        protocols = [websockets.Subprotocol(f"token.{token()}"), websockets.Subprotocol("holdfast.chat.v2")]
        async with websockets.connect(url, subprotocols=protocols) as client:
            assert client.subprotocol == "holdfast.chat.v2"
            await client.send("hello")
            assert await asyncio.wait_for(client.recv(), 10) == "hello"


@pytest.mark.parametrize(("session", "status"), [("raise", 500), ("silent", 500)])
async def test_an_app_that_fails_before_it_answers_is_told_as_json(session: str, status: int) -> None:
    with Door.open() as door:
        with pytest.raises(websockets.InvalidStatus) as caught:
            await connect(door, f"/terminal/{session}")
        assert caught.value.response.status_code == status
        assert b'"code":"internal"' in (caught.value.response.body or b"")
        assert ("socket.crashed" in door.log) == (session == "raise")


def alive(*kinds: type) -> list[Any]:
    """By their type: a weak proxy of what is gone cannot be asked whose instance it is."""
    return [each for each in gc.get_objects() if type(each) in kinds]


class Owner:
    """Takes a connection over, and whatever comes by it."""

    def on_frames(self, frames: bytes) -> None: ...
    def on_text(self, payload: bytes) -> None: ...
    def on_binary(self, payload: bytes) -> None: ...
    def on_full(self, full: bool) -> None: ...
    def on_over(self) -> None: ...


@contextlib.asynccontextmanager
async def serving(*routes: BaseRoute) -> AsyncIterator[str]:
    """A server in this process; its address."""
    settings = Settings(port=0)
    door = FrontDoor(settings)
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    app = Starlette(routes=routes)
    serve_it = asyncio.create_task(serve(app, settings, door=door, drain=nothing, on_ready=ready.set_result))
    try:
        yield await ready
    finally:
        door.stop()
        assert await serve_it == EXIT_OK


async def test_of_a_connection_that_was_handed_over_nothing_of_the_apps_side_is_kept() -> None:
    """It was as much as an idle terminal itself: the access log kept the scope until the connection ended."""

    async def take(websocket: WebSocket) -> None:
        await websocket.accept()
        outlet_of(websocket).hand_over(Owner(), passes=False)

    gc.collect()
    gc.disable()
    try:
        async with serving(WebSocketRoute("/", take)) as address, websockets.connect(f"ws{address[4:]}") as client:
            await until(lambda: not alive(GuardedSocket, MessageSocket))
            await (await client.ping())
    finally:
        gc.enable()


async def test_of_a_connection_that_outlives_its_endpoint_nothing_else_of_the_apps_side_is_kept() -> None:
    """An endpoint that waits for the end took a third of what an idle chat session costs."""
    heard: list[bytes] = []

    async def take(websocket: WebSocket) -> None:
        await websocket.accept()
        outlet_of(websocket).on_text = heard.append
        outlet_of(websocket).outlive_app(lambda: heard.append(b"over"))

    def tasks() -> int:
        return sum(
            getattr(task.get_coro(), "__qualname__", "") == "GuardedSocket.run_asgi" for task in asyncio.all_tasks()
        )

    gc.collect()
    gc.disable()
    try:
        async with serving(WebSocketRoute("/", take)) as address:
            async with websockets.connect(f"ws{address[4:]}", compression=None) as client:
                await (await client.ping())
                await until(lambda: not alive(GuardedSocket) and not tasks())
                await client.send("still here")
                await until(lambda: heard == [b"still here"])
            await until(lambda: heard == [b"still here", b"over"])
            await until(lambda: not alive(MessageSocket))
    finally:
        gc.enable()


async def test_an_endpoint_that_fails_behind_the_accept_ends_a_connection_that_outlives_it() -> None:
    over = asyncio.Event()

    async def fail(websocket: WebSocket) -> None:
        await websocket.accept()
        outlet_of(websocket).outlive_app(over.set)
        raise RuntimeError("asked to")

    async with serving(WebSocketRoute("/", fail)) as address, websockets.connect(f"ws{address[4:]}") as client:
        await client.wait_closed()
        assert client.close_code == CloseCode.FAILED
        await over.wait()


async def test_a_server_that_ends_says_so_to_connections_that_outlived_their_endpoints() -> None:
    async def take(websocket: WebSocket) -> None:
        await websocket.accept()
        outlet_of(websocket).outlive_app(lambda: None)

    async with serving(WebSocketRoute("/", take)) as address:
        client = await websockets.connect(f"ws{address[4:]}")
    await client.wait_closed()
    assert client.close_code == CloseCode.COMING_BACK


async def test_a_connection_that_ended_is_freed_at_once() -> None:
    """A request with a body once left its connection, and all that it had read, to the garbage collector."""

    async def echo(request: Request) -> Response:
        return Response(await request.body())

    gc.collect()
    gc.disable()
    try:
        route = Route("/", echo, methods=["POST"])
        async with serving(route) as address, httpx.AsyncClient(base_url=address) as client:
            for _ in range(3):
                assert (await client.post("/", content=b"some")).text == "some"
            assert alive(GuardedHttp)
            await client.aclose()
            await until(lambda: not alive(GuardedHttp))
    finally:
        gc.enable()


async def test_a_socket_that_ended_is_freed_at_once() -> None:
    async def stay(websocket: WebSocket) -> None:
        await websocket.accept()
        outlet_of(websocket).on_text = lambda _: None
        await websocket.receive()

    gc.collect()
    gc.disable()
    try:
        async with serving(WebSocketRoute("/", stay)) as address:
            async with websockets.connect(f"ws{address[4:]}", compression=None) as client:
                await (await client.ping())
                assert alive(GuardedSocket)
                assert alive(MessageSocket)
            await until(lambda: not alive(GuardedSocket, MessageSocket))
    finally:
        gc.enable()


async def test_behind_an_answer_that_came_early_the_parser_is_let_go_with_what_it_holds() -> None:
    """Of a long trailer it held 64 KiB, a thousand times, while its connection lingered."""

    async def hello(_: Request) -> Response:
        return Response("hello")

    gc.collect()
    async with serving(Route("/", hello, methods=["POST"])) as address:
        reader, writer = await asyncio.open_connection(*address.removeprefix("http://").split(":"))
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\na:" + b"a" * 80_000)
        answered = await reader.readline()
        lingering = alive(GuardedHttp)
        writer.close()
        assert answered.startswith(b"HTTP/1.1 ")
        assert [each.parser for each in lingering] == [None]


async def test_an_open_connection_has_few_attributes_outside_its_slots() -> None:
    """Beyond 30, each connection has a table of their names of its own: 1.3 KiB."""

    async def stay(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.receive()

    async with (
        serving(Route("/", lambda _: Response()), WebSocketRoute("/", stay)) as address,
        httpx.AsyncClient(base_url=address) as client,
        websockets.connect(f"ws{address[4:]}"),
    ):
        assert (await client.get("/")).status_code == 200
        connections = alive(GuardedHttp, GuardedSocket)
        assert {type(each) for each in connections} == {GuardedHttp, GuardedSocket}
        assert all(len(vars(each)) <= 30 for each in connections)
