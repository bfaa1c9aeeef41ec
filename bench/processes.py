"""Programs under measurement: started, waited for, weighed, ended by their own id."""

import os
import resource
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

REPOSITORY = Path(__file__).parent.parent
UNDER_TEST, LOAD = 0, 1  # cores: what is measured has one to itself, everything else shares the other
END_SECONDS = 30
TICKS = os.sysconf("SC_CLK_TCK")
CORES = sorted(os.sched_getaffinity(0))  # before anybody is pinned


def pin(pid: int, core: int) -> None:
    """Keep a process (0: this one) on one core; where there is only one, they all share it."""
    os.sched_setaffinity(pid, {CORES[core % len(CORES)]})


def raise_descriptor_limit() -> int:
    """Allow as many open sockets as this machine lets us; return how many."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


def _passed_on() -> dict[str, str]:
    """The environment, without settings that were meant for another gateway."""
    return {name: value for name, value in os.environ.items() if name != "PORT" and not name.startswith("HOLDFAST_")}


class Program:
    """`python -m bench.<name>` on a core of its own. It says `port <n>` on stdout when it is ready."""

    def __init__(
        self, name: str, *arguments: str | int, core: int, log: Path, env: dict[str, str] | None = None
    ) -> None:
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"bench.{name}", *map(str, arguments)],
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**_passed_on(), **(env or {})},
                cwd=REPOSITORY,
            )
        self.pid = self._process.pid
        pin(self.pid, core)
        assert self._process.stdout is not None
        said = self._process.stdout.readline().decode().split()
        if said[:1] != ["port"]:
            self._process.kill()
            self._process.wait()
            raise RuntimeError(f"{name} did not start:\n{log.read_text(errors='replace')[-2000:]}")
        self.port = int(said[1])

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

    def cpu_seconds(self) -> float:
        """What all its threads have used so far, in user and kernel mode."""
        after_name = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(after_name[11]) + int(after_name[12])) / TICKS

    def pss_kib(self) -> int:
        """Its memory, with what it shares with others counted in part."""
        for line in Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
        raise RuntimeError("no Pss in smaps_rollup")
