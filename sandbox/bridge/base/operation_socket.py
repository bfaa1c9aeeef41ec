"""An accepted WebSocket of whole binary messages, on our own frames.

It has the part of Starlette's `WebSocket` that an operation on the tree uses. So an operation takes either of them,
and a bridge that needs no more does not load Starlette.
"""

import asyncio
from collections import deque

from sandbox.protocol.websocket_frames import BINARY, CLOSE, PING, PONG, FrameError, FrameReader, frame, frame_close

MAX_FRAGMENTS = 64
MESSAGES_AHEAD = 2  # read and not yet taken; beyond that the connection is not read
GOODBYE_SECONDS = 1.0  # for the other end to answer a close
GOING = 1012

Heard = dict[str, object]  # in ASGI's form


class Gone(ConnectionError):
    """The other end is not there any more."""


class OperationSocket(asyncio.Protocol):
    def __init__(self, transport: asyncio.Transport, max_message: int) -> None:
        self._transport = transport
        self._reader = FrameReader(max_message, MAX_FRAGMENTS, masked=True)
        self._messages: deque[bytes] = deque()
        self._came = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._over = False  # nothing more is read
        self._said_close = False
        self._goodbye: asyncio.TimerHandle | None = None

    # The transport's calls

    def data_received(self, data: bytes) -> None:
        if not self._over:
            self._reader.feed(data)
            self._read()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        self._room.set()
        if self._goodbye is not None:
            self._goodbye.cancel()

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def _read(self) -> None:
        try:
            while len(self._messages) < MESSAGES_AHEAD and not self._over and (message := self._reader.read()):
                self._take(*message)
        except FrameError as exc:
            self._say_close(exc.code, exc.reason)
            self._end()
        if len(self._messages) >= MESSAGES_AHEAD:
            self._transport.pause_reading()

    def _take(self, opcode: int, payload: bytes) -> None:
        if opcode == BINARY and self._said_close:
            pass  # it was on its way
        elif opcode == BINARY:
            self._messages.append(payload)
            self._came.set()
        elif opcode == PING:
            self._write(frame(PONG, payload))
        elif opcode == CLOSE:
            self._say_close(1000, "")
            self._end()
            self._transport.close()
        elif opcode != PONG:
            raise FrameError(1003, "only binary messages are understood here")

    def _end(self) -> None:
        self._over = True
        self._reader.forget()
        self._came.set()

    # The operation's calls

    async def accept(self) -> None:
        """The connection is accepted already."""

    async def receive(self) -> Heard:
        """The next message, or a note that none follows."""
        while not self._messages:
            if self._over:
                return {"type": "websocket.disconnect"}
            self._came.clear()
            await self._came.wait()
        message = self._messages.popleft()
        if not self._over:
            self._read()
            if len(self._messages) < MESSAGES_AHEAD:
                self._transport.resume_reading()
        return {"type": "websocket.receive", "bytes": message}

    async def send_bytes(self, data: bytes) -> None:
        """Raises Gone."""
        if self._gone or self._said_close:
            raise Gone("the connection has ended")
        self._write(frame(BINARY, data))
        await self._room.wait()
        if self._gone:
            raise Gone("the connection has ended")

    @property
    def _gone(self) -> bool:
        """A failed write closes the transport, which reports it only when the loop turns again. A sender that finds
        room each time would never let it turn."""
        return self._over or self._transport.is_closing()

    async def close(self, code: int = 1000) -> None:
        """Send a close, and give the other end a moment to answer."""
        self._say_close(code, "")

    def _say_close(self, code: int, reason: str) -> None:
        if not self._said_close:
            self._said_close = True
            self._write(frame_close(code, reason))
            self._goodbye = asyncio.get_running_loop().call_later(GOODBYE_SECONDS, self._transport.abort)
            self._messages.clear()
            self._transport.resume_reading()  # the answer is behind messages that nobody takes any more

    def _write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)
