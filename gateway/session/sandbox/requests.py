"""Who asked for something of a session's life, and waits for it: each has a number, and is answered once."""

import asyncio
from typing import Any

from gateway.limits.start_turns import FREED_SECONDS
from gateway.protocol.errors import ApiError
from gateway.session.conversation.replies import RETRY_SECONDS, session_failed
from gateway.session.sandbox.lifecycle import effects as do

# Of each code that the table refuses with. What is not here is not refused as such: its cause is raised.
HTTP_STATUS = {
    "archived": 409,
    "paused": 409,
    "unrestored": 409,
    "not_unrestored": 409,
    "not_paused": 409,
    "not_synced": 409,
    "busy": 429,
    "too_many_running": 429,
    "sync_failed": 503,
    "sandbox_unavailable": 503,
    "storage_unavailable": 503,
    "draining": 503,
    "session_failed": 503,
}
RETRY_AFTER = {"too_many_running": FREED_SECONDS, "busy": RETRY_SECONDS}


def api_error(code: str, text: str) -> ApiError:
    if code == "session_failed":
        return session_failed()
    return ApiError(HTTP_STATUS.get(code, 500), code, text, retry_after=RETRY_AFTER.get(code))


class LifeRequests:
    __slots__ = ("_last", "_waiting")

    def __init__(self) -> None:
        self._last = 0
        self._waiting: dict[int, tuple[asyncio.Future[None], Any]] | None = None  # few sessions have any

    def open(self, note: Any = None) -> tuple[int, "asyncio.Future[None]"]:
        """A number, and what is set when it is answered. `note` is kept with it until it is closed."""
        self._last += 1
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting = self._waiting or {}
        self._waiting[self._last] = answered, note
        return self._last, answered

    def close(self, ask: int) -> None:
        if self._waiting is not None:
            self._waiting.pop(ask, None)
            self._waiting = self._waiting or None

    def note(self, ask: int) -> Any:
        return (self._waiting or {}).get(ask, (None, None))[1]

    def answer(self, answer: do.Answer) -> None:
        found = (self._waiting or {}).get(answer.ask)
        if found is not None and not found[0].done():
            found[0].set_result(None)

    def refuse(self, refused: do.RefuseAsk, cause: Exception | None) -> None:
        found = (self._waiting or {}).get(refused.ask)
        if found is not None and not found[0].done():
            found[0].set_exception(cause or api_error(refused.code, refused.text))

    def refuse_all(self) -> None:
        for ask in list(self._waiting or ()):
            self.refuse(do.RefuseAsk(ask, "session_failed", ""), None)
