"""What is remembered of a sync's transitions: the newest, in order, whole, and in little memory."""

import sys

from hypothesis import given
from hypothesis import strategies as st

from sync.machine.history import KEPT, REASON_LENGTH, History, Moved
from sync.machine.state import State, Transition

transitions = st.builds(
    Transition,
    st.sampled_from([state for state in State if state is not State.RESTING]),
    st.integers(0, 2**53),
    st.integers(0, 100),
    st.none() | st.text(max_size=REASON_LENGTH),
)


@given(st.lists(st.tuples(transitions, st.floats(0, 1e11)), max_size=3 * KEPT))
def test_the_last_fifty_are_kept_as_they_were_the_oldest_first(noted: list[tuple[Transition, float]]) -> None:
    history = History()
    for transition, at in noted:
        history.note(transition, at)
    assert list(history) == [Moved(at, transition) for transition, at in noted[-KEPT:]]
    assert len(history) == min(KEPT, len(noted))


def test_a_reason_is_cut_and_forgotten_with_its_transition() -> None:
    history = History()
    history.note(Transition(State.FAILED, 1, 3, "x" * 10_000), 0.0)
    assert [moved.transition.reason for moved in history] == ["x" * REASON_LENGTH]
    for second in range(KEPT):
        history.note(Transition(State.IDLE, 1, 0, None), float(second))
    assert [moved.transition.reason for moved in history] == [None] * KEPT
    history.note(Transition(State.IDLE, 1, 0, None), 99.0)  # what goes now had no reason
    assert len(history) == KEPT


def test_a_full_history_takes_a_kilobyte() -> None:
    history = History()
    for second in range(10 * KEPT):
        history.note(Transition(State.IDLE, second, 0, None), float(second))
    assert sys.getsizeof(history) + sys.getsizeof(history._entries) < 1100
