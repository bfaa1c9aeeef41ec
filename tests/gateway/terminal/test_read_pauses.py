"""For how long a viewer that pauses is waited for."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.terminal.read_pauses import PATIENCE_SECONDS, SECOND_BYTES, ReadPauses


def test_one_pause_is_waited_for_as_long_as_there_is_patience() -> None:
    pauses = ReadPauses()
    assert pauses.left(5) == PATIENCE_SECONDS
    pauses.pause(10, took=0)
    assert pauses.left(10) == PATIENCE_SECONDS
    pauses.pause(15, took=1 << 30)  # it was paused already
    assert pauses.left(20) == PATIENCE_SECONDS - 10
    assert pauses.left(10 + 2 * PATIENCE_SECONDS) == 0


def test_going_on_for_a_moment_pays_back_a_moment() -> None:
    pauses = ReadPauses()
    for now in (0, 12, 24):
        pauses.go_on(now)
        pauses.pause(now, took=0)
    assert pauses.left(29) == 1
    assert pauses.left(30) == 0
    pauses.go_on(1000)
    pauses.go_on(1001)  # it went on already
    pauses.pause(1004, took=0)
    assert pauses.left(1004) == 4, "a pause in which nobody waited is not counted"


def test_what_it_took_pays_back() -> None:
    pauses = ReadPauses()
    pauses.pause(0, took=0)
    pauses.go_on(20)
    pauses.pause(20, took=15 * SECOND_BYTES)
    assert pauses.left(20) == PATIENCE_SECONDS - 5


def test_whoever_is_there_begins_anew() -> None:
    pauses = ReadPauses()
    pauses.pause(0, took=0)
    assert pauses.left(100) == 0
    pauses.forgive(100)
    assert pauses.left(101) == PATIENCE_SECONDS - 1


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40)), max_size=30))
def test_over_any_time_it_is_waited_for_no_longer_than_it_paid_for(turns: list[tuple[int, int, int]]) -> None:
    pauses, now, waited, paid = ReadPauses(), 0.0, 0.0, 0.0
    for paused, on, seconds_taken in turns:
        waited += min(paused, pauses.left(now))
        pauses.pause(now, took=0)
        now += paused
        pauses.go_on(now)
        now += on
        pauses.pause(now, took=seconds_taken * SECOND_BYTES)
        pauses.go_on(now)
        paid += on + seconds_taken
        assert waited <= PATIENCE_SECONDS + paid
        assert 0 <= pauses.left(now) <= PATIENCE_SECONDS
