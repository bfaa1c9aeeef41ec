"""How many sessions may do the same thing at once."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from gateway.session.turns import Turns


class Slots:
    """How much may happen at once, in the order of gateway/session/turns.py."""

    def __init__(self, most: int) -> None:
        self._turns: Turns[asyncio.Future[None]] = Turns(most)

    @contextlib.asynccontextmanager
    async def of(self, user_id: str) -> AsyncIterator[None]:
        """One of them, when it is the user's turn."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.ask(user_id, turn)
        self._begin()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._turns.leave(user_id, turn)
            else:  # it came at the same time
                self._end(user_id)
            raise
        try:
            yield
        finally:
            self._end(user_id)

    def _end(self, user_id: str) -> None:
        self._turns.over(user_id)
        self._begin()

    def _begin(self) -> None:
        while (turn := self._turns.next()) is not None:
            turn.set_result(None)
