"""Connections to a bridge. The requests of every start (health, the tree, the agent's link) are answered here, on our
own frames. A web server gets all others, bytes and all. It is loaded when the first such request comes: it is half of
what a bridge would load, and no start needs it."""

import asyncio
import contextlib
import json
from base64 import b64encode
from collections.abc import Callable, Coroutine
from hashlib import sha1
from typing import TYPE_CHECKING, Any, cast

from sandbox.bridge.base.operation_socket import GOING, OperationSocket
from sandbox.bridge.base.request_head import KnownPath, KnownRequest, Token, Unknown, read_head
from sandbox.bridge.egress import EgressListener
from sandbox.bridge.server import Bridge

if TYPE_CHECKING:
    from sandbox.bridge.web_server import WebServer

MAX_MESSAGE = 16 << 20  # of an operation on the tree; the link has its own, smaller bound
END_SECONDS = 1.0

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_ACCEPT = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
_HEALTHY = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"


class Reception:
    """`caller` is the protocol of a new connection."""

    def __init__(self, bridge: Bridge, token: str, outlet: EgressListener | None = None) -> None:
        self._bridge = bridge
        self._outlet = outlet or EgressListener(0)
        self._token = Token(token)
        self._web: WebServer | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._sockets: set[OperationSocket] = set()

    def caller(self) -> asyncio.Protocol:
        return _Caller(self._token, self._answer, self._pass_on)

    async def close(self) -> None:
        """Close every connection, each within a second."""
        for socket in self._sockets:
            await socket.close(GOING)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=END_SECONDS)
        for task in self._tasks:
            task.cancel()
        if self._web is not None:
            await self._web.close()

    def _answer(self, caller: "_Caller", asked: KnownRequest) -> None:
        transport = caller.transport
        if asked.path is KnownPath.HEALTH:
            said = json.dumps(self._bridge.health).encode()
            transport.write(_HEALTHY % (len(said), said))
            transport.close()
            return
        if asked.path is KnownPath.EGRESS:
            with contextlib.suppress(OSError):
                self._outlet.hand_out(transport.get_extra_info("socket").fileno())
            transport.close()
            return
        transport.write(_ACCEPT + b64encode(sha1(asked.key + _GUID).digest()) + b"\r\n\r\n")
        if asked.path is KnownPath.AGENT:
            self._begin(self._bridge.attach(transport, asked.rest), "agent.link")
        else:
            socket = OperationSocket(transport, MAX_MESSAGE)
            transport.set_protocol(socket)  # at once, as for the link
            socket.data_received(asked.rest)
            self._begin(self._serve_tree(socket), "tree.serve")

    async def _serve_tree(self, socket: OperationSocket) -> None:
        self._sockets.add(socket)
        try:
            await self._bridge.serve_tree(socket)
        finally:
            self._sockets.discard(socket)
            await socket.close()

    def _pass_on(self, caller: "_Caller") -> None:
        if self._web is None:
            self._web = _load_web_server(self._bridge)
        self._web.take(caller.transport, bytes(caller.heard))

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Caller(asyncio.Protocol):
    """A connection whose request is not known yet."""

    def __init__(
        self, token: Token, answer: "Callable[[_Caller, KnownRequest], None]", pass_on: "Callable[[_Caller], None]"
    ) -> None:
        self._token = token
        self._answer = answer
        self._pass_on = pass_on
        self.heard = bytearray()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.heard += data
        asked = read_head(bytes(self.heard), self._token)
        if isinstance(asked, KnownRequest):
            self._answer(self, asked)
        elif asked is Unknown.FOR_GOOD:
            self._pass_on(self)


def _load_web_server(bridge: Bridge) -> "WebServer":
    """In the loop's own thread: at a limit of processes there may be no other."""
    from sandbox.bridge.base.handover import HandoverSocket
    from sandbox.bridge.web import Web
    from sandbox.bridge.web_server import WebServer

    return WebServer(Web(bridge).app(), HandoverSocket, MAX_MESSAGE)
