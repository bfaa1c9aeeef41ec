"""Where sessions were left, remembered so that the next batch need not ask. Pure.

What is taken is forgotten until it is learned again. So a batch that fails leaves nothing behind that may be wrong, and
the next one of its sessions asks the store. Whoever changes a session in another way than by a batch (loads it, purges
it, trims it) forgets it, too.

Bound: the 50,000 sessions used last, some 15 MB. Of one more, the longest unused is forgotten.
"""

from collections.abc import Iterable, Mapping

import msgspec

from persistence.commit_plan import Head

SESSIONS = 50_000


class Remembered(msgspec.Struct, gc=False):
    """One session: its number in the store, and where it was left."""

    no: int
    head: Head
    version: int = 0  # in a store that others write to as well: whether it was left so shows there


class RememberedHeads:
    def __init__(self, most: int = SESSIONS) -> None:
        self._most = most
        self._sessions: dict[str, Remembered] = {}  # the longest unused first

    def __len__(self) -> int:
        return len(self._sessions)

    def take(self, session_ids: Iterable[str]) -> dict[str, Remembered]:
        """Those of them that are remembered."""
        forget = self._sessions.pop
        return {session_id: known for session_id in session_ids if (known := forget(session_id, None)) is not None}

    def learn(self, sessions: Mapping[str, Remembered]) -> None:
        """Sessions as they are left; what was taken before may be given again."""
        known = self._sessions
        known |= sessions
        while len(known) > self._most:
            del known[next(iter(known))]

    def forget(self, session_id: str) -> None:
        self._sessions.pop(session_id, None)

    def forget_all(self) -> None:
        self._sessions.clear()
