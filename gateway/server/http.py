"""The guarded HTTP connection: a bounded head in bounded time, a bounded body, a counted place; then the request.

Refusals are written here, as JSON, before any of the application runs. A client over its limit is refused in words, and
may still ask for `/health`: a monitor must be able to tell "full" from "dead".

Every byte counts: of a head, of a body, and of a body's framing. Before the application asks for a request's body, its
sender is not identified: until then a connection holds its own few KiB, or bytes from the reserve
(gateway/limits/unclaimed_memory.py).
"""

import asyncio
import base64
import binascii
import weakref
from typing import TYPE_CHECKING, Any, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState
from websockets.datastructures import Headers
from websockets.http11 import Request

from gateway.limits.unclaimed_memory import BorrowedBytes
from gateway.server import request_rules as rules
from gateway.server.admission import TOO_MANY_FROM_ADDRESS, ConnectionSlot, Refusal
from gateway.server.front_door import HEALTH, OPEN_WHILE_DRAINING, answer_bytes
from gateway.server.peer_timer import PeerTimer
from gateway.server.request_rules import RequestRefused, announces_body
from gateway.server.websocket import GuardedConfig, GuardedSocket

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveEvent
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

_LINGER_SECONDS = 2.0
_SLICE_BYTES = 16 << 10  # parsed in one go, because a request may end anywhere in it
_HEADER_BYTES = 100  # a header's cost beside its text
_FRAMING_BYTES = 64 << 10  # bytes of chunk framing beyond a quarter of the body
_DROPPED_BYTES = 512 << 10  # read after a refusal
_TINY_BYTES, _TINY_PIECES = 64, 1000  # a body may come in so many pieces that are smaller than that
_FORWARDED = (b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host", b"forwarded", b"x-real-ip")


class GuardedHttp(HttpToolsProtocol):
    """One HTTP connection within bounds; an upgrade turns it into a GuardedSocket."""

    __slots__ = (
        "_begun",
        "_behind_proxy",
        "_body",
        "_dropped",
        "_framed",
        "_held",
        "_in_head",
        "_keep_alive",
        "_lingers",
        "_owed",
        "_place",
        "_received",
        "_refused",
        "_slice",
        "_stall",
        "_timer",
        "_tiny",
        "door",
        "limits",
    )

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
        self._place: ConnectionSlot | None = None
        self._timer: PeerTimer | None = None  # until the head, then until the body is complete
        self._stall: asyncio.TimerHandle | None = None
        self._in_head = True
        self._begun = False  # some of the next head is here
        self._received = 0  # bytes of this head, or of this body
        self._slice = 0  # bytes being parsed
        self._framed = 0  # bytes that came for this body, in later slices than its head
        self._tiny = 0  # small pieces of this body
        self._keep_alive = False  # should the body come before its answer
        self._held = BorrowedBytes(self.door.reserve, self.limits.stranger_bytes)  # heads
        self._body = BorrowedBytes(self.door.bodies, self.limits.stranger_bytes)
        self._refused = False  # reading has ended
        self._owed: Refusal | None = None  # after the answers to earlier requests
        self._lingers = False  # everything is written
        self._dropped = 0
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
        self._let_go()
        self.cycle = cast(Any, None)  # breaks a reference cycle: the answer to a request with a body refers to this
        self.pipeline.clear()  # so do these
        if self._place is not None:
            self._place.leave()

    def _set_timer(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else PeerTimer(self.loop, seconds, self._too_late)

    def _clear_timers(self) -> None:
        self._set_timer(None)
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _too_late(self) -> None:
        self._timer = None
        self._refuse(rules.HEAD_TIMEOUT)

    def data_received(self, data: bytes) -> None:
        if self._refused or self.parser is None:
            self._drop(data)
            return
        self._unset_keepalive_if_required()
        if self._in_head and self._timer is None:
            self._set_timer(self.limits.head_seconds)
        for at in range(0, len(data), _SLICE_BYTES):
            if not self._read(data[at : at + _SLICE_BYTES] if len(data) > _SLICE_BYTES else data, data, at):
                return
        if self._begun and self._timer is None and not self.pipeline:
            self._set_timer(self.limits.head_seconds)

    def _read(self, piece: bytes, data: bytes, at: int) -> bool:
        """Parse a piece of the input; False if the connection reads no further."""
        self._slice = len(piece)
        if self._begun:
            self._received += len(piece)
        elif not self._in_head:
            self._framed += len(piece)
        try:
            self.parser.feed_data(piece)
            self._check_size()
        except httptools.HttpParserUpgrade as end:
            if self._should_upgrade():
                self.handle_websocket_upgrade(data[at + end.args[0] :])
            return False
        except httptools.HttpParserError as exc:
            self._refuse(_refusal_of(exc))
            return False
        except RequestRefused as exc:
            self._refuse(exc.refusal)
            return False
        return True

    def _check_size(self) -> None:
        limits = self.limits
        if self._begun:
            if self._received > limits.head_bytes:
                raise RequestRefused(rules.HEAD_TOO_LARGE)
            self._hold(self._held.total, self._received + _HEADER_BYTES * len(self.headers))
        elif not self._in_head and self._framed - self._received > _FRAMING_BYTES + self._received // 4:
            raise RequestRefused(rules.TOO_MANY_CHUNKS)

    def _hold(self, total: int, unfinished: int = 0) -> None:
        if not self._held.set(total, unfinished):
            raise RequestRefused(rules.BUSY)

    def _let_go(self) -> None:
        self._held.set(0)
        self._body.set(0)

    def _drop(self, data: bytes) -> None:
        """Drop input after a refusal, and stop reading if there is too much."""
        self._dropped += len(data)
        if self._dropped > _DROPPED_BYTES:
            self.flow.pause_reading()

    # Parser callbacks: an exception raised here stops the parser and comes out of feed_data

    def on_message_begin(self) -> None:
        self._begun = True
        self._received = self._slice
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            raise RequestRefused(rules.TRAILERS)
        super().on_header(name, value)
        if len(self.headers) > self.limits.head_count:
            raise RequestRefused(rules.HEAD_TOO_LARGE)

    def on_headers_complete(self) -> None:
        self._in_head = self._begun = False
        self._received = self._framed = self._tiny = 0
        limits = self.limits
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > limits.head_bytes:
            raise RequestRefused(rules.HEAD_TOO_LARGE)
        path = self.url.partition(b"?")[0]
        if self._place is not None and self._place.refusal is not None and path != HEALTH:
            raise RequestRefused(self._place.refusal)
        if self.door.draining and path not in OPEN_WHILE_DRAINING:
            raise RequestRefused(rules.DRAINING)
        if len(self.pipeline) >= limits.pipelined:
            raise RequestRefused(rules.PIPELINED)
        self._hold(self._held.total + size + _HEADER_BYTES * len(self.headers))
        has_body = announces_body(
            self.headers,
            version=self.parser.get_http_version(),
            upgrades=self.parser.should_upgrade(),
            body_bytes=limits.body_bytes,
        )
        self._read_forwarded()
        self._set_timer(limits.body_seconds if has_body else None)
        super().on_headers_complete()
        if has_body:
            self._await_body(self.cycle)

    def _await_body(self, cycle: "RequestResponseCycle") -> None:
        """Until its body is here, an answer to this request ends the connection. Body bytes that the application has
        received are no longer counted here."""
        receive = weakref.WeakMethod(cycle.receive)  # the receiver refers to the cycle, which must not refer back

        async def receiving() -> "ASGIReceiveEvent":
            received = receive()
            assert received is not None
            message = await received()
            if message["type"] == "http.request":
                self._body.set(max(0, self._body.total - len(message["body"])))
            return message

        cycle.receive = receiving  # type: ignore[method-assign]
        cycle.transport = cast(asyncio.Transport, _LingeringTransport(self))
        self._keep_alive, cycle.keep_alive = cycle.keep_alive, False

    def _read_forwarded(self) -> None:
        """Apply a trusted proxy's headers about the client; drop those of any other sender."""
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
            raise RequestRefused(rules.BODY_TOO_LARGE)
        if len(body) < _TINY_BYTES:
            self._tiny += 1
            if self._tiny > _TINY_PIECES:
                raise RequestRefused(rules.TOO_MANY_CHUNKS)
        if self.cycle.response_complete:
            return
        if not self._body.set(self._body.total + len(body)):
            raise RequestRefused(rules.BUSY)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_head = True
        self._received = 0
        self._set_timer(None)
        if self._keep_alive and not self.cycle.response_started:
            self.cycle.keep_alive = True
        self._keep_alive = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if self._lingers:
            return
        if not self.pipeline:
            if self._owed is not None and not self.transport.is_closing():
                self._end_with(self._owed)
                return
            # A connection that waits for its next request holds nothing of the last one.
            self._let_go()
            if self.cycle is not None:
                self.cycle.body, self.cycle.scope = bytearray(), cast(Any, {})
            if not self._begun:
                self.url, self.headers, self.scope = b"", [], cast(Any, {})
        super().on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        def read_first() -> None:
            self.timeout_keep_alive_task = cast(Any, self.loop.call_soon(close))

        close = super().timeout_keep_alive_handler
        self.timeout_keep_alive_task = cast(Any, self.loop.call_soon(read_first))

    # Answers of the guard's own

    def _refuse(self, refusal: Refusal) -> None:
        """Read no more; answer after the answers to earlier requests, and close."""
        if self._refused:
            return
        self._refused = True
        self._set_timer(None)
        self.door.refused(refusal.code)
        if self.transport.is_closing():
            return
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            self._end_with(refusal)
        elif self.pipeline or not cycle.more_body:
            if cycle.more_body:  # it is the one that is refused, and has not begun
                self.pipeline.popleft()
            self._owed = refusal
        elif cycle.response_started:
            self.transport.abort()
        else:
            cycle.disconnected = True
            cycle.message_event.set()
            self._end_with(refusal)

    def _end_with(self, refusal: Refusal) -> None:
        self.transport.write(answer_bytes(refusal))
        self._linger()

    def _linger(self) -> None:
        """Close. For a moment input is read and dropped, because a reset would destroy the answer."""
        self._refused = self._lingers = True
        self._clear_timers()
        self._let_go()
        self.url, self.headers = b"", []
        self.parser = cast(Any, None)  # it holds input that it has not reported yet
        if self.cycle is not None:
            self.cycle.body = bytearray()
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._stall = self.loop.call_later(_LINGER_SECONDS, self.transport.abort)

    def close_behind_answer(self) -> None:
        """The answer is written. If the request is not complete, its rest is dropped for a moment, as for a refusal."""
        if self._in_head or self.transport.is_closing():
            self.transport.close()
        else:
            self._linger()

    def eof_received(self) -> None:
        if self._lingers:
            self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stall is None:
            self._stall = self.loop.call_later(self.limits.stall_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall is not None and not self._lingers:
            self._stall.cancel()
            self._stall = None

    # The upgrade

    def handle_websocket_upgrade(self, early: bytes = b"") -> None:
        """`early` came right after the request: a client that does not wait for the answer loses nothing."""
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
        self._let_go()
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
                    return rules.BAD_HANDSHAKE
                found[name] = value
        if found.get(b"sec-websocket-version") != b"13":
            return rules.WEBSOCKET_VERSION
        try:
            key = base64.b64decode(found.get(b"sec-websocket-key", b""), validate=True)
        except binascii.Error:
            key = b""
        busy = self.cycle is not None and not self.cycle.response_complete
        wrong = len(key) != 16 or self.scope["method"] != "GET" or b"host" not in found or busy
        return rules.BAD_HANDSHAKE if wrong or not self.url.startswith(b"/") or not self.url.isascii() else None


def _refusal_of(error: httptools.HttpParserError) -> Refusal:
    """The refusal with which a callback stopped the parser. The caller must not keep it in a variable: the cause refers
    to the caller's frame, and both would hold the whole input until the garbage collector finds them."""
    cause = error.__context__
    return cause.refusal if isinstance(cause, RequestRefused) else rules.BAD_REQUEST


class _LingeringTransport:
    """The transport through which a request with a body is answered."""

    __slots__ = ("_owner", "is_closing", "write")

    def __init__(self, owner: GuardedHttp) -> None:
        self._owner = owner
        self.write = owner.transport.write
        self.is_closing = owner.transport.is_closing

    def close(self) -> None:
        self._owner.close_behind_answer()


def _both(first: Any, second: Any) -> Any:
    def leave() -> None:
        first()
        second()

    return leave
