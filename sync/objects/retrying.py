"""Any object store, asked with patience and in moderation: a bounded number of requests at once, a few attempts each,
and never so many retries that they become the load they try to overcome (retry_budget.py).

Reads, deletes and plain writes are simply repeated. A conditional write whose answer was lost is repeated, too: if
the first one did not happen, this one decides. If the answer is a conflict, that may be with our own first write. So
the object is read: if it is exactly what we wrote, we wrote it. Writers that must not be mistaken for each other put
something of their own, such as a name, into the content.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from itertools import count
from random import Random
from types import TracebackType
from typing import Self, TypeVar

from sync.backoff import delay
from sync.objects.retry_budget import RetryBudget
from sync.ports import Conflict, Found, Got, ObjectsRefused, ObjectStore, ObjectsUnavailable, TooManyRequests

T = TypeVar("T")
THROTTLED_SECONDS = 1.1  # R2 takes one write a second to one key; a little more, for the way there
_PAGE = 1000  # names in one answer of a server


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """`attempts` of one operation, the first included. `base_seconds` and `cap_seconds` bound the pauses between
    them; after TooManyRequests a pause is `throttled_seconds` longer."""

    at_once: int = 16
    attempts: int = 8
    base_seconds: float = 0.1
    cap_seconds: float = 5.0
    throttled_seconds: float = THROTTLED_SECONDS


class RetryingObjects:
    """`requests` made, `retries` among them and `sent_bytes` of content only grow; they are for metrics."""

    def __init__(self, inner: ObjectStore, limits: RequestLimits, rng: Random) -> None:
        self._inner = inner
        self._limits = limits
        self._rng = rng
        self._budget = RetryBudget()
        self._slots = asyncio.Semaphore(limits.at_once)  # full: the next one waits its turn
        self.requests = 0
        self.retries = 0
        self.sent_bytes = 0

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._inner.__aexit__(kind, error, trace)

    @property
    def bare(self) -> ObjectStore:
        """The same store, with the same bound on requests at once, but without retries. Its requests are not counted
        here."""
        bare = RetryingObjects(self._inner, replace(self._limits, attempts=1), self._rng)
        bare._slots = self._slots
        return bare

    async def put(self, key: str, content: bytes) -> str:
        return await self._persist(lambda: self._inner.put(key, content), len(content))

    async def create(self, key: str, content: bytes) -> str:
        return await self._decide(key, content, lambda: self._inner.create(key, content))

    async def replace(self, key: str, content: bytes, etag: str) -> str:
        return await self._decide(key, content, lambda: self._inner.replace(key, content, etag))

    async def get(self, key: str) -> Got | None:
        return await self._persist(lambda: self._inner.get(key))

    async def get_range(self, key: str, start: int, length: int) -> bytes | None:
        return await self._persist(lambda: self._inner.get_range(key, start, length))

    async def head(self, key: str) -> Found | None:
        return await self._persist(lambda: self._inner.head(key))

    async def delete(self, key: str) -> None:
        await self._persist(lambda: self._inner.delete(key))

    async def list(self, prefix: str) -> AsyncIterator[Found]:
        """Starts again after a failure, and does not repeat what it has returned. It takes no slot: its reader may
        make requests meanwhile."""
        told: set[str] = set()
        for attempt in count():
            try:
                self.requests += 1
                async for found in self._inner.list(prefix):
                    if found.key not in told:
                        told.add(found.key)
                        self.requests += len(told) % _PAGE == 0
                        yield found
            except ObjectsUnavailable as error:
                if not self._may_retry(attempt):
                    raise
                await self._rest(attempt, error)
            else:
                self._budget.answered()
                return

    async def _decide(self, key: str, content: bytes, write: Callable[[], Awaitable[str]]) -> str:
        unsure = False

        async def once() -> str:
            nonlocal unsure
            try:
                return await write()
            except ObjectsUnavailable:
                unsure = True
                raise

        try:
            return await self._persist(once, len(content))
        except Conflict:
            there = await self.get(key) if unsure else None
            if there is None or there.content != content:
                raise
            return there.etag

    async def _persist(self, operation: Callable[[], Awaitable[T]], size: int = 0) -> T:
        """Repeat it until there is an answer. Conflict and ObjectsRefused are answers."""
        for attempt in count():
            try:
                async with self._slots:
                    self.requests += 1
                    self.sent_bytes += size
                    result = await operation()
            except ObjectsUnavailable as error:
                if not self._may_retry(attempt):
                    raise
                await self._rest(attempt, error)
            except (Conflict, ObjectsRefused):
                self._budget.answered()
                raise
            else:
                self._budget.answered()
                return result
        raise AssertionError("counting has no end")

    def _may_retry(self, attempt: int) -> bool:
        return attempt + 1 < self._limits.attempts and self._budget.take()

    async def _rest(self, attempt: int, error: ObjectsUnavailable) -> None:
        self.retries += 1
        limits = self._limits
        least = limits.throttled_seconds if isinstance(error, TooManyRequests) else 0.0
        await asyncio.sleep(least + delay(attempt, base=limits.base_seconds, cap=limits.cap_seconds, rng=self._rng))
