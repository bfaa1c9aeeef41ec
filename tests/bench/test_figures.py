"""A figure's ratio, spread and verdict, and the table it is printed in."""

import pytest

from bench.figures import Figure, Goal, compare, show


def test_a_ratio_is_the_median_of_the_rounds_ratios_and_not_the_ratio_of_the_medians() -> None:
    figure = compare("c", "p", "us", [1, 20, 3], [2, 10, 6])
    assert (figure.ours, figure.theirs, figure.ratio) == (3, 6, 0.5)
    assert compare("c", "p", "us", [3, 20, 30], [2, 10, 60]).ratio == 1.5


def test_the_spread_is_the_middle_half_or_all_of_a_few_rounds() -> None:
    assert compare("c", "p", "us", [1], [1]).spread is None
    assert compare("c", "p", "us", [1, 2, 3], [1, 1, 1]).spread == (1, 3)
    assert compare("c", "p", "us", [1, 2, 3, 4, 5], [1, 1, 1, 1, 1]).spread == (2, 4)


def test_where_noise_swallowed_the_difference_there_is_no_ratio() -> None:
    """A latency beyond the direct way can come out below zero."""
    figure = compare("c", "p", "us", [1, -1, -1], [1, 1, -1], less_is_better=True, goal=Goal(2))
    assert figure.ratio is None
    assert figure.verdict == "at most 2x, too noisy to say"
    assert compare("c", "p", "us", [1, 3, -1], [1, 1, 1]).ratio == 2


def test_rounds_that_only_one_of_them_had_are_left_out_of_the_pairs() -> None:
    assert compare("c", "p", "us", [1, 2, 3, 4], [1, 1]).rounds == ((1, 1), (2, 1))


@pytest.mark.parametrize(
    ("less", "goal", "said"),
    [
        (False, Goal(0.5), "at least 0.5x, met"),
        (False, Goal(0.5, 0.7), "at least 0.5x, met; reach 0.7x, missed"),
        (True, Goal(0.5), "at most 0.5x, missed"),
        (True, Goal(0.6), "at most 0.6x, met"),
        (True, None, ""),
    ],
)
def test_a_goal_is_a_bound_on_the_better_side(less: bool, goal: Goal | None, said: str) -> None:
    assert Figure("c", "p", "us", 0.6, 1.0, less, goal=goal).verdict == said


@pytest.mark.parametrize("goal", [None, Goal(0.5), Goal(0.5, 0.7)])
def test_json_keeps_all_of_it(goal: Goal | None) -> None:
    figure = Figure("c", "p", "us", 2, 4, True, ((1, 2), (3, 6)), "n", goal)
    assert Figure.from_json(figure.as_json()) == figure
    assert figure.as_json()["ratio"] == 0.5


def test_what_is_printed_has_ratio_spread_and_peer_in_columns(capsys: pytest.CaptureFixture[str]) -> None:
    show([compare("cost", "relay", "us", [1, 2], [2, 2], goal=Goal(0.4)), Figure("other", "it", "ms", -1, 2)])
    head, cost, other, goal = capsys.readouterr().out.splitlines()
    assert "0.75x  0.50-1.00  more is better  relay" in cost
    assert "too noisy" in other
    assert head.index("spread") >= head.index("ratio")
    assert goal == "cost, relay: goal: at least 0.4x, met"
