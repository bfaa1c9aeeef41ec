"""Start, await, measure and end the programs of a benchmark. Each is ended by its own id."""

import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

REPOSITORY = Path(__file__).parent.parent
UNDER_TEST, LOAD = 0, 1  # cores: the measured program has one to itself, everything else shares the other
START_SECONDS, END_SECONDS = 20, 30
CORES = sorted(os.sched_getaffinity(0))  # before any process is pinned
# A benchmark's few users do what hundreds would: the limits count as they always do, and nobody meets one.
WIDE_LIMITS = {
    "HOLDFAST_MAX_CONNECTIONS_PER_ADDRESS": "100000",
    "HOLDFAST_MAX_RUNNING": "100000",
    "HOLDFAST_MAX_RUNNING_PER_USER": "100000",
    "HOLDFAST_STARTS_AT_ONCE": "64",
    "HOLDFAST_STARTS_AT_ONCE_PER_USER": "64",
    "HOLDFAST_MAX_REQUESTS_PER_USER": "1000000",
    "HOLDFAST_MAX_FRAMES_PER_USER": "10000000",
    "HOLDFAST_MAX_INPUT_PER_USER": "1024GiB",
    "HOLDFAST_MAX_AGENT_RECORDS": "1000000",
}


def pin(pid: int, core: int) -> None:
    """Keep a process (0: this one) on one core. On a machine with one core, all share it."""
    os.sched_setaffinity(pid, {CORES[core % len(CORES)]})


def raise_descriptor_limit() -> int:
    """Allow as many open sockets as this machine permits. Return the number."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


def _passed_on() -> dict[str, str]:
    """The environment without settings that are meant for another gateway."""
    return {name: value for name, value in os.environ.items() if name != "PORT" and not name.startswith("HOLDFAST_")}


class Process:
    """A process and its children on a core of their own. It is ended by its own id."""

    def __init__(
        self, command: Sequence[str | int | Path], *, core: int, log: Path, env: Mapping[str, str] | None = None
    ) -> None:
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(
                [str(word) for word in command],
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**_passed_on(), **(env or {})},
                cwd=REPOSITORY,
            )
        self._log = log
        self._core = core
        self.pid = self._process.pid
        pin(self.pid, core)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _read_port(self) -> int:
        """The port that it prints on stdout, `port <n>`, when it is ready."""
        assert self._process.stdout is not None
        said = self._process.stdout.readline().decode().split()
        if said[:1] != ["port"]:
            self._give_up()
        return int(said[1])

    def _wait_for_port(self, port: int) -> None:
        """Wait until a process listens on `port`, then pin the processes started since."""
        late = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if self._process.poll() is not None or time.monotonic() > late:
                    self._give_up()
                time.sleep(0.02)
        for pid in self.pids():
            pin(pid, self._core)

    def _give_up(self) -> NoReturn:
        self._process.kill()
        self._process.wait()
        raise RuntimeError(f"{self._process.args!r} did not start:\n{self._log.read_text(errors='replace')[-2000:]}")

    def pids(self) -> list[int]:
        """Its own pid and those of all its descendants."""
        return family(self.pid)

    def cpu_seconds(self) -> float:
        """The CPU time of all its threads so far, in user and kernel mode."""
        return cpu_seconds(self.pid)

    def pss_kib(self) -> int:
        """The memory of all its processes. Memory shared with others counts in part."""
        return sum(pss_kib(pid) for pid in self.pids())


class Program(Process):
    """`python -m bench.<name>`. It prints `port <n>` on stdout when it is ready."""

    def __init__(
        self, name: str, *arguments: str | int, core: int, log: Path, env: dict[str, str] | None = None
    ) -> None:
        super().__init__([sys.executable, "-m", f"bench.{name}", *arguments], core=core, log=log, env=env)
        self.port = self._read_port()


def family(pid: int) -> list[int]:
    """The process and its descendants, started by any of its threads."""
    children = [child for each in Path(f"/proc/{pid}/task").glob("*/children") for child in each.read_text().split()]
    return [pid, *(each for child in children for each in family(int(child)))]


def cpu_seconds(*pids: int) -> float:
    """The CPU time of all threads of these processes so far, in user and kernel mode, as the scheduler counts it: in
    nanoseconds, while `stat` counts ticks. The time of a thread that has ended is not included.
    """
    return sum(_schedstat(task) for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()) / 1e9


def _schedstat(task: Path) -> int:
    try:
        return int((task / "schedstat").read_text().split()[0])
    except (FileNotFoundError, ProcessLookupError):
        if task.exists():
            raise RuntimeError("this kernel keeps no schedstat (CONFIG_SCHED_INFO), so CPU cannot be told") from None
        return 0  # it has just ended


def pss_kib(pid: int) -> int:
    """The memory of a process. Memory shared with others counts in part."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    raise RuntimeError("no Pss in smaps_rollup")
