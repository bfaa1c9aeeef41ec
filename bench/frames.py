"""The measurement behind docs/decisions/0003: our own WebSocket frames compared with the `websockets` package, on a
browser's socket and on the link to a sandbox.

The same program (bench/floor.py, which here stores nothing and passes every message on) runs three times: with our
frames on both sides, with the package's on the browser's side, and with the package's on the agent's side. The package
runs without its I/O and without extensions, which is its fastest way. All three share the cost of everything else,
mainly system calls, so the frames themselves differ by more than these ratios.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from bench.contenders import Stage, stage
from bench.figures import Figure
from bench.load import Crowd
from bench.processes import raise_descriptor_limit
from bench.rounds import OURS, Measure, take_turns

SESSIONS = 64
DEPTHS = (1, 4)
PACKAGE = {"browser": "websockets on the browser's socket", "link": "websockets on the link"}
SETTLE_SECONDS = 1.0


async def run(*, quick: bool) -> list[Figure]:
    raise_descriptor_limit()
    with TemporaryDirectory(prefix="holdfast-bench-") as name, stage(Path(name)) as made:
        return [
            *await cost(made, SESSIONS, rounds=4 if quick else 16, seconds=0.4, rng=Random()),
            *await memory(made, 500 if quick else 2000),
        ]


async def cost(made: Stage, sessions: int, *, rounds: int, seconds: float, rng: Random) -> list[Figure]:
    async with AsyncExitStack() as open_parts:
        programs, crowds = {}, {}
        for name, side in _sides().items():
            contender = open_parts.enter_context(made.floor(durable=False, package=side))
            programs[name] = contender.program
            crowds[name] = await open_parts.enter_async_context(Crowd(contender.target, sessions))

        def slices(name: str, depth: int) -> Measure:
            async def measure() -> Mapping[str, float]:
                count, seconds_used = await crowds[name].in_turns(depth, seconds, programs[name].cpu_seconds)
                return {f"CPU per message passed on, {depth} in flight": seconds_used / count * 1e6}

            return measure

        found = await take_turns(rounds, [{name: slices(name, depth) for name in crowds} for depth in DEPTHS], rng)
    return [found.figure(step, peer, "us", less_is_better=True) for step in found.steps() for peer in PACKAGE.values()]


async def memory(made: Stage, connections: int) -> list[Figure]:
    kept = {}
    for name, side in _sides().items():
        with made.floor(durable=False, package=side) as contender:
            async with Crowd(contender.target, SESSIONS):
                await asyncio.sleep(SETTLE_SECONDS)
                empty = contender.program.pss_kib()
                async with Crowd(contender.target, connections):
                    await asyncio.sleep(SETTLE_SECONDS)
                    kept[name] = (contender.program.pss_kib() - empty) / connections
    claim = f"memory per idle pair of connections, {connections:,} pairs"
    return [Figure(claim, peer, "KiB", kept[OURS], kept[peer], less_is_better=True) for peer in PACKAGE.values()]


def _sides() -> dict[str, str]:
    """The side on which each contender uses the package."""
    return {OURS: "", **{name: side for side, name in PACKAGE.items()}}
