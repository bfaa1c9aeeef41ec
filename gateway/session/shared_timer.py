"""One timer for all sessions, for small work after every message that may wait a moment.

A callback runs after `seconds` to twice that. A callback that is asked for twice before that runs once. Bounds: one
entry for each callback, for that long.
"""

import asyncio
from collections.abc import Callable


class SharedTimer:
    __slots__ = ("_earlier", "_later", "_running", "_seconds")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._earlier: dict[Callable[[], None], None] = {}
        self._later: dict[Callable[[], None], None] = {}
        self._running = False

    def ask(self, then: Callable[[], None]) -> None:
        """Have `then` called. Each callback runs in a turn of the loop of its own, so one that raises delays no
        other."""
        if then not in self._earlier:
            self._later[then] = None
        if not self._running:
            self._run()

    def _run(self) -> None:
        self._running = True
        asyncio.get_running_loop().call_later(self._seconds, self._due)

    def _due(self) -> None:
        due, self._earlier, self._later = self._earlier, self._later, {}
        self._running = False
        if self._earlier:
            self._run()
        loop = asyncio.get_running_loop()
        for then in due:
            loop.call_soon(then)
