"""The cost of a chat message through Holdfast, which stores the message and its answer durably. The peers are the usual
relay, which only passes it on, and the floor: the barest Python program that makes the same two commits.

All stand between the same browsers (bench/load.py) and the same stand-in (bench/standin.py), which answers each message
with chunk, chunk, done. The measured program has one core, everything else the other; contenders take turns in slices.
CPU is that of the whole process, including SQLite's thread. The usual relay is bench/peer.py; it stores nothing. The
floor program is bench/floor.py; its docstring says what it leaves out.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory

from bench.contenders import FLOOR, RELAY, Contender, Stage, stage
from bench.figures import Figure, Goal, compare
from bench.load import Crowd, LoadFailed, Target, quantile, side_by_side
from bench.processes import raise_descriptor_limit
from bench.rounds import OURS, Measure, Rounds, take_turns

SESSIONS = 64
DEPTHS = (1, 4)
RATE = 100.0  # messages a second, of all crowds together
SETTLE_SECONDS = 2.0
DIRECT = "no relay"
GOALS = {1: Goal(0.40, 0.46), 4: Goal(0.55, 0.68)}
P50_GOAL = Goal(2.0)


async def run(*, quick: bool) -> list[Figure]:
    most = (raise_descriptor_limit() - 200) // 2
    rng = Random()
    with TemporaryDirectory(prefix="holdfast-bench-") as name, stage(Path(name)) as made:
        return [
            *await throughput(made, SESSIONS, rounds=4 if quick else 16, seconds=0.5, rng=rng),
            *await latency(made, SESSIONS, rounds=3 if quick else 8, seconds=3.0 if quick else 4.0, rng=rng),
            *await memory(made, min(1000 if quick else 5000, most)),
        ]


async def throughput(made: Stage, sessions: int, *, rounds: int, seconds: float, rng: Random) -> list[Figure]:
    async with AsyncExitStack() as open_parts:
        contenders: dict[str, Contender] = {}
        crowds: dict[str, Crowd] = {}
        for name, start in _contenders(made).items():
            contenders[name] = open_parts.enter_context(start())
            crowds[name] = await open_parts.enter_async_context(Crowd(contenders[name].target, sessions))
        answered: dict[str, int] = dict.fromkeys(contenders, 0)

        def slices(name: str, depth: int) -> Measure:
            async def measure() -> Mapping[str, float]:
                count, cost = await crowds[name].in_turns(depth, seconds, contenders[name].program.cpu_seconds)
                answered[name] += count
                return {_in_flight(depth): count / cost}

            return measure

        found = await take_turns(rounds, [{name: slices(name, depth) for name in contenders} for depth in DEPTHS], rng)
        for name in (OURS, FLOOR):
            if (stored := contenders[name].stored()) < 2 * answered[name]:
                raise LoadFailed(f"{name} answered {answered[name]} messages, but only {stored} records are stored")
    figures = []
    for depth in DEPTHS:
        step = _in_flight(depth)
        note = f"{1e6 / median(found.of(step, OURS)):.0f} us each"
        claim = f"messages per CPU-second, {sessions} sessions, {step} each"
        figures += [
            found.figure(step, RELAY, "messages", claim=claim, goal=GOALS[depth], note=note),
            found.figure(step, FLOOR, "messages", claim=claim),
        ]
    return figures


async def latency(made: Stage, sessions: int, *, rounds: int, seconds: float, rng: Random) -> list[Figure]:
    """The time of a message. All contenders take turns, message by message."""
    async with AsyncExitStack() as open_parts:
        targets = {DIRECT: made.direct()}
        for name, start in _contenders(made).items():
            targets[name] = open_parts.enter_context(start()).target
        crowds = {
            name: await open_parts.enter_async_context(Crowd(target, sessions)) for name, target in targets.items()
        }
        found, every = Rounds(), {name: list[float]() for name in crowds}
        for _ in range(rounds):
            for name, took in (await side_by_side(crowds, RATE, seconds, rng)).items():
                found.add("p50", name, quantile(took, 0.5) * 1e3)
                every[name] += took
    each = f"{RATE / len(crowds):.0f} messages/s"
    p99 = {name: [quantile(sorted(took), 0.99) * 1e3] for name, took in every.items()}
    direct = found.of("p50", DIRECT)
    note = f"straight to the stand-in {median(direct):.2f} ms"
    added = [
        [value - floor for value, floor in zip(found.of("p50", name), direct, strict=True)] for name in (OURS, RELAY)
    ]
    whole = f"from message to `done`, {each}"
    return [
        found.figure("p50", FLOOR, "ms", claim=f"p50 {whole}", less_is_better=True, goal=P50_GOAL),
        compare(f"added latency p50, {each}", RELAY, "ms", *added, less_is_better=True, note=note),
        *(compare(f"p99 {whole}", peer, "ms", p99[OURS], p99[peer], less_is_better=True) for peer in (FLOOR, RELAY)),
    ]


async def memory(made: Stage, sessions: int) -> list[Figure]:
    cost = {}
    for name, start in _contenders(made).items():
        with start() as contender:
            async with Crowd(contender.target, min(SESSIONS, sessions)):
                await asyncio.sleep(SETTLE_SECONDS / 2)
                empty = contender.program.pss_kib()
                async with Crowd(_from(contender.target, SESSIONS), sessions):
                    await asyncio.sleep(SETTLE_SECONDS)
                    cost[name] = (contender.program.pss_kib() - empty) / sessions
    claim = f"memory per idle session, {sessions:,} sessions"
    note = "after one message and its answer each; PSS of the process"
    return [Figure(claim, peer, "KiB", cost[OURS], cost[peer], True, note=note) for peer in (RELAY, FLOOR)]


def _contenders(made: Stage) -> dict[str, Callable[[], AbstractContextManager[Contender]]]:
    return {OURS: made.gateway, RELAY: made.relay, FLOOR: made.floor}


def _in_flight(depth: int) -> str:
    return f"{depth} in flight"


def _from(target: Target, first: int) -> Target:
    return Target(target.port, lambda number: target.request(first + number))
