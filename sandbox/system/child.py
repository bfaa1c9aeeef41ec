"""Child processes of a bridge: each in its own process group, dying with the bridge, and none left behind.

Everything runs on the event loop through plain descriptors: no thread, no transport, so output is read exactly when
there is room for it. The bridge reaps all its descendants: a process that leaves its group and its parent becomes the
bridge's child.
"""

import asyncio
import contextlib
import ctypes
import errno
import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO

READ_BYTES = 64 * 1024

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)
_started: set[int] = set()  # children that their Child will wait for; any other child was adopted


def guard_this_process() -> None:
    """Adopt every orphan below, and keep memory (the token, the secrets) from processes of the same user."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


# The name stays: after an upgrade in place, an older bridge imports the terminal's module anew, and not this one.
def die_with(bridge: int) -> None:
    """In the child: die when the bridge is gone and, if that can be set here, die before it when memory runs out
    (`ends_first`). Starts nothing if the bridge is gone already."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != bridge:
        os._exit(1)
    _raise_score("self")


def ends_first(pid: int) -> None:
    """Make the kernel end a program and its children before the bridge when memory runs out: it takes the largest
    process, which is the bridge among small ones. Call it when the program runs: until its exec a child is as closed
    to its own user as the bridge is, so it can set this itself only if that user is root outside."""
    _raise_score(pid)
    for below in descendants(pid):  # children from before this call; later ones inherit it
        _raise_score(below)


def _raise_score(process: int | str) -> None:
    with contextlib.suppress(OSError):  # a read-only /proc, a process that is gone
        score = os.open(f"/proc/{process}/oom_score_adj", os.O_WRONLY)
        try:
            os.write(score, b"1000")
        finally:
            os.close(score)


class Spawned:
    """A running program. `ended` is set with its return code (negative: the signal that killed it) when it is gone."""

    def __init__(self, popen: "subprocess.Popen[bytes]") -> None:
        """`popen` leads a session of its own."""
        self._popen = popen
        self.pid = popen.pid
        ends_first(self.pid)
        _started.add(self.pid)
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except OSError as exc:
            if exc.errno != errno.ENOSYS:
                raise
            self._pidfd = -1  # gVisor has none: SIGCHLD says that one of them has ended
            _unwatched[self.pid] = self
        else:
            asyncio.get_running_loop().add_reader(self._pidfd, self._on_end)

    def _on_end(self) -> None:
        # The group goes while its leader is still a zombie: until it is reaped, nobody else can get its number.
        self.signal_group(signal.SIGKILL)
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
        else:
            del _unwatched[self.pid]
        _started.discard(self.pid)
        self.ended.set_result(self._popen.wait())

    def look(self) -> None:
        """Notice its end, if nothing but SIGCHLD reports it."""
        if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            self._on_end()

    def signal_group(self, number: signal.Signals) -> None:
        """Signal every process of the group; does nothing once the program's end was noticed."""
        if not self.ended.done():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)


_unwatched: dict[int, Spawned] = {}


class Child(Spawned):
    """A program on pipes."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: str | Path,
        env: Mapping[str, str],
        with_input: bool,
        with_output: bool = True,
    ) -> None:
        """Start `argv`. Without output, its stdout goes to `errors`, too. Raises OSError or ValueError."""
        popen = subprocess.Popen(
            list(argv),
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.PIPE if with_input else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if with_output else subprocess.STDOUT,
            bufsize=0,
            start_new_session=True,
            preexec_fn=partial(die_with, os.getpid()),  # safe with other threads about: a few system calls
        )
        self.input = _take_over(popen.stdin)
        self.output = _take_over(popen.stdout if with_output else None)
        self.errors = _take_over(popen.stderr if with_output else popen.stdout)
        super().__init__(popen)


def _take_over(pipe: IO[bytes] | None) -> int:
    if pipe is None:
        return -1
    descriptor = os.dup(pipe.fileno())
    pipe.close()
    os.set_blocking(descriptor, False)
    return descriptor


class Reader:
    """Reads a pipe on the event loop, 64 KiB at a time. `on_chunk` gets the data; b"" is the end and comes once,
    after which the descriptor is closed."""

    def __init__(self, descriptor: int, on_chunk: Callable[[bytes], None]) -> None:
        self._fd = descriptor
        self._on_chunk = on_chunk
        self._loop = asyncio.get_running_loop()
        self._reading = False
        self._chunks = 0
        self.done = False
        self.resume()

    def _read(self) -> bytes | None:
        """The available bytes: None if there are none, b"" at the end."""
        try:
            return os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _on_readable(self) -> None:
        chunk = self._read()
        if chunk is None:
            return
        self._chunks += 1
        if not chunk:
            self.close()
        self._on_chunk(chunk)

    def pause(self) -> None:
        if self._reading:
            self._loop.remove_reader(self._fd)
            self._reading = False

    def resume(self) -> None:
        if not self._reading and not self.done:
            self._loop.add_reader(self._fd, self._on_readable)
            self._reading = True

    def end_when_silent(self, seconds: float) -> None:
        """Take `seconds` of silence for the end: a program that left its group may hold the pipe open for ever.
        Time in which nobody read does not count."""
        if self.done:
            return
        seen, read_throughout = self._chunks, self._reading

        def check() -> None:
            if self.done or not (read_throughout and self._reading and self._chunks == seen):
                self.end_when_silent(seconds)
            else:
                self.close()
                self._on_chunk(b"")

        self._loop.call_later(seconds, check)

    def close(self) -> None:
        """Close the pipe without reading on; no further call of `on_chunk`."""
        if not self.done:
            self.pause()
            os.close(self._fd)
            self.done = True


class Writer:
    """Writes to a pipe on the event loop. It calls `pull` for the next piece only when the one before is written
    whole, so pieces that are not pulled yet can still be taken back. It calls `on_broken` when there is no reader any
    more."""

    def __init__(self, descriptor: int, pull: Callable[[], bytes], on_broken: Callable[[], None]) -> None:
        self._fd = descriptor
        self._pull = pull
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._rest = b""
        self._waiting = False
        self._closing = False
        self.closed = False

    @property
    def is_waiting(self) -> bool:
        """Whether the reader does not take the present piece."""
        return self._waiting

    @property
    def unwritten_bytes(self) -> int:
        """Of the present piece."""
        return len(self._rest)

    @property
    def is_free(self) -> bool:
        """Whether the pipe takes a piece of `select.PIPE_BUF` bytes whole."""
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        return bool(poll.poll(0))

    def forget(self) -> None:
        """Do not write the rest of the present piece."""
        self._rest = b""
        self._stop_waiting()

    def write(self) -> None:
        """Write until the pipe is full or `pull` returns b""."""
        if self.closed or self._waiting:
            return
        try:
            while self._rest or (not self._closing and self._refill()):
                self._rest = self._rest[os.write(self._fd, self._rest) :]
        except BlockingIOError:
            self._waiting = True
            self._loop.add_writer(self._fd, self._on_writable)
        except OSError:
            self.close()
            self._on_broken()
        else:
            if self._closing:
                self.close()

    def _refill(self) -> bool:
        self._rest = self._pull()
        return bool(self._rest)

    def _on_writable(self) -> None:
        self._stop_waiting()
        self.write()

    def _stop_waiting(self) -> None:
        if self._waiting:
            self._loop.remove_writer(self._fd)
            self._waiting = False

    def finish(self) -> None:
        """Close after the present piece."""
        self._closing = True
        self.write()

    def close(self) -> None:
        if not self.closed:
            self._stop_waiting()
            os.close(self._fd)
            self.closed = True


def describe_exit(code: int) -> tuple[int | None, str | None, str]:
    """Turn a return code into (code, signal name, words)."""
    if code >= 0:
        return code, None, f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"SIG{-code}"
    return None, name, f"killed by {name}"


def descendants(of: int | None = None) -> Iterator[int]:
    """Process ids of all descendants of a process, by default of this one. The children of one are read after it was
    yielded."""
    waiting = [os.getpid() if of is None else of]
    while waiting:
        found = _children(waiting.pop())
        waiting += found
        yield from found


def _children(pid: int) -> list[int]:
    """The children of all its threads. A process that is gone has none."""
    if not _LISTS_CHILDREN:
        return [each for each in map(int, filter(str.isdigit, os.listdir("/proc"))) if _parent(each) == pid]
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            found += _started_by(pid, task)
    return found


def _started_by(pid: int, thread: int | str) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{thread}/children").read_text().split()]


def _parent(pid: int) -> int:
    """0 if it is gone."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    return 0


_LISTS_CHILDREN = os.path.exists(f"/proc/self/task/{os.getpid()}/children")  # not every kernel does, nor gVisor


def start_ticks(pid: int) -> int | None:
    """When a program was started, after the boot; None for one that has ended and only waits to be reaped. It has not
    ended while any of its threads runs, though it looks like a zombie when its first one has."""
    try:
        state, *numbers = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    threads, started = int(numbers[16]), int(numbers[18])
    return None if state in "ZX" and threads == 1 else started


def kill_marked(marker: str) -> None:
    """Kill every process with `marker` in its environment, wherever it is. One that wiped its environment is found
    only at the end."""
    wanted = marker.encode()
    for pid in list(descendants()):
        with contextlib.suppress(OSError):
            if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                os.kill(pid, signal.SIGKILL)


def kill_descendants() -> None:
    """Kill everything below this process, again until nothing new has come up."""
    for _ in range(16):
        alive = list(descendants())
        if not alive:
            return
        for pid in alive:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def reap_adopted() -> None:
    """Collect adopted processes that have ended."""
    for spawned in list(_unwatched.values()):
        spawned.look()
    with contextlib.suppress(OSError):
        # Not those of other threads: these wait for their own children.
        for pid in _started_by(os.getpid(), os.getpid()) if _LISTS_CHILDREN else _children(os.getpid()):
            if pid not in _started:
                os.waitpid(pid, os.WNOHANG)
