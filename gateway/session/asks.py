"""Who asked something of a session, and waits for it: each has a number, and is answered once.

The number goes through the inbox, so what is asked is plain values; the future stays here. If the session ends, whoever
waits hears that it did.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from gateway.session.conversation.replies import session_failed


class Asks:
    __slots__ = ("_last", "_waiting", "closed")

    def __init__(self) -> None:
        self._last = 0
        self._waiting: dict[int, tuple[asyncio.Future[Any], Any]] | None = None  # few sessions have any
        self.closed = False

    def open(self, note: Any = None) -> tuple[int, "asyncio.Future[Any]"]:
        """A number, and what is set when it is answered. `note` is kept with it until it is closed. Raises ApiError if
        the session has ended."""
        if self.closed:
            raise session_failed()
        self._last += 1
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting = self._waiting or {}
        self._waiting[self._last] = answered, note
        return self._last, answered

    def close(self, ask: int) -> None:
        """Nobody waits for it any more."""
        if self._waiting is not None:
            self._waiting.pop(ask, None)
            self._waiting = self._waiting or None

    def note(self, ask: int) -> Any:
        return (self._waiting or {}).get(ask, (None, None))[1]

    def answer(self, ask: int, answer: Any = None) -> None:
        found = (self._waiting or {}).get(ask)
        if found is not None and not found[0].done():
            found[0].set_result(answer)

    def refuse(self, ask: int, error: Exception) -> None:
        found = (self._waiting or {}).get(ask)
        if found is not None and not found[0].done():
            found[0].set_exception(error)

    async def have(self, post: Callable[..., None], handler: Callable[..., Any], *arguments: Any) -> Any:
        """Post `handler(ask, *arguments)` and wait for its answer. Raises ApiError if the session ends before that, and
        what it is refused with."""
        ask, answered = self.open()
        post(handler, ask, *arguments)
        try:
            return await answered
        finally:
            self.close(ask)

    def end(self) -> None:
        """The session has ended: who waits hears that, and who asks from here on."""
        self.closed = True
        for ask in list(self._waiting or ()):
            self.refuse(ask, session_failed())
