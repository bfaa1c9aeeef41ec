"""Small replacements for asyncio's Queue and Event on uvicorn's socket, for one reader. Most sockets are idle, and
asyncio's own take 4 KB for each, mostly empty deques.

The queue has no bound of its own. A socket puts the next message in when the app has taken the last one, and the few
events of its end.
"""

import asyncio
from typing import Any


class AppQueue:
    """Events for the app, in order. One task at a time waits in `get`; cancelling it loses no event."""

    __slots__ = ("_bell", "_events")

    def __init__(self) -> None:
        self._events: list[Any] = []
        self._bell: asyncio.Future[None] | None = None  # set while a task waits

    def empty(self) -> bool:
        return not self._events

    def put_nowait(self, event: Any) -> None:
        self._events.append(event)
        if self._bell is not None and not self._bell.done():
            self._bell.set_result(None)

    def get_nowait(self) -> Any:
        return self._events.pop(0)

    async def get(self) -> Any:
        while not self._events:
            self._bell = asyncio.get_running_loop().create_future()
            try:
                await self._bell
            finally:
                self._bell = None
        return self.get_nowait()


class Writable:
    """An event that is set at the beginning, and most of the time."""

    __slots__ = ("_again",)

    def __init__(self) -> None:
        self._again: asyncio.Event | None = None  # while it is not set

    def is_set(self) -> bool:
        return self._again is None

    def clear(self) -> None:
        self._again = self._again or asyncio.Event()

    def set(self) -> None:
        if self._again is not None:
            self._again.set()
            self._again = None

    async def wait(self) -> None:
        if self._again is not None:
            await self._again.wait()
