"""How the cost of one operation grows with size: a message among 10 to 5,000 open sessions, and an append and a resume
after 10^2 to 10^6 records of history.

All of it runs on the real gateway, SQLite and the stand-in sandbox. Each size has its own gateway. The gateways take
turns; the peer is the smallest size. Sessions: every size has the same number of messages in flight, from one session
after the other, so the only difference is the number of sessions, with the cost of their idle timers and memory. It is
measured with and without the syncs that follow answers: a session with rare messages has one sync for each answer, a
busy session shares one among many. Histories: see bench/growth_history.py.
"""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from bench.contenders import Contender, Stage, stage
from bench.figures import Figure, Goal
from bench.growth_history import histories
from bench.load import Crowd
from bench.processes import raise_descriptor_limit
from bench.rounds import Measure, take_turns

SESSIONS = (10, 100, 1000, 5000)
HISTORIES = (10**2, 10**3, 10**4, 10**5, 10**6)
IN_FLIGHT = 10
GOAL = Goal(1.3)
STEP = "CPU per message"


async def run(*, quick: bool) -> list[Figure]:
    most = (raise_descriptor_limit() - 500) // 2
    counts = [count for count in SESSIONS[: -1 if quick else None] if count < most]
    lengths = HISTORIES[: -1 if quick else None]
    rounds, rng = 4 if quick else 12, Random()
    with TemporaryDirectory(prefix="holdfast-bench-") as name, stage(Path(name)) as made:
        return [
            *await sessions(made, counts, rounds=rounds, seconds=0.5, rng=rng, syncs=True),
            *await sessions(made, counts, rounds=rounds, seconds=0.5, rng=rng, syncs=False),
            *await histories(made, lengths, rounds=rounds, seconds=0.4, rng=rng),
        ]


async def sessions(
    made: Stage, counts: Sequence[int], *, rounds: int, seconds: float, rng: Random, syncs: bool
) -> list[Figure]:
    """The cost of a message, by the number of open sessions."""

    def slices(contender: Contender, crowd: Crowd) -> Measure:
        async def measure() -> Mapping[str, float]:
            count, cost = await crowd.in_rotation(IN_FLIGHT, seconds, contender.program.cpu_seconds)
            return {STEP: cost / count * 1e6}

        return measure

    async with AsyncExitStack() as open_parts:
        turns = {}
        for count in counts:
            contender = open_parts.enter_context(made.gateway(syncs=syncs))
            crowd = await open_parts.enter_async_context(Crowd(contender.target, count))
            turns[_named(count)] = slices(contender, crowd)
        found = await take_turns(rounds, [turns], rng)
    smallest, *larger = map(_named, counts)
    step = f"{STEP}{'' if syncs else ' without syncs'}"
    return [
        found.figure(STEP, smallest, "us", ours=name, claim=f"{step}, {name}", less_is_better=True, goal=GOAL)
        for name in larger
    ]


def _named(count: int) -> str:
    return f"{count:,} sessions"
