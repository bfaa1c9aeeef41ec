"""Watches the event loop from a thread of its own: a callback that blocks it is named in the log; one that never ends
ends the process.

Lag is counted in the thread's own ticks, not by a clock: a process that was stopped, or a machine that slept, has not
blocked the loop. A loop that is late may have much to do: then each look finds another callback at work, and that
passes. Only one and the same callback, found at every look, is a dead loop. A task runs once in a turn of the loop, so
within one turn the same frame is the same call.
"""

import asyncio
import os
import sys
import threading
import traceback
from types import FrameType, TracebackType
from typing import Self

import structlog

log = structlog.get_logger()

TICK_SECONDS = 0.1
EXIT_CODE = 70


class Watchdog:
    """An async context manager around the life of a loop. `lags` counts the blocks that were logged."""

    def __init__(self, *, told_after: float = 0.25, dead_after: float = 10.0) -> None:
        self._told_ticks = max(1, round(told_after / TICK_SECONDS))
        self._dead_ticks = max(1, round(dead_after / TICK_SECONDS))
        self._missed = 0
        self._over = threading.Event()
        self._watched = 0
        self._runner: FrameType | None = None  # the frame that runs the loop: all its callbacks are called from there
        self._beat: asyncio.TimerHandle | None = None
        self.lags = 0

    async def __aenter__(self) -> Self:
        self._watched = threading.get_ident()
        asyncio.get_running_loop().call_soon(self._note_runner)
        self._tick()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._runner = None
        if self._beat is not None:
            self._beat.cancel()

    def _note_runner(self) -> None:
        self._runner = sys._getframe().f_back

    def _tick(self) -> None:
        self._missed = 0
        self._beat = asyncio.get_running_loop().call_later(TICK_SECONDS / 2, self._tick)

    def _watch(self) -> None:
        at_work: FrameType | None = None  # held, so that no other frame can be in its place
        same = 0  # looks in a row that found it
        while not self._over.wait(TICK_SECONDS):
            self._missed += 1
            if self._missed == 1:
                at_work = None
            found = self._callback()
            same = same + 1 if found is not None and found is at_work else 1
            at_work = found
            if self._missed == self._told_ticks:
                self.lags += 1
                log.warning("loop.blocked", ticks=self._missed, where=self._stack())
            if found is not None and same >= self._dead_ticks:
                log.critical("loop.dead", ticks=same, where=self._stack())
                os._exit(EXIT_CODE)

    def _callback(self) -> FrameType | None:
        """The outermost frame of the callback that the loop runs now; None if it runs none."""
        frame, inner = sys._current_frames().get(self._watched), None
        while frame is not None:
            # asyncio's own loop calls from a frame that lasts for a turn, uvloop's from the one that started it.
            if frame is self._runner or frame.f_code.co_name == "_run_once":
                return inner
            frame, inner = frame.f_back, frame
        return None

    def _stack(self) -> list[str]:
        frame = sys._current_frames().get(self._watched)
        lines = traceback.extract_stack(frame)[-12:] if frame is not None else []
        return [f"{os.path.basename(line.filename)}:{line.lineno} {line.name}" for line in lines]
