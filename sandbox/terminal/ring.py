"""The newest bytes of a program's output, each with its number. Pure.

Byte `n` is at place `n % limit` of one buffer, so kept bytes cost their own size and nothing for each piece, however
small the pieces are. The buffer grows with the output until it has its full size, so a terminal with little output
costs little.
"""


class ByteRing:
    """Bytes `base` to `end` are kept, at most `limit` of them."""

    __slots__ = ("_buffer", "end", "limit")

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError("a ring keeps at least one byte")
        self.limit = limit
        self.end = 0
        self._buffer = bytearray()

    @property
    def base(self) -> int:
        return self.end - len(self._buffer)

    def append(self, payload: bytes) -> None:
        """Keep `payload`. If there is no room, it replaces the oldest bytes."""
        limit, buffer = self.limit, self._buffer
        start = self.end
        self.end = start + len(payload)
        if len(payload) > limit:
            start = self.end - limit
            payload = payload[-limit:]
        room = limit - len(buffer)
        if room:
            # Nothing was overwritten so far, so byte n is at place n, unless the payload is longer than the whole
            # ring.
            if self.end <= limit:
                buffer += payload
                return
            buffer += bytes(room)
        at = start % limit
        first = limit - at
        if len(payload) <= first:
            buffer[at : at + len(payload)] = payload
        else:
            buffer[at:] = payload[:first]
            buffer[: len(payload) - first] = payload[first:]

    def since(self, offset: int, most: int) -> bytes | None:
        """At most `most` bytes from byte `offset` on: b"" at the end, None if that byte is gone or was never there."""
        if not self.base <= offset <= self.end:
            return None
        count = min(most, self.end - offset)
        at = offset % self.limit
        first = self._buffer[at : at + count]
        if len(first) < count:
            first += self._buffer[: count - len(first)]
        return bytes(first)
