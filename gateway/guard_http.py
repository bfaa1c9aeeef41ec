"""The guarded HTTP connection: a bounded head in bounded time, a bounded body, a counted place; then the request.

Refusals are written here, as JSON, before any of the application runs. A client over its limit is told so, and may
still ask for `/health`: whoever watches the gateway must be able to tell "full" from "dead".
"""

import asyncio
import base64
import binascii
from typing import Any, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState
from websockets.datastructures import Headers
from websockets.http11 import Request

from gateway.counters import TOO_MANY_FROM_ADDRESS, Place, Refusal
from gateway.frontdoor import HEALTH, OPEN_WHILE_DRAINING, answer_bytes
from gateway.guard import GuardedConfig, GuardedSocket

_LINGER_SECONDS = 2.0
_BAD_REQUEST = Refusal(400, "bad_request", "this is no HTTP request")
_HEAD_TIMEOUT = Refusal(408, "head_timeout", "the request did not arrive in time")
_HEAD_TOO_LARGE = Refusal(431, "head_too_large", "the request's head is too large")
_BODY_TOO_LARGE = Refusal(413, "body_too_large", "the request's body is too large")
_PIPELINED = Refusal(429, "too_many_pipelined", "too many requests before the first answer")
_DRAINING = Refusal(503, "draining", "the gateway restarts; come back in a moment")
_BAD_HANDSHAKE = Refusal(400, "bad_handshake", "the WebSocket handshake is incomplete")
_VERSION = Refusal(426, "upgrade_required", "WebSocket version 13 is spoken here")
_FORWARDED = (b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host", b"forwarded", b"x-real-ip")


class _Refused(Exception):
    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal


class GuardedHttp(HttpToolsProtocol):
    """One HTTP connection within bounds; it becomes a GuardedSocket when asked to."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.door = cast(GuardedConfig, config).door
        self.limits = self.door.limits
        self._place: Place | None = None
        self._timer: asyncio.TimerHandle | None = None  # until the head, then until the body is complete
        self._stall: asyncio.TimerHandle | None = None
        self._in_head = True
        self._received = 0  # bytes of this head, or of this body
        self._refused = False
        self._behind_proxy = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn types it
        super().connection_made(transport)
        address = self.client[0] if self.client else None
        self._behind_proxy = address is not None and self.door.proxies.trusts(address)
        self._place = self.door.counters.enter(None if self._behind_proxy else address, evict=transport.abort)
        self._set_timer(self.limits.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._clear_timers()
        if self._place is not None:
            self._place.leave()

    def _set_timer(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self._too_late)

    def _clear_timers(self) -> None:
        self._set_timer(None)
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _too_late(self) -> None:
        self._timer = None
        self._refuse(_HEAD_TIMEOUT)

    def data_received(self, data: bytes) -> None:
        if self._refused or self.parser is None:
            return
        self._unset_keepalive_if_required()
        if self._in_head:
            self._received += len(data)
            if self._timer is None:
                self._set_timer(self.limits.head_seconds)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as end:
            if self._should_upgrade():
                self.handle_websocket_upgrade(data[end.args[0] :])
            return
        except httptools.HttpParserError as exc:
            cause = exc.__context__
            self._refuse(cause.refusal if isinstance(cause, _Refused) else _BAD_REQUEST)
            return
        if self._in_head and self._received > self.limits.head_bytes:
            self._refuse(_HEAD_TOO_LARGE)

    # Parser callbacks: an exception raised here stops the parser and comes out of feed_data

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._received = 0
        limits = self.limits
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > limits.head_bytes or len(self.headers) > limits.head_count:
            raise _Refused(_HEAD_TOO_LARGE)
        path = self.url.partition(b"?")[0]
        if self._place is not None and self._place.refusal is not None and path != HEALTH:
            raise _Refused(self._place.refusal)
        if self.door.draining and path not in OPEN_WHILE_DRAINING:
            raise _Refused(_DRAINING)
        if len(self.pipeline) >= limits.pipelined:
            raise _Refused(_PIPELINED)
        self._read_forwarded()
        self._set_timer(limits.body_seconds if self._expects_body() else None)
        super().on_headers_complete()

    def _expects_body(self) -> bool:
        for name, value in self.headers:
            if name == b"content-length":
                if int(value) > self.limits.body_bytes:
                    raise _Refused(_BODY_TOO_LARGE)
                return int(value) > 0
            if name == b"transfer-encoding":
                return True
        return False

    def _read_forwarded(self) -> None:
        """Apply what a trusted proxy says about the client; drop what anybody else says about it."""
        said: dict[bytes, bytes] = {}
        for name, value in self.headers:
            if name in _FORWARDED:
                said[name] = said[name] + b"," + value if name in said else value
        if not said:
            return
        kept = [(name, value) for name, value in self.headers if name not in _FORWARDED]
        self.headers[:] = kept
        if not self._behind_proxy or self.client is None:
            return
        client = self.door.proxies.client_of(self.client[0], said.get(b"x-forwarded-for", b"").decode("latin-1"))
        self.scope["client"] = (client, 0) if client != self.client[0] else self.client
        scheme = said.get(b"x-forwarded-proto", b"").rpartition(b",")[2].strip().lower()
        if scheme in (b"http", b"https"):
            self.scope["scheme"] = scheme.decode()
        host = said.get(b"x-forwarded-host", b"").rpartition(b",")[2].strip()
        if host:
            self.headers[:] = [(n, v) for n, v in self.headers if n != b"host"] + [(b"host", host)]

    def on_body(self, body: bytes) -> None:
        self._received += len(body)
        if self._received > self.limits.body_bytes:
            raise _Refused(_BODY_TOO_LARGE)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_head = True
        self._received = 0
        self._set_timer(None)
        super().on_message_complete()

    # Answers of the guard's own

    def _refuse(self, refusal: Refusal) -> None:
        """Answer and close. For a moment what still comes in is read and dropped, or the answer would be reset away."""
        if self._refused:
            return
        self._refused = True
        self._clear_timers()
        self.door.refused(refusal.code)
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            if self.cycle.response_started or self.pipeline:
                self.transport.abort()
                return
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write(answer_bytes(refusal))
        self.flow.resume_reading()
        self.transport.write_eof()
        self._stall = self.loop.call_later(_LINGER_SECONDS, self.transport.abort)

    def eof_received(self) -> None:
        if self._refused:
            self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stall is None:
            self._stall = self.loop.call_later(self.limits.stall_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall is not None and not self._refused:
            self._stall.cancel()
            self._stall = None

    # The upgrade

    def handle_websocket_upgrade(self, early: bytes = b"") -> None:
        """`early` came right behind the request: a client that does not wait for the answer loses nothing."""
        problem = self._handshake_problem()
        if problem is not None:
            self._refuse(problem)
            return
        client, place = self.scope["client"], self._place
        assert place is not None
        leave = place.leave
        if self._behind_proxy and client is not None:
            release = self.door.counters.admit_address(client[0])
            if release is None:
                self._refuse(TOO_MANY_FROM_ADDRESS)
                return
            leave = _both(leave, release)
        self._clear_timers()
        self._unset_keepalive_if_required()
        self.connections.discard(self)
        headers = Headers([(name.decode("ascii"), value.decode("latin-1")) for name, value in self.headers])
        socket = GuardedSocket(self.config, self.server_state, self.app_state, self.loop)
        socket.connection_made(self.transport)
        self.transport.set_protocol(socket)
        self.parser = None  # type: ignore[assignment]  # it refers back to this object, which is over
        request = Request(self.url.decode("ascii"), headers)
        socket.begin(request, client, self.scope["scheme"] == "https", leave)
        if early:
            socket.data_received(early)

    def _handshake_problem(self) -> Refusal | None:
        found: dict[bytes, bytes] = {}
        for name, value in self.headers:
            if name in (b"sec-websocket-key", b"sec-websocket-version", b"host"):
                if name in found:
                    return _BAD_HANDSHAKE
                found[name] = value
        if found.get(b"sec-websocket-version") != b"13":
            return _VERSION
        try:
            key = base64.b64decode(found.get(b"sec-websocket-key", b""), validate=True)
        except binascii.Error:
            key = b""
        busy = self.cycle is not None and not self.cycle.response_complete
        wrong = len(key) != 16 or self.scope["method"] != "GET" or b"host" not in found or busy
        return _BAD_HANDSHAKE if wrong or not self.url.startswith(b"/") or not self.url.isascii() else None


def _both(first: Any, second: Any) -> Any:
    def leave() -> None:
        first()
        second()

    return leave
