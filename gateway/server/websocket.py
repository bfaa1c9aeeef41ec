"""The guarded WebSocket: what a hostile client may not do, and the short way out for frames.

uvicorn does the handshake and the ASGI side; from the accept on, incoming bytes are read by `FrameReader`, which holds
to the bounds. Only the newest of several pings is answered (RFC 6455, 5.5.3), and none while the peer does not read.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import structlog
from starlette.websockets import WebSocketDisconnect
from uvicorn._types import ASGIReceiveEvent, ASGISendEvent, WebSocketSendEvent
from uvicorn.config import Config
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.exceptions import PayloadTooBig, ProtocolError
from websockets.frames import Close, Frame, Opcode
from websockets.http11 import Request

from gateway.limits.allowance import FRAMES_A_TURN, LOW, READ, SMALL_BYTES, WEIGHED
from gateway.limits.inbound_bytes import LARGE, Claim
from gateway.protocol.close_codes import CloseCode
from gateway.server import liveness
from gateway.server.admission import Refusal
from gateway.server.app_queue import AppQueue, Writable
from gateway.server.front_door import FrontDoor, answer_bytes
from gateway.server.liveness import Liveness
from gateway.server.outlet import OUTLET, SocketOutlet
from gateway.server.socket_turns import SocketTurns, is_reset
from gateway.server.spliced_socket import SplicedOwner, SplicedSocket
from sandbox.protocol.websocket_frames import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    FrameError,
    FrameReader,
    client_frame,
    frame,
    frame_close,
    frame_text,
)

_EARLY_BYTES = 16 << 10
_TERMINALS = ("/terminal/", "/v1/sandbox/", "/jupyter/", "/tty/")  # frames pass as they came: none is compressed
_AUTH_TIMEOUT = Refusal(503, "auth_timeout", "the upgrade was not answered in time; try again")
_CRASHED = Refusal(500, "internal", "the gateway failed on this request; its log says why")
_log = structlog.get_logger()


class GuardedConfig(Config):
    """uvicorn's configuration, and the door that the guarded protocols share."""

    door: FrontDoor


class GuardedSocket(WebSocketsSansIOProtocol):
    """One WebSocket connection within bounds."""

    # Some are uvicorn's: instances share the keys of their dictionaries only if these are few (CPython: 30).
    __slots__ = (
        "_app_over",
        "_claim",
        "_deaf",
        "_early",
        "_held",
        "_leave",
        "_newest_ping",
        "_pulse",
        "_queued",
        "_reader",
        "_resting",
        "_roomless",
        "_stalled",
        "_task",
        "_timer",
        "_turns",
        "_user",
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
        limits = self.limits = self.door.limits
        self.outlet = SocketOutlet(self, limits.write_bytes)
        self._reader = FrameReader(limits.frame_bytes, limits.fragments, masked=True)
        self._leave: Callable[[], None] | None = None
        self._early = 0  # bytes that came before the app accepted
        self._held = False  # by the outlet's owner
        self._queued = False  # the app has a message to receive
        self._resting = False  # until its next turn
        self._deaf = False  # what comes in no longer matters
        self._stalled = False  # it counts among those that do not take what they are sent
        self._user: str | None = None  # whose turns it takes
        self._turns: SocketTurns | None = None  # once it is open
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._app_over = False
        self._pulse = Liveness(self.loop.time())
        self._newest_ping: bytes | None = None
        self._claim: Claim | None = None
        self._roomless = False  # a long message waits for room

    # From the handshake to the accept

    def begin(self, request: Request, client: tuple[str, int] | None, secure: bool, leave: Callable[[], None]) -> None:
        """Hand the request to the app, which has `auth_seconds` to answer. `leave` is called when all is over."""
        self._leave = leave
        self._timer = self.loop.call_later(self.limits.auth_seconds, self._answer_is_late)
        self.client = client
        self.scheme = "wss" if secure else "ws"
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
        """Answer an upgrade that will not happen."""
        self.door.refused(refusal.code)
        self.close_sent = self._deaf = True
        self.transport.write(answer_bytes(refusal))
        self.transport.close()
        self._cut_later()

    def charge_to(self, user: str | None) -> None:
        self._user = user

    def _opened(self) -> None:
        # Not before: nobody would leave the turns of one who was refused, and those that all others left are over.
        self._turns = self.door.turns_of(self._user)
        self._turns.join(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.conn.extensions:
            self._reader.inflate = self._inflate
        else:
            # Of no further use, and a quarter of what an idle connection costs.
            del self.conn, self.request, self.response
        self._pulse.heard(self.loop.time())
        self.door.sockets.add(self)
        if self._early:
            self._early = 0
            self._go_on()

    def _inflate(self, opcode: int, payload: bytes, fin: bool, rsv1: bool, room: int) -> bytes:
        try:
            packed = Frame(Opcode(opcode), payload, fin, rsv1)
            plain = bytes(self.conn.extensions[0].decode(packed, max_size=room).data)
        except PayloadTooBig:
            raise FrameError(1009, f"message is longer than {self.limits.frame_bytes} bytes") from None
        except ProtocolError as exc:
            raise FrameError(1002, str(exc)) from None
        assert self._turns is not None
        self._turns.allowance.bytes += len(plain)  # what it makes is what it costs
        return plain

    # Incoming

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        now = self.loop.time()
        self._pulse.heard(now)
        self._reader.feed(data)
        if not self.handshake_complete:
            self._early += len(data)
            if self._early > _EARLY_BYTES:
                self.cut()
            return
        turns = self._turns
        assert turns is not None
        if turns.turn != turns.clock.turn:
            turns.begin(now)
        size, allowance = len(data), turns.allowance
        allowance.bytes += size
        allowance.left -= size >> READ
        self._consume()

    def _consume(self) -> None:
        """Deal with what was read, as far as this turn allows; the rest waits for another."""
        if self._resting:
            return
        turns, reader = self._turns, self._reader
        assert turns is not None
        allowance = turns.allowance
        left = most = FRAMES_A_TURN if allowance.left > FRAMES_A_TURN else allowance.left
        frames = 0
        try:
            while not (self._held or self._queued or self._deaf):
                if left <= 0 and reader.pending:
                    self._resting = True
                    break
                found = reader.read()
                if found is None:
                    self._wait_for_room()
                    break
                opcode, payload = found
                frames += 1
                left -= 1 + (len(payload) >> WEIGHED)
                if reader.joined:
                    left, frames, reader.joined = left - (reader.joined >> 3), frames + reader.joined, 0
                if opcode == TEXT:
                    self._take_text(payload)
                    if self._claim is not None:
                        self._claim.drop()
                elif opcode == PING:
                    self._newest_ping = payload
                    self._count_ping()
                elif opcode == PONG:
                    self._count_ping()
                elif opcode == CLOSE:
                    self._take_close(payload)
                else:
                    self._take_binary(payload)
        except FrameError as exc:
            self.door.refused(f"frame_{exc.code}")
            self.begin_close(exc.code, exc.reason)
            if exc.code in (1002, 1009):  # where the next frame begins is no longer known
                self._stop_hearing()
        allowance.left -= most - left
        allowance.frames += frames
        if allowance.left < LOW:
            turns.clock.keep_ticking()
        if self._newest_ping is not None:
            self._answer_ping()
        if self._resting:
            turns.wait(self, reader.held)
            self.set_reading()

    def _stop_hearing(self) -> None:
        """What comes from here on is dropped, and so is what came."""
        self._deaf = True
        self._reader.forget()

    def _wait_for_room(self) -> None:
        """A long message has begun: it is read when its user's other messages leave room for it."""
        if self._reader.unfinished <= LARGE or self.outlet.room is None:
            return
        self._claim = self._claim or Claim(self.outlet.room)
        self._roomless = not self._claim.reach(self._reader.unfinished, self._has_room)
        if self._roomless and self._turns is not None:
            self._turns.hold(self, self._reader.held)
        self.set_reading()

    def _has_room(self) -> None:
        self._end_wait_for_room()
        self.loop.call_soon(self._go_on)

    def _end_wait_for_room(self) -> None:
        if self._roomless:
            self._roomless = False
            if self._turns is not None:
                self._turns.let_go(self)

    def _let_room_go(self) -> None:
        """The message is its session's to count, or nobody's."""
        self._end_wait_for_room()
        if self._claim is not None:
            self._claim.drop()

    def _take_text(self, payload: bytes) -> None:
        if self.close_sent:
            return
        if not payload.isascii():
            try:
                payload.decode()
            except UnicodeDecodeError:
                raise FrameError(1007, "text is not UTF-8") from None
        take = self.outlet.on_text
        if take is None:
            self._offer({"type": "websocket.receive", "text": payload.decode()})
            return
        try:
            take(payload)
        except Exception:
            _log.exception("socket.crashed")
            self.begin_close(CloseCode.FAILED, CloseCode.FAILED.reason)

    def _take_binary(self, payload: bytes) -> None:
        if self.close_sent:
            return
        if self.outlet.on_text is not None:
            raise FrameError(CloseCode.BAD_FRAME, "binary messages are not spoken here")
        self._offer({"type": "websocket.receive", "bytes": payload})

    def _offer(self, event: Any) -> None:
        """Give the app one message, and read on when it has taken it: the transport's buffer is the only queue."""
        self.queue.put_nowait(event)
        self._queued = True
        self.set_reading()

    def _count_ping(self) -> None:
        """Pongs count, too: nobody asks for many."""
        if not self.close_sent:
            self._pulse.pinged(self.limits)

    def _answer_ping(self) -> None:
        payload, self._newest_ping = self._newest_ping, None
        if payload is not None and not self.close_sent and not self._pulse.stalled:
            self.transport.write(frame(PONG, payload))

    def _take_close(self, payload: bytes) -> None:
        self._deaf = True
        if self.close_sent:
            self.transport.close()
            return
        try:
            goodbye = Close.parse(payload)
        except (ProtocolError, UnicodeDecodeError):
            raise FrameError(1002, "unreadable close") from None
        self.close_sent = True
        self.queue.put_nowait({"type": "websocket.disconnect", "code": goodbye.code, "reason": goodbye.reason})
        self.outlet.flush()
        self.transport.write(frame(CLOSE, payload[:2]))
        self.transport.close()
        self._cut_later()

    # Outgoing and ending

    async def send(self, message: ASGISendEvent) -> None:
        if self.handshake_complete:
            if message["type"] == "websocket.close":
                self.begin_close(message.get("code", 1000), message.get("reason") or "")
                return
            if message["type"] == "websocket.send" and self._reader.inflate is None:
                await self._send_plain(message)
                return
            if self.close_sent:
                raise ClientDisconnected
        await super().send(message)
        if message["type"] == "websocket.accept" and self.handshake_complete and not self.disconnected:
            self._opened()

    async def _send_plain(self, message: WebSocketSendEvent) -> None:
        if not self.writable.is_set():
            await self.writable.wait()
        if self.close_sent or self.disconnected:
            raise ClientDisconnected
        text, data = message.get("text"), message.get("bytes")
        self.transport.write(frame_text(text.encode()) if text is not None else frame(BINARY, data or b""))

    async def receive(self) -> ASGIReceiveEvent:
        message = await self.queue.get()
        if self._queued and self.queue.empty():
            self._queued = False
            self._go_on()
        return message

    def begin_close(self, code: int, reason: str) -> None:
        if self.close_sent or self.disconnected:
            return
        if not self.handshake_complete:
            self.cut()
            return
        self.close_sent = True
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.outlet.flush()
        self.transport.write(frame_close(code, reason))
        self._held = self._queued = False
        self._let_room_go()
        self.set_reading()
        self._cut_later()

    def _cut_later(self) -> None:
        """transport.close() waits for what is unsent, for ever if the peer never reads: so there is a last moment."""
        if self.close_timer is None:
            self.close_timer = self.loop.call_later(self.limits.close_seconds, self.cut)

    def cut(self) -> None:
        self.close_sent = self._deaf = True
        if not self.disconnected:
            self.transport.abort()

    def hold(self, held: bool) -> None:
        if self._held != held and not self.close_sent:
            self._held = held
            if held:
                self.set_reading()
            else:
                self.loop.call_soon(self._go_on)

    def take_turn(self) -> None:
        self._resting = False
        self._go_on()

    def _go_on(self) -> None:
        if not self.disconnected and self._turns is not None:
            if self._turns.turn != self._turns.clock.turn:
                self._turns.begin(self.loop.time())
            self._consume()
            self.set_reading()

    def set_reading(self) -> None:
        granted = self._claim is not None and self._claim.size
        shut = self._turns is not None and self._turns.shut and not granted
        pause = self._held or self._queued or self._roomless or self._resting or shut
        if pause != self.read_paused and not self.transport.is_closing():
            self.read_paused = pause
            if pause:
                self.transport.pause_reading()
            else:
                self._pulse.heard(self.loop.time())
                self.transport.resume_reading()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._set_stalled(True)
        self._pulse.stall(self.loop.time(), self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        self._set_stalled(False)
        self._pulse.flow()

    def _set_stalled(self, stalled: bool) -> None:
        if self._turns is not None and stalled is not self._stalled:
            self._stalled = stalled
            self._turns.allowance.stalled += 1 if stalled else -1

    @property
    def room(self) -> int:
        """How much may wait for its peer."""
        most = self.limits.write_bytes
        return most if self._turns is None else min(most, self._turns.allowance.room)

    def check(self, now: float, late: float = 0.0) -> None:
        if self.close_sent:
            return
        if late:
            self._pulse.forgive(late)
        if self._resting and is_reset(self.transport):
            self.cut()
            return
        unsent = self.transport.get_write_buffer_size()
        if unsent > SMALL_BYTES and unsent > self.room + SMALL_BYTES:
            self.door.refused("too_slow")
            self.begin_close(CloseCode.TOO_SLOW, CloseCode.TOO_SLOW.reason)
            return
        match self._pulse.verdict(now, self.limits, read=not self.read_paused, unsent=unsent):
            case liveness.DEAD:
                self.door.refused("dead_peer")
                self.cut()
            case liveness.SLOW:
                self.door.refused("too_slow")
                self.begin_close(CloseCode.TOO_SLOW, CloseCode.TOO_SLOW.reason)
            case liveness.PING:
                self.transport.write(frame(PING, b""))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.door.sockets.discard(self)
        self._let_room_go()
        self._leave_turns()
        self.outlet.on_text = None
        if self._timer is not None:
            self._timer.cancel()
        if self._leave is not None:
            self._leave()
        self._come_apart()

    def _come_apart(self) -> None:
        """Socket, outlet and scope refer to each other: once the connection and the app's side are over, both are freed
        at once."""
        if self.disconnected and self._app_over:
            self.scope = cast(Any, {})
            self.outlet = cast(Any, None)

    def _leave_turns(self) -> None:
        self._stop_hearing()
        self._set_stalled(False)
        if self._turns is not None:
            self._turns.leave(self)

    def shutdown(self) -> None:
        """The server ends, after its drain."""
        if self.handshake_complete and not self.close_sent:
            self.begin_close(CloseCode.COMING_BACK, CloseCode.COMING_BACK.reason)
        else:
            self.transport.close()

    def hand_over(self, owner: SplicedOwner, *, passes: bool) -> SplicedSocket:
        """From here on the connection is a leaner protocol's, and what comes is `owner`'s; the ASGI side is over, and
        its task may end. With `passes`, binary frames go to the owner as they came. Raises ClientDisconnected."""
        if self.close_sent or self.disconnected or not self.handshake_complete:
            raise ClientDisconnected
        early, room, turns = self._unread(), self.outlet.room, self._turns
        heir = SplicedSocket(self.transport, self.door, owner, passes=passes, early=early, room=room, turns=turns)
        self._leave_turns()
        self._let_room_go()
        connections = cast(set[Any], self.connections)
        connections.discard(self)
        connections.add(heir)
        heir.when_gone(partial(connections.discard, heir))
        self.door.sockets.discard(self)
        if self._leave is not None:
            heir.when_gone(self._leave)
            self._leave = None
        self.close_sent = self.disconnected = self._deaf = True
        return heir

    def _unread(self) -> bytes:
        """What came behind the handshake, also what the app was already offered of it."""
        early = b""
        while not self.queue.empty():
            event = self.queue.get_nowait()
            if event["type"] == "websocket.receive":
                text, data = event.get("text"), event.get("bytes")
                early += client_frame(TEXT, text.encode()) if text is not None else client_frame(BINARY, data or b"")
        return early + self._reader.rest()

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
            self._task, self._app_over = None, True
            if self.handshake_complete:
                self.begin_close(goodbye, goodbye.reason)  # unless it was handed over: then it is not ours any more
            elif not self.close_sent:
                self._turn_away(_CRASHED)
            self._come_apart()
