"""Patience ends after so many failures in so long, and comes back."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from gateway.session.sandbox.restart_policy import CAP_SECONDS, RestartPolicy


@given(st.lists(st.floats(0, 1000), max_size=40), st.integers(1, 6), st.floats(1, 500))
def test_it_is_exhausted_by_so_many_failures_within_the_window_and_by_nothing_else(
    moments: list[float], failures: int, window: float
) -> None:
    patience, seen = RestartPolicy(failures, window), []
    for now in sorted(moments):
        patience.failed(now)
        seen.append(now)
        recent = [moment for moment in seen if moment >= now - window]
        assert patience.exhausted(now) is (len(recent) >= failures)


def test_it_comes_back_when_the_window_has_passed_or_somebody_asks() -> None:
    patience = RestartPolicy(2, 300)
    patience.failed(0)
    patience.failed(1)
    assert patience.exhausted(1)
    assert not patience.exhausted(301)
    patience.failed(302)
    patience.failed(303)
    assert patience.exhausted(303)
    patience.renew()
    assert not patience.exhausted(303)


@given(st.integers(0, 2000), st.integers())
def test_a_pause_is_never_longer_than_its_cap(failures: int, seed: int) -> None:
    patience = RestartPolicy(5, 300)
    for now in range(failures):
        patience.failed(now)
    assert 0 <= patience.pause(Random(seed)) <= CAP_SECONDS
