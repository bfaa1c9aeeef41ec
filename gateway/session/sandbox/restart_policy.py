"""How often something may fail before it is left alone, and how long to wait until then. Pure."""

from random import Random

from persistence.backoff import delay

BASE_SECONDS = 0.25
CAP_SECONDS = 10.0


class RestartPolicy:
    """Ends after `failures` within `window` seconds; comes back as they pass, or at once by `renew`."""

    __slots__ = ("_failed_at", "_failures", "_window")

    def __init__(self, failures: int, window: float) -> None:
        self._failures = failures
        self._window = window
        self._failed_at: list[float] = []  # a few; every session has one of these, and an empty deque takes 760 bytes

    def failed(self, now: float) -> None:
        self._failed_at.append(now)

    def exhausted(self, now: float) -> bool:
        while self._failed_at and self._failed_at[0] < now - self._window:
            self._failed_at.pop(0)
        return len(self._failed_at) >= self._failures

    def pause(self, rng: Random) -> float:
        """Seconds to wait before the next try: the more failures, the more."""
        return delay(len(self._failed_at), rng, base=BASE_SECONDS, cap=CAP_SECONDS)

    def renew(self) -> None:
        self._failed_at.clear()
