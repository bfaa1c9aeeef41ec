"""Virtual time in which all ready callbacks run in any order.

asyncio runs ready callbacks first come, first served, so a test sees only one possible order: the one that always
happens. Here the next ready callback, due timers included, is drawn by lot, from a seed.
"""

from asyncio import Handle
from collections import deque
from random import Random

from tests.support.virtual_time import VirtualTimeLoop


class _Lottery(deque[Handle]):
    """A ready queue without an order."""

    def __init__(self, rng: Random) -> None:
        super().__init__()
        self._rng = rng

    def popleft(self) -> Handle:
        place = self._rng.randrange(len(self))
        handle = self[place]
        del self[place]
        return handle


class ShuffledTimeLoop(VirtualTimeLoop):
    """Starts at second 0. The same seed gives the same run."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._ready = _Lottery(Random(seed))
