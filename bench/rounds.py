"""Run rounds, and keep each contender's values round by round. The contenders of a step run one right after the other,
in a new random order each time, so that whatever disturbs the machine disturbs all of them.
"""

import statistics
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random
from typing import TypeVar

from bench.figures import Figure, Goal, compare, number, table

OURS = "holdfast"
T = TypeVar("T")
Measure = Callable[[], Awaitable[Mapping[str, float]]]  # one turn of a contender: its values by measure


class Rounds:
    """The values of each contender at each step, in the order of the rounds."""

    def __init__(self) -> None:
        self._values: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def add(self, step: str, contender: str, value: float) -> None:
        self._values[step][contender].append(value)

    def of(self, step: str, contender: str) -> list[float]:
        return self._values[step].get(contender, [])

    def steps(self) -> list[str]:
        return [step for step, values in self._values.items() if values]

    def contenders(self, step: str) -> list[str]:
        return list(self._values[step])

    def figure(
        self,
        step: str,
        peer: str,
        unit: str,
        *,
        ours: str = OURS,
        claim: str = "",
        less_is_better: bool = False,
        goal: Goal | None = None,
        note: str = "",
    ) -> Figure:
        """The figure that compares `ours` with `peer` at a step. By default, the claim has the step's name."""
        mine, other = self.of(step, ours), self.of(step, peer)
        return compare(claim or step, peer, unit, mine, other, less_is_better=less_is_better, goal=goal, note=note)

    def show(self, units: Mapping[str, str]) -> None:
        """Print every contender's raw values."""
        for step in self.steps():
            rows = [
                (contender, number(statistics.median(values)), ", ".join(map(number, values)))
                for contender, values in self._values[step].items()
            ]
            table((f"{step}, {units.get(step, '')}".rstrip(", "), "median", "rounds"), rows)
            print()


async def take_turns(
    count: int, steps: Sequence[Mapping[str, Measure]], rng: Random, into: Rounds | None = None
) -> Rounds:
    """Run `count` rounds. A step maps contenders' names to their measures."""
    rounds = into or Rounds()
    for _ in range(count):
        for step in shuffled(steps, rng):
            for contender in shuffled(list(step), rng):
                for name, value in (await step[contender]()).items():
                    rounds.add(name, contender, value)
    return rounds


def shuffled(items: Sequence[T], rng: Random) -> list[T]:
    return rng.sample(items, len(items))
