"""Memory that connections may hold before their users are known, all of them together. Pure.

Each has a little of its own, which an ordinary request never exceeds. More (a long head, a body that the application
has not asked for yet) is taken from one reserve for all, so that a thousand strangers cost as much as a few.
"""


class UnclaimedMemory:
    """The reserve: so many bytes for all."""

    __slots__ = ("left",)

    def __init__(self, size: int) -> None:
        self.left = size


class BorrowedBytes:
    """The bytes of one connection: `own` are free, the rest is borrowed from the reserve."""

    __slots__ = ("_borrowed", "_own", "_reserve", "total")

    def __init__(self, reserve: UnclaimedMemory, own: int) -> None:
        self._reserve = reserve
        self._own = own
        self._borrowed = 0
        self.total = 0

    def set(self, total: int, unfinished: int = 0) -> bool:
        """The connection holds `total` now, and `unfinished` of an item that has only begun. False: there is no room
        for that, and nothing has changed."""
        more = max(0, total + unfinished - self._own) - self._borrowed
        if more > self._reserve.left:
            return False
        self._reserve.left -= more
        self._borrowed += more
        self.total = total
        return True
