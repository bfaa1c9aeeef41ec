"""Each user's use of the quotas, and the room that is left: for sessions, and for stored bytes.

The store counts. To ask it for every message would cost too much, so its answer is used for FRESH_SECONDS, and bytes
written here since then are added at once. For that long the count may be wrong where another gateway writes, or
retention removes records. A user whose use is not known yet, in the moment after the first message, is refused nothing.
Sessions that are being created count, so that many at once do not pass where one may.

Sessions of the services (NO_USER) are not counted: a service may name any user, so no user's limits could hold it.

Bounds: USERS that are remembered; beyond that the longest known is dropped and asked about again.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import structlog

from gateway.protocol.errors import ApiError
from persistence.errors import StoreUnavailable
from persistence.record import NO_USER, Usage

log = structlog.get_logger()

FRESH_SECONDS = 10.0
USERS = 10_000
RETRY_SECONDS = 60.0
UNLIMITED = 1 << 60
ADVICE = "remove files, or delete sessions with their conversations (DELETE with purge=1)"
SESSIONS, STORED = "HOLDFAST_MAX_SESSIONS_PER_USER", "HOLDFAST_MAX_STORED_PER_USER"


@dataclass(frozen=True, slots=True)
class UserLimits:
    sessions: int = 1_000_000_000
    stored: int = UNLIMITED


@dataclass(slots=True)
class _Known:
    bytes: int  # as the store said
    since: int  # written here since then
    at: float
    usage: Usage | None = None
    asking: bool = False


class Quota:
    """`ask` returns the store's count."""

    def __init__(self, ask: Callable[[str], Awaitable[Usage]], limits: UserLimits | None = None) -> None:
        self.limits = limits or UserLimits()
        self._ask = ask
        self._known: dict[str, _Known] = {}
        self._reserved: Counter[str] = Counter()
        self._made: Counter[str] = Counter()  # for users with reservations: sessions made since the count was asked for

    @asynccontextmanager
    async def session(self, user: str, *, stores: bool = False) -> AsyncIterator[None]:
        """Hold room for one more session, while it is created; and for files if it `stores` some. Raises ApiError 429,
        StoreUnavailable."""
        if user == NO_USER:
            yield
            return
        self._reserved[user] += 1
        try:
            most, made = self.limits.sessions, self._made[user]
            usage = await self.usage(user)
            made = self._made[user] - made  # while the store counted: in its count or not
            if stores and usage.record_bytes + usage.snapshot_bytes >= self.limits.stored:
                told = self._words(usage.record_bytes + usage.snapshot_bytes)
                raise ApiError(429, "stored_too_much", told, retry_after=RETRY_SECONDS)
            if usage.sessions + made + self._reserved[user] > most:
                told = (
                    f"this user has {most} sessions, archived ones included, and may have no more ({SESSIONS}): "
                    "delete one with its conversation (DELETE with purge=1)"
                )
                raise ApiError(429, "too_many_sessions", told, retry_after=RETRY_SECONDS)
            yield
            self._made[user] += 1
        finally:
            self._reserved[user] -= 1
            if not self._reserved[user]:
                del self._reserved[user], self._made[user]

    async def usage(self, user: str) -> Usage:
        """The user's use, as the store counts it now. Raises StoreUnavailable."""
        before = self._known.get(user)
        written = 0 if before is None else before.since
        usage = await self._ask(user)
        known = self._known.pop(user, None)
        # The count may or may not contain bytes that were written meanwhile: they are added.
        since = 0 if known is None else max(0, known.since - written)
        now = asyncio.get_running_loop().time()
        self._known[user] = _Known(usage.record_bytes + usage.snapshot_bytes, since, now, usage)
        while len(self._known) > USERS:
            del self._known[next(iter(self._known))]
        return usage

    async def recent(self, user: str) -> Usage:
        """The same, at most FRESH_SECONDS old."""
        known = self._known.get(user)
        fresh = known is not None and asyncio.get_running_loop().time() < known.at + FRESH_SECONDS
        return known.usage if known is not None and known.usage is not None and fresh else await self.usage(user)

    def grew(self, user: str, size: int) -> None:
        """So many more bytes are on their way to the store."""
        if (known := self._known.get(user)) is not None:
            known.since += size

    def full(self, user: str, spawn: Callable[[Coroutine[Any, Any, None], str], None]) -> str | None:
        """The reason why the user may store no more; None if they may. `spawn` owns the task that asks the store."""
        if user == NO_USER:
            return None
        known = self._known.get(user)
        now = asyncio.get_running_loop().time()
        if known is None:
            known = self._known[user] = _Known(0, 0, now - 2 * FRESH_SECONDS)
        if now >= known.at + FRESH_SECONDS and not known.asking:
            known.asking = True
            spawn(self._look(user, known), f"usage of {user}")
        used = known.bytes + known.since
        return self._words(used) if used >= self.limits.stored else None

    async def allowance(self, user: str, own: int) -> tuple[int, str]:
        """The most bytes for a workspace that had `own` bytes in its last snapshot, and the error text for a larger
        one. Raises StoreUnavailable."""
        if user == NO_USER:
            return UNLIMITED, ""
        usage = await self.usage(user)
        used, most = usage.record_bytes + usage.snapshot_bytes, self.limits.stored
        room = max(0, most - (used - own))
        told = (
            f"this workspace needs more than the {room:,} bytes left for it: its user may store {most:,} bytes "
            f"({STORED}) and has stored {used:,}, of which {own:,} are the last snapshot of this workspace; {ADVICE}"
        )
        return room, told

    def _words(self, used: int) -> str:
        return f"this user has stored {used:,} bytes and may store {self.limits.stored:,} ({STORED}): {ADVICE}"

    async def _look(self, user: str, known: _Known) -> None:
        try:
            await self.usage(user)
        except StoreUnavailable as error:
            log.info("quota.unknown", cause=str(error))
            known.at = asyncio.get_running_loop().time()
        finally:
            known.asking = False
