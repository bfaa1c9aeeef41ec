"""The frames and changes that a page's connection still has to get while it does not read. Pure.

For a changed session only the id is queued; its current state is rendered when it is sent. Transitions and answers are
queued as they are, up to a bound in messages and bytes; beyond that the viewer has to start again with the whole list.
The backlog is sent as the connection drains: first transitions and answers in order, then purged sessions, then changed
ones.
"""

from collections import deque

MOST_WORDS = 1_000
MOST_BYTES = 256 << 10
MOST_SESSIONS = 10_000


class ViewerBacklog:
    """Each method that adds returns whether there was room."""

    __slots__ = ("_bytes", "_changed", "_gone", "_words")

    def __init__(self) -> None:
        self._words: deque[bytes] = deque()
        self._bytes = 0
        self._changed: dict[str, None] = {}  # a session is here or among those that are gone
        self._gone: dict[str, bytes] = {}  # with the frame that reports it

    def __len__(self) -> int:
        """The number of sessions in it."""
        return len(self._changed) + len(self._gone)

    def copy(self) -> "ViewerBacklog":
        copy = ViewerBacklog()
        copy._words, copy._bytes = self._words.copy(), self._bytes
        copy._changed, copy._gone = self._changed.copy(), self._gone.copy()
        return copy

    def say(self, word: bytes) -> bool:
        self._words.append(word)
        self._bytes += len(word)
        return len(self._words) <= MOST_WORDS and self._bytes <= MOST_BYTES

    def changed(self, session_id: str) -> bool:
        self._gone.pop(session_id, None)
        self._changed[session_id] = None
        return len(self) <= MOST_SESSIONS

    def gone(self, session_id: str, word: bytes) -> bool:
        """Also for a session that came and went meanwhile: a viewer may have it from the list."""
        self._changed.pop(session_id, None)
        self._gone[session_id] = word
        return len(self) <= MOST_SESSIONS

    def pay(self) -> bytes | None:
        """Remove and return the next frame; None if only changed sessions are left."""
        if self._words:
            word = self._words.popleft()
            self._bytes -= len(word)
            return word
        return self._gone.popitem()[1] if self._gone else None

    @property
    def left(self) -> tuple[str, ...]:
        """The sessions that changed."""
        return tuple(self._changed)
