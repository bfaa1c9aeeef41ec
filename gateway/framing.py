"""WebSocket frames as the server end writes and reads them. Pure: bytes in, messages out, bounds while they come in.

The reader refuses at the first byte that shows a wrong: a length above the bound before its payload has arrived, the
fragment too many, an unmasked frame. It never holds more than one message and what one read brought after it.
"""

from collections.abc import Callable

try:
    from websockets.speedups import apply_mask
except ImportError:  # pragma: no cover - pure-Python installs
    from websockets.utils import apply_mask

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10

Inflate = Callable[[int, bytes, bool, bool, int], bytes]  # opcode, payload, fin, rsv1, room -> plain payload


class FrameError(Exception):
    """What came in ends the connection: `code` and `reason` are what the peer is told."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def frame(opcode: int, payload: bytes) -> bytes:
    """One whole, unmasked frame."""
    size = len(payload)
    if size < 126:
        return bytes((0x80 | opcode, size)) + payload
    if size < 65536:
        return bytes((0x80 | opcode, 126, size >> 8, size & 0xFF)) + payload
    return bytes((0x80 | opcode, 127)) + size.to_bytes(8, "big") + payload


def frame_text(payload: bytes) -> bytes:
    """A wire-ready text message. It is the same for every viewer: build it once, send it to all."""
    return frame(TEXT, payload)


def frame_close(code: int, reason: str) -> bytes:
    text = reason.encode()[:123].decode(errors="ignore").encode()  # 125 bytes in all, cut between characters
    return frame(CLOSE, code.to_bytes(2, "big") + text)


class FrameReader:
    """Whole messages and control frames out of a client's bytes."""

    __slots__ = ("_buffer", "_fragments", "_max_bytes", "_max_fragments", "_opcode", "_parts", "_position", "inflate")

    def __init__(self, max_bytes: int, max_fragments: int) -> None:
        self._max_bytes = max_bytes
        self._max_fragments = max_fragments
        self._buffer: bytes | bytearray = b""
        self._position = 0
        self._opcode = CONTINUATION  # of the message being put together; CONTINUATION: none
        self._parts = bytearray()
        self._fragments = 0
        self.inflate: Inflate | None = None

    def feed(self, data: bytes) -> None:
        if self._position >= len(self._buffer):
            self._buffer = data
        elif isinstance(self._buffer, bytearray):
            del self._buffer[: self._position]
            self._buffer += data
        else:
            rest = bytearray(self._buffer[self._position :])
            rest += data
            self._buffer = rest
        self._position = 0

    def read(self) -> tuple[int, bytes] | None:
        """The next (opcode, payload), or None until more is fed. Raises FrameError; nothing may be read after that."""
        while True:
            found = self._read_frame()
            if found is None:
                if self._position and self._position == len(self._buffer):
                    self._buffer, self._position = b"", 0  # an idle connection holds nothing
                return None
            first, payload = found
            opcode = first & 0x0F
            if opcode >= CLOSE:
                return opcode, payload
            fin = first >= 0x80
            if self.inflate is not None:
                payload = self._inflated(self.inflate, opcode, payload, fin, bool(first & 0x40))
            if opcode != CONTINUATION and fin:
                return opcode, payload
            whole = self._join(opcode, payload, fin)
            if whole is not None:
                return whole

    def _read_frame(self) -> tuple[int, bytes] | None:
        buffer, at = self._buffer, self._position
        there = len(buffer) - at
        if there < 2:
            return None
        first, second = buffer[at], buffer[at + 1]
        if second < 0x80:
            raise FrameError(1002, "frame is not masked")
        size = second & 0x7F
        head = 6
        if first & 0x70 or first & 0x0F != TEXT or first < 0x80 or self._opcode:
            self._check(first, size)
        if size == 126:
            head = 8
            if there < head:
                return None
            size = buffer[at + 2] << 8 | buffer[at + 3]
        elif size == 127:
            head = 14
            if there < head:
                return None
            size = int.from_bytes(buffer[at + 2 : at + 10], "big")
        if size + len(self._parts) > self._max_bytes:
            raise FrameError(1009, f"message is longer than {self._max_bytes} bytes")
        if there < head + size:
            return None
        start = at + head
        self._position = start + size
        return first, apply_mask(buffer[start : start + size], bytes(buffer[start - 4 : start]))

    def _check(self, first: int, short_size: int) -> None:
        opcode, fin = first & 0x0F, first >= 0x80
        if first & 0x30 or (first & 0x40 and (self.inflate is None or opcode not in (TEXT, BINARY))):
            raise FrameError(1002, "reserved bits are set")
        if opcode >= CLOSE:
            if opcode > PONG:
                raise FrameError(1002, "unknown frame type")
            if not fin or short_size > 125:
                raise FrameError(1002, "control frame is fragmented or too long")
        elif opcode > BINARY:
            raise FrameError(1002, "unknown frame type")
        elif (opcode == CONTINUATION) != (self._opcode != CONTINUATION):
            raise FrameError(1002, "fragments are out of order")

    def _join(self, opcode: int, payload: bytes, fin: bool) -> tuple[int, bytes] | None:
        if opcode != CONTINUATION:
            self._opcode = opcode
        self._fragments += 1
        if self._fragments > self._max_fragments:
            raise FrameError(1009, f"message has more than {self._max_fragments} fragments")
        self._parts += payload
        if not fin:
            return None
        whole = self._opcode, bytes(self._parts)
        self._opcode, self._parts, self._fragments = CONTINUATION, bytearray(), 0
        return whole

    def _inflated(self, inflate: Inflate, opcode: int, payload: bytes, fin: bool, rsv1: bool) -> bytes:
        room = self._max_bytes - len(self._parts)
        plain = inflate(opcode, payload, fin, rsv1, room)
        if len(plain) > room:
            raise FrameError(1009, f"message is longer than {self._max_bytes} bytes")
        return plain
