"""Who starts next: sandboxes begin a few at a time, and the users take turns (fair_queue.py). Pure.

A session that wants its sandbox started, or one that runs already found again, waits until it is begun; whoever begins
it says when that is over. A start also needs a place: no more sandboxes run, in all and of one user, than is allowed.
What runs already is found again whatever the limits say, and counts. The services' own (NO_USER) take their turns
as one user's do, and are bounded by the places there are in all.

Never: a start beyond the places there are; a session that waits while it could begin. Bounds: an entry for each session
that waits, runs or begins.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from gateway.limits.fair_queue import FairQueue
from persistence.record import NO_USER


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
        self._turns: FairQueue[str] = FairQueue(limits.at_once, limits.at_once_per_user)
        self._found: set[str] = set()  # of those that wait: its sandbox runs already
        self._running: dict[str, str] = {}  # key -> user; begun starts have their place, too
        self._running_by: Counter[str] = Counter()
        self._expected: dict[str, str] = {}  # key -> user; will ask in a moment

    # -- what there is ------------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        return self._turns.waiting

    @property
    def under_way(self) -> int:
        return self._turns.under_way

    @property
    def running(self) -> int:
        return len(self._running)

    def placed(self) -> list[str]:
        """Every key whose sandbox has a place."""
        return list(self._running)

    def is_under_way(self, key: str) -> bool:
        return self._turns.is_under_way(key)

    def waits(self, key: str) -> bool:
        return self._turns.waits(key)

    def running_of(self, user: str) -> int:
        return self._running_by[user]

    def full(self, user: str, *, counting_waiting: bool = False, own: Collection[str] = ()) -> Full | None:
        """Why no further sandbox of the user may run; None if one may. `counting_waiting`: as if all that wait, or will
        in a moment, ran: of each user as many as their own limit lets run. What waits for its user's own limit takes no
        place from others. `own`: keys of who asks, who is in nobody's way by them."""
        limits = self.limits
        if any(key in self._running for key in own):
            return None
        wanted = self._wanted(own) if counting_waiting else Counter[str]()
        if user != NO_USER and self._left_to(user) <= wanted[user]:
            return Full("HOLDFAST_MAX_RUNNING_PER_USER", limits.running_per_user, of_user=True)
        ahead = sum(max(0, min(count, self._left_to(whose))) for whose, count in wanted.items())
        if len(self._running) + ahead >= limits.running:
            return Full("HOLDFAST_MAX_RUNNING", limits.running, of_user=False)
        return None

    def _wanted(self, but: Collection[str]) -> Counter[str]:
        """How many places each user's sessions want that wait, or will in a moment, and have none yet."""
        asking = {**self._expected, **dict(self._turns.all_waiting())}
        has_one = self._found, self._running, but
        return Counter(user for key, user in asking.items() if not any(key in keys for keys in has_one))

    def _left_to(self, user: str) -> int:
        """How many more of the user's may run by the user's own limit; below 0 if more were found running."""
        return self.limits.running if user == NO_USER else self.limits.running_per_user - self._running_by[user]

    def position(self, key: str) -> int | None:
        """Which one it is of those that wait, if all could begin; None if it does not wait."""
        return self._turns.position(key)

    def positions(self) -> Iterator[tuple[str, int]]:
        """Everybody's, in that order."""
        return self._turns.positions()

    # -- what happens -------------------------------------------------------------------------------------------------

    def expect(self, key: str, user: str) -> None:
        """It will ask in a moment, unless it is forgotten."""
        if not self._turns.waits(key) and key not in self._running:
            self._expected[key] = user

    def forget(self, key: str) -> None:
        """It will not."""
        self._expected.pop(key, None)

    def ask(self, key: str, user: str, *, runs: bool = False) -> None:
        """It wants to begin. `runs`: the sandbox is there, and is only to be found again."""
        self.forget(key)
        if runs and not self._turns.waits(key):
            self._found.add(key)
        self._turns.ask(key, user)

    def leave(self, key: str) -> None:
        """It does not want to any more."""
        self._found.discard(key)
        self._turns.leave(key)

    def next(self) -> str | None:
        """Begin the next one that may; None if nobody may. Ask again until then."""
        begun = self._turns.next(self._has_place)
        if begun is None:
            return None
        key, user = begun
        self._found.discard(key)
        self.runs(key, user)
        return key

    def _has_place(self, key: str, user: str) -> bool:
        return key in self._found or key in self._running or self.full(user) is None

    def over(self, key: str) -> None:
        """It is begun and done, or came to nothing. Whether it runs is said apart."""
        self._turns.over(key)

    def runs(self, key: str, user: str) -> None:
        """Its sandbox has a place."""
        if key not in self._running:
            self._running[key] = user
            self._running_by[user] += 1

    def stopped(self, key: str) -> bool:
        """Its sandbox has none any more; whether it had one."""
        user = self._running.pop(key, None)
        if user is not None:
            self._running_by[user] -= 1
            if not self._running_by[user]:
                del self._running_by[user]
        return user is not None
