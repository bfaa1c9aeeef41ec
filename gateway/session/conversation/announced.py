"""Which agent process a bridge speaks of. Pure.

A bridge says `hello` with the newest process it has had, and whether that runs. Then it repeats what was not confirmed,
of earlier processes too. So a process that is announced may have ended long ago: it *lives* if it is the newest of the
hello and ran then, or if it was begun after it. An exit that is still to come is *due*: nobody knows yet how that
process ended, and with what open.
"""


class Announced:
    __slots__ = ("_alive", "_newest", "exit_due")

    def __init__(self) -> None:
        self._newest: str | None = None  # the newest process at `hello`, until it is announced
        self._alive = False
        self.exit_due: str | None = None  # the newest process at `hello`, if it has ended and its exit is to come

    def hello(self, epoch: str | None, *, alive: bool, known: bool) -> None:
        """`epoch` is the bridge's newest process; `known`: it is known here to have ended."""
        self._newest, self._alive = epoch, alive
        self.exit_due = None if alive or known else epoch

    def lives(self, epoch: str) -> bool:
        """Whether a process that is announced now may be given lines."""
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
