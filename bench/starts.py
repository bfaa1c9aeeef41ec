"""How long starts take: `holdfast --help`, a gateway that answers, a sandbox with an agent that reads.

All of it runs in an environment like an installation's. Each peer runs in the same round on the same core: Python that
does nothing, the barest uvicorn and Starlette, the agent spawned alone. A goal allows a number of milliseconds beyond a
peer, so its row compares with the peer plus these milliseconds. An agent reads when it has its first message; in a
sandbox, time counts from the message that wakes a new session without a sandbox. CPU is that of the command or the
server, and for a sandbox that of gateway, bridge and agent together.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import ParamSpec

from bench.figures import Figure, Goal, compare
from bench.rounds import OURS, Measure, Rounds, take_turns
from bench.starting import Installed, StartingGateway, Took, install, until_end, until_healthy, until_it_reads

NOTHING, BARE_APP, ALONE = "python -c pass", "bare uvicorn + starlette", "the agent alone"
HELP, SERVE = "holdfast --help", "holdfast serve until /health"
LEVELS = ("contained", "trusted")
HELP_MS, SERVE_MS, SANDBOX_MS = 100.0, 500.0, 150.0  # allowed beyond each one's peer
P = ParamSpec("P")
Start = Callable[[], Awaitable[Took]]


async def run(*, quick: bool) -> list[Figure]:
    with TemporaryDirectory(prefix="holdfast-bench-") as name:
        installed = await asyncio.to_thread(install, Path(name, "environment"))
        return await starts(installed, Path(name), LEVELS, rounds=4 if quick else 16, rng=Random())


async def starts(
    installed: Installed, directory: Path, levels: Sequence[str], *, rounds: int, rng: Random
) -> list[Figure]:
    with ExitStack() as running:
        steps = {HELP: _commands(installed), SERVE: _servers(installed, directory)}
        for level in levels:
            gateway = running.enter_context(StartingGateway(installed, level, directory))
            steps[_reads(level)] = {OURS: gateway.until_it_reads, ALONE: _thread(until_it_reads, installed)}
        turns = [
            {name: _measured(step, start) for name, start in contenders.items()} for step, contenders in steps.items()
        ]
        await take_turns(1, turns, rng)  # warms the machine's caches
        found = await take_turns(rounds, turns, rng)
    return [
        _beyond(found, HELP, NOTHING, HELP_MS),
        *_beside(found, HELP, NOTHING),
        _beyond(found, SERVE, NOTHING, SERVE_MS),
        *_beside(found, SERVE, BARE_APP),
        *(_beyond(found, _reads(level), ALONE, SANDBOX_MS) for level in levels),
        *(figure for level in levels for figure in _beside(found, _reads(level), ALONE)),
    ]


def _commands(installed: Installed) -> dict[str, Start]:
    return {
        OURS: _thread(until_end, installed, [installed.holdfast, "--help"]),
        NOTHING: _thread(until_end, installed, [installed.python, "-c", "pass"]),
    }


def _servers(installed: Installed, directory: Path) -> dict[str, Start]:
    home, log = directory / "served", directory / "served.log"
    return {
        OURS: _thread(until_healthy, installed, lambda _: [installed.holdfast, "serve"], home, log),
        BARE_APP: _thread(
            until_healthy, installed, lambda port: [installed.python, installed.app, str(port)], home, log
        ),
        NOTHING: _thread(until_end, installed, [installed.python, "-c", "pass"]),
    }


def _thread(start: Callable[P, Took], *args: P.args, **kwargs: P.kwargs) -> Start:
    return lambda: asyncio.to_thread(start, *args, **kwargs)


def _reads(level: str) -> str:
    return f"{level} sandbox, from message to an agent that reads"


def _measured(step: str, start: Start) -> Measure:
    async def measure() -> Mapping[str, float]:
        took = await start()
        return {step: took.wall, _cpu(step): took.cpu}

    return measure


def _cpu(step: str) -> str:
    return f"{step}, CPU"


def _beside(found: Rounds, step: str, peer: str) -> list[Figure]:
    return [found.figure(what, peer, "ms", less_is_better=True) for what in (step, _cpu(step))]


def _beyond(found: Rounds, step: str, peer: str, allowed_ms: float) -> Figure:
    """A figure with the goal of at most `allowed_ms` beyond the peer."""
    allowed = [value + allowed_ms for value in found.of(step, peer)]
    named = f"{peer} + {allowed_ms:g} ms"
    return compare(step, named, "ms", found.of(step, OURS), allowed, less_is_better=True, goal=Goal(1.0))
