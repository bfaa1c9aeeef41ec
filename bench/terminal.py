"""What a terminal's bytes cost on their way through Holdfast, beside nginx and haproxy, which only pass them on, and
beside the usual relay; and from a program's PTY to its viewer, beside terminado under jupyter_server.

All relays stand between the same browsers and the same stand-in bridge (bench/terminal_load.c): Holdfast reaches it by
a unix socket and the link of sandbox/protocol/terminal.py, the others by a port; nginx once more by the unix socket.
Holdfast's is the real gateway: guarded server, tokens, sessions in SQLite; every frame is checked and counted in both
directions. One core for what is measured, the other for all else; CPU is that of the whole process, in user and kernel
mode; the contenders take turns.
"""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson

from bench.figures import Figure
from bench.processes import UNDER_TEST, Program, raise_descriptor_limit
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
    OURS,
    P50,
    P99,
    Laps,
    goals,
    show_laps,
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
).decode()  # what Holdfast says to a bridge; whoever only passes it on leaves that to the browser
CLOSED_LOOPS = ((KEYS, 64, 1), (KEY_STREAMS, 64, 4), (BLOCKS, BLOCK, 1), (BLOCK_STREAMS, BLOCK, 4))


@dataclass(frozen=True, slots=True)
class Size:
    """How long to look. Contenders without a goal are looked at in the first `others` laps only."""

    laps: int
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
        self.laps = Laps()

    # Contenders

    @contextmanager
    def _start(self, name: str, terminals: int) -> Iterator[Contender]:
        """A fresh one, for so many terminals at once."""
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
        return Program("peer", upstream, core=UNDER_TEST, log=log)

    def _requests(self, path: str, terminals: int) -> Path:
        file = self._directory / f"requests-{terminals}"
        file.write_text(f"{path}\n" * terminals)
        return file

    def _names(self) -> list[str]:
        nginx = [NGINX, NGINX_UNIX] if is_installed("nginx") else []
        haproxy = [HAPROXY] if is_installed("haproxy") else []
        return [*nginx, *haproxy, RELAY, OURS]

    # Claims

    async def run(self) -> None:
        direct = Target(self._standin.port, self._requests("/", SESSIONS), OPENING)
        with ExitStack() as stack:
            started = {name: stack.enter_context(self._start(name, SESSIONS)) for name in self._names()}
            targets = {name: contender.target for name, contender in started.items()}
            for contender in started.values():
                await contender.wake(0, SESSIONS)
            for lap in range(self._size.laps):
                turn = [name for name in targets if name in (NGINX, NGINX_UNIX, OURS) or lap < self._size.others]
                if lap % 2:
                    turn.reverse()
                self._closed_loops(targets, turn)
                self._floods(targets, turn)
                self._latencies({DIRECT: direct, **{name: targets[name] for name in turn}})
        for name in self._names():
            await self._memory(name)

    def _closed_loops(self, targets: dict[str, Target], turn: list[str]) -> None:
        for step, size, depth in CLOSED_LOOPS:
            for name in turn:
                counted = self._load.in_flight(targets[name], SESSIONS, size, depth, self._size.seconds)
                self.laps.add(step, name, counted.messages_per_cpu_second)

    def _floods(self, targets: dict[str, Target], turn: list[str]) -> None:
        for step, sessions in ((FLOOD, 1), (FLOODS, 16)):
            for name in turn:
                counted = self._load.flood(targets[name], sessions, BLOCK, self._size.seconds)
                self.laps.add(step, name, counted.mb_per_cpu_second)

    def _latencies(self, targets: dict[str, Target]) -> None:
        for name, target in targets.items():
            counted = self._load.paced(target, SESSIONS, 64, RATE, self._size.seconds)
            self.laps.add(P50, name, counted.p50_us)
            self.laps.add(P99, name, counted.p99_us)
        for name, target in targets.items():
            self.laps.add(ECHO, name, self._load.in_flight(target, 1, 64, 1, self._size.seconds / 2).p50_us)

    async def _memory(self, name: str) -> None:
        """What each terminal adds, once the first ones have made room for what all need."""
        terminals = self._size.terminals
        with self._start(name, SESSIONS + terminals) as contender:
            await contender.wake(0, SESSIONS)
            with self._load.idle(contender.target, SESSIONS):
                await asyncio.sleep(SETTLE_SECONDS)
                before = contender.process.pss_kib()
                await contender.wake(SESSIONS, terminals)
                with self._load.idle(_without(contender.target, SESSIONS), terminals):
                    await asyncio.sleep(SETTLE_SECONDS)
                    self.laps.add(IDLE, name, (contender.process.pss_kib() - before) / terminals)


def _without(target: Target, first: int) -> Target:
    """The same, without the requests that have been made already."""
    rest = target.requests.with_suffix(".rest")
    rest.write_text("".join(target.requests.read_text().splitlines(keepends=True)[first:]))
    return Target(target.port, rest, target.opening, target.pids)


async def run(*, quick: bool) -> list[Figure]:
    size = Size(1, 1, 0.5, 1000) if quick else Size(5, 2, 1.0, 5000)
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
        await end_to_end(directory, load, bench.laps, rounds=2 if quick else 3, seconds=size.seconds)
    print(f"{size.terminals:,} idle terminals, each with its session, after one message and its answer each\n")
    show_laps(bench.laps)
    return goals(bench.laps)
