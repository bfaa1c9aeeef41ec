"""Who starts next: sandboxes begin a few at a time, and the users take turns. Pure.

A session that wants its sandbox started, or one that runs already found again, *waits* until it is *begun*; whoever
begins it says when that is *over*. So many are under way at once, in all and of one user. A start also needs a place:
no more sandboxes run, in all and of one user, than is allowed. What runs already is found again whatever the limits
say, and counts.

Users take turns (round robin), within one it is first come, first served: a hundred sessions of one user are one turn
ahead of another's first, not a hundred. Who cannot begin for a limit of their own is passed over and keeps their turn.

Never: more begun at once than allowed; a start beyond the places there are; a session that waits while it could
begin. Bounds: an entry for each session that waits, runs or begins. A crash forgets the queue: whatever still wants
something asks again.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StartLimits:
    at_once: int = 8
    at_once_per_user: int = 2
    running: int = 1_000_000
    running_per_user: int = 1_000_000


@dataclass(frozen=True, slots=True)
class Full:
    """Which limit leaves no place for another sandbox."""

    setting: str
    limit: int
    of_user: bool

    def __str__(self) -> str:
        whose = "of this user " if self.of_user else ""
        many = f"as many sandboxes {whose}run as may, {self.limit} ({self.setting})"
        return f"{many}: put one to sleep, or wait until one is"


class StartQueue:
    """Keys are session ids. One key waits, or is under way, at most once."""

    def __init__(self, limits: StartLimits) -> None:
        self.limits = limits
        self._waiting: dict[str, dict[str, bool]] = {}  # by user, in order of their turns; key -> whether it runs
        self._under_way: dict[str, str] = {}  # key -> user
        self._begun_by: Counter[str] = Counter()
        self._running: dict[str, str] = {}  # key -> user; begun starts have their place, too
        self._running_by: Counter[str] = Counter()
        self._user_of: dict[str, str] = {}  # of those that wait
        self._expected: dict[str, str] = {}  # key -> user; will ask in a moment

    # -- what there is ------------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        return len(self._user_of)

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    @property
    def running(self) -> int:
        return len(self._running)

    def is_under_way(self, key: str) -> bool:
        return key in self._under_way

    def running_of(self, user: str) -> int:
        return self._running_by[user]

    def full(self, user: str, *, counting_waiting: bool = False) -> Full | None:
        """Why no further sandbox of the user may run; None if one may. `counting_waiting`: as if all that wait, or will
        in a moment, ran."""
        limits = self.limits
        ahead = own = 0
        if counting_waiting:
            wanted = [whose for key, whose in self._user_of.items() if not self._waiting[whose][key]]
            wanted += self._expected.values()
            ahead, own = len(wanted), wanted.count(user)
        if self._running_by[user] + own >= limits.running_per_user:
            return Full("HOLDFAST_MAX_RUNNING_PER_USER", limits.running_per_user, of_user=True)
        if len(self._running) + ahead >= limits.running:
            return Full("HOLDFAST_MAX_RUNNING", limits.running, of_user=False)
        return None

    def position(self, key: str) -> int | None:
        """Which one it is of those that wait, if all could begin; None if it does not wait."""
        user = self._user_of.get(key)
        if user is None:
            return None
        before = list(self._waiting[user]).index(key)
        ahead, behind = before + 1, before  # so many of each other user come first: those whose turn is sooner, later
        place = before + 1
        passed = False
        for other, entries in self._waiting.items():
            if other == user:
                passed = True
            else:
                place += min(len(entries), behind if passed else ahead)
        return place

    def positions(self) -> Iterator[tuple[str, int]]:
        """Everybody's, in that order."""
        rounds = [list(entries) for entries in self._waiting.values()]
        place = 0
        for turn in range(max(map(len, rounds), default=0)):
            for entries in rounds:
                if turn < len(entries):
                    place += 1
                    yield entries[turn], place

    # -- what happens -------------------------------------------------------------------------------------------------

    def expect(self, key: str, user: str) -> None:
        """It will ask in a moment, unless it is forgotten."""
        if key not in self._user_of and key not in self._running:
            self._expected[key] = user

    def forget(self, key: str) -> None:
        """It will not."""
        self._expected.pop(key, None)

    def ask(self, key: str, user: str, *, runs: bool = False) -> None:
        """It wants to begin. `runs`: the sandbox is there, and is only to be found again."""
        self.forget(key)
        if key not in self._user_of and key not in self._under_way:
            self._waiting.setdefault(user, {})[key] = runs
            self._user_of[key] = user

    def leave(self, key: str) -> None:
        """It does not want to any more."""
        user = self._user_of.pop(key, None)
        if user is not None:
            entries = self._waiting[user]
            del entries[key]
            if not entries:
                del self._waiting[user]

    def next(self) -> str | None:
        """Begin the next one that may; None if nobody may. Ask again until then."""
        if len(self._under_way) >= self.limits.at_once:
            return None
        for user, entries in self._waiting.items():
            if self._begun_by[user] >= self.limits.at_once_per_user:
                continue
            room = self.full(user) is None
            key = next((key for key, runs in entries.items() if runs or room or key in self._running), None)
            if key is not None:
                self._begin(key, user)
                return key
        return None

    def _begin(self, key: str, user: str) -> None:
        self.leave(key)
        if user in self._waiting:  # its next turn comes after everybody's
            self._waiting[user] = self._waiting.pop(user)
        self._under_way[key] = user
        self._begun_by[user] += 1
        self.runs(key, user)

    def over(self, key: str) -> None:
        """It is begun and done, or came to nothing. Whether it runs is said apart."""
        user = self._under_way.pop(key, None)
        if user is not None:
            _take_one(self._begun_by, user)

    def runs(self, key: str, user: str) -> None:
        """Its sandbox has a place."""
        if key not in self._running:
            self._running[key] = user
            self._running_by[user] += 1

    def stopped(self, key: str) -> bool:
        """Its sandbox has none any more; whether it had one."""
        user = self._running.pop(key, None)
        if user is not None:
            _take_one(self._running_by, user)
        return user is not None


def _take_one(counter: Counter[str], user: str) -> None:
    counter[user] -= 1
    if not counter[user]:
        del counter[user]
