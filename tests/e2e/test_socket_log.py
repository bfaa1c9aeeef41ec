"""What the log says of a socket's end: one line, when the connection ends, with how long it lasted and its code."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection

from tests.support.gateway import Gateway
from tests.support.waiting import PATIENCE, until


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with Gateway(tmp_path_factory.mktemp("socket-log") / "data") as running:
        yield running


def lines(gateway: Gateway, event: str, path: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in gateway.log.splitlines() if line.startswith("{") and path in line]
    return [line for line in found if line["event"] == event]


async def closed(gateway: Gateway, path: str) -> dict[str, Any]:
    await until(lambda: lines(gateway, "socket.closed", path))
    (line,) = lines(gateway, "socket.closed", path)
    assert line["status"] == 101
    return line


async def hear(socket: ClientConnection, wanted: str) -> None:
    heard = ""
    async with asyncio.timeout(PATIENCE):
        while wanted not in heard:
            message = await socket.recv()
            heard += message if isinstance(message, str) else message.decode(errors="replace")


@pytest.mark.parametrize("dialect", ["native", "plain"])
async def test_a_terminals_end_is_logged_when_it_ends_with_its_length_and_code(gateway: Gateway, dialect: str) -> None:
    """It was once logged when the connection was handed over, two milliseconds after it had begun."""
    session = f"leaves-{dialect}"
    await gateway.create(session)
    path = f"/terminal/{session}"
    async with gateway.socket(path, dialect=dialect) as socket:
        began = time.monotonic()
        await socket.send(b"echo $((6*7))here\r")
        await hear(socket, "42here")
        assert lines(gateway, "socket.opened", path)
        assert not lines(gateway, "socket.closed", path)
        lasted = time.monotonic() - began
        await socket.close(4242)
    line = await closed(gateway, path)
    assert line["code"] == 4242
    assert line["seconds"] >= lasted


async def test_the_code_is_the_gateways_own_where_the_gateway_ends_it(gateway: Gateway) -> None:
    await gateway.create("exits")
    async with gateway.socket("/terminal/exits") as socket:
        await socket.send("exit 3\r")
        await asyncio.wait_for(socket.wait_closed(), PATIENCE)
    assert (await closed(gateway, "/terminal/exits"))["code"] == 1000


async def test_a_connection_that_ends_without_a_goodbye_has_1006(gateway: Gateway) -> None:
    await gateway.create("vanishes")
    async with gateway.socket("/terminal/vanishes") as socket:
        await socket.send("echo $((6*7))here\r")
        await hear(socket, "42here")
        socket.transport.abort()
    assert (await closed(gateway, "/terminal/vanishes"))["code"] == 1006


async def test_chat_sockets_tell_their_code_too(gateway: Gateway) -> None:
    await gateway.create("chats")
    async with gateway.socket("/ws/v2", sessionId="chats") as socket:
        await socket.recv()
        await socket.close(4242)
    assert (await closed(gateway, "/ws/v2"))["code"] == 4242
