"""Bytes in, lines out: how an agent's output becomes frames. Pure."""

from sandbox.protocol.agent import MAX_LINE


class LineSplitter:
    """Cuts a byte stream at newlines. A line beyond `limit` is left out whole, and counted in `oversized`; at most
    one line is in memory at a time."""

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._skipping = False
        self.oversized = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that `chunk` completes, without their newline."""
        first, *rest = chunk.split(b"\n")
        self._keep(first)
        if not rest:
            return []
        lines = self._complete()
        for line in rest[:-1]:
            if len(line) <= self._limit:
                lines.append(line)
            else:
                self.oversized += 1
        self._keep(rest[-1])
        return lines

    def finish(self) -> list[bytes]:
        """The stream ended: return the unfinished last line, if there is one."""
        return [line for line in self._complete() if line]

    def _keep(self, part: bytes) -> None:
        if self._skipping:
            return
        if self._size + len(part) > self._limit:
            self._parts.clear()
            self._size = 0
            self._skipping = True
            self.oversized += 1
        elif part:
            self._parts.append(part)
            self._size += len(part)

    def _complete(self) -> list[bytes]:
        line = b"".join(self._parts)
        skipped = self._skipping
        self._parts.clear()
        self._size = 0
        self._skipping = False
        return [] if skipped else [line]
