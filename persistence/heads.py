"""The last known state of sessions, so that the next batch need not query it. Pure.

A taken state is forgotten until it is learned again. So a failed batch leaves no wrong state behind, and the next
batch of its sessions asks the store. Any other change of a session (load, purge, trim) must make it forget that
session, too.

Bound: the 50,000 sessions used last, some 15 MB. One more replaces the one that was unused for longest.
"""

from collections.abc import Iterable, Mapping

import msgspec

from persistence.commit_plan import Head

SESSIONS = 50_000


class Remembered(msgspec.Struct, gc=False):
    """One session: its number in the store, and its last known state."""

    no: int
    head: Head
    version: int = 0  # for a store with other writers: it shows whether the state is still so


class RememberedHeads:
    def __init__(self, most: int = SESSIONS) -> None:
        self._most = most
        self._sessions: dict[str, Remembered] = {}  # the longest unused first

    def __len__(self) -> int:
        return len(self._sessions)

    def take(self, session_ids: Iterable[str]) -> dict[str, Remembered]:
        """The remembered ones among them."""
        forget = self._sessions.pop
        return {session_id: known for session_id in session_ids if (known := forget(session_id, None)) is not None}

    def learn(self, sessions: Mapping[str, Remembered]) -> None:
        """Remember the sessions' new states; `take` may return them again."""
        known = self._sessions
        known |= sessions
        while len(known) > self._most:
            del known[next(iter(known))]

    def forget(self, session_id: str) -> None:
        self._sessions.pop(session_id, None)

    def forget_all(self) -> None:
        self._sessions.clear()
