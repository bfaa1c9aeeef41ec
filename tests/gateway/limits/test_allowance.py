"""A user's allowance: so much a turn, so much a second, and so much memory, whoever has how many sockets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.limits.allowance import SMALL_BYTES, TURN, UNSENT_BYTES, WAITING_BYTES, Allowance, Throttled
from gateway.limits.rate import Budget

RATE = 100


def allowance(frames: float = RATE, size: float = 1e9, throttled: Throttled | None = None) -> Allowance:
    return Allowance(Budget(frames, 2 * frames, 0), Budget(size, 2 * size, 0), throttled or Throttled())


def test_each_turn_has_as_much_and_what_is_not_used_is_not_saved() -> None:
    found = allowance()
    for _ in range(3):
        found.begin(0)
        assert found.left == TURN
        found.left -= 50


def test_who_took_more_goes_without_until_that_is_made_up_for() -> None:
    found = allowance()
    found.begin(0)
    found.left -= 3 * TURN
    lefts = []
    for _ in range(4):
        found.begin(0)
        lefts.append(found.left)
    assert lefts == [-TURN, 0, TURN, TURN]


def test_who_has_overspent_waits_until_it_is_paid() -> None:
    throttled = Throttled()
    found = allowance(throttled=throttled)
    found.frames = 3 * RATE  # two seconds' worth may come at once
    found.begin(0)
    assert found.left == 0
    assert found.owes(0.25) == pytest.approx(0.75)
    assert [throttled.times, throttled.seconds] == pytest.approx([1, 1.0])
    found.left = -5
    found.begin(0.5)
    assert found.left == -5, "no turn makes up for a debt"
    found.frames = RATE
    found.begin(0.5)
    assert [throttled.times, throttled.seconds] == pytest.approx([2, 2.0]), "time is not counted twice"
    found.begin(2.0)
    assert found.left > 0
    assert found.owes(2.0) == 0


def test_who_stays_within_the_budget_owes_nothing() -> None:
    throttled = Throttled()
    found = allowance(frames=10 * TURN, throttled=throttled)
    for second in range(5):
        found.frames = 10 * TURN
        found.begin(second)
        assert (found.left, found.owes(second), found.frames) == (TURN, 0, 0)
    assert (throttled.times, throttled.seconds) == (0, 0)


def test_bytes_are_paid_for_as_frames_are() -> None:
    found = allowance(size=1 << 20)
    found.bytes = 3 << 20
    found.begin(0)
    assert found.owes(0) == pytest.approx(1.0)


def test_little_is_settled_later() -> None:
    found = allowance(frames=1)
    found.frames = 63
    found.begin(0)
    assert found.left == TURN
    found.frames += 1
    found.begin(0)
    assert found.left == 0


def test_what_waits_shuts_the_gate_and_half_of_it_opens_it() -> None:
    found, seen = allowance(), []
    for waiting in (WAITING_BYTES, WAITING_BYTES + 1, WAITING_BYTES // 2):
        found.waiting = waiting
        seen.append((found.overfull, found.drained))
    assert seen == [(False, False), (True, False), (False, True)]


@given(st.integers(0, 10_000))
def test_those_who_do_not_read_divide_what_may_be_unsent(stalled: int) -> None:
    found = allowance()
    found.stalled = stalled
    assert found.room >= SMALL_BYTES
    assert found.room * stalled <= max(UNSENT_BYTES, SMALL_BYTES * stalled)
