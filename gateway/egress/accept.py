"""Accepting on a listener that others hold, too.

Whether `accept` waits is a flag of the open file description, and a sandbox's bridge holds the same one: it may clear
the flag, and take the connection that was announced. So the flag is set before each accept, and a timer interrupts one
that waits all the same. Used by the process's main thread alone: it is the one that signals interrupt.
"""

import signal
import socket
from types import FrameType

WAIT_SECONDS = 0.1

_accepting = False


class AcceptWaited(OSError):
    """The flag was cleared in the moment before the accept; or the machine left this process no time."""


def interrupt_accepts() -> None:
    """Call it once, before the first `accept_at_once`."""
    signal.signal(signal.SIGALRM, _interrupt)


def accept_at_once(listener: socket.socket) -> socket.socket:
    """The next connection. Raises BlockingIOError if there is none, AcceptWaited, OSError."""
    global _accepting
    listener.setblocking(False)
    signal.setitimer(signal.ITIMER_REAL, WAIT_SECONDS)
    try:
        _accepting = True
        return listener.accept()[0]
    finally:
        _accepting = False
        signal.setitimer(signal.ITIMER_REAL, 0)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if _accepting:
        raise AcceptWaited("accept waited")
