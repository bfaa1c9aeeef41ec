"""The gateway's end of a sandbox's way out: the socket that its bridge listens with, for a proxy to accept from."""

import asyncio
import socket

from sandbox.client.endpoint import UnixEndpoint
from sandbox.ports.link import LinkRefused

SECONDS = 10.0
_MAX_HEAD = 4096


async def take_listener(endpoint: UnixEndpoint) -> socket.socket | None:
    """The listener; None from a bridge that has none, as those of earlier releases. It is the caller's to close, and
    to look at: whatever the bridge sent came along. Raises LinkRefused."""
    try:
        async with asyncio.timeout(SECONDS):
            return await _take(endpoint)
    except TimeoutError:
        raise LinkRefused("the bridge does not answer") from None
    except OSError as exc:
        raise LinkRefused(f"the bridge cannot be reached: {exc.strerror or exc}") from exc


async def _take(endpoint: UnixEndpoint) -> socket.socket | None:
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.setblocking(False)
        await loop.sock_connect(connection, endpoint.path)
        lines = [f"{name}: {value}" for name, value in {"Host": endpoint.host, **endpoint.headers}.items()]
        asked = "\r\n".join([f"GET {endpoint.prefix}/egress HTTP/1.1", *lines]) + "\r\n\r\n"
        await loop.sock_sendall(connection, asked.encode())
        await _readable(connection)
        head, descriptors, _, _ = socket.recv_fds(connection, _MAX_HEAD, 4)
        given = [socket.socket(fileno=each) for each in descriptors]
        if len(given) == 1 and head.startswith(b"HTTP/1.1 200 "):
            return given[0]
        for each in given:
            each.close()
        return None


async def _readable(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    readable = loop.create_future()

    def came() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(connection.fileno(), came)
    try:
        await readable
    finally:
        loop.remove_reader(connection.fileno())
