"""The viewer's end of a spliced terminal: a guarded WebSocket without ASGI.

Starlette did the routing, the auth and the refusal; the accepted connection was then handed over
(`MessageSocket.hand_over`), and this lean protocol keeps the same bounds as the guard: frames and fragments
(sandbox/protocol/terminal_frames.py), pings, silence, a peer that does not read, a close that is not answered. The
frames of one read leave in one write at the other side. There is no queue here: a viewer that takes nothing is not
written to (`on_full`), and one whose bridge takes nothing is not read, for a while (`hold`). In a read that is full of
tiny frames only so many are parsed in one turn of the loop, and no more than its user's allowance has left
(gateway/limits/allowance.py).
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

import structlog
from websockets.exceptions import ProtocolError
from websockets.frames import Close

from gateway.limits.allowance import LOW, READ, SIZABLE, WEIGHED
from gateway.limits.inbound_bytes import LARGE, Claim, InboundBytes
from gateway.protocol.close_codes import CloseCode
from gateway.server import liveness
from gateway.server.front_door import FrontDoor
from gateway.server.liveness import Liveness
from gateway.server.socket_turns import SocketTurns, is_reset
from sandbox.protocol.terminal_frames import UpScan
from sandbox.protocol.websocket_frames import CLOSE, PING, PONG, TEXT, FrameError, frame, frame_close

ASIDES_A_TURN = 100
NO_GOODBYE = 1006  # the close code of a connection that ends without one

_log = structlog.get_logger()


class SplicedOwner(Protocol):
    """The owner of the connection. Called from the event loop; an exception closes the connection with 1011."""

    def on_frames(self, frames: bytes) -> None:
        """Whole binary frames, masked as they came: only where the connection passes them."""
        ...

    def on_text(self, payload: bytes) -> None:
        """A text message, valid UTF-8."""
        ...

    def on_binary(self, payload: bytes) -> None:
        """A binary message that came in fragments, or any binary message where they are not passed."""
        ...

    def on_full(self, full: bool) -> None:
        """The peer takes no more for now: stop writing. With False it takes more again."""
        ...

    def on_over(self) -> None:
        """A close frame was sent, or the connection is gone: nothing may be written any more. Called once."""
        ...


class SplicedSocket(asyncio.Protocol):
    """One viewer's connection within bounds. `write` takes whole frames of a server."""

    __slots__ = (
        "_claim",
        "_claiming",
        "_close_timer",
        "_closing",
        "_deaf",
        "_door",
        "_gone",
        "_held_at",
        "_leave",
        "_loop",
        "_newest_ping",
        "_owner",
        "_paused",
        "_pulse",
        "_resting",
        "_roomless",
        "_scan",
        "_transport",
        "_turns",
        "close_code",
        "write",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        door: FrontDoor,
        owner: SplicedOwner,
        *,
        passes: bool,
        early: bytes,
        room: InboundBytes | None = None,
        turns: SocketTurns | None = None,
    ) -> None:
        """Take `transport` over. `early` is input that came with the handshake: it is parsed in the next turn."""
        self._transport = transport
        self._door = door
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._scan = UpScan(door.limits.frame_bytes, door.limits.fragments, passes=passes)
        self._pulse = Liveness(self._loop.time())
        self._newest_ping: bytes | None = None
        self._turns = turns or door.turns_of(None)
        self._turns.join(self)
        self._paused = False
        self._resting = False  # for a turn
        self._held_at: float | None = None
        self._closing = False  # a close frame was sent
        self._deaf = False  # input is dropped
        self._gone = False
        self.close_code: int = NO_GOODBYE  # of the first close frame, from either end
        self._close_timer: asyncio.TimerHandle | None = None
        self._leave: list[Callable[[], None]] = []
        self._claim = None if room is None else Claim(room)
        self._claiming = False  # a long frame has begun
        self._roomless = False  # it waits for room
        self.write = transport.write
        transport.set_protocol(self)
        door.sockets.add(self)
        if early:
            self._scan.keep(early)
            self._loop.call_soon(self._go_on)

    @property
    def passed_frames(self) -> int:
        """The number of frames passed on so far."""
        return self._scan.passed_frames

    @property
    def closed(self) -> bool:
        return self._closing or self._gone

    def when_gone(self, leave: Callable[[], None]) -> None:
        """Call it when the connection has ended; at once if it has."""
        if self._gone:
            leave()
        else:
            self._leave.append(leave)

    # Incoming

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        now = self._loop.time()
        self._pulse.heard_at = now
        turns = self._turns
        if turns.turn != turns.clock.turn:
            turns.begin(now)
        allowance = turns.allowance
        allowance.bytes += len(data)
        if len(data) >= SIZABLE:
            allowance.left -= len(data) >> READ
        if self._resting or self._roomless or self._held_at is not None:
            self._scan.keep(data)
        elif allowance.left <= 0:
            self._scan.keep(data)
            self._rest()
        elif not self._closing and (frames := self._scan.passes_whole(data)):
            try:
                self._owner.on_frames(data)
            except Exception:
                self._crash()
            allowance.left -= 1 + (frames >> 4)
            allowance.frames += frames
            if allowance.left < LOW:
                turns.clock.keep_ticking()
        else:
            self._pass(data)

    def _crash(self) -> None:
        _log.exception("socket.crashed")
        self.close(CloseCode.FAILED, CloseCode.FAILED.reason)

    def _pass(self, data: bytes) -> None:
        scan, turns = self._scan, self._turns
        allowance = turns.allowance
        asides, passed_before = 0, scan.passed_frames
        try:
            if scan.aside is not None:  # it waited for a turn, and later input waits for it
                scan.keep(data)
            elif (passed := scan.feed(data)) and not self._closing:
                self._owner.on_frames(passed)
            while (
                scan.aside is not None
                and not self._deaf
                and asides < ASIDES_A_TURN
                and self._held_at is None
                and allowance.left > 0
            ):
                asides += 1
                opcode, payload = scan.take()
                allowance.left -= 1 + (len(payload) >> WEIGHED)
                self._take_aside(opcode, payload)
                if (passed := scan.feed(b"")) and not self._closing:
                    self._owner.on_frames(passed)
        except FrameError as exc:
            self._door.refused(f"frame_{exc.code}")
            self.close(exc.code, exc.reason)
            self._deaf = self._deaf or exc.code in (1002, 1009)  # the start of the next frame is unknown
        except Exception:
            self._crash()
        if self._newest_ping is not None:
            self._answer_ping(self._newest_ping)
        passed_frames = scan.passed_frames - passed_before
        allowance.left -= 1 + (passed_frames >> 4)
        allowance.frames += passed_frames + asides
        if allowance.left < LOW:
            turns.clock.keep_ticking()
        if (scan.more or scan.aside is not None) and not self._deaf and self._held_at is None:
            self._rest()
        elif self._claiming or scan.unfinished > LARGE:
            self._wait_for_room(scan.unfinished)

    def _wait_for_room(self, unfinished: int) -> None:
        """A long frame is read when its user's other messages leave room for it."""
        if self._claim is None:
            return
        self._claiming = unfinished > LARGE
        if not self._claiming:
            self._claim.drop()
        elif not self._claim.reach(unfinished, self._has_room):
            self._roomless = True
            self._turns.hold(self, self._scan.held)
            self.set_reading()

    def _has_room(self) -> None:
        self._roomless = False
        self._turns.let_go(self)
        self.set_reading()
        self._loop.call_soon(self._go_on)

    def _stop_hearing(self) -> None:
        self._deaf = True
        self._scan.forget()

    def _rest(self) -> None:
        """There is more input than fits a turn: let other sockets have theirs."""
        self._resting = True
        self._turns.wait(self, self._scan.held)
        self.set_reading()

    def take_turn(self) -> None:
        self._resting = False
        self._go_on()
        self.set_reading()

    def _go_on(self) -> None:
        if not (self._gone or self._deaf or self._resting or self._roomless) and self._held_at is None:
            self._pass(b"")

    def set_reading(self) -> None:
        granted = self._claim is not None and self._claim.size
        pause = self._resting or self._roomless or self._held_at is not None or (self._turns.shut and not granted)
        if pause != self._paused and not self._gone:
            self._paused = pause
            if pause:
                self._transport.pause_reading()
            else:
                self._pulse.heard_at = self._loop.time()
                self._transport.resume_reading()

    def _take_aside(self, opcode: int, payload: bytes) -> None:
        if opcode in (PING, PONG):
            self._newest_ping = payload if opcode == PING else self._newest_ping
            if not self._closing:
                self._pulse.pinged(self._door.limits)
        elif opcode == CLOSE:
            self._take_close(payload)
        elif self._closing:
            return
        elif opcode == TEXT:
            try:
                payload.decode()
            except UnicodeDecodeError:
                raise FrameError(1007, "text is not UTF-8") from None
            self._owner.on_text(payload)
        else:
            self._owner.on_binary(payload)

    def _answer_ping(self, payload: bytes) -> None:
        self._newest_ping = None
        if not self._closing and not self._pulse.stalled:
            self.write(frame(PONG, payload))

    def _take_close(self, payload: bytes) -> None:
        self._deaf = True
        if not self._closing:
            try:
                code = Close.parse(payload).code
            except (ProtocolError, UnicodeDecodeError):
                raise FrameError(1002, "unreadable close") from None
            self._say_goodbye(code, frame(CLOSE, payload[:2]))
        self._transport.close()

    # Flow

    def hold(self, held: bool) -> None:
        """Stop reading the peer, so that it waits, too; or read again. Its end is not noticed meanwhile, so a hold must
        be short: a peer that is held for as long as a slow one may be is closed."""
        if self._closing or held is (self._held_at is not None):
            return
        self._held_at = self._loop.time() if held else None
        self.set_reading()
        if not held:
            self._loop.call_soon(self._go_on)

    def pause_writing(self) -> None:
        self._pulse.stall(self._loop.time(), self._transport.get_write_buffer_size())
        if not self._closing:
            self._owner.on_full(True)

    def resume_writing(self) -> None:
        self._pulse.flow()
        if not self._closing:
            self._owner.on_full(False)

    # The end

    def close(self, code: int, reason: str) -> None:
        """Send a close frame; a peer that does not answer within a few seconds is cut off."""
        if not self._closing and not self._gone:
            self._say_goodbye(code, frame_close(code, reason))
            self._held_at = None
            self.set_reading()

    def abort(self) -> None:
        """End the connection now, without a close frame."""
        self._deaf = True
        self._transport.abort()

    def _say_goodbye(self, code: int, goodbye: bytes) -> None:
        self._closing = True
        self.close_code = code
        self._owner.on_over()
        self.write(goodbye)
        self._cut_later(self._transport.get_write_buffer_size(), self._loop.time() + self._door.limits.stall_seconds)

    def _cut_later(self, unsent: int, deadline: float) -> None:
        """Cut the peer off in a few seconds. A peer with unsent bytes gets as long as any slow one, counted again from
        each byte it takes."""

        def cut() -> None:
            left, now = self._transport.get_write_buffer_size(), self._loop.time()
            if left and (left < unsent or now < deadline):
                self._cut_later(left, now + self._door.limits.stall_seconds if left < unsent else deadline)
            else:
                self._transport.abort()

        self._close_timer = self._loop.call_later(self._door.limits.close_seconds, cut)

    def check(self, now: float, late: float = 0.0) -> None:
        """Ping the peer, or end the connection, if its time has come."""
        if self._closing:
            return
        if late:
            self._pulse.forgive(late)
        if self._resting and is_reset(self._transport):
            return self.abort()
        if self._held_at is not None and now - self._held_at >= self._door.limits.stall_seconds:
            self._door.refused("input_stuck")
            return self.close(CloseCode.FAILED, "the sandbox does not read")
        unsent = self._transport.get_write_buffer_size()
        match self._pulse.verdict(now, self._door.limits, read=not self._paused, unsent=unsent):
            case liveness.DEAD:
                self._door.refused("dead_peer")
                self._transport.abort()
            case liveness.SLOW:
                self._door.refused("too_slow")
                self.close(CloseCode.TOO_SLOW, CloseCode.TOO_SLOW.reason)
            case liveness.PING:
                self.write(frame(PING, b""))

    def shutdown(self) -> None:
        """The server ends, after its drain."""
        self.close(CloseCode.COMING_BACK, CloseCode.COMING_BACK.reason)

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone = True
        self._stop_hearing()
        self._turns.leave(self)
        if self._claim is not None:
            self._claim.drop()
        if not self._closing:
            self._closing = True
            self._owner.on_over()
        if self._close_timer is not None:
            self._close_timer.cancel()
        self._door.sockets.discard(self)
        for leave in self._leave:
            leave()
        self._leave.clear()
