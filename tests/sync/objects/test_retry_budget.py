"""The retry budget: what it allows, whatever happens."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync.objects.retry_budget import RetryBudget

AMOUNTS = st.floats(0, 100, allow_nan=False)


@given(AMOUNTS, st.floats(0, 2), AMOUNTS, st.lists(st.booleans(), max_size=300))
def test_retries_never_outnumber_the_start_and_what_answers_earned(
    start: float, earned: float, most: float, answers: list[bool]
) -> None:
    budget = RetryBudget(start=start, earned=earned, most=most)
    tokens, retries, answered = min(start, most), 0, 0
    for is_answer in answers:
        if is_answer:
            budget.answered()
            answered += 1
            tokens = min(most, tokens + earned)
        else:
            taken = budget.take()
            assert taken == (tokens >= 1)
            retries += taken
            tokens -= taken
    assert retries <= start + answered * earned
    assert retries <= most + answered * earned


def test_an_outage_ends_the_retries_and_answers_bring_them_back() -> None:
    budget = RetryBudget(start=3, earned=0.5, most=10)
    assert [budget.take() for _ in range(5)] == [True, True, True, False, False]
    budget.answered()
    assert not budget.take()
    budget.answered()
    assert budget.take()
    for _ in range(100):
        budget.answered()
    assert [budget.take() for _ in range(12)].count(True) == 10


@pytest.mark.parametrize("seed", range(5))
def test_30_percent_of_errors_stay_within_the_budget_and_one_and_a_half_times_the_requests(seed: int) -> None:
    rng, budget = Random(seed), RetryBudget()
    requests = gave_up = 0
    for _ in range(3000):
        requests += 1
        while rng.random() < 0.3:
            if not budget.take():
                gave_up += 1
                break
            requests += 1
        else:
            budget.answered()
    assert requests <= 1.5 * 3000
    assert gave_up <= 3
