"""How a command that watches a terminal ends."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sandbox.protocol.terminal import Exit


@dataclass(frozen=True, slots=True)
class Left:
    """The exit code, and the words to print. `detached`: by the person's own wish."""

    code: int
    words: str = ""
    detached: bool = False


@contextmanager
def leaving_by_signal(leave: Callable[[Left], None]) -> Iterator[None]:
    """Inside, a signal that would end the process calls `leave` instead, so that the terminal is restored."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, leave, Left(128 + number))
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def exit_code(exit: Exit) -> int:
    """As a shell gives it: 128 and the number for a signal."""
    if exit.signal is None:
        return exit.code or 0
    name, _, more = exit.signal.removeprefix("SIG").partition("+")
    try:
        return 128 + signal.Signals[f"SIG{name}"] + int(more or 0)
    except (KeyError, ValueError):
        return 128


def in_words(exit: Exit) -> str:
    return f"signal {exit.signal}" if exit.signal is not None else f"exit code {exit.code or 0}"
