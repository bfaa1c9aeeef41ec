"""Browsers at a terminal, and the stand-in behind the relays: bench/terminal_load.c, compiled when first needed."""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from bench.load import LoadFailed
from bench.processes import LOAD, REPOSITORY, Process, pin

SOURCES = sorted((REPOSITORY / "bench").glob("terminal_*.[ch]"))
LIFE_SECONDS = 900  # after this time a stand-in ends by itself
PATIENCE_SECONDS = 120


class NoCompiler(Exception):
    """There is no `cc` on this machine."""


def compiled() -> Path:
    """The compiled load generator. A binary made from the same sources is reused. Raises NoCompiler."""
    made_from = hashlib.sha256(b"".join(source.read_bytes() for source in SOURCES)).hexdigest()[:16]
    program = Path(gettempdir()) / f"holdfast-bench-{os.getuid()}" / f"terminal_load-{made_from}"
    if program.exists():
        return program
    compiler = shutil.which("cc")
    if compiler is None:
        raise NoCompiler
    program.parent.mkdir(mode=0o700, exist_ok=True)
    unfinished = program.with_suffix(f".{os.getpid()}")
    files = [str(source) for source in SOURCES if source.suffix == ".c"]
    subprocess.run([compiler, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-o", str(unfinished), *files], check=True)
    unfinished.rename(program)
    return program


class StandIn(Process):
    """One bridge for all relays, on `socket` and on `port`."""

    def __init__(self, program: Path, socket: Path, log: Path) -> None:
        super().__init__([program, "standin", socket, LIFE_SECONDS], core=LOAD, log=log)
        self.socket = socket
        self.port = self._read_port()


@dataclass(frozen=True, slots=True)
class Target:
    """The server that browsers connect to. `requests` has a line for each browser (see terminal_load.c). `opening` is
    what each sends first."""

    port: int
    requests: Path
    opening: str | None = None
    pids: tuple[int, ...] = ()


async def _nothing(first: int, count: int) -> None:
    """Do nothing: nothing behind these terminals has to run."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A relay under test. `wake(first, count)` makes sure that what is behind these terminals runs."""

    process: Process
    target: Target
    wake: Callable[[int, int], Awaitable[None]] = _nothing


@dataclass(frozen=True, slots=True)
class Counted:
    """What came back in the window, and its cost for the target."""

    messages: int
    bytes: int
    seconds: float
    cpu_seconds: float
    p50_us: float
    p99_us: float

    @property
    def messages_per_cpu_second(self) -> float:
        return self.messages / max(self.cpu_seconds, 0.01)

    @property
    def mb_per_cpu_second(self) -> float:
        return self.bytes / 1e6 / max(self.cpu_seconds, 0.01)

    @property
    def mb_per_second(self) -> float:
        return self.bytes / 1e6 / self.seconds


class Load:
    """Runs the load generator, on the core that is not measured."""

    def __init__(self, program: Path) -> None:
        self._program = program

    def in_flight(self, target: Target, connections: int, size: int, depth: int, seconds: float) -> Counted:
        return self._run(target, connections, size, depth, seconds)

    def paced(self, target: Target, connections: int, size: int, per_second: float, seconds: float) -> Counted:
        return self._run(target, connections, size, 1, seconds, "-r", per_second)

    def flood(self, target: Target, connections: int, size: int, seconds: float, *options: str) -> Counted:
        return self._run(target, connections, size, 1, seconds, "-f", *options)

    @contextmanager
    def idle(self, target: Target, connections: int) -> Iterator[None]:
        """Hold `connections` connections. Each has had one message and its answer."""
        command = self._command(target, connections, 64, 1, PATIENCE_SECONDS, "-i")
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
            pin(process.pid, LOAD)
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            if process.stdout.readline() != b"ready\n":
                raise LoadFailed(process.stderr.read().decode(errors="replace")[-1000:])
            try:
                yield
            finally:
                process.stdin.close()

    def _run(
        self, target: Target, connections: int, size: int, depth: int, seconds: float, *options: str | float
    ) -> Counted:
        command = self._command(target, connections, size, depth, seconds, *options)
        try:
            ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            raise LoadFailed("the load generator does not end") from None
        if ended.returncode:
            raise LoadFailed(ended.stderr[-1000:])
        found: dict[str, Any] = json.loads(ended.stdout)
        return Counted(**found)

    def _command(
        self, target: Target, connections: int, size: int, depth: int, seconds: float, *options: str | float
    ) -> Sequence[str]:
        """The command line. The program inherits this process's core, the core of the load."""
        words = [self._program, "load", target.port, target.requests, connections, size, depth, seconds, *options]
        if target.opening is not None:
            words += ["-o", target.opening]
        if target.pids:
            words += ["-p", ",".join(map(str, target.pids))]
        return [str(word) for word in words]
