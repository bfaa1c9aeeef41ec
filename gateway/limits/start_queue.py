"""The order of starts: sandboxes begin a few at a time, and the users take turns (fair_queue.py). Pure.

A session that wants its sandbox started, or a running one found again, waits until `next` begins it; the caller then
reports when that is over. A start also needs a place: the number of running sandboxes is bounded, in all and per user.
A sandbox that runs already is found again whatever the limits are, and counts. The services' own (NO_USER) take their
turns as one user's do, and are bounded by the places there are in all.

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
    """The limit that leaves no place for another sandbox."""

    setting: str
    limit: int
    of_user: bool

    def __str__(self) -> str:
        whose = "of this user " if self.of_user else ""
        many = f"{self.limit} sandboxes {whose}run, the most that {self.setting} allows"
        return f"{many}: put one to sleep, or wait until one sleeps"


class StartQueue:
    """Keys are session ids. One key waits, or is under way, at most once."""

    def __init__(self, limits: StartLimits) -> None:
        self.limits = limits
        self._turns: FairQueue[str] = FairQueue(limits.at_once, limits.at_once_per_user)
        self._found: set[str] = set()  # waiting ones whose sandbox runs already
        self._running: dict[str, str] = {}  # key -> user; begun starts have their place, too
        self._running_by: Counter[str] = Counter()
        self._expected: dict[str, str] = {}  # key -> user; will ask in a moment

    # -- reads --------------------------------------------------------------------------------------------------------

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
        """The limit that forbids another sandbox of the user; None if there is a place. `counting_waiting`: as if all
        sessions that wait, or will in a moment, ran: of each user as many as their own limit allows. A session that
        waits for its user's own limit takes no place from others. `own`: keys of the session that asks, which do not
        count against it."""
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
        """By user, the number of places wanted by sessions that wait, or will in a moment, and have none yet."""
        asking = {**self._expected, **dict(self._turns.all_waiting())}
        has_one = self._found, self._running, but
        return Counter(user for key, user in asking.items() if not any(key in keys for keys in has_one))

    def _left_to(self, user: str) -> int:
        """How many more sandboxes the user's own limit allows; below 0 if more were found running."""
        return self.limits.running if user == NO_USER else self.limits.running_per_user - self._running_by[user]

    def position(self, key: str) -> int | None:
        """The key's place among those that wait, if all could begin; None if it does not wait."""
        return self._turns.position(key)

    def positions(self) -> Iterator[tuple[str, int]]:
        """The place of every waiting key, in that order."""
        return self._turns.positions()

    # -- changes ------------------------------------------------------------------------------------------------------

    def expect(self, key: str, user: str) -> None:
        """The session will ask in a moment, unless `forget` is called."""
        if not self._turns.waits(key) and key not in self._running:
            self._expected[key] = user

    def forget(self, key: str) -> None:
        """The session will not ask."""
        self._expected.pop(key, None)

    def ask(self, key: str, user: str, *, runs: bool = False) -> None:
        """The session wants to begin. `runs`: the sandbox runs, and is only to be found again."""
        self.forget(key)
        if runs and not self._turns.waits(key):
            self._found.add(key)
        self._turns.ask(key, user)

    def leave(self, key: str) -> None:
        """The session does not want to begin any more."""
        self._found.discard(key)
        self._turns.leave(key)

    def next(self) -> str | None:
        """Begin the next one that may; None if none may. Call again until then."""
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
        """The session was begun and is done, or came to nothing. `runs` and `stopped` report whether its sandbox
        runs."""
        self._turns.over(key)

    def runs(self, key: str, user: str) -> None:
        """Its sandbox has a place."""
        if key not in self._running:
            self._running[key] = user
            self._running_by[user] += 1

    def stopped(self, key: str) -> bool:
        """Its sandbox has no place any more; return whether it had one."""
        user = self._running.pop(key, None)
        if user is not None:
            self._running_by[user] -= 1
            if not self._running_by[user]:
                del self._running_by[user]
        return user is not None
