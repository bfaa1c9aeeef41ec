"""Tracks which agent process a bridge reports. Pure.

A bridge says `hello` with the newest process it has had, and whether that runs. Then it repeats every unconfirmed
frame, of earlier processes too. So a process that is announced may have ended long ago: it *lives* if it is the newest
of the hello and ran then, or if it was started after the hello. An exit is *due* if the bridge has yet to report it:
until then the gateway does not know how that process ended, and which requests were open.
"""


class Announced:
    __slots__ = ("_alive", "_newest", "exit_due")

    def __init__(self) -> None:
        self._newest: str | None = None  # the newest process at `hello`, until it is announced
        self._alive = False
        self.exit_due: str | None = None  # the newest process at `hello`, if it has ended and its exit is to come

    def hello(self, epoch: str | None, *, alive: bool, known: bool) -> None:
        """`epoch` is the bridge's newest process. `known`: the gateway already knows that this process has ended."""
        self._newest, self._alive = epoch, alive
        self.exit_due = None if alive or known else epoch

    def lives(self, epoch: str) -> bool:
        """True if a process that is announced now may be given lines."""
        if self._newest is None:
            return True
        if epoch != self._newest:
            return False
        self._newest = None
        return self._alive

    def exited(self, epoch: str) -> None:
        if epoch == self.exit_due:
            self.exit_due = None

    def lost(self) -> None:
        """The link is gone; the next one says hello again."""
        self._newest = self.exit_due = None
