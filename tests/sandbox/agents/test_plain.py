"""The core of agents that speak chat frames: everything passes as it is. tests/contract/test_agent_cores.py has what
it promises as any core does."""

from hypothesis import given
from hypothesis import strategies as st

from sandbox.agents.core import InterruptProcess, Launch, Past, ToAgent, ToGateway
from sandbox.agents.plain import PlainCore

LINES = st.lists(st.binary(max_size=30))


@given(st.binary(max_size=30))
def test_whatever_the_gateway_says_reaches_the_agent_as_it_is(line: bytes) -> None:
    core = PlainCore()
    assert core.ready
    assert not core.waits(line)
    assert list(core.begin(line)) == list(core.down(line)) == [ToAgent(line)]


def test_an_agent_without_a_start_begins_with_nothing() -> None:
    assert list(PlainCore().begin(None)) == []


@given(LINES)
def test_whatever_the_agent_writes_reaches_the_gateway_as_it_is(lines: list[bytes]) -> None:
    assert list(PlainCore().up(lines)) == [ToGateway(lines)]


def test_what_was_configured_is_run() -> None:
    wanted = Launch(("agent", "--flag"), {"A": "1"})
    assert PlainCore().command(wanted, Past({"a": "b"})) is wanted
    assert not PlainCore().traces(wanted, {})


def test_it_has_no_time_nothing_to_add_at_the_end_and_stops_a_turn_with_sigint() -> None:
    core = PlainCore()
    assert not core.cuts_lines, "a frame that is cut would be another one"
    assert (core.woken("x"), core.interrupt(), core.over()) == ((), (InterruptProcess(),), ())
