"""Watches the event loop from a thread of its own: whoever blocks it is named in the log; a loop that is dead ends
the process.

Lag is counted in the thread's own ticks, not by a clock: a process that was stopped, or a machine that slept, has not
blocked anything.
"""

import asyncio
import os
import sys
import threading
import traceback
from types import TracebackType
from typing import Self

import structlog

log = structlog.get_logger()

TICK_SECONDS = 0.1
EXIT_CODE = 70


class Watchdog:
    """An async context manager around the life of a loop. `lags` counts blocks that were told."""

    def __init__(self, *, told_after: float = 0.25, dead_after: float = 10.0) -> None:
        self._told_ticks = max(1, round(told_after / TICK_SECONDS))
        self._dead_ticks = max(1, round(dead_after / TICK_SECONDS))
        self._missed = 0
        self._over = threading.Event()
        self._watched = 0
        self._beat: asyncio.TimerHandle | None = None
        self.lags = 0

    async def __aenter__(self) -> Self:
        self._watched = threading.get_ident()
        self._tick()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._beat is not None:
            self._beat.cancel()

    def _tick(self) -> None:
        self._missed = 0
        self._beat = asyncio.get_running_loop().call_later(TICK_SECONDS / 2, self._tick)

    def _watch(self) -> None:
        while not self._over.wait(TICK_SECONDS):
            self._missed += 1
            if self._missed == self._told_ticks:
                self.lags += 1
                log.warning("loop.blocked", ticks=self._missed, where=self._stack())
            elif self._missed == self._dead_ticks:
                log.critical("loop.dead", ticks=self._missed, where=self._stack())
                os._exit(EXIT_CODE)

    def _stack(self) -> list[str]:
        frame = sys._current_frames().get(self._watched)
        lines = traceback.extract_stack(frame)[-12:] if frame is not None else []
        return [f"{os.path.basename(line.filename)}:{line.lineno} {line.name}" for line in lines]
