"""The sockets that came in by a share.

They are kept by the share's number, so taking one share back closes its sockets without a look at any other.
"""

from collections.abc import Collection
from typing import Protocol

from gateway.auth.shares import ShareKey
from gateway.session.conversation.log import SessionLog


class Guest(Protocol):
    """A connection that came by a share."""

    def taken_back(self) -> None:
        """The guest's share has ended: its connection must be gone within 5 s, whatever its peer does."""
        ...


class Guests:
    __slots__ = ("_inside", "_log")

    def __init__(self, log: SessionLog) -> None:
        self._log = log
        self._inside: dict[int, set[Guest]] | None = None  # by number; few sessions have any

    def enter(self, guest: Guest, key: ShareKey) -> bool:
        """Admit a guest until it leaves or its share is taken back. False if the share has ended."""
        if not self._log.spec.shares.opens(key):
            return False
        self._inside = self._inside or {}
        self._inside.setdefault(key.number, set()).add(guest)
        return True

    def leave(self, guest: Guest, key: ShareKey) -> None:
        inside = (self._inside or {}).get(key.number, set())
        inside.discard(guest)
        if self._inside is not None and not inside:
            self._inside.pop(key.number, None)
            self._inside = self._inside or None

    def show_out(self, live: Collection[int]) -> None:
        """Close every guest whose share is not in `live`."""
        for number in [number for number in self._inside or () if number not in live]:
            for guest in (self._inside or {}).pop(number):
                guest.taken_back()
        self._inside = self._inside or None
