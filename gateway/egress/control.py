"""The proxy's end of the gateway's connection: one gateway at a time, the newest.

A gateway that goes leaves everything as it is: the proxy serves sessions on, by the policies that it set. Without a
gateway for `orphan_seconds`, and without open connections, the proxy ends itself; soon if it serves no session either.
"""

import asyncio
import contextlib
import os
import socket
import time

import msgspec

from gateway.egress import messages
from gateway.egress.channel import Channel, is_listener, is_ours
from gateway.egress.messages import (
    VERSION,
    BadMessage,
    EgressMessage,
    KeepOnly,
    Listener,
    PartNote,
    Retire,
    SetPolicy,
    Setup,
    TakeAway,
    ToProxy,
    Welcome,
)
from gateway.egress.policy import BadHost
from gateway.egress.proxy import Denials, Proxy
from gateway.egress.routes import Routes

LOOK_SECONDS = 5.0


class Control:
    """Serves `door`, a listening packet socket, until the proxy has no more work."""

    def __init__(self, door: socket.socket, routes: Routes, release: str) -> None:
        self._door = door
        self._release = release
        self._denials = Denials(self.send)
        self.proxy = Proxy(routes, self._denials.tell)
        self._gateway: Channel | None = None
        self._left = time.monotonic()  # when a gateway was here last
        self._retired = False
        self._ending = asyncio.Event()

    def send(self, message: EgressMessage) -> bool:
        """Send a message to the gateway; False if there is none, or its queue is full."""
        return self._gateway is not None and self._gateway.send(messages.encode(message))

    def note(self, part: str, body: object) -> bool:
        """Send a note to a part of the gateway, likewise."""
        return self.send(PartNote(part, msgspec.Raw(msgspec.json.encode(body))))

    def end(self) -> None:
        self._ending.set()

    async def run(self) -> None:
        self._door.setblocking(False)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._door.fileno(), self._accept)
        try:
            while not self._ending.is_set() and not self._is_over():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1.0 if self._retired else LOOK_SECONDS):
                        await self._ending.wait()
        finally:
            loop.remove_reader(self._door.fileno())
            if self._gateway is not None:
                self._gateway.close()
            self.proxy.keep(set())

    def _is_over(self) -> bool:
        if self.proxy.connections:
            return False
        if self._retired:
            return True
        alone = time.monotonic() - self._left if self._gateway is None else 0.0
        return alone > (self.proxy.setup.orphan_seconds if self.proxy.sessions else LOOK_SECONDS)

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            connection, _ = self._door.accept()
            if not is_ours(connection):
                return connection.close()
            if self._gateway is not None:
                self._gateway.close()
            self._gateway = Channel(connection, self._heard, self._lost)
            self.send(Welcome(VERSION, self._release, os.getpid(), tuple(self.proxy.sessions)))

    def _lost(self) -> None:
        self._gateway = None
        self._left = time.monotonic()

    def _heard(self, packet: bytes, given: socket.socket | None) -> None:
        try:
            message = messages.to_proxy(packet)
            if isinstance(message, Listener):
                if given is None or not is_listener(given):
                    return
                self.proxy.listen(message.session, given)
                given = None
            else:
                self._take(message)
        except (BadMessage, BadHost):  # a gateway of another version: it starts a proxy of its own
            return
        finally:
            if given is not None:
                given.close()

    def _take(self, message: ToProxy) -> None:
        proxy = self.proxy
        match message:
            case Setup():
                proxy.configure(message)
            case SetPolicy():
                proxy.set_policy(message.policy)
            case TakeAway():
                proxy.take_away(message.session)
            case KeepOnly():
                proxy.keep(set(message.sessions))
            case Retire():
                self._retired = True
                proxy.stop_listening()
                self._left = time.monotonic()
            case PartNote():
                proxy.routes.heard(message.part, message.body)
