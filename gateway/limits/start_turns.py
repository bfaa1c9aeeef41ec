"""Waiting for a turn to start a sandbox: the shell around start_queue.py.

A session that had to wait goes on with a jitter, so that freed capacity is not used all at once. A turn that takes long
is counted as over after a while: a slow clone or a bridge that does not answer must not delay others.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Any

from gateway.limits.start_queue import Full, StartLimits, StartQueue
from gateway.protocol.errors import ApiError

JITTER_SECONDS = 0.3
TURN_SECONDS = 15.0
TELL_SECONDS = 0.5
TOLD_A_TURN = 50
FREED_SECONDS = 5.0  # when to ask again for a place: an estimate, because the end of a sandbox cannot be foreseen


@dataclass(frozen=True, slots=True)
class Waiting:
    """A session's place in the queue. `full`: it waits for a place, not only for its turn."""

    position: int
    full: Full | None

    def members(self) -> dict[str, Any]:
        return {"position": self.position, "reason": None if self.full is None else str(self.full)}


class _Waiter:
    __slots__ = ("begun", "told", "user", "waiting")

    def __init__(self, user: str, begun: "asyncio.Future[bool]", told: Callable[[Waiting], None]) -> None:
        self.user = user
        self.begun = begun
        self.told = told
        self.waiting: Waiting | None = None


class StartTurns:
    def __init__(self, limits: StartLimits | None = None, rng: Random | None = None) -> None:
        self._queue = StartQueue(limits or StartLimits(at_once=1_000_000, at_once_per_user=1_000_000))
        self._rng = rng or Random()
        self._waiters: dict[str, _Waiter] = {}
        self._teller: asyncio.Handle | None = None
        self._moved = False  # since the last report

    @asynccontextmanager
    async def turn(
        self, key: str, user: str, *, runs: bool, placed: Callable[[], bool], told: Callable[[Waiting], None]
    ) -> AsyncIterator[Callable[[], None] | None]:
        """Wait for a turn and hold it. Yields the function that ends it before the block does, or None if it was given
        up. A session asks for one turn at a time; if it asks again before an earlier failed turn has ended, the earlier
        one is over. `runs`: the sandbox runs, and is only to be found; `placed` returns whether it keeps its place
        afterwards; `told` gets the session's place in the queue while it waits."""
        loop = asyncio.get_running_loop()
        if key in self._waiters:
            self.give_up(key)
            self._queue.over(key)
        waiter = self._waiters[key] = _Waiter(user, loop.create_future(), told)
        timer: asyncio.TimerHandle | None = None
        try:
            self._queue.ask(key, user, runs=runs)
            self._go_on()
            if not waiter.begun.done():
                self._tell_one(waiter, self._queue.position(key) or 1)
                self._tell_soon()
                if await waiter.begun:
                    await asyncio.sleep(self._rng.uniform(0, JITTER_SECONDS))
            timer = loop.call_later(TURN_SECONDS, self._over, key, waiter)
            yield (lambda: self._over(key, waiter)) if waiter.begun.result() else None
        finally:
            if timer is not None:
                timer.cancel()
            if self._waiters.get(key) is waiter:
                del self._waiters[key]
                self._queue.leave(key)
                self._queue.over(key)
                self.note(key, user, placed())
                self._go_on()

    def give_up(self, key: str) -> None:
        """The session is not to be started after all, if it still waits."""
        waiter = self._waiters.get(key)
        if waiter is not None and not waiter.begun.done():
            self._queue.leave(key)
            waiter.begun.set_result(False)
            self._tell_soon()

    def note(self, key: str, user: str, placed: bool) -> None:
        """Note whether its sandbox has a place: it runs, or is about to."""
        if placed:
            self._queue.runs(key, user)
        elif not self._queue.is_under_way(key) and self._queue.stopped(key):
            self._go_on()

    def waits(self, key: str) -> bool:
        return key in self._waiters and self._queue.waits(key)

    def waiting(self, key: str) -> Waiting | None:
        waiter = self._waiters.get(key)
        position = None if waiter is None else self._queue.position(key)
        return None if waiter is None or position is None else Waiting(position, self._queue.full(waiter.user))

    def refuse_if_full(self, user: str, own: Collection[str] = ()) -> None:
        """For a caller that answers a request: raises ApiError 429 if a start would have to wait for a place. `own`:
        keys of the same session that wait, or have a place already."""
        if full := self._queue.full(user, counting_waiting=True, own=own):
            raise ApiError(429, "too_many_running", str(full), retry_after=FREED_SECONDS)

    def expect(self, key: str, user: str) -> None:
        """The session will ask for a turn in a moment, or is forgotten: until then it counts as waiting."""
        self._queue.expect(key, user)

    def forget(self, key: str) -> None:
        self._queue.forget(key)

    @property
    def limits(self) -> StartLimits:
        return self._queue.limits

    def running_of(self, user: str) -> int:
        return self._queue.running_of(user)

    def placed(self) -> list[str]:
        """Every key whose sandbox runs, or is about to."""
        return self._queue.placed()

    def stats(self) -> dict[str, float]:
        queue = self._queue
        return {
            "sandboxes_running": float(queue.running),
            "starts_under_way": float(queue.under_way),
            "starts_waiting": float(queue.waiting),
        }

    def _over(self, key: str, waiter: _Waiter) -> None:
        if self._waiters.get(key) is waiter:
            self._queue.over(key)
            self._go_on()

    def _go_on(self) -> None:
        begun = False
        while (key := self._queue.next()) is not None:
            begun = True
            if not (waiter := self._waiters[key]).begun.done():  # else it is on its way out
                waiter.begun.set_result(True)
        if begun:
            self._tell_soon()

    def _tell_soon(self) -> None:
        self._moved = True
        if self._teller is None and self._queue.waiting:
            self._teller = asyncio.get_running_loop().call_later(TELL_SECONDS, self._tell)

    def _tell(self) -> None:
        """Report the place in the queue to each waiting session, if it has changed."""
        self._moved = False
        self._tell_some(iter(list(self._queue.positions())))

    def _tell_some(self, places: Iterator[tuple[str, int]]) -> None:
        """A few of thousands in each turn of the loop, so that other tasks run in between."""
        some = list(islice(places, TOLD_A_TURN))
        for key, position in some:
            if self.waits(key):
                self._tell_one(self._waiters[key], position)
        self._teller = asyncio.get_running_loop().call_soon(self._tell_some, places) if some else None
        if not some and self._moved:
            self._tell_soon()

    def _tell_one(self, waiter: _Waiter, position: int) -> None:
        now = Waiting(position, self._queue.full(waiter.user))
        if now != waiter.waiting:
            waiter.waiting = now
            waiter.told(now)
