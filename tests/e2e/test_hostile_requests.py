"""What hostile requests may cost, in size, in time and in number, and that none of them makes a secret visible."""

import asyncio
import json
from contextlib import AsyncExitStack, suppress

import httpx
import pytest

from tests.support.front_door import Door, token
from tests.support.hostile import AUTH, MIB, TEXT, assert_healthy, memory, opened, raw
from tests.support.raw_client import masked, upgrade
from tests.support.waiting import until


async def test_half_a_request_head_is_not_waited_for(impatient: Door) -> None:
    async with raw(impatient) as client:
        await client.send(b"GET /health HTTP/1.1\r\nHost: x\r\n")
        assert b"head_timeout" in await client.rest()


async def test_a_head_that_drips_in_is_not_waited_for_either(impatient: Door) -> None:
    async with raw(impatient) as client:
        answer = asyncio.create_task(client.rest())
        with suppress(OSError):
            for letter in b"GET /health HTTP/1.1\r\nHost: " + b"x" * 1000:
                if answer.done():
                    break
                client.writer.write(bytes([letter]))
                await asyncio.sleep(0.05)
        assert b" 408 " in await answer


async def test_the_second_request_of_a_connection_has_the_same_time(impatient: Door) -> None:
    async with raw(impatient) as client:
        await client.send(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        await client.head()
        await client.send(b"GET /hea")
        assert b"head_timeout" in await client.rest()


async def test_a_body_that_never_comes_is_not_waited_for(impatient: Door) -> None:
    async with raw(impatient) as client:
        await client.send(
            f"POST /api/sandboxes/s HTTP/1.1\r\nHost: x\r\n{AUTH}\r\nContent-Length: 10\r\n\r\nabc".encode()
        )
        assert b" 408 " in await client.rest()


async def test_an_upgrade_that_the_app_never_answers_is_cut(impatient: Door) -> None:
    async with raw(impatient) as client:
        await client.send(upgrade("/terminal/never?hang=1", AUTH))
        assert b"auth_timeout" in await client.rest()
    await until(lambda: '"path":"/terminal/never"' in impatient.log)  # the app's task has ended, too


# Sizes


@pytest.mark.parametrize("extra", [70_000, 10 * MIB], ids=["70 KB", "10 MiB"])
@pytest.mark.parametrize("where", ["header", "url", "many headers"])
async def test_a_head_that_is_too_large_is_refused(door: Door, where: str, extra: int) -> None:
    filling = "x" * extra
    head = {
        "header": f"GET /health HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {filling}\r\n\r\n",
        "url": f"GET /ws/v2?token={filling} HTTP/1.1\r\nHost: x\r\n\r\n",
        "many headers": "GET /health HTTP/1.1\r\nHost: x\r\n" + "a: b\r\n" * (extra // 6) + "\r\n",
    }[where]
    async with memory(door, 6 * MIB), raw(door) as client:
        answer = asyncio.create_task(client.rest())
        with suppress(OSError):
            await client.send(head.encode())
        assert b" 431 " in await answer


async def test_a_body_that_is_too_large_is_refused_declared_or_not(door: Door) -> None:
    begin = f"POST /api/sandboxes/s HTTP/1.1\r\nHost: x\r\n{AUTH}\r\n"
    async with memory(door, 4 * MIB):
        async with raw(door) as client:
            await client.send(f"{begin}Content-Length: {MIB + 1}\r\n\r\n".encode())
            assert b" 413 " in await client.rest()
        async with raw(door) as client:
            answer = asyncio.create_task(client.rest())
            with suppress(OSError):
                await client.send(f"{begin}Transfer-Encoding: chunked\r\n\r\n".encode())
                for _ in range(40):
                    await client.send(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            assert b" 413 " in await answer
    async with httpx.AsyncClient(base_url=door.address) as client_ok:
        headers = {"Authorization": f"Bearer {token()}"}
        answer_ok = await client_ok.post("/api/sandboxes/s", headers=headers, content=b"x" * MIB)
        assert answer_ok.json() == {"bytes": MIB}


async def test_what_old_probes_and_ordinary_clients_send_is_answered(door: Door) -> None:
    for request in (
        b"GET /health HTTP/1.0\r\n\r\n",
        b"GET /health HTTP/1.0\r\nHost: x\r\n\r\n",
        b"HEAD /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost:\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        b"\r\nGET /health HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\n\r\n",
    ):
        async with raw(door) as client:
            await client.send(request)
            assert b" 200 " in (await client.head())[1].encode()


@pytest.mark.parametrize("body", [b"0\r\n" + b"a:\r\n" * 4000, b"1;" + b"a" * 20_000, b"1\r\na\r\n" * 3000])
async def test_what_frames_a_body_is_counted_and_its_sender_is_told(door: Door, body: bytes) -> None:
    """Once 30 bytes of memory for each byte of trailers, without credentials and without end."""
    head = f"POST /api/sandboxes/s HTTP/1.1\r\nHost: x\r\n{AUTH}\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with memory(door, 5 * MIB), raw(door) as client:
        answer = asyncio.create_task(client.rest())
        with suppress(OSError):
            await client.send(head.encode())
            for _ in range(500):
                await client.send(body)
        status = (await answer).split()[1]
        assert status in (b"400", b"413")


async def test_an_answer_before_the_body_ends_the_connection_and_is_not_lost(door: Door) -> None:
    async with raw(door) as client:
        await client.send(b"POST /api/sandboxes/s HTTP/1.1\r\nHost: x\r\nContent-Length: 500000\r\n\r\n")
        status, head = await client.head()
        assert status == 401
        assert "connection: close" in head.lower()
        with suppress(OSError):
            await client.send(b"x" * 300_000)
        assert b"no_credentials" in await client.rest()


async def test_an_answer_to_a_whole_request_keeps_the_connection(door: Door) -> None:
    async with raw(door) as client:
        for _ in range(3):
            await client.send(b"POST /api/sandboxes/s HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello")
            status, head = await client.head()
            assert status == 401
            assert "connection: close" not in head.lower()
            await client.reader.readexactly(int(head.lower().partition("content-length: ")[2].split()[0]))
        await client.send(
            f"POST /api/sandboxes/s HTTP/1.1\r\nHost: x\r\n{AUTH}\r\nContent-Length: 5\r\n\r\nhe".encode()
        )
        await client.send(b"llo")
        assert (await client.head())[0] == 200


async def test_large_heads_of_strangers_share_a_reserve_and_small_requests_need_none() -> None:
    with Door.open(limits={"reserve_bytes": 100_000}) as door:
        async with AsyncExitStack() as stack:
            for _ in range(4):
                client = await stack.enter_async_context(raw(door))
                await client.send(b"GET /health HTTP/1.1\r\nHost: x\r\na: " + b"b" * 50_000)
            await until(lambda: "busy" in door.log)
            await assert_healthy(door)
            client = await stack.enter_async_context(raw(door))  # nor do bodies come from it
            start = f"POST /api/sandboxes/s HTTP/1.1\r\nHost: x\r\n{AUTH}\r\nContent-Length: 90000\r\n\r\n"
            await client.send(start.encode() + b"b" * 90_000)
            assert (await client.head())[0] == 200
        async with raw(door) as client:
            await until(lambda: door.connections <= 1)
            await client.send(b"GET /health HTTP/1.1\r\nHost: x\r\na: " + b"b" * 50_000 + b"\r\n\r\n")
            assert (await client.head())[0] == 200


async def test_pipelined_requests_are_bounded(door: Door) -> None:
    async with memory(door, 4 * MIB), raw(door) as client:
        with suppress(OSError):
            await client.send(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 5000)
        answers = await client.rest()
        assert 1 <= answers.count(b"HTTP/1.1 200") <= 40
        assert answers.rpartition(b"HTTP/1.1 ")[2].startswith(b"429 ")
        assert answers.endswith(b'"code":"too_many_pipelined"}')
    await assert_healthy(door)


# A refusal once took the place of the answer to an earlier request of its connection, or cut that answer off.
GARBAGE = b"\x16\x03\x01\x02\x00"
CHUNKED = f"POST /api/sandboxes/s HTTP/1.1\r\nHost: x\r\n{AUTH}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("refused", "status"),
    [
        (GARBAGE, 400),
        (b"GET /health HTTP/1.1\r\nHost: x\r\na: " + b"b" * 70_000, 431),
        (CHUNKED + b"5\r\nhello\r\nno number\r\n", 400),
        (CHUNKED + b"0\r\na: b\r\n\r\n", 400),
        (upgrade("/ws/v2?sessionId=s", AUTH), 400),
    ],
    ids=["garbage", "head", "chunks", "trailers", "upgrade"],
)
@pytest.mark.parametrize("before", [1, 3])
async def test_a_refused_request_is_answered_behind_those_that_came_before_it(
    door: Door, before: int, refused: bytes, status: int
) -> None:
    async with raw(door) as client:
        await client.send(f"GET /api/sandboxes HTTP/1.1\r\nHost: x\r\n{AUTH}\r\n\r\n".encode() * before + refused)
        answers = (await client.rest()).split(b"HTTP/1.1 ")[1:]
        assert [int(each[:3]) for each in answers] == [200] * before + [status]


async def test_a_refusal_cuts_no_answer_off_that_is_being_read(door: Door) -> None:
    async with raw(door) as client:
        await client.send(f"GET /files/s/big HTTP/1.1\r\nHost: x\r\n{AUTH}\r\n\r\n".encode())
        assert (await client.head())[0] == 200
        await client.send(GARBAGE)
        for _ in range(1024):
            assert await client.reader.readuntil(b"\r\n") == b"10000\r\n"
            await client.reader.readexactly(65536 + 2)
        assert (await client.rest()).startswith(b"0\r\n\r\nHTTP/1.1 400 ")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"POST /api/sandboxes/s HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
        (b"POST /health HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"GET /health\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
        (b"POST /api/sandboxes/s HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST /api/sandboxes/s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST /api/sandboxes/s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\na: b\r\n\r\n", 400),
        (upgrade("/ws/v2?sessionId=s", AUTH, "Content-Length: 5") + b"hello", 400),
        (upgrade("/ws/v2?sessionId=s", AUTH, "Transfer-Encoding: chunked") + b"0\r\n\r\n", 400),
        (upgrade("/ws/v2").replace(b"Version: 13", b"Version: 8"), 426),
        (upgrade("/ws/v2").replace(b"Sec-WebSocket-Key", b"X-Key"), 400),
        (upgrade("/ws/v2", "Sec-WebSocket-Key: short"), 400),
        (upgrade("/ws/v2").replace(b"GET ", b"POST "), 400),
        (upgrade("/ws/v2").replace(b"Host: holdfast\r\n", b""), 400),
        (upgrade("http://evil/ws/v2"), 400),
    ],
)
async def test_what_is_no_request_is_answered_as_json_and_closed(door: Door, request_bytes: bytes, status: int) -> None:
    async with raw(door) as client:
        await client.send(request_bytes)
        head, _, body = (await client.rest()).partition(b"\r\n\r\n")
        assert head.split()[1] == str(status).encode()
        assert set(json.loads(body)) == {"error", "code"}


# Numbers


async def test_sockets_of_one_address_are_counted_and_health_still_answers() -> None:
    with Door.open(max_connections_per_address="10") as door:
        async with AsyncExitStack() as stack:
            answers = []
            for _ in range(50):
                client = await stack.enter_async_context(raw(door))
                await client.send(upgrade("/ws/v2?sessionId=s", AUTH))
                answers.append((await client.head())[0])
            assert answers == [101] * 10 + [429] * 40
            await assert_healthy(door)
        await until(lambda: door.connections == 0)
        async with opened(door) as client:
            await client.send(masked(TEXT, b"room again"))
            assert await client.frame() == (TEXT, b"room again")


async def test_a_full_gateway_says_so_and_health_answers_through_a_crowd_of_silent_guests() -> None:
    with Door.open(max_connections="5", max_connections_per_address="1000") as door:
        async with AsyncExitStack() as stack:
            for _ in range(5):
                await stack.enter_async_context(opened(door))
            for _ in range(300):
                await stack.enter_async_context(raw(door))
            client = await stack.enter_async_context(raw(door))
            await client.send(upgrade("/ws/v2?sessionId=s", AUTH))
            assert (await client.head())[0] == 503
            await assert_healthy(door)


async def test_sockets_of_one_user_are_counted() -> None:
    with Door.open(max_connections_per_user="3") as door:
        async with AsyncExitStack() as stack:
            answers = []
            for user in ["ada"] * 5 + ["bob"]:
                client = await stack.enter_async_context(raw(door))
                await client.send(upgrade("/ws/v2?sessionId=s", f"Authorization: Bearer {token(user)}"))
                answers.append((await client.head())[0])
            assert answers == [101, 101, 101, 429, 429, 101]


async def test_only_a_trusted_proxy_is_believed_about_its_clients() -> None:
    forwarded = {"X-Forwarded-For": "6.6.6.6, 203.0.113.9", "Authorization": f"Bearer {token()}"}
    with Door.open() as plain, Door.open(trusted_proxies="127.0.0.0/8", max_connections_per_address="1") as behind:
        async with httpx.AsyncClient() as client:
            found = [
                (await client.get(f"{door.address}/api/sandboxes", headers=forwarded)).json()
                for door in (plain, behind)
            ]
            assert [who["client"] for who in found] == ["127.0.0.1", "203.0.113.9"]
            assert [who["forwarded"] for who in found] == [[], []]  # no route may be tempted to read them
        own = "Origin: https://public.example"
        said = ("X-Forwarded-Proto: https", "X-Forwarded-Host: public.example")
        async with raw(behind) as a, raw(behind) as b, raw(behind) as c, raw(plain) as d:
            statuses = []
            for client_, address in [(a, "203.0.113.1"), (b, "203.0.113.1"), (c, "203.0.113.2"), (d, "203.0.113.3")]:
                await client_.send(upgrade("/ws/v2?sessionId=s", AUTH, own, *said, f"X-Forwarded-For: {address}"))
                statuses.append((await client_.head())[0])
            assert statuses == [101, 429, 101, 403]


# Secrets


async def test_a_token_in_the_url_is_in_no_log_and_no_answer(door: Door) -> None:
    good, bad = token("canary-user-7"), "SECRET-canary-token"
    async with raw(door) as client:
        await client.open(f"/ws/v2?sessionId=s&token={good}")
        await client.send(masked(TEXT, b"crash"))
    async with httpx.AsyncClient(base_url=door.address) as http:
        for target in [f"/api/sandboxes?token={bad}", f"/nowhere?token={bad}", f"/ws/v2?sessionId=s&token={bad}"]:
            assert bad not in (await http.get(target)).text
    async with raw(door) as client:
        await client.send(upgrade(f"/ws/v2?sessionId=s&token={bad}"))
        assert bad.encode() not in await client.rest()
    async with raw(door) as client:
        await client.send(f"GET /x?token={bad} HTTP/9.9\r\n\r\n".encode())
        assert bad.encode() not in await client.rest()
    assert '"path":"/nowhere"' in door.log
    for secret in (good, bad, good.split(".")[2]):
        assert secret not in door.log


async def test_the_log_stays_one_line_per_event_whatever_is_asked_for(door: Door) -> None:
    async with raw(door) as client:
        path = "/x%1b]0;owned%07%0d%0a%7b%22event%22:%22fake%22%7d%e2%80%aey%9b"
        await client.send(
            f"GET {path} HTTP/1.1\r\nHost: x\r\nUser-Agent: \x1b[31m\r\nConnection: close\r\n\r\n".encode()
        )
        await client.rest()
    lines = [line for line in door.log.splitlines() if "owned" in line or "fake" in line]
    assert len(lines) <= 1
    assert all(line.isprintable() for line in door.log.splitlines())
