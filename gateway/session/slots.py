"""How many sessions may do the same thing at once."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from gateway.limits.fair import FairQueue


class Slots:
    """How much may happen at once: at most half of it for one user, and the users take turns."""

    def __init__(self, most: int) -> None:
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue(most, max(1, most // 2))

    @contextlib.asynccontextmanager
    async def of(self, user_id: str) -> AsyncIterator[None]:
        """One of them, when it is the user's turn."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.ask(turn, user_id)
        self._begin()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._queue.leave(turn)
            else:  # it came at the same time
                self._end(turn)
            raise
        try:
            yield
        finally:
            self._end(turn)

    def _end(self, turn: "asyncio.Future[None]") -> None:
        self._queue.over(turn)
        self._begin()

    def _begin(self) -> None:
        while (begun := self._queue.next()) is not None:
            begun[0].set_result(None)
