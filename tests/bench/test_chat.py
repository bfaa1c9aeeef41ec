"""The comparisons of a chat message run, and give a ratio. No time is asserted."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from bench import frames, relay
from bench.contenders import FLOOR, RELAY, Stage, stage
from bench.frames import PACKAGE


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    directory: Path = tmp_path_factory.mktemp("bench")
    with stage(directory) as opened:
        yield opened


async def test_a_message_is_compared_with_relay_and_floor_by_cpu(made: Stage) -> None:
    """It fails if Holdfast or the floor program answered a message that is not in its database with its answer."""
    figures = await relay.throughput(made, 2, rounds=2, seconds=0.05, rng=Random(7))
    assert [figure.peer for figure in figures] == [RELAY, FLOOR] * 2
    assert all(figure.ratio and figure.spread for figure in figures)


async def test_a_message_is_compared_with_relay_and_floor_by_time(made: Stage) -> None:
    figures = await relay.latency(made, 2, rounds=1, seconds=0.2, rng=Random(7))
    assert (figures[0].peer, figures[0].goal) == (FLOOR, relay.P50_GOAL)
    assert figures[0].ratio is not None


async def test_our_frames_are_compared_with_the_packages_on_both_sides(made: Stage) -> None:
    figures = await frames.cost(made, 2, rounds=1, seconds=0.05, rng=Random(7))
    assert {figure.peer for figure in figures} == set(PACKAGE.values())
    assert all(figure.ratio is not None for figure in figures)
