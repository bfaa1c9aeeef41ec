"""Creates a session's shares and takes them back. A change holds at once, and its request is answered when it is
durable. Each change is a command: it goes through the session's inbox, and changes the spec in the session's task.
"""

import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from gateway.auth.shares import MOST, Share, Shares
from gateway.protocol.errors import ApiError
from gateway.session.asks import Asks
from gateway.session.conversation.log import SessionLog
from gateway.session.guests import Guests
from gateway.session.model.ports import Tasks
from gateway.session.model.state import SessionStatus
from gateway.session.sandbox.lifecycle.commands import ARCHIVED
from gateway.session.sandbox.requests import api_error


class Sharing:
    __slots__ = ("_asks", "_durable", "_guests", "_log", "_tasks")

    def __init__(
        self,
        log: SessionLog,
        guests: Guests,
        asks: Asks,
        tasks: Tasks,
        durable: Callable[[], Awaitable[Any]],
    ) -> None:
        """`durable` waits until every change made so far is durable. It raises ApiError."""
        self._log = log
        self._guests = guests
        self._asks = asks
        self._tasks = tasks
        self._durable = durable

    async def add(self, label: str, *, now: float, expires_at: float) -> Share:
        """Create a share. Raises ApiError, also if there are too many, or if the session is archived."""
        stamp = secrets.token_urlsafe(12)
        self._tasks.hide(stamp)
        share: Share = await self._asks.have(self._tasks.post, self._add, stamp, label, now, expires_at)
        await self._durable()
        return share

    async def take_back(self, number: int) -> Share | None:
        """Take a share back and return it; None if there is none of that number. Raises ApiError."""
        share: Share | None = await self._asks.have(self._tasks.post, self._take_back, number)
        if share is not None:
            await self._durable()
        return share

    async def end_all(self) -> None:
        """The session ends, and all its shares with it. Raises ApiError."""
        if await self._asks.have(self._tasks.post, self._end_all):
            await self._durable()

    # -- in the session's task ----------------------------------------------------------------------------------------

    def _add(self, ask: int, stamp: str, label: str, now: float, expires_at: float) -> None:
        if self._log.state.status is SessionStatus.ARCHIVED:
            self._asks.refuse(ask, api_error(*ARCHIVED))
            return
        shares = self._log.spec.shares.add(stamp, label, now=now, expires_at=expires_at)
        if shares is None:
            told = f"a session has at most {MOST} live shares: take one back first"
            self._asks.refuse(ask, ApiError(409, "too_many_shares", told))
            return
        self._keep(shares)
        self._asks.answer(ask, shares.listed[-1])

    def _take_back(self, ask: int, number: int) -> None:
        share = self._log.spec.shares.find(number)
        if share is not None:
            self._keep(self._log.spec.shares.without(number))
        self._asks.answer(ask, share)

    def _end_all(self, ask: int) -> None:
        any_listed = bool(self._log.spec.shares.listed)
        if any_listed:
            self._keep(self._log.spec.shares.ended())
        self._asks.answer(ask, any_listed)

    def _keep(self, shares: Shares) -> None:
        self._log.save_spec(shares=shares)
        self._guests.show_out({share.number for share in shares.listed})
