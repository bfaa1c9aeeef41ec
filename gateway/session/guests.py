"""Who is in a session by a share, and how shares are made and taken back.

Every socket that came by a share is known here by the share's number, so taking one back closes its sockets without a
look at any other. What is changed holds at once for whoever asks, and is answered when it is durable.
"""

import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from gateway.auth.shares import MOST, Share, ShareKey, Shares
from gateway.protocol.errors import ApiError
from gateway.session.conversation.log import SessionLog


class Guest(Protocol):
    """A connection that came by a share."""

    def taken_back(self) -> None:
        """Its share has ended: it must be gone within 5 s, whatever its peer does."""
        ...


class Guests:
    __slots__ = ("_durable", "_inside", "_log")

    def __init__(self, log: SessionLog, durable: Callable[[], Awaitable[Any]]) -> None:
        """`durable` waits until everything that was changed so far is durable. It raises ApiError."""
        self._log = log
        self._durable = durable
        self._inside: dict[int, set[Guest]] = {}

    def enter(self, guest: Guest, key: ShareKey) -> bool:
        """Let it in until it leaves or its share is taken back. False if the share has ended."""
        if not self._log.spec.shares.opens(key):
            return False
        self._inside.setdefault(key.number, set()).add(guest)
        return True

    def leave(self, guest: Guest, key: ShareKey) -> None:
        inside = self._inside.get(key.number, set())
        inside.discard(guest)
        if not inside:
            self._inside.pop(key.number, None)

    async def add(self, label: str, *, now: float, expires_at: float) -> Share:
        """Raises ApiError, also if there are too many."""
        shares = self._log.spec.shares.add(secrets.token_urlsafe(12), label, now=now, expires_at=expires_at)
        if shares is None:
            raise ApiError(409, "too_many_shares", f"a session has at most {MOST} live shares: take one back first")
        await self._keep(shares)
        return shares.listed[-1]

    async def take_back(self, number: int) -> Share | None:
        """The share that was taken back; None if there is none of that number. Raises ApiError."""
        share = self._log.spec.shares.find(number)
        if share is not None:
            await self._keep(self._log.spec.shares.without(number))
        return share

    async def end_all(self) -> None:
        """The session ends, and all its shares with it. Raises ApiError."""
        if self._log.spec.shares.listed:
            await self._keep(self._log.spec.shares.ended())

    async def _keep(self, shares: Shares) -> None:
        self._log.save_spec(shares=shares)
        left = {share.number for share in shares.listed}
        for number in [number for number in self._inside if number not in left]:
            for guest in self._inside.pop(number):
                guest.taken_back()
        await self._durable()
