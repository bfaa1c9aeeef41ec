"""Seconds to wait before a retry. Pure."""

from random import Random


def delay(attempt: int, *, base: float, cap: float, rng: Random) -> float:
    """Seconds to wait after failure number `attempt` (from 0). Full jitter keeps many that failed together from
    coming back together; the clamped exponent keeps the result a number after an outage of any length."""
    return rng.uniform(0, min(cap, base * 2 ** min(attempt, 16)))
