"""The core of the spooled store against a model: one batch at a time, health by what the store did last."""

from random import Random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from persistence.record import Rejected, Write
from persistence.spool.failover import (
    BATCH_BYTES,
    BATCH_WRITES,
    RETURN_SECONDS,
    STALLED_SECONDS,
    Failover,
    WritePath,
    misfit,
    patience,
)
from tests.support.records import said

SESSIONS = st.sets(st.sampled_from("abc"), min_size=1)


class FollowingMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.core = Failover()
        self.now = 0.0
        self.asked: tuple[float, int] | None = None
        self.failures = 0
        self.in_time = False
        self.held: set[str] = set()

    @rule(seconds=st.floats(0, 3))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.asked is None)
    @rule(writes=st.integers(1, 3_000))
    def ask(self, writes: int) -> None:
        self.core.ask(writes, now=self.now)
        self.asked = (self.now, writes)

    @precondition(lambda self: self.asked is not None)
    @rule(sessions=SESSIONS)
    def answered(self, sessions: set[str]) -> None:
        assert self.asked is not None
        assert self.core.answered(sessions, now=self.now) == self.failures
        self.in_time = self.now - self.asked[0] <= patience(self.asked[1])
        self.asked, self.failures = None, 0
        self.held -= sessions

    @precondition(lambda self: self.asked is not None)
    @rule()
    def failed(self) -> None:
        pause = self.core.failed(now=self.now, rng=Random(1))
        assert 0 <= pause <= 10
        assert self.core.pause(self.now) == pytest.approx(pause)
        self.asked = None
        self.failures += 1

    @precondition(lambda self: self.asked is not None)
    @rule(sessions=SESSIONS)
    def busy(self, sessions: set[str]) -> None:
        self.core.busy(sessions, now=self.now, rng=Random(1))
        self.asked, self.failures = None, 0
        self.held |= sessions
        assert sessions <= self.core.aside(self.now)

    @rule(session=st.sampled_from("abc"))
    def forget(self, session: str) -> None:
        self.core.forget(session)
        self.held.discard(session)

    @precondition(lambda self: self.asked is None)
    @rule()
    def answer_out_of_nowhere(self) -> None:
        with pytest.raises(RuntimeError):
            self.core.answered((), now=self.now)

    @precondition(lambda self: self.asked is not None)
    @rule()
    def ask_twice(self) -> None:
        with pytest.raises(RuntimeError):
            self.core.ask(1, now=self.now)

    @rule(
        writes=st.integers(0, 5_000), size=st.integers(0, 2 * BATCH_BYTES), ago=st.floats(0, 1), steps=st.integers(0, 2)
    )
    def choose(self, writes: int, size: int, ago: float, steps: int) -> None:
        way = self.core.way(writes=writes, size=size, since=self.now - ago, steps=steps, now=self.now)
        assert (way is WritePath.DIRECT) == (writes == 0 and self.asked is None)
        if way is WritePath.WAIT:
            assert self.core.does_well(self.now)
            assert ago < RETURN_SECONDS + 1e-6
            assert not steps or (writes <= BATCH_WRITES and size <= BATCH_BYTES)

    @invariant()
    def health_is_what_the_store_did_last(self) -> None:
        core, now = self.core, self.now
        waited = now - self.asked[0] if self.asked else 0.0
        assert core.has_asked == (self.asked is not None)
        assert core.failures == self.failures
        assert core.failing(now) == (self.failures > 0 or (self.asked is not None and waited >= STALLED_SECONDS))
        well = self.in_time and not self.failures and not self.held
        assert core.does_well(now) == (well and waited <= patience(self.asked[1] if self.asked else 0))
        assert core.aside(now) <= self.held
        due = core.next_due(now)
        assert (due is None) == (not core.aside(now))
        assert due is None or core.aside(now + due + 1e-6) != core.aside(now)
        assert self.failures or core.pause(now) == 0


TestFollowing = FollowingMachine.TestCase


def test_what_no_store_would_take_is_known_beforehand() -> None:
    assert misfit(said("a", 1)) is None
    assert misfit(Write("a", marks=((1, "\ud800"),), delivered=3)) is None
    assert misfit(Write("a", said("b", 1).append)) == Rejected("record of another session")
    assert misfit(Write("\ud800", state=b"")) == Rejected("no such session")
    for write in (said("a", 2**63), Write("a", delivered=2**63), Write("a", marks=((-(2**64), "x"),))):
        assert isinstance(misfit(write), Rejected)
