"""What a race of sync tools found, as figures."""

import pytest

from bench.rounds import OURS
from bench.sync_goals import BYTE, FIRST, LARGER, NOTHING, ON_DISK, RESTORE, TEN, WALK, Cost, Costs, goals


@pytest.fixture
def costs() -> Costs:
    """Three laps of ours and of restic, one of rclone, which is slow; nothing of tar."""
    found = Costs()
    for lap in (1, 2, 3):
        for step in (FIRST, NOTHING, TEN, BYTE, RESTORE, ON_DISK):
            found.add(OURS, step, Cost(lap, 100_000, 5))
            found.add("restic", step, Cost(4 * lap, 100_000, 5))
        for step in (f"{NOTHING}, {LARGER}", f"{TEN}, {LARGER}"):
            found.add(OURS, step, Cost(2 * lap, 100_000, 5))
        found.add(WALK, NOTHING, Cost(lap))
        found.add(WALK, f"{NOTHING}, {LARGER}", Cost(2 * lap))
        for step in (TEN, BYTE, f"{TEN}, {LARGER}"):
            found.changed(step, 100_000)
    for step in (TEN, RESTORE, ON_DISK):
        found.add("rclone", step, Cost(40))
    return found


def test_laps_are_paired_and_a_tool_that_was_not_measured_is_left_out(costs: Costs) -> None:
    figures = {(figure.claim, figure.peer): figure for figure in goals(costs)}
    assert figures[FIRST, "restic"].rounds == ((1, 4), (2, 8), (3, 12))
    assert figures[FIRST, "restic"].verdict == "at most 0.5x, met"
    assert (FIRST, "tar + zstd -3") not in figures
    assert (figures[TEN, "rclone"].ratio, figures[TEN, "rclone"].spread) == (0.05, None), "one lap has no spread"
    assert figures[RESTORE, "restic, the best"].ratio == 0.25
    assert figures[f"{NOTHING}, {LARGER}", WALK].ratio == 1


def test_bytes_are_judged_by_the_worst_round_and_a_larger_tree_by_what_it_adds(costs: Costs) -> None:
    costs.add(OURS, BYTE, Cost(1, 400_000, 5))
    costs.changed(BYTE, 100_000)
    figures = {figure.claim: figure for figure in goals(costs)}
    assert figures[f"{TEN}: bytes sent, the worst round"].verdict == "at most 1x, met"
    assert figures[f"{BYTE}: bytes sent, the worst round"].verdict == "at most 1x, missed"
    added = figures[f"{TEN}, {LARGER}: added seconds"]
    assert (added.ours, added.theirs) == (2, 2)
