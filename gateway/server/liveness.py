"""Checks that a peer lives, reads, and does not ping too often. Pure: the time is an argument."""

from gateway.protocol.close_codes import CloseCode
from gateway.server.front_door import GuardLimits
from sandbox.protocol.websocket_frames import FrameError

ALIVE, PING, DEAD, SLOW = "alive", "ping", "dead", "slow"


class Liveness:
    """Liveness of one connection. Silence counts only while the connection is read; slowness counts only while the peer
    takes nothing at all. A peer that neither reads nor sends is slow, and gets that as its close reason if it ever
    reads again.

    `heard_at` is when the peer last sent something, or was read again after a while. The reader sets it, at every read.
    """

    __slots__ = ("_asked", "_pings", "_pings_since", "_stalled_at", "_unsent", "heard_at")

    def __init__(self, now: float) -> None:
        self.heard_at = self._pings_since = now
        self._asked: float | None = None  # silent since then when it was pinged
        self._stalled_at: float | None = None
        self._unsent = 0
        self._pings = 0

    @property
    def stalled(self) -> bool:
        """True if the peer must take earlier bytes before more are written."""
        return self._stalled_at is not None

    def forgive(self, seconds: float) -> None:
        """The connection was neither read nor written to for so long: that is not the peer's silence."""
        if self._asked == self.heard_at:
            self._asked += seconds
        self.heard_at += seconds
        if self._stalled_at is not None:
            self._stalled_at += seconds

    def pinged(self, limits: GuardLimits) -> None:
        """The peer pings us, or answers. Raises FrameError if it does so too often."""
        self._pings += 1
        if self._pings > limits.pings:
            if self.heard_at - self._pings_since < limits.ping_window:
                raise FrameError(CloseCode.TOO_MANY, "too many pings")
            self._pings, self._pings_since = 0, self.heard_at

    def stall(self, now: float, unsent: int) -> None:
        """`unsent` bytes wait for the peer."""
        self._stalled_at, self._unsent = now, unsent

    def flow(self) -> None:
        """The peer has taken them, or nearly all."""
        self._stalled_at = None

    def verdict(self, now: float, limits: GuardLimits, *, read: bool, unsent: int) -> str:
        """The action that is due now. A silent peer gets one `PING` before it is `DEAD`."""
        silence = now - self.heard_at if read else 0.0
        if self._stalled_at is not None:
            if unsent < self._unsent:  # slow, but it reads
                self._stalled_at, self._unsent = now, unsent
            # A ping waits behind the unsent bytes, so its silence counts only as long as it takes nothing.
            stuck = now - self._stalled_at
            if stuck >= limits.stall_seconds or min(stuck, silence) >= limits.dead_after:
                return SLOW
        elif silence >= limits.dead_after:
            return DEAD
        if silence >= limits.ping_after and self._asked != self.heard_at:
            self._asked = self.heard_at
            return PING
        return ALIVE
