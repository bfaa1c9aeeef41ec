"""A histogram of durations with plain integers. Pure.

For durations measured with every message: the histogram of prometheus_client takes locks, and five times as long. Only
one thread uses it, the event loop's, which also reads it.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate


class LatencyHistogram:
    __slots__ = ("_bounds", "_counts", "seconds")

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds` are the largest seconds of each bucket, in order; one more bucket holds longer durations."""
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self.seconds = 0.0  # in all

    def observe(self, amount: float) -> None:
        self._counts[bisect_left(self._bounds, amount)] += 1
        self.seconds += amount

    @property
    def count(self) -> int:
        return sum(self._counts)

    def buckets(self) -> list[tuple[str, int]]:
        """Each bound, and how many took no longer, as Prometheus writes them."""
        names = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        return list(zip(names, accumulate(self._counts), strict=True))
