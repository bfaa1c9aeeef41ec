"""One WebSocket of whole messages, within bounds on hostile clients, and a short way for frames that bypasses ASGI.

The handshake is uvicorn's (gateway/server/websocket.py). From the accept on this class is the connection's protocol.
Its messages go to an owner, by calls, or to the app, by ASGI's queue. An owner's endpoint may return (`outlive_app`):
most sockets are idle, and an endpoint that waits for their end takes 12 KiB for each, with everything that it refers
to.

Only the newest of several pings is answered (RFC 6455, 5.5.3), and none while the peer does not read.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog
from uvicorn.protocols.utils import ClientDisconnected
from websockets.exceptions import PayloadTooBig, ProtocolError
from websockets.extensions import Extension
from websockets.frames import Close, Frame, Opcode

from gateway.limits.allowance import FRAMES_A_TURN, LOW, READ, SMALL_BYTES, WEIGHED
from gateway.limits.inbound_bytes import LARGE, Claim, InboundBytes
from gateway.protocol.close_codes import CloseCode
from gateway.server import liveness
from gateway.server.app_queue import AppQueue, Writable
from gateway.server.front_door import FrontDoor
from gateway.server.liveness import Liveness
from gateway.server.socket_turns import SocketTurns, is_reset
from gateway.server.spliced_socket import NO_GOODBYE, SplicedOwner, SplicedSocket
from sandbox.protocol.websocket_frames import (
    CLOSE,
    PING,
    PONG,
    TEXT,
    FrameError,
    FrameReader,
    frame,
    frame_close,
    frame_text,
)

OUTLET = "holdfast.outlet"  # its key among the extensions of an ASGI scope
_TURN_BYTES = 64 << 10  # above, a turn's frames leave in pieces, so that the kernel's answer is noticed
_log = structlog.get_logger()


class MessageSocket(asyncio.Protocol):
    """Whole text messages in by a call, frames out by a write. On the event loop only.

    `on_text`, once set, is given each text message as bytes (valid UTF-8) and the ASGI `receive` sees only the
    disconnect; a binary message then ends the connection. All frames of one turn of the loop leave in one system call:
    on a busy gateway those calls are most of a frame's cost.
    """

    __slots__ = (
        "_claim",
        "_close_timer",
        "_closing",
        "_connections",
        "_deaf",
        "_door",
        "_gone",
        "_held",
        "_leave",
        "_loop",
        "_newest_ping",
        "_on_over",
        "_outlives",
        "_paused",
        "_pulse",
        "_queue",
        "_queued",
        "_reader",
        "_resting",
        "_roomless",
        "_spliced",
        "_stalled",
        "_transport",
        "_turns",
        "_unsent",
        "_unsent_bytes",
        "_user",
        "_writable",
        "close_code",
        "on_text",
        "room",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        door: FrontDoor,
        connections: set[Any],
        queue: AppQueue,
        writable: Writable,
    ) -> None:
        self._transport = transport
        self._door = door
        self._connections = connections  # of the server
        self._queue: AppQueue | None = queue  # None: the app has ended
        self._writable = writable
        self._loop = asyncio.get_running_loop()
        limits = door.limits
        self._reader = FrameReader(limits.frame_bytes, limits.fragments, masked=True)
        self._pulse = Liveness(self._loop.time())
        self._leave: list[Callable[[], None]] = []
        self.on_text: Callable[[bytes], None] | None = None
        self._on_over: Callable[[], None] | None = None
        self.room: InboundBytes | None = None  # shared by long messages of its user; None: not counted
        self._user: str | None = None  # whose turns it shares
        self._turns: SocketTurns | None = None  # once it is open
        self._spliced: SplicedSocket | None = None  # the new protocol, once the connection was handed over
        self._outlives = False  # the connection outlives the app
        self._unsent: list[bytes] | None = None  # of this turn
        self._unsent_bytes = 0
        self._held = False  # by its owner
        self._queued = False  # the app has a message to receive
        self._resting = False  # until its next turn
        self._paused = False
        self._roomless = False  # a long message waits for room
        self._stalled = False  # counted among the peers that do not read
        self._claim: Claim | None = None
        self._newest_ping: bytes | None = None
        self._closing = False  # a close frame was sent
        self._deaf = False  # input is dropped
        self._gone = False
        self.close_code: int = NO_GOODBYE  # of the first close frame, from either end
        self._close_timer: asyncio.TimerHandle | None = None

    # Called by its endpoint

    def charge_to(self, user: str | None) -> None:
        """Before the accept: set the user whose allowance it uses. None: a service, which has no bound."""
        self._user = user

    def outlive_app(self, on_over: Callable[[], None]) -> None:
        """The endpoint returns, and the connection goes on, with the owner's `on_text`. `on_over` is called once, in a
        turn of the loop of its own, when a close frame was sent or the connection is gone. Raises uvicorn's
        ClientDisconnected if it is gone."""
        if self.closed or self._turns is None:
            raise ClientDisconnected
        assert not self._queued
        self._outlives, self._on_over, self._queue = True, on_over, None

    def hand_over(self, owner: SplicedOwner, *, passes: bool) -> SplicedSocket:
        """From here on the connection is a terminal's, and its input goes to `owner`; the endpoint returns. With
        `passes`, binary frames go to the owner as they came. Call it in the same step as the accept, before the app is
        offered a message. Raises ClientDisconnected."""
        if self.closed or self._turns is None:
            raise ClientDisconnected
        assert not self._queued
        heir = self._spliced = SplicedSocket(
            self._transport,
            self._door,
            owner,
            passes=passes,
            early=self._reader.rest(),
            room=self.room,
            turns=self._turns,
        )
        self._queue = None
        self._connections.add(heir)
        heir.when_gone(partial(self._connections.discard, heir))
        for leave in self._leave:
            heir.when_gone(leave)
        self._leave.clear()
        self._closing = self._gone = True
        self._withdraw()
        return heir

    @property
    def heir(self) -> "MessageSocket | SplicedSocket | None":
        """The protocol that goes on after the app has ended."""
        return self if self._outlives else self._spliced

    def when_gone(self, leave: Callable[[], None]) -> None:
        """Call it when the connection has ended; at once if it has."""
        if self._gone:
            leave()
        else:
            self._leave.append(leave)

    # The beginning

    def open(self, early: bytes, leave: Callable[[], None], extension: Extension | None) -> None:
        """The upgrade was accepted. `early` is input that came with it: it is parsed in the next turn."""
        # Not before: a refused client would never leave the turns, and turns that all others have left are over.
        self._turns = self._door.turns_of(self._user)
        self._turns.join(self)
        self._leave.append(leave)
        self._pulse.heard_at = self._loop.time()
        self._door.sockets.add(self)
        self._connections.add(self)
        self._transport.set_protocol(self)
        if extension is not None:
            self._reader.inflate = self._inflater(extension)
        if early:
            self._reader.feed(early)
            self._loop.call_soon(self._go_on)

    def _inflater(self, extension: Extension) -> Callable[[int, bytes, bool, bool, int], bytes]:
        assert self._turns is not None
        allowance, most = self._turns.allowance, self._door.limits.frame_bytes

        def inflate(opcode: int, payload: bytes, fin: bool, rsv1: bool, room: int) -> bytes:
            try:
                packed = Frame(Opcode(opcode), payload, fin, rsv1)
                plain = bytes(extension.decode(packed, max_size=room).data)
            except PayloadTooBig:
                raise FrameError(1009, f"message is longer than {most} bytes") from None
            except ProtocolError as exc:
                raise FrameError(1002, str(exc)) from None
            allowance.bytes += len(plain)  # the inflated size counts
            return plain

        return inflate

    # Incoming

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        now = self._loop.time()
        self._pulse.heard_at = now
        self._reader.feed(data)
        turns = self._turns
        assert turns is not None
        if turns.turn != turns.clock.turn:
            turns.begin(now)
        size, allowance = len(data), turns.allowance
        allowance.bytes += size
        allowance.left -= size >> READ
        self._consume()

    def _consume(self) -> None:
        """Process input as far as this turn allows; the rest waits for another."""
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
            self._door.refused(f"frame_{exc.code}")
            self.close(exc.code, exc.reason)
            if exc.code in (1002, 1009):  # the start of the next frame is unknown
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
        """Drop all input, earlier and later."""
        self._deaf = True
        self._reader.forget()

    def _wait_for_room(self) -> None:
        """A long message has begun: it is read when its user's other messages leave room for it."""
        if self._reader.unfinished <= LARGE or self.room is None:
            return
        self._claim = self._claim or Claim(self.room)
        self._roomless = not self._claim.reach(self._reader.unfinished, self._has_room)
        if self._roomless and self._turns is not None:
            self._turns.hold(self, self._reader.held)
        self.set_reading()

    def _has_room(self) -> None:
        self._end_wait_for_room()
        self._loop.call_soon(self._go_on)

    def _end_wait_for_room(self) -> None:
        if self._roomless:
            self._roomless = False
            if self._turns is not None:
                self._turns.let_go(self)

    def _let_room_go(self) -> None:
        """The message is counted by its session, or not at all."""
        self._end_wait_for_room()
        if self._claim is not None:
            self._claim.drop()

    def _take_text(self, payload: bytes) -> None:
        if self._closing:
            return
        if not payload.isascii():
            try:
                payload.decode()
            except UnicodeDecodeError:
                raise FrameError(1007, "text is not UTF-8") from None
        take = self.on_text
        if take is None:
            self._offer({"type": "websocket.receive", "text": payload.decode()})
            return
        try:
            take(payload)
        except Exception:
            _log.exception("socket.crashed")
            self.close(CloseCode.FAILED, CloseCode.FAILED.reason)

    def _take_binary(self, payload: bytes) -> None:
        if self._closing:
            return
        if self.on_text is not None:
            raise FrameError(CloseCode.BAD_FRAME, "binary messages are not spoken here")
        self._offer({"type": "websocket.receive", "bytes": payload})

    def _offer(self, event: Any) -> None:
        """Give the app one message, and read on when it has taken it: the transport's buffer is the only queue."""
        assert self._queue is not None
        self._queue.put_nowait(event)
        self._queued = True
        self.set_reading()

    def app_took(self) -> None:
        """The app has received every message that it was offered."""
        if self._queued:
            self._queued = False
            self._go_on()

    def _count_ping(self) -> None:
        """Pongs count, too: the gateway asks for few."""
        if not self._closing:
            self._pulse.pinged(self._door.limits)

    def _answer_ping(self) -> None:
        payload, self._newest_ping = self._newest_ping, None
        if payload is not None and not self._closing and not self._pulse.stalled:
            self._transport.write(frame(PONG, payload))

    def _take_close(self, payload: bytes) -> None:
        self._deaf = True
        if not self._closing:
            try:
                goodbye = Close.parse(payload)
            except (ProtocolError, UnicodeDecodeError):
                raise FrameError(1002, "unreadable close") from None
            self._say_goodbye(goodbye.code, goodbye.reason, frame(CLOSE, payload[:2]))
        self._transport.close()

    def pause_reading(self) -> None:
        """Take no further message until `resume_reading`, not even those that one read brought together."""
        if not self._held and not self._closing:
            self._held = True
            self.set_reading()

    def resume_reading(self) -> None:
        if self._held and not self._closing:
            self._held = False
            self._loop.call_soon(self._go_on)

    def take_turn(self) -> None:
        self._resting = False
        self._go_on()

    def _go_on(self) -> None:
        if not self._gone and self._turns is not None:
            if self._turns.turn != self._turns.clock.turn:
                self._turns.begin(self._loop.time())
            self._consume()
            self.set_reading()

    def set_reading(self) -> None:
        granted = self._claim is not None and self._claim.size
        shut = self._turns is not None and self._turns.shut and not granted
        pause = self._held or self._queued or self._roomless or self._resting or shut
        if pause != self._paused and not self._transport.is_closing():
            self._paused = pause
            if pause:
                self._transport.pause_reading()
            else:
                self._pulse.heard_at = self._loop.time()
                self._transport.resume_reading()

    # Outgoing

    def send_text(self, payload: bytes) -> bool:
        """Write one text message (UTF-8). False: not written, the connection is closed, or now closing as too slow."""
        return self.send_text_prepared(frame_text(payload))

    def send_text_prepared(self, frame: bytes) -> bool:
        """Write a result of `frame_text`, or several of them joined; the same bytes may go to any number of sockets."""
        if self._closing or self._gone:
            return False
        if self._unsent is None:  # later frames of the turn add at most _TURN_BYTES to this
            unsent = self._transport.get_write_buffer_size()
            if unsent > SMALL_BYTES and unsent > self._most_unsent:
                self.close(CloseCode.TOO_SLOW, CloseCode.TOO_SLOW.reason)
                return False
            self._unsent = [frame]
            self._loop.call_soon(self.flush)
        else:
            self._unsent.append(frame)
        self._unsent_bytes += len(frame)
        if self._unsent_bytes > _TURN_BYTES:
            self.flush()
        return True

    def flush(self) -> None:
        """Write the frames of this turn now."""
        unsent, self._unsent, self._unsent_bytes = self._unsent, None, 0
        if unsent is not None and not self._transport.is_closing():
            self._transport.write(unsent[0] if len(unsent) == 1 else b"".join(unsent))

    def write(self, frame: bytes) -> None:
        """Write a frame after all earlier ones. The caller waits for `writable` before."""
        if self.closed:
            raise ClientDisconnected
        self.flush()
        self._transport.write(frame)

    @property
    def limit(self) -> int:
        """The most bytes that may ever wait for its peer."""
        return self._door.limits.write_bytes

    @property
    def _most_unsent(self) -> int:
        """The most bytes that may wait for its peer now."""
        return self.limit if self._turns is None else min(self.limit, self._turns.allowance.room)

    @property
    def buffered(self) -> int:
        """Bytes sent and not yet taken by the kernel."""
        return 0 if self._gone else self._transport.get_write_buffer_size() + self._unsent_bytes

    def pause_writing(self) -> None:
        self._writable.clear()
        self._set_stalled(True)
        self._pulse.stall(self._loop.time(), self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._writable.set()
        self._set_stalled(False)
        self._pulse.flow()

    def _set_stalled(self, stalled: bool) -> None:
        if self._turns is not None and stalled is not self._stalled:
            self._stalled = stalled
            self._turns.allowance.stalled += 1 if stalled else -1

    # The end

    @property
    def closed(self) -> bool:
        return self._closing or self._gone

    def close(self, code: int, reason: str = "") -> None:
        """Send a close frame; a peer that does not answer within a few seconds is cut off. Before the accept no frame
        can be sent, so the connection is aborted."""
        if self.closed:
            return
        if self._turns is None:
            self.abort()
            return
        self._say_goodbye(code, reason, frame_close(code, reason))
        self._held = self._queued = False
        self._let_room_go()
        self.set_reading()

    def abort(self) -> None:
        """End the connection now, without a close frame."""
        self._closing = self._deaf = True
        if not self._gone:
            self._transport.abort()

    def _say_goodbye(self, code: int, reason: str, goodbye: bytes) -> None:
        self._closing = True
        self.close_code = code
        self._tell_over(reason)
        self.flush()
        self._transport.write(goodbye)
        # transport.close() waits for unsent bytes, for ever if the peer never reads: so there is a deadline.
        self._close_timer = self._loop.call_later(self._door.limits.close_seconds, self.abort)

    def _tell_over(self, reason: str = "") -> None:
        if self._queue is not None:
            self._queue.put_nowait({"type": "websocket.disconnect", "code": self.close_code, "reason": reason})
            self._queue = None
        if self._on_over is not None:
            self._loop.call_soon(self._on_over)
            self._on_over = None

    def check(self, now: float, late: float = 0.0) -> None:
        """Ping the peer, or end the connection, if its time has come."""
        if self._closing:
            return
        if late:
            self._pulse.forgive(late)
        if self._resting and is_reset(self._transport):
            self.abort()
            return
        unsent = self._transport.get_write_buffer_size()
        if unsent > SMALL_BYTES and unsent > self._most_unsent + SMALL_BYTES:
            self._door.refused("too_slow")
            self.close(CloseCode.TOO_SLOW, CloseCode.TOO_SLOW.reason)
            return
        match self._pulse.verdict(now, self._door.limits, read=not self._paused, unsent=unsent):
            case liveness.DEAD:
                self._door.refused("dead_peer")
                self.abort()
            case liveness.SLOW:
                self._door.refused("too_slow")
                self.close(CloseCode.TOO_SLOW, CloseCode.TOO_SLOW.reason)
            case liveness.PING:
                self._transport.write(frame(PING, b""))

    def shutdown(self) -> None:
        """The server ends, after its drain."""
        if self._closing:
            self._transport.close()
        else:
            self.close(CloseCode.COMING_BACK, CloseCode.COMING_BACK.reason)

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone = True
        self._writable.set()
        self._tell_over()
        self._withdraw()
        for leave in self._leave:
            leave()
        self._leave.clear()

    def _withdraw(self) -> None:
        """The connection is gone, or another protocol has it."""
        self._door.sockets.discard(self)
        self._connections.discard(self)
        self._let_room_go()
        self._stop_hearing()
        self._set_stalled(False)
        if self._turns is not None:
            self._turns.leave(self)
        self.on_text = None
        if self._close_timer is not None:
            self._close_timer.cancel()
