"""The cost of a session in a container, compared with a bare `docker run`, a local sandbox, and the engine's own exec.

Everything runs on the benchmark's own Docker Engine. The engine and its peers use the whole machine. A start lasts
until the sandbox's bridge answers; the clean-up is not timed. Echo, flood and memory compare a container with a
contained local sandbox, with the same program in both. There are four of each, because memory they share counts in
part; a container's memory includes its shim. A command is `true`, run through the bridge and through the engine's API.
Many starts are twenty.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import httpx

from bench.figures import Figure, Goal, compare
from bench.processes import family, pss_kib
from bench.results import NotHere
from bench.rounds import OURS, Measure, Rounds, take_turns
from bench.sync import whole_machine
from sandbox.ports.fleet import Fleet, SandboxSpec
from sandbox.ports.link import Link
from sandbox.ports.sandbox import Command, SandboxFailed
from sandbox.ports.terminals import TerminalWish
from sandbox.protocol.terminal import Open
from sandbox.protocol.values import Position
from sandbox.providers.container.fleet import ContainerFleet
from sandbox.providers.container.kits import Kits
from sandbox.providers.container.note import read_note
from sandbox.providers.local.fleet import LocalFleet
from sandbox.providers.local.layout import SandboxHome
from tests.support.bridge import Owner
from tests.support.engine import DockerEngine, whats_missing
from tests.support.terminal_watcher import Watcher
from tests.support.waiting import until

LOCAL, BARE, ENGINE = "contained local sandbox", "docker run --rm true", "the engine's exec"
AT_ONCE = 20
START, STARTS = "start until the bridge answers", "many starts at once"
ECHO, FLOOD, MEMORY = "echo by the agent, p50", "`yes` on a PTY, to one viewer", "memory of one sandbox"
COMMAND = "one command"
BEYOND_MIB = 16.0  # how much more memory than a local sandbox a container may take
ALIKE = 3  # further sandboxes beside the measured one
ECHOES, COMMANDS = 300, 10
LINE = b"the quick brown fox jumps over the lazy dog"


async def run(*, quick: bool) -> list[Figure]:
    if reason := whats_missing(*DockerEngine.programs):
        raise NotHere(reason)
    rounds, crowds, seconds = (3, 1, 0.4) if quick else (12, 4, 1.0)
    with whole_machine(), TemporaryDirectory(prefix="holdfast-bench-") as name, DockerEngine() as engine:
        return await costs(engine, Path(name), rounds=rounds, crowds=crowds, seconds=seconds, rng=Random())


async def costs(
    engine: DockerEngine,
    directory: Path,
    *,
    rounds: int,
    crowds: int,
    seconds: float,
    rng: Random,
    at_once: int = AT_ONCE,
    kits: Kits | None = None,
) -> list[Figure]:
    """Measure all costs. `crowds` is the number of rounds with many starts, `at_once` in each."""
    ours = ContainerFleet(directory / "ours", engine=f"unix://{engine.socket}", image=engine.image, kits=kits)
    local = LocalFleet(directory / "local", level="contained")
    async with (
        _opened(ours),
        _opened(local),
        _kept(ours, lambda: [_shim(directory / "ours")]) as mine,
        _kept(local, lambda: [_bubblewrap(directory / "local")]) as theirs,
    ):
        one: dict[str, Measure] = {OURS: _starts(ours, START), BARE: _runs(engine, START)}
        many: dict[str, Measure] = {OURS: _starts(ours, STARTS, at_once), BARE: _runs(engine, STARTS, at_once)}
        inside: dict[str, Measure] = {OURS: mine.measure(seconds), LOCAL: theirs.measure(seconds)}
        commands: dict[str, Measure] = {OURS: mine.commands, ENGINE: _execs(engine, directory / "ours")}
        await take_turns(1, [one, inside, commands], rng)  # warms the machine's caches
        found = await take_turns(rounds, [one, inside, commands], rng)
        await take_turns(crowds, [many], rng, found)
    return figures(found)


def figures(found: Rounds) -> list[Figure]:
    allowed = [value + BEYOND_MIB for value in found.of(MEMORY, LOCAL)]
    beyond = f"{LOCAL} + {BEYOND_MIB:g} MiB"
    return [
        found.figure(START, BARE, "ms", less_is_better=True, goal=Goal(1.5)),
        found.figure(STARTS, BARE, "ms", less_is_better=True, goal=Goal(1.3)),
        found.figure(ECHO, LOCAL, "us", less_is_better=True, goal=Goal(1.3)),
        found.figure(FLOOD, LOCAL, "MB/s"),
        compare(MEMORY, beyond, "MiB", found.of(MEMORY, OURS), allowed, less_is_better=True, goal=Goal(1.0)),
        found.figure(MEMORY, LOCAL, "MiB", less_is_better=True),
        found.figure(COMMAND, ENGINE, "ms", less_is_better=True, goal=Goal(0.25)),
    ]


def _spec(session_id: str) -> SandboxSpec:
    return SandboxSpec(session_id, 1, ("busybox", "cat"))


@asynccontextmanager
async def _opened(fleet: Fleet) -> AsyncIterator[None]:
    try:
        await fleet.open()
    except SandboxFailed as exc:
        raise NotHere(str(exc)) from exc
    try:
        yield
    finally:
        for session_id in await fleet.running():
            await fleet.sandbox(session_id).destroy()
        await fleet.close()


_numbers = itertools.count(1)


def _starts(fleet: Fleet, step: str, count: int = 1) -> Measure:
    async def measure() -> Mapping[str, float]:
        names = [f"start-{next(_numbers)}" for _ in range(count)]
        before = time.perf_counter()
        await asyncio.gather(*(fleet.start(_spec(name)) for name in names))
        took = time.perf_counter() - before
        await asyncio.gather(*(fleet.sandbox(name).destroy() for name in names))
        return {step: took * 1e3}

    return measure


def _runs(engine: DockerEngine, step: str, count: int = 1) -> Measure:
    argv = ["docker", "--host", f"unix://{engine.socket}", "run", "--rm", "--network", "none", engine.image, "true"]

    async def one() -> None:
        process = await asyncio.create_subprocess_exec(*argv)
        if code := await process.wait():
            raise RuntimeError(f"docker run ended with {code}")

    async def measure() -> Mapping[str, float]:
        before = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(count)))
        return {step: (time.perf_counter() - before) * 1e3}

    return measure


def _execs(engine: DockerEngine, data_dir: Path) -> Measure:
    """The engine's exec in the same container, with a new connection for each command, as the gateway makes it."""
    note = read_note(SandboxHome(data_dir, "kept"))
    assert note is not None
    wish = {"Cmd": ["busybox", "true"], "AttachStdout": True, "AttachStderr": True}

    async def one(client: httpx.AsyncClient) -> None:
        made = (await client.post(f"/containers/{note.container}/exec", json=wish)).raise_for_status().json()
        (await client.post(f"/exec/{made['Id']}/start", json={"Detach": False, "Tty": False})).raise_for_status()

    async def measure() -> Mapping[str, float]:
        transport = httpx.AsyncHTTPTransport(uds=str(engine.socket))
        async with httpx.AsyncClient(transport=transport, base_url="http://engine", timeout=60) as client:
            before = time.perf_counter()
            for _ in range(COMMANDS):
                await one(client)
            return {COMMAND: (time.perf_counter() - before) * 1e3 / COMMANDS}

    return measure


@dataclass
class _Echoes(Owner):
    """Counts the lines that have come, and keeps none."""

    heard: int = 0
    came: asyncio.Event = field(default_factory=asyncio.Event)

    def on_frames(self, epoch: str, first: int, lines: Sequence[bytes]) -> None:
        self.heard = first + len(lines) - 1
        self.came.set()


class _Kept:
    """A sandbox and its agent that run all the time."""

    def __init__(self, fleet: Fleet, link: Link, echoes: _Echoes, pids: Sequence[int]) -> None:
        self._sandbox = fleet.sandbox("kept")
        self._link = link
        self._echoes = echoes
        self._pids = pids
        self._seq = 0

    def measure(self, seconds: float) -> Measure:
        async def measure() -> Mapping[str, float]:
            return {ECHO: await self._echo(), FLOOD: await self._flood(seconds), MEMORY: self._memory()}

        return measure

    async def commands(self) -> Mapping[str, float]:
        before = time.perf_counter()
        for _ in range(COMMANDS):
            done = await self._sandbox.exec(Command(("busybox", "true")))
            if done.exit_code:
                raise RuntimeError(f"a command ended with {done.exit_code}: {done.stderr}")
        return {COMMAND: (time.perf_counter() - before) * 1e3 / COMMANDS}

    async def _echo(self) -> float:
        took = sorted([await self._one_echo() for _ in range(ECHOES)])
        self._link.confirm(Position(self._echoes.epoch, self._echoes.heard))
        return took[len(took) // 2] * 1e6

    async def _one_echo(self) -> float:
        self._seq += 1
        awaited = self._echoes.heard + 1
        before = time.perf_counter()
        self._link.deliver(self._seq, LINE)
        while self._echoes.heard < awaited:
            self._echoes.came.clear()
            await self._echoes.came.wait()
        return time.perf_counter() - before

    async def _flood(self, seconds: float) -> float:
        terminals, name = self._sandbox.terminals(), f"flood-{next(_numbers)}"
        await terminals.create(name, TerminalWish(command=("busybox", "yes", LINE.decode())))
        link = await terminals.open(name, Open.of(None, "drive", None), Watcher(), lambda frames: None)
        await until(lambda: link.passed_bytes > 0)
        await asyncio.sleep(seconds / 4)
        before, began = link.passed_bytes, time.perf_counter()
        await asyncio.sleep(seconds)
        await until(lambda: link.passed_bytes > before)  # on a busy machine the first bytes may come late
        passed, took = link.passed_bytes - before, time.perf_counter() - began
        link.close()
        await terminals.end(name)
        return passed / 1e6 / took

    def _memory(self) -> float:
        return sum(pss_kib(pid) for top in self._pids for pid in family(top)) / 1024


@asynccontextmanager
async def _kept(fleet: Fleet, pids: Callable[[], Sequence[int]]) -> AsyncIterator[_Kept]:
    for number in range(ALIKE):
        await fleet.start(_spec(f"alike-{number}"))
    await fleet.start(_spec("kept"))
    echoes = _Echoes()
    link = await fleet.sandbox("kept").connect(echoes, None)
    try:
        link.start(None)
        await until(lambda: echoes.epochs)
        yield _Kept(fleet, link, echoes, pids())
    finally:
        link.close()


def _bubblewrap(data_dir: Path) -> int:
    """The ancestor of all processes of the kept sandbox."""
    bridge = SandboxHome(data_dir, "kept").read_note()
    assert bridge is not None
    return bridge.pid


def _shim(data_dir: Path) -> int:
    """The ancestor of all processes of a container: the shim, which is the parent of its first process alone."""
    note = read_note(SandboxHome(data_dir, "kept"))
    assert note is not None
    return int(Path(f"/proc/{note.pid}/stat").read_text().rpartition(")")[2].split()[1])
