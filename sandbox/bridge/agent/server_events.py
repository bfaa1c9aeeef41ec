"""Bytes of a stream of server-sent events in, the data of each event out. Pure.

Names and ids of events are left out: agents' servers repeat the kind in the data. Several lines of data are joined
with spaces, because the data is JSON and becomes one line. Long strings are cut as in long_lines.py. An event that is
still too long is left out whole, and counted.
"""

from sandbox.bridge.agent.long_lines import WHOLE, CuttingSplitter


class EventSplitter:
    """`oversized` counts the events that were left out."""

    def __init__(self) -> None:
        self._lines = CuttingSplitter()
        self._data: list[bytes] = []
        self._size = 0
        self._broken = False  # a part of this event was too long
        self.oversized = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of the events that `chunk` completes."""
        events: list[bytes] = []
        for part in chunk.splitlines(keepends=True):
            left_out = self._lines.oversized
            for line in self._lines.feed(part):
                events += self._read(line.removesuffix(b"\r"))
            self._broken |= self._lines.oversized > left_out
        return events

    def _read(self, line: bytes) -> list[bytes]:
        if line:
            name, _, value = line.partition(b":")
            if name == b"data":
                self._data.append(value.removeprefix(b" "))
                self._size += len(value) + 1
                self._broken |= self._size > WHOLE
                if self._broken:
                    self._data.clear()
            return []
        broken, data = self._broken, self._data
        self._data, self._size, self._broken = [], 0, False
        self.oversized += broken
        return [b" ".join(data)] if data and not broken else []
