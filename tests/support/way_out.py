"""A way out of containers without a network, to one address alone: what the gateway's proxy will be there.

In the network of each container of an engine this process listens at PORT of the loopback and passes bytes on.
"""

import asyncio
import ctypes
import os
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.support.engine import DockerEngine

PORT = 3128
CLONE_NEWNET = 0x40000000


def _listener(pid: int) -> socket.socket:
    """A socket that listens in the network of that process. A network is a thread's: this one makes a socket and is
    over."""
    made: list[socket.socket] = []

    def listen() -> None:
        with Path(f"/proc/{pid}/ns/net").open() as network:
            if ctypes.CDLL(None, use_errno=True).setns(network.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        made.append(socket.create_server(("127.0.0.1", PORT)))

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    return made[0]


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def way_out(engine: DockerEngine, host: str, port: int) -> AsyncIterator[None]:
    """While this is open, each container that runs reaches `host:port` at its own 127.0.0.1:PORT."""
    servers: dict[str, asyncio.Server] = {}

    async def serve(near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        far, there = await asyncio.open_connection(host, port)
        await asyncio.gather(_copy(near, there), _copy(far, back))

    async def watch() -> None:
        while True:
            running = (await asyncio.to_thread(engine.client, "ps", "-q", "--no-trunc")).split()
            for gone in servers.keys() - set(running):
                servers.pop(gone).close()
            for name in set(running) - servers.keys():
                pid = await asyncio.to_thread(engine.client, "inspect", "-f", "{{.State.Pid}}", name)
                servers[name] = await asyncio.start_server(serve, sock=_listener(int(pid)))
            await asyncio.sleep(0.2)

    watching = asyncio.create_task(watch(), name="way out")
    try:
        yield
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        for server in servers.values():
            server.close()
