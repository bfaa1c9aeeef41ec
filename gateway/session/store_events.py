"""What the store tells of its own accord, passed on: readers who follow a session are woken, its actor is told what
became of its records.

A follower holds one flag and no records: told twice before it looks, it looks once. So a session that grows fast costs
a slow reader nothing, and whoever goes away leaves nothing behind. A wake is a hint: it may come too often, and from
another process not at all; a follower looks now and then without one.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from persistence.record import Outcome

Settled = Callable[[str, int, Outcome], None]


class Follower:
    """Somebody who waits for a session to grow. Look, then `wait`: what came in between ends the wait at once."""

    def __init__(self) -> None:
        self._woken = asyncio.Event()

    def wake(self) -> None:
        self._woken.set()

    async def wait(self, seconds: float) -> bool:
        """Wait for a wake since the last wait ended, at most so long; whether there was one."""
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return False
        self._woken.clear()
        return True


class StoreEvents:
    """The store's `StoreListener`. `on_settled` is set once there is somebody who wants to know."""

    def __init__(self) -> None:
        self.on_settled: Settled | None = None
        self._leaving = False
        self._followers: dict[str, set[Follower]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._followers.values()))

    def grown(self, session_id: str) -> None:
        for follower in self._followers.get(session_id, ()):
            follower.wake()

    def settled(self, session_id: str, seq: int, outcome: Outcome) -> None:
        if self.on_settled is not None:
            self.on_settled(session_id, seq, outcome)

    def leave(self) -> None:
        """The gateway drains: every follower wakes and finds that it does."""
        self._leaving = True
        for followers in self._followers.values():
            for follower in followers:
                follower.wake()

    def is_leaving(self) -> bool:
        return self._leaving

    @contextmanager
    def follow(self, session_id: str) -> Iterator[Follower]:
        follower = Follower()
        self._followers.setdefault(session_id, set()).add(follower)
        try:
            yield follower
        finally:
            followers = self._followers[session_id]
            followers.discard(follower)
            if not followers:
                del self._followers[session_id]
