"""What got worse from run to run."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import history
from bench.figures import Figure, compare
from bench.history import Line, Ratio
from bench.results import Claim, Results

MORE = Ratio(1.0, 0.95, 1.05, False)
LESS = Ratio(1.0, 0.95, 1.05, True)
RUN = Line("2026-01-02", "abc", "this one", False, False, {"a": MORE, "b": LESS})


@pytest.mark.parametrize(
    ("before", "now", "worse"),
    [
        (MORE, Ratio(0.8, 0.75, 0.85, False), True),
        (MORE, Ratio(1.2, 1.15, 1.25, False), False),
        (MORE, Ratio(0.8, 0.75, 0.96, False), False),  # the spreads touch
        (Ratio(1.0, 1.0, 1.0, False), Ratio(0.96, 0.96, 0.96, False), False),  # less than 5 %
        (Ratio(1.0, 1.0, 1.0, False), Ratio(0.94, 0.94, 0.94, False), True),
        (LESS, Ratio(1.2, 1.15, 1.25, True), True),
        (LESS, Ratio(0.8, 0.75, 0.85, True), False),
        (LESS, Ratio(1.2, 1.04, 1.25, True), False),
    ],
)
def test_a_ratio_is_worse_by_more_than_five_percent_beyond_the_spread(before: Ratio, now: Ratio, worse: bool) -> None:
    assert bool(now.worse(before)) == worse


ratios = st.builds(
    lambda middle, down, up, less: Ratio(middle, middle * down, middle * up, less),
    st.floats(0.01, 100),
    st.floats(0.5, 1),
    st.floats(1, 2),
    st.booleans(),
)


@given(ratios, ratios)
def test_of_two_runs_at_most_one_is_worse_than_the_other(one: Ratio, other: Ratio) -> None:
    other = replace(other, less_is_better=one.less_is_better)
    assert not (one.worse(other) and other.worse(one))
    assert not one.worse(one)


def test_the_worst_comes_first_and_what_only_one_of_them_has_is_left_out() -> None:
    now = {"a": replace(MORE, ratio=0.5, high=0.6), "b": replace(LESS, ratio=9, low=8), "c": MORE}
    found = history.got_worse(RUN, replace(RUN, ratios=now))
    assert [each.name for each in found] == ["b", "a"]
    assert str(found[1]) == "a: 1.00x (0.95-1.05) became 0.50x (0.95-0.60), 100% worse"


def test_only_runs_of_one_machine_and_one_size_are_compared_and_no_run_of_a_busy_machine() -> None:
    others = [replace(RUN, machine="another"), replace(RUN, quick=True), replace(RUN, busy=True)]
    assert history.earlier([]) is None
    assert history.earlier([*others, RUN]) is None
    older = replace(RUN, commit="old+")
    assert history.earlier([older, RUN, *others, RUN]) == RUN
    assert history.earlier([older, RUN, *others, RUN], "ol") == older
    assert history.earlier([older, RUN], "xyz") is None
    assert history.earlier([RUN, replace(RUN, busy=True)]) is None


def test_a_line_of_each_run_is_kept(tmp_path: Path) -> None:
    figures = (compare("c", "p", "us", [1, 2], [2, 2]), Figure("one", "p", "us", 3, 2), Figure("no", "p", "us", -1, 2))
    results = Results("today", "abc", "this one", True, 0.1, 0.2, claims={"relay": Claim("What.", figures)})
    path = tmp_path / "deep" / "history.jsonl"
    for _ in range(2):
        history.add(history.line(results), path)
    first, second = history.read(path)
    assert first == second == history.line(results)
    assert first.ratios == {
        "relay: c / p": Ratio(0.75, 0.5, 1.0, False),
        "relay: one / p": Ratio(1.5, 1.5, 1.5, False),
    }
    assert history.read(tmp_path / "none") == []
