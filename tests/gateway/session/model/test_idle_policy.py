"""What becomes of a session that nobody uses."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.session.model.idle_policy import (
    RESCUE_SECONDS,
    UNLOAD_SECONDS,
    Idleness,
    IdleStep,
    awaited,
    next_step,
    tired,
)
from gateway.session.model.state import SessionStatus

RUNNING = Idleness(
    SessionStatus.RUNNING, 601.0, 600.0, linked=True, busy=False, bound=False, in_use=False, wants_rescue=False
)
ASLEEP = replace(RUNNING, status=SessionStatus.SLEEPING, linked=False)
RESTING = sorted(set(SessionStatus) - {SessionStatus.RUNNING, SessionStatus.STARTING})


def but(idle: Idleness, **changes: Any) -> Idleness:
    return replace(idle, **changes)


idlenesses = st.builds(
    Idleness,
    st.sampled_from(SessionStatus),
    st.sampled_from([0.0, 59.0, RESCUE_SECONDS, 61.0, UNLOAD_SECONDS, 301.0, 1e6]),
    st.sampled_from([1.0, 60.0, 600.0]),
    *[st.booleans()] * 5,
)


def test_a_session_sleeps_when_it_was_idle_for_longer_than_it_may_be() -> None:
    assert next_step(RUNNING) is IdleStep.SLEEP
    assert next_step(replace(RUNNING, linked=False)) is IdleStep.SLEEP, "its link may be on its way back"
    assert next_step(replace(RUNNING, in_use=True)) is IdleStep.SLEEP, "to watch is not to use"
    assert next_step(replace(RUNNING, seconds=600.0)) is None


@pytest.mark.parametrize("why", ["busy", "bound"])
def test_what_may_not_be_stopped_now_is_not(why: str) -> None:
    assert next_step(but(RUNNING, **{why: True})) is None


def test_a_session_that_failed_is_stopped_only_if_there_is_something_to_stop() -> None:
    failed = replace(RUNNING, status=SessionStatus.ERROR)
    assert next_step(failed) is IdleStep.SLEEP
    assert next_step(replace(failed, linked=False)) is IdleStep.UNLOAD


def test_whoever_waited_to_stop_a_session_asks_again_whatever_is_done_to_it() -> None:
    """It is the one that is busy with it then."""
    assert tired(replace(RUNNING, busy=True))
    assert not tired(replace(RUNNING, seconds=0.0))


@pytest.mark.parametrize("status", RESTING)
def test_a_session_at_rest_is_unloaded_after_a_while_unless_it_is_in_use(status: SessionStatus) -> None:
    resting = replace(ASLEEP, status=status, seconds=UNLOAD_SECONDS + 1)
    assert next_step(resting) is IdleStep.UNLOAD
    for why in ("busy", "in_use", "linked"):
        assert next_step(but(resting, sleep_after=1e9, **{why: True})) is None
    assert next_step(replace(resting, seconds=UNLOAD_SECONDS, sleep_after=1e9)) is None


def test_what_a_sandbox_left_is_kept_before_its_session_is_unloaded() -> None:
    left = replace(ASLEEP, wants_rescue=True)
    assert next_step(left) is IdleStep.RESCUE
    assert next_step(replace(left, seconds=1e9)) is IdleStep.RESCUE
    assert next_step(replace(left, seconds=RESCUE_SECONDS)) is None
    assert next_step(replace(left, linked=True)) is None


def test_a_session_that_starts_is_left_alone() -> None:
    assert next_step(replace(ASLEEP, status=SessionStatus.STARTING, seconds=1e9)) is None


@given(idlenesses)
def test_nothing_that_somebody_needs_is_taken_away(idle: Idleness) -> None:
    step = next_step(idle)
    if step is IdleStep.SLEEP:
        assert not idle.busy
        assert not idle.bound
        assert idle.seconds > idle.sleep_after
    if step is IdleStep.RESCUE:
        assert idle.wants_rescue
    if step is IdleStep.UNLOAD:
        assert not any([idle.linked, idle.busy, idle.in_use, idle.wants_rescue])
        assert idle.status not in (SessionStatus.RUNNING, SessionStatus.STARTING)


@given(idlenesses, st.sampled_from(["linked", "busy", "bound", "in_use"]))
def test_who_was_active_a_moment_ago_is_left_alone_whatever_else_holds(idle: Idleness, why: str) -> None:
    assert next_step(but(idle, seconds=0.0, **{why: True})) is None


@pytest.mark.parametrize(
    ("silent", "answering", "expected"),
    [(0.0, False, False), (0.0, True, True), (10.0, True, True), (10.1, True, False)],
)
def test_an_agent_that_owes_an_answer_is_waited_for_until_it_has_been_silent_for_long(
    silent: float, answering: bool, expected: bool
) -> None:
    assert awaited(silent, 10.0, answering) is expected
