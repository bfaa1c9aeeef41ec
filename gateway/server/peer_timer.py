"""A timer for peers: it never blames them for a loop that was late."""

import asyncio
from collections.abc import Callable


class PeerTimer:
    """Calls back when `seconds` have passed and the loop has looked at its sockets since. Input that came in time is
    processed first, however late the loop is: uvloop runs due timers before it reads."""

    __slots__ = ("_callback", "_handle", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._handle: asyncio.Handle = loop.call_later(seconds, self._due)

    def _due(self) -> None:
        self._handle = self._loop.call_soon(self._read_first)  # in this turn, before the sockets are read

    def _read_first(self) -> None:
        self._handle = self._loop.call_soon(self._callback)

    def cancel(self) -> None:
        self._handle.cancel()
