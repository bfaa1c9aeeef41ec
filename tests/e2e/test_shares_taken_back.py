"""Revoking a share disconnects all who are connected by it, and nobody else, in every dialect, whatever a peer does."""

import asyncio
import base64
import contextlib
import fcntl
import json
import os
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from tests.gateway.http.sessions.test_lifecycle import comes_to
from tests.support.chat import hear, say
from tests.support.gateway import Gateway

SHARES = "/api/sandboxes/shown/shares"
FLOOD = ["sh", "-c", "exec yes a line that goes on for ever"]
DIALECTS = {
    "chat": ("/ws/v2?sessionId=shown", None),
    "plain": ("/terminal/shown", None),
    "native": ("/terminal/shown?dialect=native", None),
    "cloudflare": ("/v1/sandbox/shown/pty", None),
    "jupyter": ("/jupyter/shown/terminals/websocket/main", None),
    "tty": ("/tty/shown/ws", "tty"),
}


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with Gateway(tmp_path_factory.mktemp("shares") / "data") as running:
        await running.create("shown")
        async with running.http() as ada:
            await comes_to(ada, "shown", "running")
            for name, command in (("main", ["cat"]), ("flood", FLOOD)):
                made = await ada.post(f"/api/sandboxes/shown/terminals/{name}", json={"command": command})
                assert made.is_success, made.text
        yield running


@pytest.fixture
async def ada(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with gateway.http() as client:
        yield client


async def shared(ada: httpx.AsyncClient) -> dict[str, Any]:
    answer = await ada.post(SHARES)
    assert answer.status_code == 201, answer.text
    described: dict[str, Any] = answer.json()
    return described


async def take_back(ada: httpx.AsyncClient, share: dict[str, Any]) -> None:
    assert (await ada.delete(f"{SHARES}/{share['number']}")).status_code == 200


def come_in(gateway: Gateway, dialect: str, token: str) -> connect:
    path, protocol = DIALECTS[dialect]
    url = gateway.url.replace("http", "ws", 1) + path
    headers = {"Authorization": f"Bearer {token}"}
    protocols = [Subprotocol(protocol)] if protocol else None
    return connect(url, additional_headers=headers, subprotocols=protocols, compression=None, proxy=None)


async def end_of(viewer: ClientConnection) -> tuple[int, str]:
    """Code and reason of its close, whatever comes before that."""
    with contextlib.suppress(ConnectionClosed):
        async with asyncio.timeout(60):
            while True:
                await viewer.recv()
    assert viewer.close_code is not None
    return viewer.close_code, viewer.close_reason or ""


async def test_it_closes_every_socket_of_that_share_and_no_other(gateway: Gateway, ada: httpx.AsyncClient) -> None:
    gone, kept = await shared(ada), await shared(ada)
    async with AsyncExitStack() as stack:
        guests, others = [], []
        for dialect in DIALECTS:
            guests.append(await stack.enter_async_context(come_in(gateway, dialect, gone["token"])))
            others.append(await stack.enter_async_context(come_in(gateway, dialect, kept["token"])))
        ticket = await ada.post("/api/tickets", json={"sessionId": "shown"}, headers=_bearer(gone))
        url = gateway.url.replace("http", "ws", 1)
        by_ticket = f"{url}/ws/v2?sessionId=shown&ticket={ticket.json()['ticket']}"
        guests.append(await stack.enter_async_context(connect(by_ticket, proxy=None)))
        async with gateway.chat("shown") as owner:
            await hear(owner, "welcome")
            await take_back(ada, gone)
            for guest in guests:
                assert await end_of(guest) == (4401, "the share was taken back")
            await say(owner, "ping")
            await hear(owner, "pong")
        for other in others:
            await (await other.ping())
        await take_back(ada, kept)
        for other in others:
            assert (await end_of(other))[0] == 4401


async def test_one_that_reads_nothing_is_cut_off(gateway: Gateway, ada: httpx.AsyncClient) -> None:
    """Its close cannot be sent: the connection is full. A slow viewer is given 25 s, one that was shown out is not."""
    share = await shared(ada)
    where = httpx.URL(gateway.url)
    reader, writer = await asyncio.open_connection(where.host, where.port, limit=1024)
    key = base64.b64encode(os.urandom(16)).decode()
    path = f"/terminal/shown?name=flood&dialect=native&token={share['token']}"
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    assert b"101" in await reader.readline()
    try:
        async with asyncio.timeout(60):
            await _until_full(writer)
        await take_back(ada, share)
        async with asyncio.timeout(20):  # less than the 25 s
            await _until_reset(writer)
    finally:
        writer.transport.abort()


async def _until_full(writer: asyncio.StreamWriter) -> None:
    """Nothing more of the flood arrives: what was sent and is not read has filled the connection."""
    before, waiting = -1, 0
    while not waiting or waiting != before:
        before, waiting = waiting, _unread(writer)
        await asyncio.sleep(0.5)


def _unread(writer: asyncio.StreamWriter) -> int:
    answer = fcntl.ioctl(writer.get_extra_info("socket").fileno(), termios.FIONREAD, bytes(4))
    return int.from_bytes(answer, sys.byteorder)


async def _until_reset(writer: asyncio.StreamWriter) -> None:
    """A connection that is gone answers whatever is sent to it with a reset."""
    with contextlib.suppress(ConnectionError):
        while True:
            writer.write(b"\x8a\x80\0\0\0\0")
            await writer.drain()
            await asyncio.sleep(0.05)


def _bearer(share: dict[str, Any]) -> dict[str, str]:
    return {"Authorization": f"Bearer {share['token']}"}


@pytest.mark.parametrize("dialect", ["chat", "native"])
async def test_a_renewed_connection_belongs_to_the_newer_share(
    gateway: Gateway, ada: httpx.AsyncClient, dialect: str
) -> None:
    first, second = await shared(ada), await shared(ada)
    async with come_in(gateway, dialect, first["token"]) as guest:
        await guest.recv()
        await say(guest, "auth", token=second["token"])
        await take_back_when_renewed(gateway, ada, guest, first)
        await take_back(ada, second)
        assert await end_of(guest) == (4401, "the share was taken back")


async def take_back_when_renewed(
    gateway: Gateway, ada: httpx.AsyncClient, guest: ClientConnection, first: dict[str, Any]
) -> None:
    """The renewal is dealt with before what is asked behind it: a token that is refused is told."""
    await say(guest, "auth", token="nonsense")
    while not isinstance(told := await guest.recv(), str) or json.loads(told)["type"] != "error":
        pass
    assert json.loads(told)["code"] == "token_invalid"
    await take_back(ada, first)
    await (await guest.ping())


@pytest.mark.parametrize("dialect", ["chat", "native"])
async def test_nobody_is_renewed_by_a_share_that_was_taken_back(
    gateway: Gateway, ada: httpx.AsyncClient, dialect: str
) -> None:
    kept, gone = await shared(ada), await shared(ada)
    async with come_in(gateway, dialect, kept["token"]) as guest:
        await guest.recv()
        await take_back(ada, gone)
        await say(guest, "auth", token=gone["token"])
        while not isinstance(told := await guest.recv(), str) or json.loads(told)["type"] != "error":
            pass
        assert json.loads(told)["code"] == "share_ended"
        await take_back(ada, kept)
        assert (await end_of(guest))[0] == 4401


async def test_what_was_answered_is_so_after_a_kill(gateway: Gateway, ada: httpx.AsyncClient) -> None:
    """Also for a session that nobody has loaded since."""
    kept, gone = await shared(ada), await shared(ada)
    await take_back(ada, gone)
    await gateway.restart(kill=True)
    async with gateway.http(_bearer(kept)) as guest:
        assert (await guest.get("/api/sessions/shown/messages")).status_code == 200
    async with gateway.http(_bearer(gone)) as guest:
        answer = await guest.get("/api/sessions/shown/messages")
        assert (answer.status_code, answer.json()["code"]) == (401, "share_ended")
    async with gateway.http() as client:
        numbers = [each["number"] for each in (await client.get(SHARES)).json()["shares"]]
    assert kept["number"] in numbers
    assert gone["number"] not in numbers


async def test_at_the_sessions_end_guests_are_shown_out(gateway: Gateway) -> None:
    await gateway.create("ending")
    async with gateway.http() as client:
        share = (await client.post("/api/sandboxes/ending/shares")).json()
        url = gateway.url.replace("http", "ws", 1) + "/ws/v2?sessionId=ending"
        async with connect(url, additional_headers=_bearer(share), proxy=None) as guest:
            await hear(guest, "welcome")
            assert (await client.delete("/api/sandboxes/ending?purge=1")).status_code == 200
            assert (await end_of(guest))[0] == 1000
