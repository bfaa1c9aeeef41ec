"""Processes of this host, found and ended without ever hitting a stranger that got the same pid."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MARKER = "HOLDFAST_SANDBOX"


@dataclass(frozen=True, slots=True)
class Process:
    """One process, told from later ones with the same pid by its start time (clock ticks since boot)."""

    pid: int
    started: int

    @property
    def alive(self) -> bool:
        """Whether any of its threads runs: until the last has ended it has its files and its locks. A zombie does not
        run; one of our own is reaped here."""
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        found = _stat(self.pid)
        return found is not None and found.started == self.started and found.runs

    def signal(self, number: int) -> None:
        """Send a signal if it still runs."""
        try:
            fd = os.pidfd_open(self.pid)
        except (ProcessLookupError, OSError):
            return
        try:
            # Opened first, compared then: from here on the descriptor means this process and no other.
            if self.alive:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    signal.pidfd_send_signal(fd, number)
        finally:
            os.close(fd)

    async def ended(self, timeout: float) -> bool:
        """Wait for its end; False if it still runs after `timeout` seconds."""
        try:
            fd = os.pidfd_open(self.pid)
        except (ProcessLookupError, OSError):
            return not self.alive
        loop = asyncio.get_running_loop()
        over = asyncio.Event()
        try:
            loop.add_reader(fd, over.set)
            if self.alive:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(timeout):
                        await over.wait()
        finally:
            loop.remove_reader(fd)
            os.close(fd)
        return not self.alive


@dataclass(frozen=True, slots=True)
class _Stat:
    pid: int
    parent: int
    state: str  # of its first thread
    threads: int
    started: int

    @property
    def runs(self) -> bool:
        """A process whose first thread has ended looks like a zombie while others of its threads go on."""
        return self.state not in "ZX" or self.threads > 1


def find(pid: int) -> Process | None:
    """The process that has this pid now."""
    found = _stat(pid)
    return Process(found.pid, found.started) if found else None


def children(pid: int) -> list[Process]:
    with contextlib.suppress(OSError):  # not every kernel is built with this short cut
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [process for each in listed if (process := find(int(each)))]
    return [Process(each.pid, each.started) for each in _all() if each.parent == pid]


def descendants(pid: int) -> list[Process]:
    """Children, their children, ...; a process whose parent ended in between is not among them."""
    by_parent: dict[int, list[_Stat]] = {}
    for each in _all():
        by_parent.setdefault(each.parent, []).append(each)
    found: list[Process] = []
    todo = [pid]
    while todo:
        for each in by_parent.get(todo.pop(), []):
            found.append(Process(each.pid, each.started))
            todo.append(each.pid)
    return found


def marked(marker: str) -> list[Process]:
    """Every process that was started with this marker in its environment."""
    wanted = f"{MARKER}={marker}".encode()
    found = []
    for each in _all():
        if any(wanted in environ.split(b"\0") for environ in _environs(each)):
            found.append(Process(each.pid, each.started))
    return found


def _environs(process: _Stat) -> Iterator[bytes]:
    """The environment at its start. An ended first thread does not have it any more; each of the others does."""
    whole = Path(f"/proc/{process.pid}")
    with contextlib.suppress(OSError):
        for place in (whole,) if process.state not in "ZX" else sorted(whole.glob("task/*")):
            with contextlib.suppress(OSError):
                yield (place / "environ").read_bytes()


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _all() -> Iterator[_Stat]:
    for name in os.listdir("/proc"):
        if name.isdigit() and (found := _stat(int(name))) and found.runs:
            yield found


def _stat(pid: int) -> _Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The name in brackets may hold anything, brackets and spaces too: count from its end.
    fields = text[text.rindex(")") + 2 :].split()
    return _Stat(pid, int(fields[1]), fields[0], int(fields[17]), int(fields[19]))
