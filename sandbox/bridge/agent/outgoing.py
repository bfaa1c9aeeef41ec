"""Lines on their way to the agent's input: what the core says, before any record that was not taken yet. Pure.

They are written in pieces: one line, with those behind it that a pipe takes in one go or not at all, so that no line is
written in part.

Bounds: MAX_INJECTED lines and UNREAD_BYTES, beyond which nothing is injected. The core's answers to the agent's own
output are never left out. While the agent leaves more than UNREAD_BYTES of them unread, they are *unheeded*: whoever
reads the agent stops.
"""

from collections import deque

MAX_INJECTED = 64
UNREAD_BYTES = 1 << 20


class OutgoingLines:
    def __init__(self, piece: int) -> None:
        """A pipe takes less than `piece` bytes whole or not at all."""
        self._piece = piece
        self._lines: deque[bytes] = deque()
        self._size = 0
        self.unheeded = False

    def __bool__(self) -> bool:
        return bool(self._lines)

    @property
    def size(self) -> int:
        """Bytes, without newlines."""
        return self._size

    @property
    def has_room(self) -> bool:
        """Whether a line may be injected."""
        return len(self._lines) < MAX_INJECTED and self._size < UNREAD_BYTES

    def has_room_beside(self, more: int) -> bool:
        """Whether all of them and a line of so many bytes fit into one piece."""
        return self._size + len(self._lines) + more < self._piece

    def append(self, line: bytes) -> None:
        self._lines.append(line)
        self._size += len(line)

    def grown(self, before: int) -> bool:
        """The agent's output was answered; the size was `before`. Return whether the answers became unheeded."""
        if self.unheeded or self._size <= max(before, UNREAD_BYTES):
            return False
        self.unheeded = True
        return True

    def cut(self) -> bytes:
        """The next piece with its newlines; b"" if there is none."""
        lines: list[bytes] = []
        size = 0
        while self._lines and (not lines or size + len(lines) + len(self._lines[0]) < self._piece):
            lines.append(self._lines.popleft())
            size += len(lines[-1])
        self._size -= size
        if self._size <= UNREAD_BYTES:
            self.unheeded = False
        lines.append(b"")
        return b"\n".join(lines)

    def forget(self) -> None:
        """Nobody reads them any more."""
        self._lines.clear()
        self._size, self.unheeded = 0, False
