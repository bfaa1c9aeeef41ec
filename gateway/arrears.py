"""What somebody is owed who does not take it yet. Pure.

Of a session that changed only its id is kept: how it is will be said when it can be heard. What must be heard word by
word is kept as it is, up to a bound in messages and bytes; whoever is owed more has lost the thread, and begins anew.
"""

from dataclasses import dataclass

MOST_WORDS = 1_000
MOST_BYTES = 256 << 10
MOST_SESSIONS = 10_000


@dataclass(frozen=True, slots=True)
class Debts:
    words: tuple[bytes, ...]  # in order
    gone: tuple[bytes, ...]
    changed: tuple[str, ...]


class Arrears:
    """Each method that adds says whether there was room for it."""

    __slots__ = ("_bytes", "_sessions", "_words")

    def __init__(self) -> None:
        self._words: list[bytes] = []
        self._bytes = 0
        self._sessions: dict[str, bytes | None] = {}  # None: it changed; else the word that it is gone

    def say(self, word: bytes) -> bool:
        self._words.append(word)
        self._bytes += len(word)
        return len(self._words) <= MOST_WORDS and self._bytes <= MOST_BYTES

    def changed(self, session_id: str) -> bool:
        self._sessions[session_id] = None
        return len(self._sessions) <= MOST_SESSIONS

    def gone(self, session_id: str, word: bytes) -> bool:
        self._sessions[session_id] = word
        return len(self._sessions) <= MOST_SESSIONS

    def debts(self) -> Debts:
        """All of it. What came and went meanwhile is told as gone: whoever was listed it just now has it."""
        gone = tuple(word for word in self._sessions.values() if word is not None)
        changed = tuple(session_id for session_id, word in self._sessions.items() if word is None)
        return Debts(tuple(self._words), gone, changed)
