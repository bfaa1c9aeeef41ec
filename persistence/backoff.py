"""How long to wait before trying again. Pure."""

from random import Random

BASE_SECONDS = 0.1
CAP_SECONDS = 10.0


def delay(attempt: int, rng: Random, *, base: float = BASE_SECONDS, cap: float = CAP_SECONDS) -> float:
    """Seconds to wait after failure number `attempt` (from 0). Full jitter, so that many that failed together do not
    come back together; the exponent is clamped, so that an outage of any length stays a number."""
    return rng.uniform(0, min(cap, base * 2 ** min(attempt, 16)))
