"""Memory that connections may hold before anybody knows whose they are, all of them together. Pure.

Each has a little of its own, which an ordinary request never exceeds. What is larger (a long head, a body that nobody
has asked for yet) is taken from one reserve for all, so that a thousand strangers cost as much as a few.
"""


class UnclaimedMemory:
    """So many bytes for all."""

    __slots__ = ("left",)

    def __init__(self, size: int) -> None:
        self.left = size


class BorrowedBytes:
    """What one connection holds: `own` bytes are free, the rest is borrowed from the reserve."""

    __slots__ = ("_borrowed", "_own", "_reserve", "total")

    def __init__(self, reserve: UnclaimedMemory, own: int) -> None:
        self._reserve = reserve
        self._own = own
        self._borrowed = 0
        self.total = 0

    def set(self, total: int, unfinished: int = 0) -> bool:
        """It holds `total` now, and `unfinished` of something that has only begun. False: there is no room for that,
        and nothing has changed."""
        more = max(0, total + unfinished - self._own) - self._borrowed
        if more > self._reserve.left:
            return False
        self._reserve.left -= more
        self._borrowed += more
        self.total = total
        return True
