"""Who an agent says that it is, and what it does."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agents.status import LONGEST, MODES, TOLD, AgentState, describe, state, told

KNOWN = {"name": "claude-code", "version": "2.1", "session": "s-1"}


def test_what_is_told_last_counts_and_the_rest_stays() -> None:
    new = told(KNOWN, {"type": "agent_status", "version": "2.2", "model": "m", "status": "ready", "colour": "red"})
    assert new == {**KNOWN, "version": "2.2", "model": "m"}


@pytest.mark.parametrize("value", [None, 7, "", ["x"], "a\nb", "x" * (LONGEST + 1)])
def test_what_is_no_name_changes_nothing(value: Any) -> None:
    assert told(KNOWN, {"type": "agent_status", "name": value}) is KNOWN
    assert told(KNOWN, {"type": "agent_status", "name": "claude-code"}) is KNOWN


@given(st.dictionaries(st.sampled_from([*TOLD, "status"]), st.text(max_size=5) | st.integers() | st.none()))
def test_what_is_known_is_bounded_whatever_an_agent_says(frame: dict[str, Any]) -> None:
    known = told({}, frame)
    assert set(known) <= set(TOLD)
    assert all(text and text.isprintable() and len(text) <= LONGEST for text in known.values())


@given(st.booleans(), st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_a_process_that_is_not_there_does_nothing_and_one_that_asks_waits(
    starting: bool, alive: bool, asking: bool, retrying: bool, answering: bool
) -> None:
    now = state(starting=starting, alive=alive, asking=asking, retrying=retrying, answering=answering)
    expected = {
        (False, True): AgentState.STARTING,
        (False, False): AgentState.DEAD,
    }.get((alive, starting))
    if expected is None and asking:
        expected = AgentState.ASKING
    elif expected is None and retrying:
        expected = AgentState.RETRYING
    assert now == (expected or (AgentState.BUSY if answering else AgentState.IDLE))


def test_what_was_chosen_is_shown_where_the_agent_says_nothing_and_a_chosen_mode_always() -> None:
    assert MODES == ("ask", "edits", "all", "plan")
    nothing = describe({}, AgentState.IDLE, name=None, mode=None)
    assert nothing == {**dict.fromkeys(TOLD), "state": "idle"}
    shown = describe({**KNOWN, "mode": "ask"}, AgentState.BUSY, name="claude", mode="plan")
    assert shown == {**KNOWN, "model": None, "mode": "plan", "state": "busy"}
    assert describe({"mode": "ask"}, AgentState.DEAD, name="pi", mode=None)["name"] == "pi"
