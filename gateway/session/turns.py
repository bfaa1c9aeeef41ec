"""Who goes next where only so many may at once: users take turns. Pure.

Each request *waits* until `next` *begins* it, and is *over* at some time. At most `most` are under way, at most half of
them for one user. Users take turns (round robin); the requests of one user go in their order. So a hundred requests of
one user are one turn ahead of another's first, not a hundred. Who cannot begin because half of all are his own keeps
his turn.

Never: more under way than allowed; a request that waits although it could begin. Bounds: one entry for each request
that waits; whoever asks bounds those.
"""

from collections import Counter, deque
from typing import Generic, TypeVar

K = TypeVar("K")


class Turns(Generic[K]):
    """Keys are requests; each waits once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._most_of_one = max(1, most // 2)
        self._waiting: dict[str, deque[K]] = {}  # by user, in the order of their turns
        self._under_way: Counter[str] = Counter()

    def ask(self, user: str, key: K) -> None:
        self._waiting.setdefault(user, deque()).append(key)

    def leave(self, user: str, key: K) -> None:
        """It waits no longer."""
        self._waiting[user].remove(key)
        self._drop_if_empty(user)

    def next(self) -> K | None:
        """Begin the next one that may; None if none may. To be asked until then."""
        if self._under_way.total() >= self._most:
            return None
        for user, keys in self._waiting.items():
            if self._under_way[user] < self._most_of_one:
                key = keys.popleft()
                self._under_way[user] += 1
                self._waiting[user] = self._waiting.pop(user)  # its next turn comes after everybody's
                self._drop_if_empty(user)
                return key
        return None

    def over(self, user: str) -> None:
        """One of the user's that were begun has ended."""
        self._under_way[user] -= 1
        if not self._under_way[user]:
            del self._under_way[user]

    def _drop_if_empty(self, user: str) -> None:
        if not self._waiting[user]:
            del self._waiting[user]
