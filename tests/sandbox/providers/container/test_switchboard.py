"""Connections handed in one by one: the gateway's end and the bridge's, on real sockets."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from sandbox.bridge.handed import HandedIn
from sandbox.providers.container import switchboard as module
from sandbox.providers.container.doorway import DOOR, open_door
from sandbox.providers.container.switchboard import Switchboard
from sandbox.providers.local.launch import listen
from tests.support.waiting import until

TOKEN = "t" * 43


class Echo(asyncio.Protocol):
    """What a bridge is here."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


@contextlib.asynccontextmanager
async def gateway(home: Path) -> AsyncIterator[Switchboard]:
    home.mkdir(exist_ok=True)
    at = os.open(home, os.O_PATH)
    made = Switchboard("s1", listen(at, "bridge.sock"), open_door(home / "door"), TOKEN)
    try:
        yield made
    finally:
        await made.close()
        os.close(at)
        assert not (home / "door" / DOOR).exists()


@contextlib.asynccontextmanager
async def bridge(home: Path, token: str = TOKEN) -> AsyncIterator[None]:
    """One whose first connection is one that has just broken: as after a gateway has gone."""
    ours, theirs = socket.socketpair()
    theirs.close()
    ours.setblocking(False)
    taking = asyncio.create_task(HandedIn(ours, str(home / "door" / DOOR), token).take(Echo))
    try:
        yield
    finally:
        taking.cancel()
        await asyncio.wait({taking})


async def echoed(home: Path, words: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(str(home / "bridge.sock"))
    heard = b""
    with contextlib.suppress(ConnectionError):
        writer.write(words)
        heard = await reader.read(100)
    writer.close()
    return heard


async def test_connections_reach_a_bridge_that_comes_and_one_gateway_after_the_other(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with bridge(home):
        for words in (b"first gateway", b"second gateway"):
            async with gateway(home):
                found = await asyncio.gather(*(echoed(home, words + b" %d" % number) for number in range(20)))
                assert found == [words + b" %d" % number for number in range(20)]


async def test_who_shows_no_token_gets_no_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short: what waits for a bridge waits all the time here."""
    monkeypatch.setattr(module, "BRIDGE_SECONDS", 0.5)
    home = tmp_path / "home"
    async with gateway(home):
        for wrong in ("w" * 43, "t" * 42 + "w"):
            async with bridge(home, wrong):
                assert await echoed(home, b"anybody?") == b""
        async with bridge(home):
            # What an impostor may have begun before: the door deals with one after the other.
            assert await until(lambda: _echo_or_none(home)) == b"anybody?"


async def _echo_or_none(home: Path) -> bytes | None:
    return await echoed(home, b"anybody?") or None


async def test_a_bridge_that_went_is_replaced_by_the_one_that_comes(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with gateway(home):
        for words in (b"one", b"another"):
            async with bridge(home):
                assert await until(lambda: _echo_or_none(home)) == b"anybody?"
                assert await echoed(home, words) == words
