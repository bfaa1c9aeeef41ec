"""A bound on how many sessions do the same thing at once, fair between users."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from gateway.limits.fair_queue import FairQueue


class FairSemaphore:
    """A number of slots. One user may hold at most half of them, and the users take turns. As many more may be parked:
    their work has begun, and waits without a slot."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue(most, max(1, most // 2))
        self._parked: set[Slot] = set()

    @contextlib.asynccontextmanager
    async def of(self, user_id: str) -> AsyncIterator["Slot"]:
        """Hold a slot, once it is the user's turn."""
        slot = Slot(self, user_id)
        await slot.take()
        try:
            yield slot
        finally:
            slot.leave()

    def ask(self, turn: "asyncio.Future[None]", user_id: str) -> None:
        self._queue.ask(turn, user_id)
        self._begin()

    def leave(self, turn: "asyncio.Future[None]") -> None:
        self._queue.leave(turn)

    def end(self, turn: "asyncio.Future[None]") -> None:
        self._queue.over(turn)
        self._begin()

    def park(self, slot: "Slot") -> bool:
        if len(self._parked) >= self._most:
            return False
        self._parked.add(slot)
        return True

    def unpark(self, slot: "Slot") -> None:
        self._parked.discard(slot)

    def _begin(self) -> None:
        while (begun := self._queue.next()) is not None:
            if begun[0].cancelled():  # in this turn of the loop: it has not left yet
                self._queue.over(begun[0])
            else:
                begun[0].set_result(None)


class Slot:
    """One session's place, with or without a slot."""

    def __init__(self, slots: FairSemaphore, user_id: str) -> None:
        self._slots = slots
        self._user_id = user_id
        self._turn: asyncio.Future[None] | None = None  # None: it holds no slot

    async def take(self) -> None:
        """Wait for a slot, also after it was parked."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._slots.ask(turn, self._user_id)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._slots.leave(turn)
            else:  # it came at the same time
                self._slots.end(turn)
            raise
        self._turn = turn
        self._slots.unpark(self)

    def park(self) -> bool:
        """Give the slot to others until `take`; False if too many are parked already."""
        if not self._slots.park(self):
            return False
        self._end()
        return True

    def leave(self) -> None:
        self._slots.unpark(self)
        self._end()

    def _end(self) -> None:
        if self._turn is not None:
            self._slots.end(self._turn)
            self._turn = None
