"""Which announced process may be given lines: the newest of the hello if it ran then, and what was begun after it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.session.conversation.announced import Announced


def test_without_a_hello_whoever_is_announced_lives() -> None:
    assert Announced().lives("e1")


@pytest.mark.parametrize("alive", [True, False])
def test_of_what_is_repeated_only_the_newest_lives_and_only_if_it_ran(alive: bool) -> None:
    announced = Announced()
    announced.hello("e3", alive=alive, known=False)
    assert [announced.lives(epoch) for epoch in ("e1", "e2", "e3", "e4")] == [False, False, alive, True]


def test_a_bridge_that_has_had_no_process_repeats_none() -> None:
    announced = Announced()
    announced.hello(None, alive=False, known=False)
    assert announced.exit_due is None
    assert announced.lives("e1")


@pytest.mark.parametrize(("alive", "known", "due"), [(False, False, "e1"), (False, True, None), (True, False, None)])
def test_an_exit_is_due_of_a_process_that_ended_unheard(alive: bool, known: bool, due: str | None) -> None:
    announced = Announced()
    announced.hello("e1", alive=alive, known=known)
    assert announced.exit_due == due
    announced.exited("e0")
    assert announced.exit_due == due
    announced.exited("e1")
    assert announced.exit_due is None


def test_with_the_link_goes_what_it_said() -> None:
    announced = Announced()
    announced.hello("e1", alive=False, known=False)
    announced.lost()
    assert announced.exit_due is None
    assert announced.lives("e0")


@given(st.integers(1, 6), st.integers(0, 3), st.booleans())
def test_at_most_one_of_those_before_the_hello_lives(newest: int, later: int, alive: bool) -> None:
    announced = Announced()
    announced.hello(f"e{newest}", alive=alive, known=False)
    lives = [announced.lives(f"e{number}") for number in range(1, newest + later + 1)]
    assert lives == [False] * (newest - 1) + [alive] + [True] * later
