"""Seconds to wait before a retry. Pure."""

from random import Random

BASE_SECONDS = 0.1
CAP_SECONDS = 10.0


def delay(attempt: int, rng: Random, *, base: float = BASE_SECONDS, cap: float = CAP_SECONDS) -> float:
    """Seconds to wait after failure number `attempt` (from 0). Full jitter keeps many that failed together from
    coming back together; the clamped exponent keeps the result a number after an outage of any length."""
    return rng.uniform(0, min(cap, base * 2 ** min(attempt, 16)))
