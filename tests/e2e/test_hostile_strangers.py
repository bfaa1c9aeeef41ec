"""Many connections without credentials, in every way that a request can be made to grow: the gateway's memory stays
where it was, and `/health` answers. At full size (`make soak`) a thousand of them."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.support.attack import Group, attack
from tests.support.gateway import Gateway
from tests.support.hostile import MIB, memory
from tests.support.raw_client import upgrade

pytestmark = pytest.mark.soak

FULL = bool(os.environ.get("HOLDFAST_TEST_SOAK"))
CONNECTIONS = 1000 if FULL else 120
SECONDS = 6.0 if FULL else 1.0
ALLOWED = 64 * MIB if FULL else 24 * MIB

POST = b"POST /api/token HTTP/1.1\r\nHost: h\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
HEALTH = b"GET /health HTTP/1.1\r\nHost: h\r\n"
SIGNIN = b"POST /api/signin HTTP/1.1\r\nHost: h\r\nOrigin: http://h\r\n"
LARGE_CHUNK = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
UPGRADE = upgrade("/ws/events").replace(b"Upgrade: websocket", b"upgrade: websocket")  # its answer is not waited for

# What comes first, and what comes again and again behind it
WAYS = {
    "trailers": (CHUNKED + b"0\r\n", b"a:\r\n"),
    "trailers of a public route": (HEALTH + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"a:\r\n"),
    "one long trailer": (CHUNKED + b"0\r\na:", b"a"),
    "chunk extensions": (CHUNKED + b"1;", b"a"),
    "zeros before a chunk's length": (CHUNKED, b"0" * 15),
    "tiny chunks": (CHUNKED, b"1\r\na\r\n"),
    "large chunks": (CHUNKED, LARGE_CHUNK),
    "a body that is declared": (POST + b"Content-Length: 1048576\r\n\r\n", b"a"),
    "a body that is nearly all there": (POST + b"Content-Length: 65536\r\n\r\n" + b"a" * 65535, b""),
    "a body where anybody may send one": (SIGNIN + b"Content-Length: 1048576\r\n\r\n", b"a"),
    "chunks where anybody may send them": (SIGNIN + b"Transfer-Encoding: chunked\r\n\r\n", LARGE_CHUNK),
    "half a head": (HEALTH + b"a: " + b"b" * 60_000, b""),
    "a head of small headers": (HEALTH + b"a:\r\n" * 190 + b"b: " + b"b" * 50_000, b""),
    "a head that does not end": (HEALTH, b"a:\r\n"),
    "heads that are answered": (HEALTH + b"a: " + b"b" * 60_000 + b"\r\n\r\n", b""),
    "half a head behind a whole one": (HEALTH + b"\r\n" + HEALTH + b"a: " + b"b" * 60_000, b""),
    "pipelined heads": (b"", HEALTH + b"a: " + b"b" * 15_000 + b"\r\n\r\n"),
    "frames behind an upgrade": (UPGRADE, b"\x81\x80\0\0\0\0"),
}  # fmt: skip


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    data: Path = tmp_path_factory.mktemp("strangers") / "data"
    async with Gateway(data, MAX_CONNECTIONS_PER_ADDRESS=3000) as running, running.http({}) as client:
        for _ in range(100):
            assert (await client.get("/health")).status_code == httpx.codes.OK
        yield running


@pytest.mark.parametrize("way", WAYS)
async def test_strangers_take_no_memory_and_health_answers(gateway: Gateway, way: str) -> None:
    opening, unit = WAYS[way]
    strangers = Group(CONNECTIONS, opening, unit, most=8 * MIB)
    await _withstands(gateway, strangers, way)


# What a refusal leaves behind must be free at once: the garbage collector comes rarely.
REFUSED = {
    "by their size": HEALTH + b"a: " + b"b" * 60_000 + b"\r\nb: " + b"b" * 9_000 + b"\r\n\r\n",
    "by their framing": POST + b"Content-Length: 2097152\r\n\r\n" + b"a" * 60_000,
}


@pytest.mark.parametrize("why", REFUSED)
async def test_strangers_who_come_back_when_they_are_refused_take_no_memory(gateway: Gateway, why: str) -> None:
    await _withstands(gateway, Group(CONNECTIONS // 4, REFUSED[why], returns=True), f"refused {why}")


async def _withstands(gateway: Gateway, strangers: Group, way: str) -> None:
    url = httpx.URL(gateway.url)
    async with (
        memory(gateway, ALLOWED) as seen,
        attack([strangers], SECONDS, url.host, url.port or 0) as running,
    ):
        ended = asyncio.create_task(running.result())
        answered = 0
        while not ended.done():
            async with gateway.http({}) as client:  # somebody new each time
                assert (await client.get("/health")).status_code == httpx.codes.OK
            answered += 1
        result = ended.result()
    assert answered
    assert gateway.running
    if FULL:
        print(f"{way:36} grew {seen.growth / MIB:5.1f} MiB, {answered} answers,", result)  # noqa: T201
