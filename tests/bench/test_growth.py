"""The comparisons of more work with less run, and give a ratio. No time is asserted."""

from pathlib import Path
from random import Random

from bench import growth
from bench.contenders import stage
from bench.growth_history import histories


async def test_a_message_is_compared_by_how_many_sessions_are_open(tmp_path: Path) -> None:
    with stage(tmp_path) as made:
        (figure,) = await growth.sessions(made, (2, 12), rounds=1, seconds=0.05, rng=Random(7), syncs=False)
    assert (figure.claim, figure.peer) == ("CPU per message without syncs, 12 sessions", "2 sessions")
    assert figure.ratio is not None


async def test_append_resume_read_and_load_are_compared_by_the_length_of_the_history(tmp_path: Path) -> None:
    with stage(tmp_path) as made:
        figures = await histories(made, (60, 300), rounds=1, seconds=0.05, rng=Random(7))
    assert [figure.claim.split(",")[0] for figure in figures] == [
        "CPU per append", "CPU per resume", "CPU per read", "CPU per load",
    ]  # fmt: skip
    assert all(figure.ratio is not None for figure in figures)
