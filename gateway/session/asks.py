"""Requests that wait for a session's answer: each has a number, and is answered once.

Only the number goes through the inbox, so the events there are plain values; the future stays here. If the session
ends, every waiting request fails with that reason.
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
        """Return a new number, and the future that its answer sets. `note` is kept with the number until it is closed.
        Raises ApiError if the session has ended."""
        if self.closed:
            raise session_failed()
        self._last += 1
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting = self._waiting or {}
        self._waiting[self._last] = answered, note
        return self._last, answered

    def close(self, ask: int) -> None:
        """Forget a request that no longer waits."""
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
        """Post `handler(ask, *arguments)` and wait for its answer. Raises ApiError if the session ends before that, or
        the error with which the request is refused."""
        ask, answered = self.open()
        post(handler, ask, *arguments)
        try:
            return await answered
        finally:
            self.close(ask)

    def end(self) -> None:
        """The session has ended: refuse every waiting request, and every later one."""
        self.closed = True
        for ask in list(self._waiting or ()):
            self.refuse(ask, session_failed())
