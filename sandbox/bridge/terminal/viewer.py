"""One viewer's connection: frames in, frames out. The terminal knows what they mean.

Nothing is queued here except in the transport, whose owner stops writing when it is full. A connection whose other
end takes nothing for a long time is closed, because it may hold up the program.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Protocol

from sandbox.bridge.base.config import Limits
from sandbox.protocol.messages import WireError
from sandbox.protocol.terminal import MAX_INPUT, Open, Resize, Size, TerminalTrouble, decode_down, encode
from sandbox.protocol.websocket_frames import (
    BINARY,
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
from sandbox.system.log import log

FULL_BYTES = 64 * 1024
MAX_FRAGMENTS = 64
GOODBYE_SECONDS = 2.0  # for the other end to answer a close, and to take what was sent before

GOING, BAD_FRAME, ABSENT, SILENT, ENDED, TOO_MANY, START_FAILED, HELD = 1012, 4400, 4404, 4408, 4410, 4429, 4500, 4503


class Turned(Exception):
    """The viewer is refused: `trouble` says why, `close_code` what the client should do."""

    def __init__(self, trouble: TerminalTrouble, close_code: int) -> None:
        super().__init__(trouble.reason)
        self.trouble = trouble
        self.close_code = close_code


class Watched(Protocol):
    """What a viewer watches."""

    def on_typed(self, viewer: "BridgeViewer", payload: bytes) -> None: ...
    def on_wanted(self, viewer: "BridgeViewer", size: Size) -> None: ...
    def on_full(self, viewer: "BridgeViewer") -> None: ...
    def on_drained(self, viewer: "BridgeViewer") -> None: ...
    def on_left(self, viewer: "BridgeViewer") -> None: ...


class BridgeViewer(asyncio.Protocol):
    """`enter` is called with the viewer's wish. It calls `entered`, or raises Turned."""

    def __init__(self, enter: "Callable[[BridgeViewer, Open], None]", limits: Limits) -> None:
        self._enter = enter
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(MAX_INPUT, MAX_FRAGMENTS, masked=True)
        self._watched: Watched | None = None
        self._closing = False
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport
        self.gone: asyncio.Future[None] = self._loop.create_future()

    def take(self, transport: asyncio.Transport, early: bytes) -> None:
        """The connection belongs to the viewer from here on."""
        self._transport = transport
        transport.set_protocol(self)
        transport.set_write_buffer_limits(high=FULL_BYTES)
        _keep_alive(transport.get_extra_info("socket"))
        self._timer = self._loop.call_later(self._limits.attach_seconds, self.close, BAD_FRAME, "open first")
        if early:
            self.data_received(early)

    # Outgoing

    def write(self, frames: bytes) -> None:
        if not self._closing:
            self._transport.write(frames)

    def close(self, code: int, reason: str = "") -> None:
        """Close after what was written."""
        if self._closing:
            return
        self._transport.write(frame_close(code, reason))
        self._leave()

    def _leave(self) -> None:
        """Nothing more is sent. A client that does not take what was sent is cut off."""
        self._closing = True
        self._arm(GOODBYE_SECONDS, self._transport.abort)
        watched, self._watched = self._watched, None
        if watched is not None:
            watched.on_left(self)

    def _arm(self, seconds: float, call: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, call)

    def pause_writing(self) -> None:
        if self._watched is not None:
            self._watch_stall()
            self._watched.on_full(self)

    def _watch_stall(self) -> None:
        unsent = self._transport.get_write_buffer_size()

        def check() -> None:
            if self._transport.get_write_buffer_size() < unsent:
                self._watch_stall()
            else:
                self.close(SILENT, "nothing was taken for a long time")

        self._arm(self._limits.silence_seconds, check)

    def resume_writing(self) -> None:
        if self._watched is not None:
            self._disarm()
            self._watched.on_drained(self)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Incoming

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        ping: bytes | None = None
        try:
            while not self.gone.done() and (found := self._reader.read()) is not None:
                opcode, payload = found
                if opcode == CLOSE:
                    return self._on_close(payload)
                if self._closing:
                    continue
                if opcode == BINARY:
                    self._on_typed(payload)
                elif opcode == TEXT:
                    self._obey(payload)
                elif opcode == PING:
                    ping = payload  # of several the newest gets the pong
        except FrameError as exc:
            log("terminal.bad_frame", reason=exc.reason)
            self.close(exc.code, exc.reason)
            self._transport.pause_reading()  # the start of the next frame is unknown
        except WireError as exc:
            log("terminal.bad_frame", reason=str(exc))
            self.close(BAD_FRAME, str(exc))
        if ping is not None and self._transport.get_write_buffer_size() < FULL_BYTES:
            self.write(frame(PONG, ping))

    def _on_typed(self, payload: bytes) -> None:
        if self._watched is None:
            raise WireError("open first")
        self._watched.on_typed(self, payload)

    def _obey(self, payload: bytes) -> None:
        message = decode_down(payload)
        if isinstance(message, Resize):
            if self._watched is None:
                raise WireError("open first")
            self._watched.on_wanted(self, message.size)
        elif self._watched is not None:
            raise WireError("a second open")
        else:
            self._disarm()
            try:
                self._enter(self, message)
            except Turned as exc:
                self.write(frame_text(encode(exc.trouble)))
                self.close(exc.close_code, exc.trouble.code)

    def entered(self, watched: Watched) -> None:
        """The viewer watches this from here on."""
        self._watched = watched

    def _on_close(self, payload: bytes) -> None:
        if not self._closing:
            self._transport.write(frame(CLOSE, payload[:2]))
            self._leave()
        self._transport.close()

    def eof_received(self) -> None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._disarm()
        watched, self._watched = self._watched, None
        if watched is not None:
            watched.on_left(self)
        if not self.gone.done():
            self.gone.set_result(None)


def _keep_alive(link: socket.socket | None) -> None:
    """Over a network, a client may vanish without a word. The bridge must notice: a link keeps it from being an
    orphan."""
    if link is not None and link.family != socket.AF_UNIX:
        with contextlib.suppress(OSError):
            link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3)):
                link.setsockopt(socket.IPPROTO_TCP, option, value)
