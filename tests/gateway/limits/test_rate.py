"""Budgets: never more than the burst and what has refilled, and never less."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.limits import rate
from gateway.limits.rate import Budget, Budgets

spends = st.lists(st.tuples(st.floats(0, 3), st.floats(0, 10)))


@given(spends)
def test_what_is_granted_stays_within_burst_and_rate(asked: list[tuple[float, float]]) -> None:
    budget, now, granted = Budget(2.0, 10.0, 0.0), 0.0, 0.0
    for pause, amount in asked:
        now += pause
        if budget.ask(amount, now) == 0.0:
            granted += amount
        assert granted <= 10.0 + 2.0 * now + 1e-6


def test_what_is_more_than_the_burst_is_granted_to_a_full_budget_and_leaves_a_debt() -> None:
    budget = Budget(2.0, 10.0, 0.0)
    assert budget.ask(20.0, 0.0) == 0.0
    assert budget.ask(1.0, 0.0) == 5.5


@given(spends)
def test_whoever_waits_as_told_is_granted(asked: list[tuple[float, float]]) -> None:
    budget, now = Budget(2.0, 10.0, 0.0), 0.0
    for pause, amount in asked:
        now += pause
        wait = budget.ask(amount, now)
        if wait:
            now += wait + 1e-6
            assert budget.ask(amount, now) == 0.0


@given(spends)
def test_a_debt_is_paid_after_the_time_that_was_told(asked: list[tuple[float, float]]) -> None:
    budget, now = Budget(2.0, 10.0, 0.0), 0.0
    for pause, amount in asked:
        now += pause
        now += budget.spend(amount, now)
        assert budget.spend(0.0, now) == pytest.approx(0.0, abs=1e-6)


def test_a_clock_that_goes_back_gives_nothing() -> None:
    budget = Budget(1.0, 1.0, 100.0)
    assert budget.ask(1.0, 100.0) == 0.0
    assert budget.ask(1.0, 50.0) == 1.0


def test_keys_have_budgets_of_their_own_and_full_ones_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate, "KEYS", 3)
    budgets = Budgets(1.0, 1.0)
    assert budgets.of("ann", 0.0).ask(1.0, 0.0) == 0.0
    assert budgets.of("ann", 0.0).ask(1.0, 0.0) == 1.0
    assert budgets.of("bob", 0.0).ask(1.0, 0.0) == 0.0
    budgets.of("cat", 0.0)
    budgets.of("dan", 0.5)
    assert len(budgets) == 3  # cat's was full
    assert budgets.of("ann", 0.5).ask(1.0, 0.5) == 0.5
    budgets.of("dan", 0.5).spend(5.0, 0.5)
    budgets.of("eve", 0.5)  # all are in debt: the oldest goes
    assert len(budgets) == 3
    assert budgets.of("dan", 0.5).ask(1.0, 0.5) > 1.0
