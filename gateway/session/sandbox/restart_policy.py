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
        self._failed_at: tuple[float, ...] = ()  # a few; every session has one of these, and this takes no memory

    def failed(self, now: float) -> None:
        self._failed_at = (*self._failed_at, now)

    def exhausted(self, now: float) -> bool:
        self._failed_at = tuple(at for at in self._failed_at if at >= now - self._window)
        return len(self._failed_at) >= self._failures

    def pause(self, rng: Random) -> float:
        """Seconds to wait before the next try: the more failures, the more."""
        return delay(len(self._failed_at), rng, base=BASE_SECONDS, cap=CAP_SECONDS)

    def renew(self) -> None:
        self._failed_at = ()
