"""A proxy that really runs, with its gateway's end, and programs that use it. Their listeners lie on this machine's own
loopback here; what a sandbox adds is that only it reaches its own."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

from gateway.egress import process
from gateway.egress.keeper import EgressKeeper
from gateway.egress.messages import Denied, Setup
from gateway.egress.policy import Policy, parse_network
from tests.support.waiting import until

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
HERE = "127.0.0.2"  # a host that is not public, and that the proxies here may reach all the same


class Proxied:
    """A gateway's end, and what its sessions listen with."""

    def __init__(self, run: Path, inner: tuple[str, ...] = (f"{HERE}/32",), **setup: Any) -> None:
        self.denied: list[Denied] = []
        self.run = run
        self.keeper = EgressKeeper(run, Setup(inner=inner, **setup), on_denied=self.denied.append, rng=Random(1))
        self.listeners: dict[str, socket.socket] = {}
        self.given: list[str] = []

    def session(self, name: str, network: Any = "outbound", **members: Any) -> int:
        """Serve one; the port where it listens."""
        listener = self.listeners.get(name) or socket.create_server(("127.0.0.1", 0), backlog=512)
        self.listeners[name] = listener

        async def give() -> socket.socket:
            self.given.append(name)
            return listener.dup()

        self.keeper.attach(Policy(name, f"user of {name}", parse_network(network), **members), give)
        return int(listener.getsockname()[1])

    @property
    def proxy(self) -> int | None:
        return self.keeper.proxy

    async def ready(self) -> int:
        self.keeper.need()
        return await until(lambda: self.proxy, "a proxy")

    def close(self) -> None:
        for listener in self.listeners.values():
            listener.close()


@asynccontextmanager
async def proxied(run: Path, **setup: Any) -> AsyncIterator[Proxied]:
    """Ends the proxy with it."""
    proxied = Proxied(run, **setup)
    try:
        async with proxied.keeper:
            await proxied.ready()
            yield proxied
    finally:
        proxied.close()
        await end_proxy(run)


async def end_proxy(run: Path) -> None:
    note = process.noted(run)
    if note is not None and note.runs:
        with suppress(ProcessLookupError):
            os.kill(note.pid, signal.SIGKILL)
        await until(lambda: not note.runs, "the end of the proxy")


@asynccontextmanager
async def host(answer: Answer, address: str = HERE, port: int = 0, **options: Any) -> AsyncIterator[int]:
    """A server; its port."""

    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await answer(reader, writer)
        serving.discard(task)
        await gone(writer)

    server = await asyncio.start_server(serve, address, port, **options)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(serving):
            task.cancel()
        if serving:
            await asyncio.wait(serving)


async def gone(*writers: asyncio.StreamWriter) -> None:
    """At once, and what they still had to send is dropped."""
    for writer in writers:
        writer.transport.abort()
    for writer in writers:
        with suppress(ConnectionError):
            await writer.wait_closed()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(65536):
        writer.write(piece)
        await writer.drain()


async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers with the whole request as it came."""
    heard = await reader.readuntil(b"\r\n\r\n")
    lines = heard.lower().split(b"\r\n")
    if length := next((int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:")), 0):
        heard += await reader.readexactly(length)
    if b"transfer-encoding: chunked" in lines:
        heard += await reader.readuntil(b"0\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(heard), heard))


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


async def say(port: int, words: bytes) -> bytes:
    """All that is answered."""
    reader, writer = await connect(port)
    try:
        writer.write(words)
        return await reader.read()
    finally:
        writer.close()


async def tunnel(port: int, target: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await connect(port)
    writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        await gone(writer)
        raise AssertionError(head)
    return reader, writer
