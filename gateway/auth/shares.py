"""The live shares of a session. Pure: time and stamps are arguments.

A share is numbered, and no number is given twice. Its token carries the number and a random stamp; it opens the session
while the session lists both. So a share ends when it is taken back and when its session ends: a later session of the
same id counts from the beginning, and has none of the old stamps. Members that a newer version has stored are kept.
"""

from dataclasses import dataclass, replace
from typing import Any

from gateway.protocol.stored_members import Unknown, arguments

MOST = 100  # live ones; each takes at most some 400 bytes of the stored session
LONGEST_LABEL = 64  # characters


@dataclass(frozen=True, slots=True)
class ShareKey:
    """The share's number and stamp in a token."""

    number: int
    stamp: str


@dataclass(frozen=True, slots=True)
class Share:
    number: int
    stamp: str
    created_at: float  # seconds since 1970
    expires_at: float
    label: str = ""
    _unknown: Unknown = None

    @property
    def key(self) -> ShareKey:
        return ShareKey(self.number, self.stamp)


@dataclass(frozen=True, slots=True)
class Shares:
    made: int = 0  # how many there were in all: the newest number
    listed: tuple[Share, ...] = ()  # by number; expired ones stay until another is made
    _unknown: Unknown = None

    def add(self, stamp: str, label: str, *, now: float, expires_at: float) -> "Shares | None":
        """Add one, as the last of `listed`. None if MOST are live already."""
        live = self.live(now)
        if len(live) >= MOST:
            return None
        made = self.made + 1
        return replace(self, made=made, listed=(*live, Share(made, stamp, now, expires_at, label)))

    def live(self, now: float) -> tuple[Share, ...]:
        return tuple(share for share in self.listed if share.expires_at > now)

    def find(self, number: int) -> Share | None:
        return next((share for share in self.listed if share.number == number), None)

    def opens(self, key: ShareKey) -> bool:
        """True if the share is listed. The token itself carries the time when it expires."""
        return any(share.key == key for share in self.listed)

    def without(self, number: int) -> "Shares":
        return replace(self, listed=tuple(share for share in self.listed if share.number != number))

    def ended(self) -> "Shares":
        """End all; the next one gets the next number."""
        return replace(self, listed=())

    @classmethod
    def read(cls, members: dict[str, Any]) -> "Shares":
        """Read the form stored in the session's spec."""
        listed = tuple(Share(**arguments(Share, each)) for each in members["listed"])
        return cls(**arguments(cls, {**members, "listed": listed}))
