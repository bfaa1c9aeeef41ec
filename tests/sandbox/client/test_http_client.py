"""The one HTTP/1.1 client on real sockets, and everything that asks with it: the same hostile answers for all."""

import asyncio
import contextlib
import gc
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any
from weakref import ref

import pytest

from persistence.http_sink.client import SinkClient
from persistence.http_sink.responses import Again
from sandbox.client.agent_link import connect
from sandbox.client.bridge_requests import CallFailed, call
from sandbox.client.endpoint import UnixEndpoint
from sandbox.client.http1 import HttpFailed
from sandbox.client.http_client import READ_BYTES, Connection, connect_tcp
from sandbox.client.http_client import connect as connect_http
from sandbox.client.tree import BridgeTree
from sandbox.ports.link import LinkRefused
from sandbox.ports.tree import TreeFailed
from tests.support.bridge import Owner, at
from tests.support.hostile_answers import BAD_HTTP, BODY, GOOD_HTTP
from tests.support.waiting import until

HEADERS = {"Host": "bridge"}
Write = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


@contextlib.asynccontextmanager
async def serving(path: Path, write: Write) -> AsyncIterator[str]:
    """Answers each connection's first request with what `write` writes, then closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):
            await reader.readuntil(b"\r\n\r\n")
            await write(reader, writer)
        writer.close()

    server = await asyncio.start_unix_server(serve, path)
    try:
        yield str(path)
    finally:
        server.close()


def saying(answers: list[bytes]) -> Write:
    async def write(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answers.pop(0))
        await writer.drain()

    return write


@contextlib.asynccontextmanager
async def asked(path: str) -> AsyncIterator[Connection]:
    connection = await connect_http(UnixEndpoint(path))
    try:
        yield connection
    finally:
        connection.close()


# Each asks once, and must fail in its own way.


async def fetches(path: str) -> None:
    async with asked(path) as connection:
        with pytest.raises(HttpFailed):
            await connection.fetch("GET", "/", HEADERS, most=1 << 20)


async def calls(path: str) -> None:
    with pytest.raises(CallFailed):
        await call(UnixEndpoint(path), "GET", "/health", timeout=60)


async def reads_a_file(path: str) -> None:
    tree = BridgeTree(at(path, "token"), silence_seconds=60)
    with pytest.raises(TreeFailed, match="no answer that can be read"):
        await tree.files(b"workspace", b"a")


async def attaches(path: str) -> None:
    with pytest.raises(LinkRefused):
        await connect(UnixEndpoint(path, "token"), Owner(), None)


async def posts(path: str) -> None:
    async def dial(*_: object) -> Connection:
        return await connect_http(UnixEndpoint(path))

    async with SinkClient("http://sink", "token", dial, connections=1, post_seconds=60) as client:
        assert isinstance(await client.post("/x", "key", b"{}"), Again)


@pytest.mark.parametrize("asks", [fetches, calls, reads_a_file, attaches, posts])
async def test_no_hostile_answer_is_taken_for_one(
    asks: Callable[[str], Coroutine[Any, Any, None]], tmp_path: Path
) -> None:
    async with serving(tmp_path / "s", saying(list(BAD_HTTP.values()))) as path:
        for _ in BAD_HTTP:
            await asks(path)


async def test_good_answers_are_understood_and_a_connection_is_used_again_only_after_a_clean_end(
    tmp_path: Path,
) -> None:
    hangs = [raw for raw, _, _, _, closed in GOOD_HTTP.values() if not closed]
    ends = [raw for raw, _, _, _, closed in GOOD_HTTP.values() if closed]

    async def stay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await saying(hangs)(reader, writer)
        await reader.read()

    async with serving(tmp_path / "s", stay) as staying, serving(tmp_path / "e", saying(ends)) as ending:
        for raw, status, body, is_reusable, closed in GOOD_HTTP.values():
            async with asked(ending if closed else staying) as connection:
                assert connection.is_idle
                answer = await connection.fetch("GET", "/", HEADERS, most=1 << 20)
                assert (answer[0], answer[2]) == (status, body), raw
                assert connection.is_idle == is_reusable, raw


async def test_what_comes_unasked_ends_the_connection(tmp_path: Path) -> None:
    """It would be taken for the answer to the next request."""
    good = GOOD_HTTP["a length"][0]
    again = asyncio.Event()

    async def write(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(good)
        await again.wait()
        writer.write(good)
        await reader.read()

    async with serving(tmp_path / "s", write) as path, asked(path) as connection:
        assert (await connection.fetch("GET", "/", HEADERS, most=99))[2] == BODY
        assert connection.is_idle
        again.set()
        await until(lambda: not connection.is_idle)
        with pytest.raises(HttpFailed):
            await connection.fetch("GET", "/", HEADERS, most=99)


async def test_a_reader_that_stops_reading_stops_the_other_end(tmp_path: Path) -> None:
    size, sent = 32 << 20, 0

    async def write(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        while sent < size:
            writer.write(bytes(1 << 16))
            await writer.drain()
            sent += 1 << 16

    async with serving(tmp_path / "s", write) as path, asked(path) as connection:
        await connection.ask("GET", "/", HEADERS)
        await until(lambda: connection._is_paused)
        assert sent < size
        held, got = [connection._held_bytes], 0
        while piece := await connection.read():
            got += len(piece)
            held.append(connection._held_bytes)
        assert got == size
        assert max(held) < READ_BYTES + (512 << 10)  # one read more, which is 256 KiB at most


async def test_no_more_than_the_first_bytes_are_returned(tmp_path: Path) -> None:
    async def write(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(bytes(1 << 16))
            await writer.drain()

    async with serving(tmp_path / "s", write) as path, asked(path) as connection:
        assert (await connection.fetch("GET", "/", HEADERS, most=100_000))[2] == bytes(100_000)
        assert not connection.is_idle


async def test_what_is_closed_here_never_comes_whole(tmp_path: Path) -> None:
    """Also where the end of the connection would be the end of the answer."""

    async def write(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        await reader.read()

    async with serving(tmp_path / "s", write) as path, asked(path) as connection:
        await connection.ask("GET", "/", HEADERS)
        assert await connection.read() == b"half"
        reading = asyncio.create_task(connection.read())
        await asyncio.sleep(0)
        connection.close()
        with pytest.raises(HttpFailed):
            await reading


async def test_a_connection_that_breaks_is_an_error_of_the_system() -> None:
    """Also where its end would be the end of the answer."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        await reader.readexactly(1)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    connection = await connect_tcp("127.0.0.1", server.sockets[0].getsockname()[1], None)
    await connection.ask("GET", "/", HEADERS)
    assert await connection.read() == b"half"
    assert connection._transport is not None
    connection._transport.write(b"x")
    with pytest.raises(ConnectionResetError):
        await connection.read()
    server.close()


async def test_nobody_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await connect_http(UnixEndpoint(str(tmp_path / "missing")))
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    with pytest.raises(ConnectionRefusedError):
        await connect_tcp("127.0.0.1", port, None)


async def test_a_connection_that_failed_is_freed_at_once_with_all_that_it_read(tmp_path: Path) -> None:
    """What it raised knew its callers, and it kept what it had raised: nobody counts what such rings hold."""

    async def fails(path: str) -> ref[Connection]:
        async with asked(path) as connection:
            with pytest.raises(HttpFailed):
                await connection.fetch("GET", "/", HEADERS, most=1 << 20)
            return ref(connection)

    async with serving(tmp_path / "socket", saying([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"])) as path:
        gc.collect()
        gc.disable()
        try:
            kept = await fails(path)
            await until(lambda: kept() is None)
        finally:
            gc.enable()
