"""What programs of a sandbox may try against the proxy: each is refused in words, none reaches anything, and another
session's requests are served meanwhile."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateway.egress.proxies import HERE, Proxied, connect, echo, gone, host, plain, proxied, say, tunnel
from tests.support.waiting import until

REACHED: list[bytes] = []


async def listening(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    REACHED.append(b"somebody")


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[Proxied]:
    REACHED.clear()
    async with proxied(tmp_path) as proxy:
        yield proxy


async def test_who_holds_a_listener_too_holds_up_no_one(proxy: Proxied) -> None:
    """Whether an accept waits is a flag that both holders of a listener share: a bridge may clear it."""
    ann, bob = proxy.session("ann", "none"), proxy.session("bob", "none")
    words = b"GET http://example.com/ HTTP/1.1\r\nHost: x\r\n\r\n"
    for _ in range(3):
        proxy.listeners["ann"].setblocking(True)
        for at in (ann, bob):
            assert (await asyncio.wait_for(say(at, words), 60)).startswith(b"HTTP/1.1 403 ")


V4 = "127.0.0.1 127.0.0.1. 127.1 0x7f000001 2130706433 0177.0.0.1 0 0.0.0.0 localhost 10.0.0.1 192.168.0.1 172.16.0.1"
MORE = "169.254.169.254 100.100.100.200 224.0.0.1 255.255.255.255"
V6 = "::1 ::ffff:127.0.0.1 :: fd00:ec2::254 fe80::1 ::ffff:169.254.169.254 64:ff9b::7f00:1 2002:7f00:1:: ff02::1"
ADDRESSES = [*V4.split(), *MORE.split(), *(f"[{each}]" for each in V6.split())]


@pytest.mark.parametrize("address", ADDRESSES)
async def test_no_address_of_this_host_or_its_networks_is_reached(proxy: Proxied, address: str) -> None:
    """With every public host allowed. What 127.0.0.1 would be is listened at."""
    async with host(listening, "127.0.0.1") as port:
        ann = proxy.session("ann", {"allow": [f"{HERE}:{port}"]})
        bob = proxy.session("bob", "outbound")
        for at in (ann, bob):
            for number in (port, 80, 443):
                for words in (f"CONNECT {address}:{number}", f"GET http://{address}:{number}/"):
                    said = await say(at, f"{words} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                    assert said.startswith((b"HTTP/1.1 403 ", b"HTTP/1.1 400 ", b"HTTP/1.1 502 ")), said
        assert REACHED == []


async def test_a_name_of_an_allowed_host_that_leads_inside_is_refused(proxy: Proxied) -> None:
    """`localhost` is one that every machine has. The session's own list allows it; its address does not."""
    async with host(listening, "127.0.0.1") as port:
        ann = proxy.session("ann", {"allow": [f"localhost:{port}"]})
        said = await say(ann, f"CONNECT localhost:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert said.startswith(b"HTTP/1.1 403 ")
        assert b"HOLDFAST_NETWORK_INNER" in said
        assert REACHED == []


@pytest.mark.parametrize("port", [0, 22, 25, 81, 3128, 8080, 65536, -1])
async def test_odd_ports_are_refused(proxy: Proxied, port: int) -> None:
    ann = proxy.session("ann", "outbound")
    said = await say(ann, f"CONNECT example.com:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert said.startswith((b"HTTP/1.1 403 ", b"HTTP/1.1 400 ")), said
    assert len(said.split(b"\r\n\r\n")[1]) > 20, "it says why"


ODD = {
    "authority form": b"GET %(host)b HTTP/1.1\r\nHost: x\r\n\r\n",
    "asterisk": b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
    "https": b"GET https://%(host)b/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "user": b"GET http://%(host)b@127.0.0.1/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "two lengths": b"POST http://%(host)b/ HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "length and chunks": b"POST http://%(host)b/ HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
    "odd coding": b"POST http://%(host)b/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "space in a name": b"GET http://%(host)b/ HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n",
    "folded": b"GET http://%(host)b/ HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
    "bare line feed": b"GET http://%(host)b/ HTTP/1.1\r\nHost: x\r\nA: b\nC: d\r\n\r\n",
    "two hosts": b"GET http://%(host)b/ HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "no host": b"GET http://%(host)b/ HTTP/1.1\r\n\r\n",
    "http/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "a fragment": b"GET http://%(host)b/#x HTTP/1.1\r\nHost: x\r\n\r\n",
    "no slash": b"GET http:/%(host)b/ HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("words", ODD.values(), ids=list(ODD))
async def test_what_is_no_request_for_a_proxy_is_refused(proxy: Proxied, words: bytes) -> None:
    async with host(listening) as port:
        ann = proxy.session("ann", {"allow": [f"{HERE}:{port}"]})
        said = await say(ann, words % {b"host": f"{HERE}:{port}".encode()})
        assert said.startswith(b"HTTP/1.1 400 "), said
        assert REACHED == []


async def test_one_request_goes_over_one_connection(proxy: Proxied) -> None:
    """A second one behind the first, for a host that nobody allowed or for the same, is not passed on."""
    async with host(plain) as port:
        ann = proxy.session("ann", {"allow": [f"{HERE}:{port}"]})
        first = f"GET http://{HERE}:{port}/one HTTP/1.1\r\nHost: evil.example\r\n\r\n".encode()
        said = await say(ann, first + first.replace(b"/one", b"/two"))
        assert b"GET /one HTTP/1.1\r\nHost: %b:%d\r\n" % (HERE.encode(), port) in said
        assert b"/two" not in said
        assert b"evil" not in said
        chunks = b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nTrailer: x\r\n\r\n"
        post = f"POST http://{HERE}:{port}/one HTTP/1.1\r\nHost: x\r\n".encode()
        said = await say(ann, post + chunks + first.replace(b"/one", b"/two"))
        assert b"3\r\nabc\r\n0\r\n\r\n" in said
        assert b"/two" not in said
        assert b"Trailer" not in said


async def test_a_redirect_is_the_programs_to_follow(proxy: Proxied) -> None:
    async def moved(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest\r\nContent-Length: 0\r\n\r\n")

    async with host(moved) as port:
        ann = proxy.session("ann", {"allow": [f"{HERE}:{port}"]})
        said = await say(ann, f"GET http://{HERE}:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert b"302 Found" in said
        followed = await say(ann, b"GET http://169.254.169.254/latest HTTP/1.1\r\nHost: x\r\n\r\n")
        assert followed.startswith(b"HTTP/1.1 403 ")


async def test_a_head_of_4_mib_is_refused_in_words(proxy: Proxied) -> None:
    ann = proxy.session("ann", "outbound")
    said = b""
    reader, writer = await connect(ann)
    with contextlib.suppress(ConnectionError):
        writer.write(b"GET http://example.com/ HTTP/1.1\r\nHost: x\r\nA: " + b"a" * (4 << 20))
        said = await reader.read()
    writer.close()
    assert said.startswith(b"HTTP/1.1 431 ")


async def served(port: int, target: str) -> bool:
    """Whether a short request is answered."""
    reader, writer = await tunnel(port, target)
    writer.write(b"x")
    answered = await reader.readexactly(1) == b"x"
    writer.close()
    return answered


async def served_if_let_in(port: int, target: str) -> bool:
    with contextlib.suppress(AssertionError, asyncio.IncompleteReadError):
        return await served(port, target)
    return False


async def test_a_thousand_connections_of_one_session_leave_another_ones_alone(proxy: Proxied) -> None:
    async with host(echo, backlog=2048) as port:
        target = f"{HERE}:{port}"
        ann, bob = proxy.session("ann", {"allow": [target]}), proxy.session("bob", {"allow": [target]})
        held: list[asyncio.StreamWriter] = []
        refused = 0

        async def open_one() -> None:
            nonlocal refused
            reader, writer = await connect(ann)
            held.append(writer)
            writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"HTTP/1.1 503 "):
                refused += 1
                assert b"256 connections" in await reader.read()

        tasks = [asyncio.create_task(open_one()) for _ in range(1000)]
        await asyncio.sleep(0)
        for _ in range(20):
            assert await served(bob, target), "while the others come"
        await asyncio.gather(*tasks)
        assert refused == 1000 - 256
        assert await served(bob, target)
        await gone(*held)
        await until(lambda: served_if_let_in(ann, target), "room again")


async def test_endless_answers_and_slow_readers_leave_another_session_alone(proxy: Proxied) -> None:
    """As many as one session may have; half of them are read by nobody. What the other one asks comes first: its
    thousand short exchanges are over while the floods have moved no more than their share of turns."""
    block = b"x" * 65536
    moved = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(block)
            await writer.drain()

    async with host(flood, backlog=512) as flooding, host(echo) as echoing:
        ann = proxy.session("ann", {"allow": [f"{HERE}:{flooding}"]})
        bob = proxy.session("bob", {"allow": [f"{HERE}:{echoing}"]})
        open_ones = [await tunnel(ann, f"{HERE}:{flooding}") for _ in range(100)]

        async def drink(reader: asyncio.StreamReader) -> None:
            nonlocal moved
            while piece := await reader.read(1 << 20):
                moved += len(piece)

        drinking = [asyncio.create_task(drink(reader)) for reader, _ in open_ones[::2]]
        reader, writer = await tunnel(bob, f"{HERE}:{echoing}")
        for _ in range(200):
            writer.write(b"ping")
            assert await reader.readexactly(4) == b"ping"
        assert moved > 0, "the others go on"
        for task in drinking:
            task.cancel()
        await asyncio.wait(drinking)
        await gone(writer, *(each for _, each in open_ones))


async def test_a_slow_head_holds_up_nobody(proxy: Proxied) -> None:
    async with host(echo) as port:
        target = f"{HERE}:{port}"
        ann, bob = proxy.session("ann", {"allow": [target]}), proxy.session("bob", {"allow": [target]})
        slow = [await connect(ann) for _ in range(200)]
        for _, writer in slow:
            writer.write(b"GET http://")
        assert await served(ann, target)
        assert await served(bob, target)
        await gone(*(writer for _, writer in slow))
