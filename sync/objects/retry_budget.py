"""How many retries a run of requests may make. Pure.

Without a bound, 30 % of errors grow into more load at the very moment when the server has too much of it, and an outage
multiplies every request by the number of attempts. So a retry costs one token, and only an answer earns a part of one:
of N answered operations, at most `start + N * earned` retries follow, and in an outage none after the first few.
"""


class RetryBudget:
    """Tokens for retries: `start` at first, `earned` for each answer, never more than `most`."""

    def __init__(self, *, start: float = 20.0, earned: float = 0.5, most: float = 50.0) -> None:
        self._tokens = min(start, most)
        self._earned = earned
        self._most = most

    def answered(self) -> None:
        """The store has answered an operation; any answer counts."""
        self._tokens = min(self._most, self._tokens + self._earned)

    def take(self) -> bool:
        """Whether one more retry is allowed; if so, it is paid for."""
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
