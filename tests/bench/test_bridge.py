"""The benchmark of gateway and bridge, small: it measures both, with both kinds of bridges."""

from pathlib import Path
from random import Random

from bench.bridge import PEER, cost


async def test_bridges_and_barest_bridges_answer_and_are_weighed(tmp_path: Path) -> None:
    figures = await cost(tmp_path, 1, rounds=1, seconds=0.1, rng=Random(1))
    assert [figure.claim for figure in figures] == [
        "CPU of a bridge per message, 1 sessions, 1 in flight",
        "CPU of a bridge per message, 1 sessions, 4 in flight",
        "CPU of gateway and bridge, 1 in flight",
        "CPU of gateway and bridge, 4 in flight",
    ]
    for figure in figures:
        assert (figure.peer, figure.less_is_better) == (PEER, True)
        assert figure.ours > 0
        assert figure.theirs > 0
