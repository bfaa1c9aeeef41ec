"""Turns are interleaved and their order is drawn."""

from collections.abc import Mapping
from random import Random

from bench.rounds import Measure, take_turns


def measures(taken: list[tuple[str, str]], step: str) -> dict[str, Measure]:
    def one(contender: str) -> Measure:
        async def measure() -> Mapping[str, float]:
            taken.append((step, contender))
            return {step: len(taken)}

        return measure

    return {contender: one(contender) for contender in ("ours", "theirs", "floor")}


async def test_contenders_of_a_step_run_right_after_each_other_and_each_once_in_a_round() -> None:
    taken: list[tuple[str, str]] = []
    found = await take_turns(20, [measures(taken, "small"), measures(taken, "large")], Random(7))
    orders = set()
    for first in range(0, len(taken), 3):
        steps, contenders = zip(*taken[first : first + 3], strict=True)
        assert len(set(steps)) == 1
        assert sorted(contenders) == ["floor", "ours", "theirs"]
        orders.add(contenders)
    assert len(orders) > 3, "the order is drawn anew"
    assert len({taken[first][0] for first in range(0, 120, 6)}) == 2, "that of the steps, too"
    assert sorted(found.steps()) == ["large", "small"]
    assert len(found.of("small", "ours")) == 20


async def test_values_are_paired_by_round() -> None:
    found = await take_turns(3, [measures([], "small")], Random(7))
    figure = found.figure("small", "theirs", "us", ours="ours")
    assert [abs(ours - theirs) < 3 for ours, theirs in figure.rounds] == [True] * 3
    assert figure.claim == "small"
