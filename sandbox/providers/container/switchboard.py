"""Connections to bridges that can have no listening socket: gVisor lets connected sockets into a sandbox, and no
other.

The gateway listens in the place of such a bridge, and hands each connection in, over one that the bridge keeps to its
door. The door stays open while the sandbox runs, so that the bridge finds the next gateway. There it shows its token,
because other programs in its sandbox see the door, too.

Bounds: the kernel's for connections that nobody has accepted yet; an accepted one waits so long for its bridge, then
it is closed, as by a bridge that is gone.
"""

import asyncio
import contextlib
import hmac
import socket
from collections.abc import Coroutine
from typing import Any

from sandbox.providers.container.doorway import Doorway

KNOCK_SECONDS = 5.0  # for the token
BRIDGE_SECONDS = 5.0  # for a bridge to come back to the door
AGAIN_SECONDS = 0.2


class Switchboard:
    """Closed, it leaves the sandbox as it is."""

    def __init__(self, session_id: str, listener: socket.socket, door: Doorway, token: str) -> None:
        """Takes over both sockets."""
        listener.setblocking(False)
        self._listener = listener
        self._door = door
        self._token = token.encode()
        self._bridge: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()
        self._tasks = [
            self._run(self._let_in(), f"door.{session_id}"),
            self._run(self._connect(), f"dial.{session_id}"),
        ]

    def let_in(self, bridge: socket.socket) -> None:
        """From now on connections go over this one."""
        bridge.setblocking(False)
        self._forget()
        self._bridge.set_result(bridge)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        self._forget()
        self._listener.close()
        self._door.close()

    async def _let_in(self) -> None:
        """One bridge after the other; a caller without the token is sent away."""
        loop = asyncio.get_running_loop()
        while True:
            knocking = await _accepted(self._door.listener)
            shown = b""
            with contextlib.suppress(OSError):  # also for a silent caller
                async with asyncio.timeout(KNOCK_SECONDS):
                    while len(shown) < len(self._token) and (piece := await loop.sock_recv(knocking, len(self._token))):
                        shown += piece
            if hmac.compare_digest(shown, self._token):
                self.let_in(knocking)
            else:
                knocking.close()

    async def _connect(self) -> None:
        while True:
            connection = await _accepted(self._listener)
            with connection, contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BRIDGE_SECONDS):
                    while not self._hand_in(await asyncio.shield(self._bridge), connection):
                        pass

    def _hand_in(self, bridge: socket.socket, connection: socket.socket) -> bool:
        try:
            socket.send_fds(bridge, [b"c"], [connection.fileno()])
        except OSError:  # its bridge has gone, or takes nothing
            self._forget()
            return False
        return True

    def _forget(self) -> None:
        if self._bridge.done():
            self._bridge.result().close()
            self._bridge = asyncio.get_running_loop().create_future()

    def _run(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        return asyncio.create_task(work, name=name)


async def _accepted(listener: socket.socket) -> socket.socket:
    while True:
        try:
            connection, _ = await asyncio.get_running_loop().sock_accept(listener)
        except OSError:  # no descriptor is left: there may be one soon
            await asyncio.sleep(AGAIN_SECONDS)
        else:
            connection.setblocking(False)
            return connection
