"""A program on a terminal of its own. Its output is read when there is room for it; its input waits within bounds.

The program leads a session, and its terminal controls that session, so the kernel does what it does at any terminal:
Ctrl-C, job control, SIGWINCH, SIGHUP at the end.

Input waits in one queue of whole messages, so two people's never mix. If the program does not read, the kernel takes
a few KiB and the queue 1 MiB; a message that does not fit is refused whole. A key that stands for a signal (Ctrl-C,
Ctrl-\\, Ctrl-Z, as the terminal is set) must not wait behind input that the program will never read. So the stuck
input is dropped, in the queue and in the kernel, and the key goes first.
"""

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from sandbox.protocol.terminal import Size
from sandbox.system.child import READ_BYTES, Reader, Spawned, Writer, descendants, die_with

INPUT_BYTES = 1024 * 1024
LOOK_SECONDS = 0.1  # after a signal key
STUCK_BYTES = 1024  # unread by the program: with so much the kernel may take no more

_TIOCGPTPEER = 0x5441
_LFLAG, _CC = 3, 6
_SIGNAL_KEYS = (termios.VINTR, termios.VQUIT, termios.VSUSP)


def _take_terminal(bridge: int) -> None:
    """In the child: the terminal at its input becomes the controlling terminal of its session."""
    die_with(bridge)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class _Output(Reader):
    """The kernel gives some 4 KB at a time: several reads are joined."""

    _room = memoryview(bytearray(READ_BYTES))  # shared by all: nobody keeps anything in it

    def _read(self) -> bytes | None:
        size = 0
        try:
            while size < READ_BYTES:
                taken = os.readv(self._fd, (self._room[size:],))
                if not taken:
                    break
                size += taken
        except BlockingIOError:
            if not size:
                return None
        except OSError:  # the end; if data came before it, the next read reports it again
            pass
        return bytes(self._room[:size])


class Pty(Spawned):
    """A running program. `on_output` gets its output; b"" is the end, and comes once."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: str | Path,
        env: Mapping[str, str],
        size: Size,
        on_output: Callable[[bytes], None],
    ) -> None:
        """Start `argv`. Raises OSError or ValueError if that fails."""
        master, slave = os.openpty()
        try:
            self._fd = master
            self.resize(size)
            popen = subprocess.Popen(
                list(argv),
                cwd=cwd,
                env=dict(env),
                stdin=slave,
                stdout=slave,
                stderr=slave,
                start_new_session=True,
                preexec_fn=partial(_take_terminal, os.getpid()),  # safe beside other threads: a few system calls
            )
        except BaseException:
            os.close(master)
            raise
        finally:
            os.close(slave)
        os.set_blocking(master, False)
        self._loop = asyncio.get_running_loop()
        self._second_look: asyncio.TimerHandle | None = None
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._writer = Writer(os.dup(master), self._next_message, lambda: None)
        self.output = _Output(os.dup(master), on_output)
        super().__init__(popen)

    def resize(self, size: Size) -> None:
        """Set the size; the kernel sends SIGWINCH."""
        if self._fd >= 0:
            fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.cols, 0, 0))

    # Input

    def type(self, payload: bytes) -> bool:
        """Queue one message; return whether there was room for it."""
        if self._fd < 0:
            return True  # the program is gone
        if self._second_look is not None:
            self._second_look.cancel()
        key = self._signal_key_in(payload)
        if key is not None:
            self._second_look = self._loop.call_later(LOOK_SECONDS, self._look_again, payload[key : key + 1])
            if self._is_stuck():
                payload = payload[key:]
                self._throw_input_away()
        if self._queued_bytes + self._writer.unwritten_bytes + len(payload) > INPUT_BYTES:
            return False
        if payload:
            self._queue.append(payload)
            self._queued_bytes += len(payload)
            self._writer.write()
        return True

    def _look_again(self, key: bytes) -> None:
        """Input from before the key may still have been on its way when the key was typed: the kernel moves it in its
        own time. Had the program taken the key, nothing would be unread."""
        if self._fd >= 0 and self._is_stuck():
            self._throw_input_away()
            self._queue.append(key)
            self._queued_bytes += len(key)
            self._writer.write()

    def _next_message(self) -> bytes:
        if not self._queue:
            return b""
        payload = self._queue.popleft()
        self._queued_bytes -= len(payload)
        return payload

    def _signal_key_in(self, payload: bytes) -> int | None:
        """The position of the first signal key, as the terminal is set."""
        attributes = termios.tcgetattr(self._fd)
        if not attributes[_LFLAG] & termios.ISIG:
            return None
        keys = (attributes[_CC][number] for number in _SIGNAL_KEYS)
        found = [payload.find(key) for key in keys if key != b"\0"]
        return min((at for at in found if at >= 0), default=None)

    def _is_stuck(self) -> bool:
        """Whether new input would wait behind input that the program does not read."""
        if self._writer.is_waiting or self._queue:
            return True
        with self._other_end() as slave:
            return slave is not None and _unread_bytes(slave) >= STUCK_BYTES

    def _throw_input_away(self) -> None:
        self._queue.clear()
        self._queued_bytes = 0
        self._writer.forget()
        with self._other_end() as slave, contextlib.suppress(termios.error):
            termios.tcflush(self._fd, termios.TCOFLUSH)  # on its way
            if slave is not None:
                termios.tcflush(slave, termios.TCIFLUSH)  # arrived, and not read
                termios.tcflush(self._fd, termios.TCOFLUSH)  # came in behind it meanwhile

    @contextlib.contextmanager
    def _other_end(self) -> Iterator[int | None]:
        """The program's end, for a moment: only there can unread input be seen and dropped."""
        try:
            slave = fcntl.ioctl(self._fd, _TIOCGPTPEER, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            yield None
            return
        try:
            yield slave
        finally:
            os.close(slave)

    # Ending

    def hang_up(self) -> None:
        """Send SIGHUP to every program at this terminal."""
        self._signal_session(signal.SIGHUP)
        self._signal_session(signal.SIGCONT)  # a stopped process gets no other signal

    def kill(self) -> None:
        self._signal_session(signal.SIGKILL)

    def _signal_session(self, number: signal.Signals) -> None:
        if self.ended.done():
            return
        for pid in list(descendants()):
            with contextlib.suppress(OSError):
                if os.getsid(pid) == self.pid:
                    os.kill(pid, number)

    def close(self) -> None:
        """Close the terminal: programs that still have it open get SIGHUP."""
        if self._fd >= 0:
            if self._second_look is not None:
                self._second_look.cancel()
            self._writer.close()
            self.output.close()
            os.close(self._fd)
            self._fd = -1


def _unread_bytes(slave: int) -> int:
    return int.from_bytes(fcntl.ioctl(slave, termios.FIONREAD, bytes(4)), sys.byteorder)
