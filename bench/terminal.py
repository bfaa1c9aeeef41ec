"""The cost of a terminal's bytes on their way through Holdfast, compared with nginx and haproxy, which only pass them
on, and with the usual relay; and on the way from a program's PTY to its viewer, compared with terminado under
jupyter_server.

All relays stand between the same browsers and the same stand-in bridge (bench/terminal_load.c). Holdfast reaches it
through a unix socket and the link of sandbox/protocol/terminal.py, the others through a port. nginx also runs with the
unix socket, and so does a Python pipe that reads nothing in the bytes (bench/pipe.py), which no gateway in Python can
beat. Holdfast is the real gateway: guarded server, tokens, sessions in SQLite; it checks and counts every frame in both
directions. The measured program has one core, everything else the other. CPU is that of the whole process, in user and
kernel mode. The contenders take turns.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import orjson

from bench.figures import Figure
from bench.processes import UNDER_TEST, Program, raise_descriptor_limit
from bench.rounds import OURS, Measure, Rounds, take_turns
from bench.terminal_gateway import holdfast
from bench.terminal_goals import (
    BLOCK_STREAMS,
    BLOCKS,
    DIRECT,
    ECHO,
    FLOOD,
    FLOODS,
    IDLE,
    KEY_STREAMS,
    KEYS,
    NGINX,
    NGINX_UNIX,
    P50,
    P99,
    PIPE,
    UNITS,
    goals,
)
from bench.terminal_load import Contender, Load, NoCompiler, StandIn, Target, compiled
from bench.terminal_peers import INSTALL, Haproxy, Nginx, is_installed
from bench.terminal_pty import end_to_end

HAPROXY = "haproxy"
RELAY = "usual relay"
SESSIONS = 64
RATE = 1000.0
BLOCK = 4096
SETTLE_SECONDS = 2.0
OPENING = orjson.dumps(
    {"type": "open", "role": "drive", "epoch": None, "offset": 0, "cols": 80, "rows": 24}
).decode()  # what Holdfast sends a bridge; for relays that only pass bytes on, the browser sends it
CLOSED_LOOPS = ((KEYS, 64, 1), (KEY_STREAMS, 64, 4), (BLOCKS, BLOCK, 1), (BLOCK_STREAMS, BLOCK, 4))


@dataclass(frozen=True, slots=True)
class Size:
    """How long to measure. Contenders without a goal are measured only in the first `others` rounds."""

    rounds: int
    others: int
    seconds: float
    terminals: int


class Bench:
    def __init__(self, directory: Path, load: Load, standin: StandIn, size: Size) -> None:
        self._directory = directory
        self._load = load
        self._standin = standin
        self._size = size
        self._started = 0
        self._rng = Random()
        self.found = Rounds()

    # Contenders

    @contextmanager
    def _start(self, name: str, terminals: int) -> Iterator[Contender]:
        """Start a fresh contender for `terminals` terminals at once."""
        self._started += 1
        home = self._directory / f"{self._started}"
        home.mkdir()
        if name == OURS:
            with holdfast(home, self._standin.socket, terminals) as ours:
                yield ours
            return
        with self._start_peer(name, home) as peer:
            requests = self._requests("/ws/v2", terminals)
            yield Contender(peer, Target(peer.port, requests, OPENING, tuple(peer.pids())))

    def _start_peer(self, name: str, home: Path) -> Nginx | Haproxy | Program:
        log, upstream = home / "log", self._standin.port
        match name:
            case "nginx":
                return Nginx(upstream, home / "home", log)
            case "nginx, unix socket":
                return Nginx(self._standin.socket, home / "home", log)
            case "haproxy":
                return Haproxy(upstream, home / "home", log)
            case "Python pipe":
                return Program("pipe", str(self._standin.socket), core=UNDER_TEST, log=log)
        return Program("peer", upstream, core=UNDER_TEST, log=log)

    def _requests(self, path: str, terminals: int) -> Path:
        file = self._directory / f"requests-{terminals}"
        file.write_text(f"{path}\n" * terminals)
        return file

    def _names(self) -> list[str]:
        nginx = [NGINX, NGINX_UNIX] if is_installed("nginx") else []
        haproxy = [HAPROXY] if is_installed("haproxy") else []
        return [*nginx, *haproxy, RELAY, PIPE, OURS]

    # Claims

    async def run(self) -> None:
        direct = Target(self._standin.port, self._requests("/", SESSIONS), OPENING)
        with ExitStack() as stack:
            started = {name: stack.enter_context(self._start(name, SESSIONS)) for name in self._names()}
            targets = {name: contender.target for name, contender in started.items()}
            for contender in started.values():
                await contender.wake(0, SESSIONS)
            with_goal = {name: targets[name] for name in targets if name in (NGINX, NGINX_UNIX, PIPE, OURS)}
            for rounds, chosen in (
                (self._size.others, targets),
                (self._size.rounds - self._size.others, with_goal),
            ):
                await take_turns(rounds, self._steps(chosen, direct), self._rng, self.found)
        for name in self._names():
            await self._memory(name)

    def _steps(self, targets: dict[str, Target], direct: Target) -> list[dict[str, Measure]]:
        seconds = self._size.seconds
        steps = []
        for step, size, depth in CLOSED_LOOPS:
            steps.append({name: self._in_flight(step, target, size, depth) for name, target in targets.items()})
        for step, sessions in ((FLOOD, 1), (FLOODS, 16)):
            steps.append({name: self._flood(step, target, sessions) for name, target in targets.items()})
        with_direct = {DIRECT: direct, **targets}
        steps.append({name: self._paced(target, seconds) for name, target in with_direct.items()})
        steps.append({name: self._echo(target, seconds / 2) for name, target in with_direct.items()})
        return steps

    def _in_flight(self, step: str, target: Target, size: int, depth: int) -> Measure:
        async def measure() -> Mapping[str, float]:
            counted = self._load.in_flight(target, SESSIONS, size, depth, self._size.seconds)
            return {step: counted.messages_per_cpu_second}

        return measure

    def _flood(self, step: str, target: Target, sessions: int) -> Measure:
        async def measure() -> Mapping[str, float]:
            return {step: self._load.flood(target, sessions, BLOCK, self._size.seconds).mb_per_cpu_second}

        return measure

    def _paced(self, target: Target, seconds: float) -> Measure:
        async def measure() -> Mapping[str, float]:
            counted = self._load.paced(target, SESSIONS, 64, RATE, seconds)
            return {P50: counted.p50_us, P99: counted.p99_us}

        return measure

    def _echo(self, target: Target, seconds: float) -> Measure:
        async def measure() -> Mapping[str, float]:
            return {ECHO: self._load.in_flight(target, 1, 64, 1, seconds).p50_us}

        return measure

    async def _memory(self, name: str) -> None:
        """The memory that each terminal adds, after the first terminals have allocated what all share."""
        terminals = self._size.terminals
        with self._start(name, SESSIONS + terminals) as contender:
            await contender.wake(0, SESSIONS)
            with self._load.idle(contender.target, SESSIONS):
                await asyncio.sleep(SETTLE_SECONDS)
                before = contender.process.pss_kib()
                await contender.wake(SESSIONS, terminals)
                with self._load.idle(_without(contender.target, SESSIONS), terminals):
                    await asyncio.sleep(SETTLE_SECONDS)
                    self.found.add(IDLE, name, (contender.process.pss_kib() - before) / terminals)


def _without(target: Target, first: int) -> Target:
    """The same target without the requests that were already made."""
    rest = target.requests.with_suffix(".rest")
    rest.write_text("".join(target.requests.read_text().splitlines(keepends=True)[first:]))
    return Target(target.port, rest, target.opening, target.pids)


async def run(*, quick: bool) -> list[Figure]:
    size = Size(1, 1, 0.5, 1000) if quick else Size(8, 2, 0.6, 5000)
    raise_descriptor_limit()
    try:
        program = compiled()
    except NoCompiler:
        print("no C compiler (cc), so no load: apt-get install gcc libc6-dev\n")
        return []
    if missing := [name for name in ("nginx", "haproxy") if not is_installed(name)]:
        print(f"{' and '.join(missing)}: not installed, left out ({INSTALL})\n")
    with TemporaryDirectory(prefix="holdfast-bench-") as name:
        directory = Path(name)
        load = Load(program)
        with StandIn(program, directory / "bridge.sock", directory / "standin.log") as standin:
            bench = Bench(directory, load, standin, size)
            await bench.run()
        await end_to_end(directory, load, bench.found, rounds=2 if quick else 4, seconds=1.0)
    print(f"{size.terminals:,} idle terminals, each with its session, after one message and its answer each\n")
    bench.found.show(UNITS)
    return goals(bench.found)
