"""The order of requests of which only so many may run at once: users take turns. Pure.

A request *waits* until `next` *begins* it, and is *over* at some time. At most `at_once` are under way, and
`at_once_per_user` of one user. Users take turns (round robin); the requests of one user go in their order. So a hundred
requests of one user are one turn ahead of another's first, not a hundred. A user who may not begin now is passed over
and keeps the turn.

Never: more under way than allowed; a request that waits although it could begin. Bounds: one entry for each request
that waits or is under way; the callers bound those. A crash forgets them all: callers ask again.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class FairQueue(Generic[K]):
    """Keys are requests. One key waits, or is under way, at most once."""

    def __init__(self, at_once: int, at_once_per_user: int) -> None:
        self._at_once, self._at_once_per_user = at_once, at_once_per_user
        self._waiting: dict[str, dict[K, None]] = {}  # by user, in the order of their turns
        self._user_of: dict[K, str] = {}  # of waiting requests
        self._under_way: dict[K, str] = {}  # key -> user
        self._begun_by: Counter[str] = Counter()

    @property
    def waiting(self) -> int:
        return len(self._user_of)

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    def waits(self, key: K) -> bool:
        return key in self._user_of

    def is_under_way(self, key: K) -> bool:
        return key in self._under_way

    def all_waiting(self) -> Iterator[tuple[K, str]]:
        """Every waiting key with its user, in no order."""
        return iter(self._user_of.items())

    def position(self, key: K) -> int | None:
        """The key's place among those that wait, if all could begin; None if it does not wait."""
        user = self._user_of.get(key)
        if user is None:
            return None
        before = list(self._waiting[user]).index(key)
        ahead, behind = before + 1, before  # so many of each other user come first: those whose turn is sooner, later
        place = before + 1
        passed = False
        for other, keys in self._waiting.items():
            if other == user:
                passed = True
            else:
                place += min(len(keys), behind if passed else ahead)
        return place

    def positions(self) -> Iterator[tuple[K, int]]:
        """The place of every waiting key, in that order."""
        rounds = [list(keys) for keys in self._waiting.values()]
        place = 0
        for turn in range(max(map(len, rounds), default=0)):
            for keys in rounds:
                if turn < len(keys):
                    place += 1
                    yield keys[turn], place

    def ask(self, key: K, user: str) -> None:
        """The request wants to begin."""
        if key not in self._user_of and key not in self._under_way:
            self._waiting.setdefault(user, {})[key] = None
            self._user_of[key] = user

    def leave(self, key: K) -> None:
        """The request does not want to begin any more."""
        user = self._user_of.pop(key, None)
        if user is not None:
            keys = self._waiting[user]
            del keys[key]
            if not keys:
                del self._waiting[user]

    def next(self, may: Callable[[K, str], bool] = lambda key, user: True) -> tuple[K, str] | None:
        """Begin the next one that may, and return it with its user; None if none may. Call again until then."""
        if len(self._under_way) >= self._at_once:
            return None
        for user, keys in self._waiting.items():
            if self._begun_by[user] < self._at_once_per_user:
                key = next((key for key in keys if may(key, user)), None)
                if key is not None:
                    self._begin(key, user)
                    return key, user
        return None

    def _begin(self, key: K, user: str) -> None:
        self.leave(key)
        if user in self._waiting:  # its next turn comes after those of all others
            self._waiting[user] = self._waiting.pop(user)
        self._under_way[key] = user
        self._begun_by[user] += 1

    def over(self, key: K) -> None:
        """The request was begun and is done, or came to nothing."""
        user = self._under_way.pop(key, None)
        if user is not None:
            self._begun_by[user] -= 1
            if not self._begun_by[user]:
                del self._begun_by[user]
