"""Notices changed files of the kept roots: a hint that a scan may be worthwhile, never the truth.

The kernel reports changes (inotify); they become one hint in `hint_seconds`. The kernel may not report: watches are
limited, and some file systems do not support them. Then a running agent is reason enough for a hint now and then. A
swapped root is another directory than the watched one, so after a swap the watch begins anew.

Directories are watched one by one, as the worker thread finds them. Symlinks are never followed: a link to `/` must
not cost a walk through everything. (`watchfiles` follows them, and stops the whole process while it does.)
"""

import asyncio
import contextlib
import ctypes
import errno
import os
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from pathlib import Path

from sandbox.bridge.base.config import Limits
from sandbox.system.log import log

ROOTS = ("workspace", "agent")
STORM = 10  # after lost events the watch waits so many times longer than usual
SLICE = 256  # directories per turn of the worker thread
READ_BYTES, MAX_READS = 256 * 1024, 16

_MODIFY, _ATTRIB, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 2, 4, 8, 0x40, 0x80, 0x100, 0x200
_OVERFLOW, _IGNORED, _ISDIR = 0x4000, 0x8000, 0x40000000
_ONLYDIR, _DONT_FOLLOW = 0x01000000, 0x02000000
_MASK = _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _ONLYDIR | _DONT_FOLLOW
_NO_ROOM = (errno.ENOSPC, errno.ENOMEM)
_EVENT = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


class Watch:
    """Calls `on_change` from the event loop, about once in `hint_seconds` at most. `alive` is whether an agent runs."""

    def __init__(
        self, kept: Path, limits: Limits, worker: Executor, alive: Callable[[], bool], on_change: Callable[[], None]
    ) -> None:
        self._kept = kept
        self._limits = limits
        self._worker = worker
        self._alive = alive
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._begun = False
        self._seen: _Watches | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._blind_timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Watch from now on; a second call does nothing."""
        if not self._begun:
            self._begun = True
            self.begin_anew()

    def begin_anew(self) -> None:
        """Forget what is watched, and begin with what is there now. Does nothing unless begun."""
        if not self._begun:
            return
        self._forget()
        try:
            self._seen = _Watches(self._limits.watches)
        except OSError as exc:
            return self._go_blind(exc)
        self._loop.add_reader(self._seen.fd, self._on_readable)
        self._add(self._seen, [os.fsencode(self._kept / root) for root in ROOTS])

    def end(self) -> None:
        self._begun = False
        self._forget()

    def _forget(self) -> None:
        for timer in (self._timer, self._blind_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._blind_timer = None
        if self._seen is not None:
            self._loop.remove_reader(self._seen.fd)
            # The thread that uses it closes it, behind its other work with it.
            self._loop.run_in_executor(self._worker, self._seen.close)
            self._seen = None

    def _on_readable(self) -> None:
        assert self._seen is not None
        self._loop.remove_reader(self._seen.fd)  # events of the next moment belong to the same hint
        found = self._seen.read()
        self._on_change()
        if found is None:  # a storm: when it is over, the watch looks for what it missed
            self._timer = self._loop.call_later(STORM * self._limits.hint_seconds, self.begin_anew)
            return
        self._timer = self._loop.call_later(self._limits.hint_seconds, self._look_again)
        if found:
            self._add(self._seen, found)

    def _look_again(self) -> None:
        if self._seen is not None:
            self._loop.add_reader(self._seen.fd, self._on_readable)

    def _add(self, seen: "_Watches", directories: list[bytes]) -> None:
        """Watch these directories and all below them, a slice at a time; then give a hint, because nobody saw earlier
        changes there."""
        job = self._loop.run_in_executor(self._worker, seen.add, directories)

        def go_on(job: "asyncio.Future[list[bytes]]") -> None:
            if self._seen is not seen or job.cancelled():
                return
            if (failure := job.exception()) is not None:
                self._go_blind(failure)
            elif more := job.result():
                self._add(seen, more)
            else:
                self._on_change()

        job.add_done_callback(go_on)

    def _go_blind(self, failure: BaseException) -> None:
        if self._blind_timer is None:
            log("watch.blind", reason=getattr(failure, "strerror", None) or repr(failure))
            self._blind_timer = self._loop.call_later(self._limits.blind_hint_seconds, self._guess)

    def _guess(self) -> None:
        self._blind_timer = self._loop.call_later(self._limits.blind_hint_seconds, self._guess)
        if self._alive():
            self._on_change()


class _Watches:
    """An inotify instance with a bounded number of watches. Raises OSError if there cannot be one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.fd: int = _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._paths: dict[int, bytes] = {}

    def add(self, directories: list[bytes]) -> list[bytes]:
        """Watch some of these; return the rest, with the directories found in them. Raises OSError if no more can be
        watched."""
        if self.fd < 0:
            return []
        later = directories[SLICE:]
        for path in directories[:SLICE]:
            if len(self._paths) >= self._most:
                raise OSError(errno.ENOSPC, f"more than {self._most} directories")
            try:
                self._paths[_checked(_libc.inotify_add_watch(self.fd, path, _MASK))] = path
                with os.scandir(path) as found:
                    later += [entry.path for entry in found if entry.is_dir(follow_symlinks=False)]
            except OSError as exc:
                if exc.errno in _NO_ROOM:
                    raise
        return later

    def read(self) -> list[bytes] | None:
        """Read the events; return new directories, or None if events were lost."""
        new: list[bytes] = []
        for place, mask, name in self._events():
            if mask & _OVERFLOW:
                return None
            if mask & _IGNORED:
                self._paths.pop(place, None)
            elif mask & _ISDIR and mask & (_CREATE | _MOVED_TO) and place in self._paths:
                new.append(self._paths[place] + b"/" + name)
        return new

    def _events(self) -> Iterator[tuple[int, int, bytes]]:
        with contextlib.suppress(BlockingIOError):
            for _ in range(MAX_READS):
                chunk = os.read(self.fd, READ_BYTES)
                at = 0
                while at < len(chunk):
                    place, mask, _, size = _EVENT.unpack_from(chunk, at)
                    at += _EVENT.size + size
                    yield place, mask, chunk[at - size : at].rstrip(b"\0")

    def close(self) -> None:
        os.close(self.fd)
        self.fd = -1


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
