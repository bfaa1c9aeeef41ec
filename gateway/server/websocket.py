"""The guarded upgrade: uvicorn does the handshake and the ASGI side, within bounds; from the accept on the connection
is a MessageSocket's (gateway/server/message_socket.py).
"""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import structlog
from starlette.websockets import WebSocketDisconnect
from uvicorn._types import ASGIReceiveEvent, ASGISendEvent, WebSocketSendEvent
from uvicorn.config import Config
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.extensions import Extension
from websockets.frames import Frame, Opcode
from websockets.http11 import Request

from gateway.protocol.close_codes import CloseCode
from gateway.server.admission import Refusal
from gateway.server.app_queue import AppQueue, Writable
from gateway.server.front_door import FrontDoor, answer_bytes
from gateway.server.message_socket import OUTLET, MessageSocket

_EARLY_BYTES = 16 << 10
_TERMINALS = ("/terminal/", "/v1/sandbox/", "/jupyter/", "/tty/")  # frames pass as they came: none is compressed
_AUTH_TIMEOUT = Refusal(503, "auth_timeout", "the upgrade was not answered in time; try again")
_CRASHED = Refusal(500, "internal", "the gateway failed on this request; its log says why")
_log = structlog.get_logger()


class GuardedConfig(Config):
    """uvicorn's configuration, and the door that the guarded protocols share."""

    door: FrontDoor


class GuardedSocket(WebSocketsSansIOProtocol):
    """One upgrade, and the app's side of its connection for as long as the app stays."""

    # Some are uvicorn's: instances share the keys of their dictionaries only if these are few (CPython: 30).
    __slots__ = (
        "_early",
        "_extensions",
        "_leave",
        "_task",
        "_timer",
        "close_sent",
        "close_timer",
        "conn",
        "disconnected",
        "door",
        "handshake_complete",
        "limits",
        "loop",
        "outlet",
        "queue",
        "read_paused",
        "request",
        "response",
        "scope",
        "transport",
        "writable",
    )

    outlet: MessageSocket

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.queue, self.writable = cast(Any, AppQueue()), cast(Any, Writable())
        self.door = cast(GuardedConfig, config).door
        self.limits = self.door.limits
        self._leave: Callable[[], None] | None = None
        self._early = b""  # came before the app accepted
        self._extensions: list[Extension] = []  # of frames, once it has
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self, request: Request, client: tuple[str, int] | None, secure: bool, leave: Callable[[], None]) -> None:
        """Hand the request to the app, which has `auth_seconds` to answer. `leave` is called when all is over."""
        self._leave = leave
        self._timer = self.loop.call_later(self.limits.auth_seconds, self._answer_is_late)
        self.client = client
        self.scheme = "wss" if secure else "ws"
        connections, queue, writable = cast(Any, self.connections), cast(Any, self.queue), cast(Any, self.writable)
        self.outlet = MessageSocket(self.transport, self.door, connections, queue, writable)
        if request.path.startswith(_TERMINALS):
            request.headers.pop("Sec-WebSocket-Extensions", None)
        self.handle_connect(request)
        if not self.close_sent:
            cast(dict[str, Any], self.scope["extensions"])[OUTLET] = self.outlet

    def _answer_is_late(self) -> None:
        self._turn_away(_AUTH_TIMEOUT)
        if self._task is not None:
            self._task.cancel()

    def _turn_away(self, refusal: Refusal) -> None:
        """Answer an upgrade that was refused."""
        self.door.refused(refusal.code)
        self.close_sent = True
        self.transport.write(answer_bytes(refusal))
        self.transport.close()
        # close() waits for unsent bytes, for ever if the peer never reads: so there is a deadline.
        self.close_timer = self.loop.call_later(self.limits.close_seconds, self.transport.abort)

    def data_received(self, data: bytes) -> None:
        if self.close_sent:
            return
        self._early += data
        if len(self._early) > _EARLY_BYTES:
            self.close_sent = True
            self.transport.abort()

    @property
    def _opened(self) -> bool:
        return self._leave is None

    def _open(self) -> None:
        """The app has accepted: from here on the connection is the outlet's."""
        assert self._leave is not None
        self._stop_timer()
        self._extensions = self.conn.extensions
        self.connections.discard(self)
        early, leave, self._early, self._leave = self._early, self._leave, b"", None
        self.outlet.open(early, leave, self._extensions[0] if self._extensions else None)
        # Not needed any more, and a quarter of an idle connection's cost.
        del self.conn, self.request, self.response

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def send(self, message: ASGISendEvent) -> None:
        if self._opened:
            if message["type"] == "websocket.close":
                self.outlet.close(message.get("code", 1000), message.get("reason") or "")
                return
            if message["type"] == "websocket.send":
                await self._send_message(message)
                return
            raise RuntimeError(f"{message['type']} behind the accept")
        if self.close_sent or self.outlet.closed:
            raise ClientDisconnected
        await super().send(message)
        if message["type"] == "websocket.accept" and self.handshake_complete and not self.disconnected:
            self._open()

    async def _send_message(self, message: WebSocketSendEvent) -> None:
        if not self.writable.is_set():
            await self.writable.wait()
        text = message.get("text")
        packed = (
            Frame(Opcode.BINARY, message.get("bytes") or b"") if text is None else Frame(Opcode.TEXT, text.encode())
        )
        self.outlet.write(packed.serialize(mask=False, extensions=self._extensions))

    async def receive(self) -> ASGIReceiveEvent:
        message = await self.queue.get()
        if self._opened and self.queue.empty():
            self.outlet.app_took()
        return message

    def connection_lost(self, exc: Exception | None) -> None:
        """Before the accept, or after a refusal."""
        super().connection_lost(exc)
        self._stop_timer()
        if self._leave is not None:
            self._leave()

    def shutdown(self) -> None:
        """The server ends, after its drain."""
        self.transport.close()

    async def run_asgi(self) -> None:
        self._task = asyncio.current_task()
        goodbye = CloseCode.FINISHED
        try:
            await self.app(self.scope, self.receive, self.send)
        except (ClientDisconnected, WebSocketDisconnect):
            pass
        except Exception:
            _log.exception("socket.crashed")
            goodbye = CloseCode.FAILED
        finally:
            self._task = None
            if self._opened:
                if goodbye is CloseCode.FAILED or self.outlet.heir is None:
                    (self.outlet.heir or self.outlet).close(goodbye, goodbye.reason)
            elif not self.handshake_complete and not self.close_sent:
                self._turn_away(_CRASHED)
