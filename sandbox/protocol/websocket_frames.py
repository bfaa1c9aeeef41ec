"""WebSocket frames for both ends, made for thousands of connections with many small messages each. Pure: only the
keys that mask a client's frames are random.

The `websockets` package does the handshake. Its frames are not used: it asks the kernel for each frame's key, builds
an object for each frame and keeps several KiB for each connection (docs/decisions/0003-our-own-frames.md).

The reader refuses at the first wrong byte: a length above the bound before its payload has arrived, one fragment too
many, a mask where none is allowed or none where one is required. It never holds more than one message and what one
read brought after it.
"""

import os
from collections.abc import Callable, Iterator
from struct import Struct

try:
    from websockets.speedups import apply_mask
except ImportError:  # pragma: no cover - pure-Python installs
    from websockets.utils import apply_mask

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10

Inflate = Callable[[int, bytes, bool, bool, int], bytes]  # opcode, payload, fin, rsv1, room -> plain payload

_POOL_BYTES = 4096
_WORTH_A_COPY = 16 << 10  # bytes that were read, before what was not
_SHORT_TEXT = [bytes((0x80 | TEXT, size)) for size in range(126)]  # heads, by length
_LONGER_TEXT = Struct(">BBH").pack
_WHOLE = (0x80 | TEXT, 0x80 | BINARY)  # the first byte of an unfragmented message


class FrameError(Exception):
    """The peer's bytes end the connection. `code` and `reason` are for the peer, and repeat nothing of its bytes."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def frame(opcode: int, payload: bytes) -> bytes:
    """One whole frame of a server: unmasked, and so the same for every client."""
    return _head(opcode, len(payload), 0) + payload


def frame_text(payload: bytes) -> bytes:
    """A wire-ready text message of a server. It is the same for every viewer: build it once, send it to all."""
    size = len(payload)
    if size < 126:
        return _SHORT_TEXT[size] + payload
    return _LONGER_TEXT(0x80 | TEXT, 126, size) + payload if size < 65536 else frame(TEXT, payload)


def frame_close(code: int, reason: str) -> bytes:
    text = reason.encode()[:123].decode(errors="ignore").encode()  # 125 bytes in all, cut between characters
    return frame(CLOSE, code.to_bytes(2, "big") + text)


def client_frame(opcode: int, payload: bytes) -> bytes:
    """One whole frame of a client: masked."""
    key = _next_key()
    return _head(opcode, len(payload), 0x80) + key + apply_mask(payload, key)


def unmask(payload: bytes, key: bytes) -> bytes:
    """The payload of a masked client frame, unmasked."""
    return apply_mask(payload, key)


def _head(opcode: int, size: int, mask: int) -> bytes:
    if size < 126:
        return bytes((0x80 | opcode, mask | size))
    if size < 65536:
        return bytes((0x80 | opcode, mask | 126, size >> 8, size & 0xFF))
    return bytes((0x80 | opcode, mask | 127)) + size.to_bytes(8, "big")


def _mask_keys() -> Iterator[bytes]:
    """Keys nobody can foresee, fetched many at a time."""
    while True:
        pool = os.urandom(_POOL_BYTES)
        for at in range(0, _POOL_BYTES, 4):
            yield pool[at : at + 4]


_next_key = _mask_keys().__next__


class FrameReader:
    """Whole messages and control frames out of a peer's bytes. `masked`: the peer is a client."""

    __slots__ = (
        "_buffer",
        "_fragments",
        "_masked",
        "_max_bytes",
        "_max_fragments",
        "_opcode",
        "_parts",
        "_position",
        "inflate",
        "joined",
        "unfinished",
    )

    def __init__(self, max_bytes: int, max_fragments: int, *, masked: bool) -> None:
        self._max_bytes = max_bytes
        self._max_fragments = max_fragments
        self._masked = masked
        self._buffer: bytes | bytearray = b""
        self._position = 0
        self._opcode = CONTINUATION  # of the message being put together; CONTINUATION: none
        self._parts = bytearray()
        self._fragments = 0
        self.inflate: Inflate | None = None
        self.unfinished = 0  # how long the message may become whose beginning is here; known once `read` returns None
        self.joined = 0  # fragments so far; the reader of this number resets it

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

    @property
    def pending(self) -> int:
        """Fed bytes that make no whole message yet, or were not read."""
        return len(self._buffer) - self._position + len(self._parts)

    @property
    def held(self) -> int:
        """Bytes of memory."""
        return len(self._buffer) + len(self._parts)

    def rest(self) -> bytes:
        """The fed bytes that were not read; another reader takes them."""
        rest, self._buffer = bytes(self._buffer[self._position :]), b""
        self._position = 0
        return rest

    def forget(self) -> None:
        """Drop the fed bytes: nothing more is read."""
        self._buffer, self._position, self._parts = b"", 0, bytearray()

    def read(self) -> tuple[int, bytes] | None:
        """The next (opcode, payload), or None until more is fed. Raises FrameError; nothing may be read after that."""
        while True:
            self.unfinished = 0
            found = None if self._position == len(self._buffer) else self._read_frame()
            if found is None:
                if self._opcode:
                    self.unfinished = self._max_bytes
                self._give_back()
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

    def _give_back(self) -> None:
        """Free the bytes that were read: they must not stay behind the next ones, nor on an idle connection."""
        if self._position == len(self._buffer):
            self._buffer, self._position = b"", 0
        elif self._position >= _WORTH_A_COPY:
            self._buffer, self._position = self._buffer[self._position :], 0

    def _read_frame(self) -> tuple[int, bytes] | None:
        buffer, at = self._buffer, self._position
        there = len(buffer) - at
        if there < 2:
            return None
        first, size = buffer[at], buffer[at + 1]
        if self._masked:
            size -= 0x80
            head = 6
            if size < 0:
                raise FrameError(1002, "frame is not masked")
        else:
            head = 2
            if size >= 0x80:
                raise FrameError(1002, "frame is masked")
        if first not in _WHOLE or self._opcode:
            self._check(first, size)
        if size == 126:
            head += 2
            if there < head:
                return None
            size = buffer[at + 2] << 8 | buffer[at + 3]
        elif size == 127:
            head += 8
            if there < head:
                return None
            size = int.from_bytes(buffer[at + 2 : at + 10], "big")
        if size + len(self._parts) > self._max_bytes:
            raise FrameError(1009, f"message is longer than {self._max_bytes} bytes")
        if there < head + size:
            # A fragmented message does not say how long it will be.
            self.unfinished = size if self.inflate is None and first >= 0x80 else self._max_bytes
            return None
        start = at + head
        self._position = start + size
        payload = buffer[start : start + size]
        return first, apply_mask(payload, bytes(buffer[start - 4 : start])) if self._masked else bytes(payload)

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
        self.joined += 1
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
