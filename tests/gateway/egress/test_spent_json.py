"""What was spent on models, as the API shows it."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.egress.budget import Spent
from gateway.egress.meter import Tokens
from gateway.egress.prices import NANO
from gateway.egress.spent_json import grown, shown_spent

some = st.integers(0, 100)
spents = st.builds(Spent, some, st.builds(Tokens, some, some, some, some), some, some, some)


def test_what_is_shown() -> None:
    assert shown_spent(Spent(1, Tokens(2, 3, 4, 5), NANO // 2, 6, 7)) == {
        "requests": 1,
        "inputTokens": 2,
        "outputTokens": 3,
        "cacheReadTokens": 4,
        "cacheWriteTokens": 5,
        "costUsd": 0.5,
        "unpricedTokens": 6,
        "estimated": 7,
    }


@given(spents, spents)
def test_what_has_come_since_is_what_was_added(before: Spent, more: Spent) -> None:
    assert grown(before + more, before) == more


def test_a_count_that_began_anew_is_all_of_it() -> None:
    assert grown(Spent(1, Tokens(5)), Spent(9, Tokens(50))) == Spent(1, Tokens(5))
    assert grown(Spent(9, Tokens(5)), Spent(9, Tokens(50))) == Spent(9, Tokens(5))
