"""Accepting on a listener whose other holder clears O_NONBLOCK all the time."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from gateway.egress.accept import AcceptWaited, accept_at_once, interrupt_accepts
from tests.support.waiting import blocking_until

CLEARS = "import socket\ns = socket.socket(fileno={})\nwhile True: s.setblocking(True)"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    before = signal.getsignal(signal.SIGALRM)
    interrupt_accepts()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener
    signal.signal(signal.SIGALRM, before)


def test_an_accept_that_is_made_to_wait_is_interrupted(listener: socket.socket) -> None:
    number = listener.fileno()
    with subprocess.Popen([sys.executable, "-c", CLEARS.format(number)], pass_fds=[number]) as holder:

        def waited() -> bool:
            try:
                accept_at_once(listener)
            except BlockingIOError:
                return False
            except AcceptWaited:
                return True
            raise AssertionError("nobody has connected")

        try:
            blocking_until(waited, "an accept that the holder made wait")
        finally:
            holder.kill()


def test_a_listener_that_was_left_waiting_is_accepted_from_at_once(listener: socket.socket) -> None:
    listener.setblocking(True)
    with pytest.raises(BlockingIOError):
        accept_at_once(listener)
    with socket.create_connection(listener.getsockname()) as client, accept_at_once(listener) as connection:
        assert connection.getpeername() == client.getsockname()
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
