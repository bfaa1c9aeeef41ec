"""WebSocket frames as the client end writes and reads them: for thousands of links with many small messages each.

The `websockets` package asks the kernel for each frame's key, builds an object for each frame and keeps several KiB
for each connection; that was half of what a delivery cost. It still does the handshake.

The reader refuses at the first byte that shows a wrong: a length above the bound before its payload has arrived, the
fragment too many, a masked frame. It never holds more than one message and what one read brought after it.
"""

import os
from collections.abc import Iterator

try:
    from websockets.speedups import apply_mask
except ImportError:  # pure-Python installs
    from websockets.utils import apply_mask

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10

_POOL_BYTES = 4096


class FrameError(Exception):
    """The server broke the framing. The text never repeats what was sent."""


def _mask_keys() -> Iterator[bytes]:
    """Keys nobody can foresee, fetched many at a time."""
    while True:
        pool = os.urandom(_POOL_BYTES)
        for at in range(0, _POOL_BYTES, 4):
            yield pool[at : at + 4]


_next_key = _mask_keys().__next__


def client_frame(opcode: int, payload: bytes) -> bytes:
    """One whole, masked frame."""
    size = len(payload)
    if size < 126:
        head = bytes((0x80 | opcode, 0x80 | size))
    elif size < 65536:
        head = bytes((0x80 | opcode, 0x80 | 126, size >> 8, size & 0xFF))
    else:
        head = bytes((0x80 | opcode, 0x80 | 127)) + size.to_bytes(8, "big")
    key = _next_key()
    return head + key + apply_mask(payload, key)


class FrameReader:
    """Whole messages and control frames out of a server's bytes."""

    __slots__ = ("_buffer", "_max_bytes", "_max_fragments", "_opcode", "_parts", "_parts_bytes")

    def __init__(self, max_bytes: int, max_fragments: int) -> None:
        self._max_bytes = max_bytes
        self._max_fragments = max_fragments
        self._buffer: bytearray | None = None  # the beginning of a frame
        self._opcode = CONTINUATION  # of the message being put together; CONTINUATION: none
        self._parts: list[bytes] = []
        self._parts_bytes = 0

    def read(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Go through every (opcode, payload) that `data` completes, in order. Raises FrameError where the wrong is;
        after that, or if the caller does not go on to the end, nothing may be read any more.
        """
        buffer: bytes | bytearray = data
        if self._buffer is not None:
            self._buffer += data
            buffer = self._buffer
        at, end = 0, len(buffer)
        while end - at >= 2:
            first, size = buffer[at], buffer[at + 1]
            self._check(first, size)
            start = at + 2
            if size >= 126:
                start += 2 if size == 126 else 8
                if end < start:
                    break
                size = int.from_bytes(buffer[at + 2 : start], "big")
            if size + self._parts_bytes > self._max_bytes:
                raise FrameError("message too long")
            if end < start + size:
                break
            at = start + size
            whole = self._join(first, bytes(buffer[start:at]))
            if whole is not None:
                yield whole
        if at == end:
            self._buffer = None  # an idle connection holds nothing
        elif self._buffer is None:
            self._buffer = bytearray(buffer[at:])
        else:
            del self._buffer[:at]

    def _check(self, first: int, size: int) -> None:
        opcode = first & 0x0F
        if first & 0x70:
            raise FrameError("reserved bits are set")
        if size & 0x80:
            raise FrameError("frame is masked")
        if opcode >= CLOSE:
            if opcode > PONG or first < 0x80 or size > 125:
                raise FrameError("bad control frame")
        elif opcode > BINARY or (opcode == CONTINUATION) != (self._opcode != CONTINUATION):
            raise FrameError("frame out of order")

    def _join(self, first: int, payload: bytes) -> tuple[int, bytes] | None:
        opcode, fin = first & 0x0F, first >= 0x80
        if opcode >= CLOSE or (fin and opcode != CONTINUATION):
            return opcode, payload
        if opcode != CONTINUATION:
            self._opcode = opcode
        self._parts.append(payload)
        self._parts_bytes += len(payload)
        if len(self._parts) > self._max_fragments:
            raise FrameError("too many fragments")
        if not fin:
            return None
        whole = self._opcode, b"".join(self._parts)
        self._opcode, self._parts, self._parts_bytes = CONTINUATION, [], 0
        return whole
