"""Connections that the gateway hands in one by one, for sandboxes that can have no listening socket: gVisor passes
connected ones.

The door, a socket to the gateway, stays open. All other connections come over one connection to it, each with one
byte. When a gateway goes, the bridge knocks until the next one is there, and shows its token, because other programs
here could knock, too.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable

AT_ONCE = 16  # descriptors in one message
AGAIN_SECONDS = 0.2


class HandedIn:
    def __init__(self, connection: socket.socket, door: str, token: str) -> None:
        """`connection` is an accepted connection to `door`."""
        self._connection = connection
        self._door = door
        self._token = token

    async def take(self, caller: Callable[[], asyncio.Protocol]) -> None:
        """Give each connection a `caller`. Never returns."""
        try:
            while True:
                with contextlib.suppress(OSError):
                    await self._take(caller)
                self._connection.close()
                await self._knock()
        finally:
            self._connection.close()

    async def _take(self, caller: Callable[[], asyncio.Protocol]) -> None:
        """Take one gateway's connections, until it goes."""
        loop = asyncio.get_running_loop()
        while handed := await self._next():
            for number in handed:
                with contextlib.suppress(OSError):  # it may be gone already
                    await loop.connect_accepted_socket(caller, socket.socket(fileno=number))

    async def _next(self) -> list[int]:
        """The connections of the next message; none when the gateway has gone."""
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self._connection.fileno(), ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._connection.fileno())
        said, handed, _, _ = socket.recv_fds(self._connection, 1, AT_ONCE, socket.MSG_CMSG_CLOEXEC)
        return handed if said else []

    async def _knock(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._connection.setblocking(False)
            try:
                await loop.sock_connect(self._connection, self._door)
                await loop.sock_sendall(self._connection, self._token.encode())
                return
            except OSError:
                self._connection.close()
            await asyncio.sleep(AGAIN_SECONDS)
