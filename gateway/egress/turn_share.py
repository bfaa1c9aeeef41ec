"""Bounds the bytes that one session passes on before others have had their turn.

All streams of a session share TURN_BYTES in a turn of the loop; when they are used up, streams with more wait until the
loop has served all other sessions. A session that is alone is not slowed: the next turn comes at once.
"""

import asyncio

TURN_BYTES = 1024 * 1024


class TurnShare:
    def __init__(self) -> None:
        self._left = TURN_BYTES
        self._next: asyncio.Future[None] | None = None

    async def take(self, count: int) -> None:
        """Returns when so many bytes may be passed on."""
        turn = self._turn()
        while self._left <= 0:
            await asyncio.shield(turn)
            turn = self._turn()
        self._left -= count

    def _turn(self) -> "asyncio.Future[None]":
        loop = asyncio.get_running_loop()
        if self._next is None:
            self._next = loop.create_future()
            loop.call_soon(self._begin_turn)
        return self._next

    def _begin_turn(self) -> None:
        self._left = TURN_BYTES
        waiting, self._next = self._next, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
