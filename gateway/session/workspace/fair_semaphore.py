"""How many sessions may do the same thing at once."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from gateway.limits.fair_queue import FairQueue


class FairSemaphore:
    """How much may happen at once: at most half of it for one user, and the users take turns. As many again may be
    parked: begun, and waiting for something that does not come."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue(most, max(1, most // 2))
        self._parked: set[Slot] = set()

    @contextlib.asynccontextmanager
    async def of(self, user_id: str) -> AsyncIterator["Slot"]:
        """One of them, when it is the user's turn."""
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
    """Somebody's place among those that are at it."""

    def __init__(self, slots: FairSemaphore, user_id: str) -> None:
        self._slots = slots
        self._user_id = user_id
        self._turn: asyncio.Future[None] | None = None  # None: it has none

    async def take(self) -> None:
        """Wait for its turn, also after it was parked."""
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
        """Let others have it until `take`; False if too many have done so."""
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
