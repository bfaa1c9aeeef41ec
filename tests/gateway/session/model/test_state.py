"""What a session remembers of itself comes back as it was, and holds no secret."""

import tracemalloc
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import fields, replace

from gateway.agents.agents import Agents
from gateway.agents.launch import AgentLaunch
from gateway.egress.budget import SpendLimit
from gateway.session.model.state import (
    SessionSpec,
    SessionState,
    SessionStatus,
    Wish,
    sandbox_spec,
    spec_members,
)
from sandbox.ports.fleet import SandboxSpec
from sandbox.ports.resources import NO_LIMITS, ResourceLimits
from sandbox.protocol.agent_server import read_server

TEXT = st.text(max_size=20)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXT, VALUES, max_size=4)
SPECS = st.builds(
    SessionSpec,
    agent=st.none() | st.lists(TEXT, max_size=3).map(tuple),
    network=st.sampled_from(["none", "outbound"]),
    repo_url=st.none() | TEXT,
    repo_branch=st.none() | TEXT,
    title=st.none() | TEXT,
    metadata=OBJECTS,
    has_env=st.booleans(),
    start=st.none() | OBJECTS,
    started=st.booleans(),
    pending=st.lists(OBJECTS, max_size=2),
    sleep_after=st.none() | st.floats(0.001, 1e16),
    limits=st.none() | OBJECTS,
    limits_granted=st.booleans(),
    provider=TEXT,
    mode=st.none() | TEXT,
    agent_told=st.dictionaries(TEXT, TEXT, max_size=3),
)
STATES = st.builds(
    SessionState,
    status=st.sampled_from(SessionStatus),
    reason=TEXT,
    incarnation=st.integers(0, 2**53),
    taker=st.none() | TEXT,
    epoch=st.none() | TEXT,
    ended=st.booleans(),
    offset=st.integers(0, 2**53),
    answer_from=st.integers(0, 2**53),
    answered=st.integers(0, 2**53),
    answered_ahead=st.lists(st.integers(0, 2**53), max_size=3).map(tuple),
    last_active=st.floats(0, 1e10),
    generation=st.integers(0, 2**53),
    tree=TEXT,
    files=st.integers(0, 2**53),
    synced_at=st.none() | st.floats(0, 1e10),
    sync_error=TEXT,
    clean=st.booleans(),
    degraded=TEXT,
)


@settings(deadline=None, max_examples=50)
@given(SPECS)
def test_a_spec_comes_back_as_it_was(spec: SessionSpec) -> None:
    again = SessionSpec.from_json(spec.to_json())
    assert again == spec
    assert again.agent is None or isinstance(again.agent, tuple)


@settings(deadline=None, max_examples=50)
@given(STATES)
def test_a_state_comes_back_as_it_was(state: SessionState) -> None:
    again = SessionState.from_json(state.to_json())
    assert again == state
    assert again.status is state.status  # compared by identity elsewhere


def test_a_session_of_which_nothing_was_kept_yet_is_a_new_one() -> None:
    assert SessionSpec.from_json(b"{}") == SessionSpec()
    assert SessionState.from_json(b"{}") == SessionState()
    assert SessionState.from_json(b'{"offset":3}') == SessionState(offset=3)


def test_a_status_nobody_knows_is_not_believed_and_keeps_nobody_from_starting() -> None:
    assert SessionState.from_json(b'{"status":"dreaming"}').status is SessionStatus.SLEEPING


def test_the_status_words_are_those_of_the_design() -> None:
    words = "starting running sleeping paused error unrestored needs_env archived"
    assert [str(status) for status in SessionStatus] == words.split()


def test_without_a_start_a_new_process_reads_nothing_first() -> None:
    assert SessionSpec(started=True, pending=[{"requestId": "r"}]).start_line() is None


@settings(deadline=None, max_examples=50)
@given(OBJECTS, st.lists(OBJECTS, max_size=2))
def test_a_start_is_kept_verbatim_and_says_resume_from_the_second_process_on(
    start: dict[str, Any], pending: list[dict[str, Any]]
) -> None:
    spec = SessionSpec(start=start, pending=pending)
    first, later = spec.start_line(), replace(spec, started=True).start_line()
    assert first is not None
    assert later is not None
    assert b"\n" not in first + later
    assert orjson.loads(first) == start
    assert orjson.loads(later) == {**start, "resume": True, "pending": pending}


def test_asking_for_the_line_does_not_change_what_is_kept() -> None:
    spec = SessionSpec(start={"type": "start"}, started=True)
    spec.start_line()
    assert spec.start == {"type": "start"}


def test_a_wish_is_kept_but_for_its_env() -> None:
    wish = Wish({"KEY": "canary"}, ("run",), "outbound", "https://example.com/a", "main", "T", {"k": 1})
    members = spec_members(wish)
    assert SessionSpec(**members) == SessionSpec(
        ("run",), "outbound", "https://example.com/a", "main", "T", {"k": 1}, has_env=True
    )
    kept = SessionSpec(**members).to_json()
    assert b"canary" not in kept
    assert b"KEY" not in kept
    assert "canary" not in repr(wish)


def test_a_wish_for_nothing_gets_the_defaults() -> None:
    assert SessionSpec(**spec_members(Wish())) == SessionSpec()


def test_neither_spec_nor_state_can_be_changed_in_place() -> None:
    for value in (SessionSpec(), SessionState()):
        for member in fields(value):
            with pytest.raises(AttributeError):
                setattr(value, member.name, None)


def test_a_mode_is_told_to_every_process_also_where_nobody_sent_a_start() -> None:
    spec = SessionSpec(mode="plan")
    assert orjson.loads(spec.start_line() or b"") == {"type": "start", "mode": "plan"}
    later = replace(spec, start={"type": "start", "mode": "all", "model": "m"}, started=True)
    told = {"type": "start", "mode": "plan", "model": "m", "resume": True, "pending": []}
    assert orjson.loads(later.start_line() or b"") == told


def test_what_a_newer_version_kept_is_passed_over() -> None:
    assert SessionState.from_json(b'{"status":"paused","from_the_future":1}').status is SessionStatus.PAUSED
    assert SessionSpec.from_json(b'{"title":"t","from_the_future":1}').title == "t"


@pytest.mark.parametrize("kept", [SessionSpec(), SessionState()], ids=["spec", "state"])
def test_what_is_kept_of_a_session_takes_no_more_memory_than_it_is_long(kept: SessionSpec | SessionState) -> None:
    tracemalloc.start()
    try:
        texts = [kept.to_json() for _ in range(100)]
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 100 * (len(texts[0]) + 200)


def test_the_provider_is_asked_for_what_the_session_wants() -> None:
    wanted = SessionSpec(("own",), "outbound", "https://example.com/a", "main")
    asked = SandboxSpec(
        "s", 3, ("own",), "outbound", {"KEY": "1"}, "https://example.com/a", "main", hold=True, provider="local"
    )
    assert sandbox_spec("s", 3, wanted, AgentLaunch(("own",)), {"KEY": "1"}) == asked
    assert sandbox_spec("s", 1, SessionSpec(), AgentLaunch(("usual",)), {}).agent == ("usual",)


def test_an_agent_that_was_chosen_by_name_is_kept() -> None:
    kept = SessionSpec(**spec_members(Wish(agent_name="pi@0.74.2")))
    assert SessionSpec.from_json(kept.to_json()).agent_name == "pi@0.74.2"
    assert SessionSpec.from_json(b'{"agent": ["own"]}').agent_name is None, "a session from before"
    asked = sandbox_spec("s", 1, kept, AgentLaunch(("pi",), "pi", {"PI_OFFLINE": "1"}, "glibc"), {})
    assert (asked.agent, asked.core, asked.agent_env, asked.agent_libc) == (("pi",), "pi", {"PI_OFFLINE": "1"}, "glibc")


def test_where_an_agent_that_is_a_server_listens_is_kept() -> None:
    server = read_server("ws://127.0.0.1:8080/agent", "/health")
    kept = SessionSpec(**spec_members(Wish(agent=("serve",), agent_server=server)))
    read = SessionSpec.from_json(kept.to_json())
    assert read.agent_server == server.members()
    assert SessionSpec.from_json(b'{"agent": ["own"]}').agent_server is None, "a session from before"
    launch = Agents().launch(read.agent, None, read.agent_server)
    assert sandbox_spec("s", 1, read, launch, {}).agent_server == server
    unknown = Agents().launch(("serve",), None, {"connect": "quic://127.0.0.1:8080", "health": ""})
    assert "sandbox.absent_agent" in unknown.argv, "what another version stored"


def test_that_all_events_are_wanted_is_kept() -> None:
    kept = SessionSpec.from_json(SessionSpec(**spec_members(Wish(events="all"))).to_json())
    assert sandbox_spec("s", 1, kept, AgentLaunch(("pi",)), {}).all_events
    before = SessionSpec.from_json(b'{"agent": ["own"]}')
    assert not sandbox_spec("s", 1, before, AgentLaunch(("own",)), {}).all_events


def test_the_limits_of_a_wish_are_kept_and_those_of_a_newer_version_too() -> None:
    asked = ResourceLimits(memory=1 << 30, cpus=1.5)
    kept = SessionSpec(**spec_members(Wish(limits=asked)))
    assert (kept.resources, kept.limits_granted) == (asked, False)
    assert SessionSpec.from_json(kept.to_json()).resources == asked
    assert SessionSpec(**spec_members(Wish(limits=asked, by_service=True))).limits_granted
    plain = SessionSpec(**spec_members(Wish(by_service=True)))
    assert (plain.limits, plain.limits_granted, plain.resources) == (None, False, NO_LIMITS)
    newer = SessionSpec.from_json(b'{"limits": {"pids": 70, "disk": 5}}')
    assert newer.resources == ResourceLimits(pids=70)
    assert b'"disk":5' in newer.to_json()
    assert sandbox_spec("s", 1, kept, AgentLaunch(()), {}, limits=asked).limits == asked


@pytest.mark.parametrize("how", [{"has_snapshot": True}, {"empty": True}], ids=str)
def test_a_workspace_that_is_restored_or_begins_empty_is_not_cloned(how: dict[str, Any]) -> None:
    asked = sandbox_spec(
        "s", 1, SessionSpec(repo_url="https://example.com/a", repo_branch="main"), AgentLaunch(()), {}, **how
    )
    assert (asked.repo_url, asked.repo_branch, asked.empty) == (None, None, how.get("empty", False))


def test_what_ran_and_was_not_stored_leaves_something_on_the_disk() -> None:
    assert not SessionState().leaves_something
    assert SessionState(has_workspace=True).leaves_something
    assert SessionState(incarnation=1).leaves_something
    assert not SessionState(incarnation=1, clean=True).leaves_something


@pytest.mark.parametrize("status", SessionStatus)
def test_a_workspace_is_rescued_once_its_sandbox_has_ended(status: SessionStatus) -> None:
    ended = status in ("sleeping", "paused", "needs_env", "error")
    state = SessionState(status, incarnation=1)
    assert (state.left_behind, state.wants_rescue) == (ended, ended)
    too_large = replace(state, overfull=True)
    assert (too_large.left_behind, too_large.wants_rescue) == (ended, False), "it waits for its owner"
    stored = replace(state, clean=True)
    assert (stored.left_behind, stored.wants_rescue) == (False, False)


def test_a_session_from_before_providers_were_stored_runs_at_the_local_one() -> None:
    assert SessionSpec.from_json(b"{}").provider == "local"
    assert sandbox_spec("s", 1, SessionSpec(provider="elsewhere"), AgentLaunch(()), {}).provider == "elsewhere"


@settings(deadline=None, max_examples=50)
@given(st.sampled_from([SessionSpec, SessionState]), OBJECTS)
def test_what_a_newer_gateway_wrote_is_kept_and_written_back(
    kind: type[SessionSpec | SessionState], unknown: dict[str, Any]
) -> None:
    known = {each.name for each in fields(kind)}
    later = {f"later {name}": value for name, value in unknown.items()} | {"_later": 1, "_unknown": 2}
    assert not known - {"_unknown"} & later.keys()
    written = orjson.loads(kind().to_json()) | later
    kept = kind.from_json(orjson.dumps(written))
    assert orjson.loads(kept.to_json()) == written
    assert kind.from_json(kept.to_json()) == kept
    changed = replace(kept, title="new") if isinstance(kept, SessionSpec) else replace(kept, reason="new")
    assert orjson.loads(changed.to_json()).items() >= later.items()


def test_a_budget_is_a_limit_in_nano_dollars_and_tokens() -> None:
    assert SessionSpec().spend_limit == SpendLimit()
    assert SessionSpec(budget={"usd": 0.25}).spend_limit == SpendLimit(250_000_000)
    assert SessionSpec(budget={"tokens": 1000}).spend_limit == SpendLimit(None, 1000)
