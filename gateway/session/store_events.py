"""Passes the store's own events on: wakes readers that follow a session, and gives its actor the outcomes of its
records.

A follower holds one flag and no records: woken twice before it looks, it looks once. So a fast-growing session costs a
slow reader nothing, and a reader that goes away leaves nothing behind. A wake is a hint: it may come too often, and
growth in another process wakes no follower here; a follower also looks now and then without one.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from persistence.record import Outcome

Settled = Callable[[str, int, Outcome], None]


class Follower:
    """Waits for a session to grow. Look, then `wait`: growth in between ends the wait at once."""

    def __init__(self) -> None:
        self._woken = asyncio.Event()

    def wake(self) -> None:
        self._woken.set()

    async def wait(self, seconds: float) -> bool:
        """Wait at most so long for a wake since the last wait ended; return whether there was one."""
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return False
        self._woken.clear()
        return True


class StoreEvents:
    """The store's `StoreListener`. `on_settled` is set by the part that wants the outcomes."""

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
        """The gateway drains: wake every follower, which then finds `is_leaving`."""
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
