"""A rate per second with a burst, for one key (a user, a session). Pure: the time is an argument."""

KEYS = 10_000


class Budget:
    """The budget of one spender. It refills evenly; unspent amounts are saved up to `burst`."""

    __slots__ = ("_at", "_left", "burst", "rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate, self.burst = rate, burst
        self._left, self._at = burst, now

    def ask(self, amount: float, now: float) -> float:
        """Spend `amount` if it is there and return 0; otherwise spend nothing and return the seconds until it will
        be."""
        self._refill(now)
        if self._left >= min(amount, self.burst):
            self._left -= amount
            return 0.0
        return (min(amount, self.burst) - self._left) / self.rate

    def spend(self, amount: float, now: float) -> float:
        """Spend `amount` in any case; return the seconds until the debt is paid, 0 if there is none."""
        self._refill(now)
        self._left -= amount
        return max(0.0, -self._left / self.rate)

    def is_full(self, now: float) -> bool:
        """True if forgetting this budget would change nothing."""
        self._refill(now)
        return self._left >= self.burst

    def _refill(self, now: float) -> None:
        self._left = min(self.burst, self._left + max(0.0, now - self._at) * self.rate)
        self._at = max(self._at, now)


class Budgets:
    """A budget for each key, all alike. Full ones are forgotten: they come back as they were. Beyond `KEYS` spenders at
    once the longest known is forgotten, in debt or not."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._of: dict[str, Budget] = {}

    def __len__(self) -> int:
        return len(self._of)

    def of(self, key: str, now: float) -> Budget:
        budget = self._of.get(key)
        if budget is None:
            self._make_room(now)
            budget = self._of[key] = Budget(self._rate, self._burst, now)
        return budget

    def _make_room(self, now: float) -> None:
        if len(self._of) >= KEYS:
            self._of = {key: budget for key, budget in self._of.items() if not budget.is_full(now)}
        while len(self._of) >= KEYS:
            del self._of[next(iter(self._of))]
