"""The least that a Python program can do between browsers and a bridge: it writes each side's bytes to the other and
reads nothing in them. It has no handshake, no frames, no identity, no backpressure.

    python -m bench.pipe UPSTREAM_SOCKET
"""

import asyncio
import sys
from typing import cast

import uvloop

from bench.processes import raise_descriptor_limit


class Far(asyncio.Protocol):
    """The connection to the bridge."""

    def __init__(self, near: asyncio.Transport) -> None:
        self._near = near

    def data_received(self, data: bytes) -> None:
        self._near.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._near.close()


class Near(asyncio.Protocol):
    """The connection to a browser."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._early: list[bytes] = []
        self._far: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._dialling = asyncio.get_running_loop().create_task(self._dial())

    async def _dial(self) -> None:
        loop = asyncio.get_running_loop()
        far, _ = await loop.create_unix_connection(lambda: Far(self._transport), self._upstream)
        far.writelines(self._early)
        self._far = far

    def data_received(self, data: bytes) -> None:
        if self._far is None:
            self._early.append(data)
        else:
            self._far.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._far is not None:
            self._far.close()


async def main(upstream: str) -> None:
    raise_descriptor_limit()
    server = await asyncio.get_running_loop().create_server(lambda: Near(upstream), "127.0.0.1", 0, backlog=4096)
    print("port", server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
