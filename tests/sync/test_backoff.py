from random import Random

from hypothesis import given
from hypothesis import strategies as st

from sync import backoff


@given(attempt=st.integers(0, 10**9), seed=st.integers())
def test_a_delay_is_never_longer_than_the_cap_nor_than_its_attempt_allows(attempt: int, seed: int) -> None:
    pause = backoff.delay(attempt, base=0.1, cap=10.0, rng=Random(seed))
    assert 0 <= pause <= min(10.0, 0.1 * 2 ** min(attempt, 20))


def test_the_jitter_is_full_and_grows() -> None:
    rng = Random(7)
    first = [backoff.delay(0, base=0.1, cap=10.0, rng=rng) for _ in range(2_000)]
    late = [backoff.delay(5_000, base=0.1, cap=10.0, rng=rng) for _ in range(2_000)]
    assert min(first) < 0.01 < 0.09 < max(first) <= 0.1
    assert min(late) < 1.0 < 9.0 < max(late) <= 10.0
