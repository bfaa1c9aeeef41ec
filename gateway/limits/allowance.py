"""One user's share of the resources that all users' sockets share: the loop's time, and memory. Pure: the time is an
argument.

In one turn of the loop a user's frames have a maximum weight, over all of the user's sockets; the rest waits for the
next turn. So a turn stays short for all others, however much a user sends on however many sockets. A frame that weighs
more than is left is handled all the same, and its user goes without for some turns; they pass quickly if no one else
sends. Over the seconds there are two budgets, of frames and of bytes. A user who has overspent is not read until the
debt is paid: TCP pushes back, nothing is dropped.

Two things take memory here, each with a bound for all of a user's sockets together: input that `waits` for a turn
(above the bound none of them is read), and output that peers do not read (the `stalled` sockets divide the bound; one
that leaves more unread is too slow). gateway/limits/inbound_bytes.py bounds unfinished messages.
"""

from dataclasses import dataclass

from gateway.limits.rate import Budget

FRAMES_A_TURN = 32  # of one socket, by weight
TURN = 128  # of one user, by weight
LOW = TURN // 2  # at this rest, the next turn has to come
WEIGHED = 9  # bits: a frame weighs 1, and 1 more for each 512 bytes of it
READ = 13  # bits: a read weighs 1 for each 8 KiB, whole frames or not
SIZABLE = 1 << READ  # bytes; a smaller read weighs nothing
SMALL_BYTES = 64 << 10  # each socket may hold this many uncounted
WAITING_BYTES = 4 << 20
UNSENT_BYTES = 8 << 20
_SETTLED_FRAMES, _SETTLED_BYTES = 64, 256 << 10  # less than this is not worth a check of the budgets


@dataclass(slots=True)
class Throttled:
    """How often users had to wait because they had overspent, and for how long in all."""

    times: int = 0
    seconds: float = 0.0


class Allowance:
    """The allowance of one user. A shell calls `begin` before the first frame of each turn, takes from `left`, and adds
    to `frames` and `bytes`; these are plain members because they are touched for every read."""

    __slots__ = (
        "_budget_bytes",
        "_budget_frames",
        "_paid_at",
        "_throttled",
        "bytes",
        "frames",
        "left",
        "stalled",
        "waiting",
    )

    def __init__(self, frames: Budget, bytes: Budget, throttled: Throttled) -> None:
        self._budget_frames = frames
        self._budget_bytes = bytes
        self._throttled = throttled
        self._paid_at = 0.0
        self.left = 0  # of this turn
        self.frames = self.bytes = 0  # taken, and not settled yet
        self.waiting = 0  # bytes
        self.stalled = 0  # sockets

    def begin(self, now: float) -> None:
        """A turn begins."""
        if self.frames >= _SETTLED_FRAMES or self.bytes >= _SETTLED_BYTES:
            self._settle(now)
        if now >= self._paid_at:
            left = self.left + TURN
            self.left = left if left < TURN else TURN
        elif self.left > 0:
            self.left = 0

    def _settle(self, now: float) -> None:
        owed = max(self._budget_frames.spend(self.frames, now), self._budget_bytes.spend(self.bytes, now))
        self.frames = self.bytes = 0
        if owed > 0:
            self._throttled.times += 1
            self._throttled.seconds += now + owed - max(now, self._paid_at)
            self._paid_at = now + owed

    def owes(self, now: float) -> float:
        """Seconds until the user may take more."""
        return max(0.0, self._paid_at - now)

    @property
    def overfull(self) -> bool:
        """True if too much input waits for a turn to read more."""
        return self.waiting > WAITING_BYTES

    @property
    def drained(self) -> bool:
        """True if so little waits that reading may go on."""
        return self.waiting <= WAITING_BYTES // 2

    @property
    def room(self) -> int:
        """The bytes that a peer that does not read may leave unsent."""
        return max(SMALL_BYTES, UNSENT_BYTES // max(1, self.stalled))
