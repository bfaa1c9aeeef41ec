"""The person's own terminal: raw while a remote program uses it, and restored in every case."""

import asyncio
import os
import sys
import termios
import tty
from types import TracebackType
from typing import Any, Self

from gateway.cli.console.blocking_writer import BlockingWriter
from gateway.cli.console.terminal_modes import ModeTracker
from sandbox.protocol.terminal import MAX_SIDE, Size

READ_BYTES = 64 << 10
SAVE_TITLE, BACK_TITLE = b"\x1b[22;0t", b"\x1b[23;0t"


def is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


class Tty:
    """stdin and stdout, both a terminal. A context manager: raw inside; leaving it undoes the modes that programs
    set."""

    def __init__(self) -> None:
        self._typing, self._showing = sys.stdin.fileno(), sys.stdout.fileno()
        self._saved: list[Any] = []
        self.modes = ModeTracker()

    def __enter__(self) -> Self:
        self._saved = termios.tcgetattr(self._typing)
        self._writer = BlockingWriter(self._showing)
        self.take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.finish(self.modes.undo() + BACK_TITLE + b"\r\n")
        try:
            # Answers that the terminal still types belong to the program, not to the shell that comes next.
            termios.tcflush(self._typing, termios.TCIFLUSH)
            termios.tcsetattr(self._typing, termios.TCSANOW, self._saved)
        except termios.error:  # the terminal has gone: there is nothing to give back
            return

    def take(self) -> None:
        """Make the terminal raw; again after the process was stopped and continued."""
        tty.setraw(self._typing, termios.TCSANOW)

    @property
    def size(self) -> Size:
        try:
            cols, rows = os.get_terminal_size(self._showing)
        except OSError:
            cols = rows = 0
        return Size(min(cols or 80, MAX_SIDE), min(rows or 24, MAX_SIDE))  # some terminals do not know: 0

    async def read(self, deadline: float | None) -> bytes | None:
        """The person's keys; b"" when the terminal has gone, None if no key comes until `deadline`."""
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(self._typing, readable.set)
        try:
            async with asyncio.timeout_at(deadline):
                await readable.wait()
        except TimeoutError:
            return None
        finally:
            loop.remove_reader(self._typing)
        try:
            return os.read(self._typing, READ_BYTES)
        except OSError:
            return b""

    async def write(self, data: bytes) -> None:
        """Write to the terminal. Raises OSError when it has gone."""
        self.modes.wrote(data)
        await self._writer.write(data)
