"""One user with a hundred sockets, and somebody with a share that only looks, do their worst: another user is served as
before, nobody else's socket is closed, the gateway lives and its memory stays where it was.

By default all ways at once for 5 s, and the other user's 99th percentile below 250 ms. At full size (`make soak`) each
way for itself and then all, 60 s each, and below 100 ms. That is for a machine that has nothing else to do. Where the
gateway had to wait for a core, as the kernel counts it, the bound is as much longer as its work took longer; and what
the same user saw without an attack, in the same run, is allowed several times."""

import asyncio
import json
import os
import time
import zlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection

from tests.support.attack import Group, attack
from tests.support.gateway import Gateway, GatewayByCommandLine
from tests.support.hostile import BINARY, MIB, TEXT, memory
from tests.support.raw_client import masked, upgrade
from tests.support.waiting import until

pytestmark = pytest.mark.soak

FULL = bool(os.environ.get("HOLDFAST_TEST_SOAK"))
SECONDS = float(os.environ.get("HOLDFAST_TEST_SECONDS", "60" if FULL else "5"))
SOCKETS = 100
ALLOWED_SECONDS = 0.1 if FULL else 0.25
ALLOWED_GROWTH = 64 * MIB
DEFLATE = "Sec-WebSocket-Extensions: permessage-deflate; client_no_context_takeover"


def text(payload: bytes) -> bytes:
    return masked(TEXT, payload)


def packed(payload: bytes) -> bytes:
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -12)
    frame = bytearray(masked(TEXT, (squeeze.compress(payload) + squeeze.flush(zlib.Z_SYNC_FLUSH))[:-4]))
    frame[0] |= 0x40
    return bytes(frame)


STRING = b'{"type":"ping","x":"' + b"a" * (MIB - 100) + b'"}'
FRAGMENTS = masked(TEXT, b"{", fin=False) + masked(0, b" ", fin=False) * 1000 + masked(0, b'"type":"ping"}')
UNFINISHED = text(b"a" * MIB)[:-1]

# What is sent again and again, and how: on the chat socket unless a path is named.
WAYS: dict[str, dict[str, object]] = {
    "ping": {"unit": text(b'{"type":"ping"}')},
    "auth": {"unit": text(b'{"type":"auth","token":"a.b.c"}')},
    "wrong frames": {"unit": text(b'{"type":"x","cid":"a"}')},
    "unreadable frames": {"unit": text(b"nonsense"), "returns": True},
    "as many elements as may be": {"unit": text(b'{"type":"ping","x":[' + b"[]," * 9990 + b"[]]}")},
    "arrays": {"unit": text(b'{"type":"ping","x":[' + b"[]," * 340_000 + b"[]]}"), "returns": True},
    "members": {"unit": text(b'{"type":"ping","x":{' + b",".join(b'"%d":1' % n for n in range(9990)) + b"}}")},
    "1 MiB strings": {"unit": text(STRING)},
    "escapes": {"unit": text(b'{"type":"ping","x":":' + b'\\"' * (MIB // 2 - 100) + b'"}')},
    "fragments": {"unit": FRAGMENTS},
    "deflate": {"unit": packed(STRING), "deflate": True},
    "unfinished": {"unit": UNFINISHED, "most": len(UNFINISHED)},
    "never reading": {"unit": text(b'{"type":"ping","id":"' + b"a" * 8000 + b'"}'), "reads": False},
    "protocol pings": {"unit": masked(9, b"") * 500, "returns": True},
    "terminals' control": {"unit": text(b'{"type":"ping"}'), "path": "/terminal/%s?dialect=native"},
    "terminals' input": {"unit": masked(BINARY, b"x" * 100), "path": "/terminal/%s?dialect=native"},
    "terminals' 1 MiB": {"unit": text(STRING), "path": "/terminal/%s?dialect=native"},
    "terminals' unfinished": {"unit": UNFINISHED, "most": len(UNFINISHED), "path": "/terminal/%s?dialect=native"},
}  # fmt: skip


def group(way: str, session_id: str, token: str, count: int) -> Group:
    made = dict(WAYS[way])
    path = str(made.pop("path", "/ws/v2?sessionId=%s")) % session_id
    headers = [DEFLATE] if made.pop("deflate", False) else []
    opening = upgrade(path, f"Authorization: Bearer {token}", *headers)
    return Group(count, opening, **made)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    data: Path = tmp_path_factory.mktemp("users") / "data"
    async with GatewayByCommandLine(data, MAX_CONNECTIONS_PER_ADDRESS=3000, COMPRESSION="true") as running:
        await running.create("v", "vic", agent=["cat"])
        yield running


class Victim:
    """Another user, who pings on one socket, and has others that are quiet."""

    def __init__(self, sockets: list[ClientConnection]) -> None:
        self._sockets = sockets
        self._number = 0

    async def ping(self, socket: ClientConnection) -> float:
        self._number += 1
        began = time.monotonic()
        await socket.send(json.dumps({"type": "ping", "id": self._number}))
        while json.loads(await socket.recv()).get("id") != self._number:
            pass
        return time.monotonic() - began

    async def p99_until(self, over: "asyncio.Future[Any]") -> float:
        waits = []
        while not over.done():
            waits.append(await self.ping(self._sockets[0]))
            await asyncio.sleep(0.01)
        return sorted(waits)[int(len(waits) * 0.99)]

    async def all_answer(self) -> None:
        for socket in self._sockets:
            await self.ping(socket)


def at_work(gateway: Gateway) -> tuple[int, int]:
    """Nanoseconds the gateway's loop ran, and was ready to run and had no core."""
    ran, waited = Path(f"/proc/{gateway.pid}/schedstat").read_text().split()[:2]
    return int(ran), int(waited)


async def share(gateway: Gateway, user: str) -> str:
    async with gateway.http(gateway.bearer(user)) as client:
        return str((await client.post(f"/api/sandboxes/{user}/shares", json={})).json()["token"])


@pytest.mark.parametrize("ways", [[way] for way in WAYS] + [list(WAYS)] if FULL else [list(WAYS)], ids=", ".join)
async def test_another_user_is_served_as_before(gateway: Gateway, ways: list[str]) -> None:
    user = f"mal{len(ways)}{list(WAYS).index(ways[0])}"  # its own session has the same name
    await gateway.create(user, user, agent=["cat"])
    tokens = gateway.token(user), await share(gateway, user)
    each = SOCKETS // len(ways)
    groups = [group(way, user, token, each) for way in ways for token in tokens]
    url = httpx.URL(gateway.url)
    async with AsyncExitStack() as stack:
        sockets = [await stack.enter_async_context(gateway.socket("/ws/events", "vic")) for _ in range(3)]
        sockets += [await stack.enter_async_context(gateway.chat("v", "vic")) for _ in range(3)]
        victim = Victim(sockets)
        before = gateway.rss
        baseline = await victim.p99_until(asyncio.ensure_future(asyncio.sleep(SECONDS / 5)))
        async with memory(gateway, ALLOWED_GROWTH) as seen, attack(groups, SECONDS, url.host, url.port or 0) as running:
            ended, began = asyncio.ensure_future(running.result()), at_work(gateway)
            worst = await victim.p99_until(ended)
        result = await ended
        ran, waited = (now - then for now, then in zip(at_work(gateway), began, strict=True))
        slower = 1 + waited / max(1, ran)
        told = (
            f"{', '.join(ways)[:40]:40} p99 {worst * 1000:.0f} ms (without an attack {baseline * 1000:.0f}, slower by"
            f" {slower:.1f}, at work for {ran / 1e9:.1f} s)"
        )
        if FULL:
            print(told, f"grew {seen.growth / MIB:.0f} MiB, then {(gateway.rss - before) / MIB:.0f}", result)  # noqa: T201
        assert worst <= max(ALLOWED_SECONDS * slower, 8 * baseline), told
        await victim.all_answer()
        assert result["came"] >= len(groups) * each
        await until(lambda: gateway.rss - before < ALLOWED_GROWTH / 2, "the memory to be given back")
    assert "loop.dead" not in gateway.log
