"""The sink's core against a model: order kept, nothing passed over, bounds held, nobody starved."""

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from persistence.backoff import CAP_SECONDS
from persistence.http_sink.scheduler import Lane, SinkScheduler

TURNS, SUSPECTS = 3, 2
NAMES = st.sampled_from("abcdef")


@dataclass
class Talk:
    """A session as the model knows it."""

    last: int = 0
    posted: list[int] = field(default_factory=list)
    start: int = 0  # what the sink had when all began
    lane: Lane | None = None  # its turn
    suspect: bool = False
    failing: bool = False
    rests: tuple[float, float] = (0.0, 0.0)  # not before, and not much later than

    @property
    def done(self) -> int:
        return self.posted[-1] if self.posted else self.start


class CourierMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.courier = SinkScheduler(Random(7), turns=TURNS, suspects=SUSPECTS)
        self.talks: dict[str, Talk] = {}
        self.lost_turns: list[Lane] = []  # of sessions that were purged meanwhile
        self.clock = 0.0
        self.lost_suspects = 0

    @property
    def out(self) -> list[Talk]:
        return [talk for talk in self.talks.values() if talk.lane]

    @property
    def suspects_out(self) -> int:
        return sum(talk.suspect for talk in self.out) + self.lost_suspects

    @rule(name=NAMES, done=st.integers(0, 3), more=st.integers(1, 5))
    def find(self, name: str, done: int, more: int) -> None:
        if name not in self.talks:
            self.talks[name] = Talk(done + more, start=done)
            self.courier.found(name, done=done, last=done + more, since=float(done))

    @rule(name=NAMES, more=st.integers(1, 3))
    def grow(self, name: str, more: int) -> None:
        talk = self.talks.setdefault(name, Talk())
        for _ in range(more):
            talk.last += 1
            assert self.courier.grew(name, talk.last, self.clock)

    @rule(name=NAMES)
    def tell_again(self, name: str) -> None:
        """A batch whose reply was lost comes once more."""
        talk = self.talks.get(name)
        if talk and talk.done < talk.last:
            assert self.courier.grew(name, talk.last, self.clock)
            assert not self.courier.grew(name, talk.done, self.clock)

    @rule()
    def begin(self) -> None:
        lane = self.courier.next(self.clock)
        if lane is None:
            assert len(self.out) + len(self.lost_turns) == TURNS or not any(map(self._must_run, self.talks.values()))
            return
        talk = self.talks[lane.session_id]
        assert talk.lane is None
        assert (lane.done, lane.last) == (talk.done, talk.last)
        assert lane.done < lane.last
        assert self.clock >= talk.rests[0]
        assert lane.suspect == talk.failing
        talk.lane, talk.suspect = lane, lane.suspect

    def _must_run(self, talk: Talk) -> bool:
        if talk.lane or talk.done == talk.last:
            return False
        return not talk.failing or (self.clock > talk.rests[1] and self.suspects_out < SUSPECTS)

    @precondition(lambda self: self.out)
    @rule(data=st.data(), count=st.integers(1, 4))
    def post_and_end(self, data: st.DataObject, count: int) -> None:
        talk = data.draw(st.sampled_from(self.out))
        self._post(talk, count)
        assert talk.lane
        self.courier.ended(talk.lane)
        talk.lane, talk.failing = None, False

    @precondition(lambda self: self.out)
    @rule(data=st.data(), count=st.integers(0, 2), at_least=st.sampled_from((0.0, 5.0, 300.0)))
    def post_and_fail(self, data: st.DataObject, count: int, at_least: float) -> None:
        talk = data.draw(st.sampled_from(self.out))
        self._post(talk, min(count, talk.last - talk.done - 1))
        assert talk.lane
        self.courier.failed(talk.lane, self.clock, at_least=at_least)
        talk.lane, talk.failing = None, True
        talk.rests = (self.clock + at_least, self.clock + at_least + CAP_SECONDS)

    def _post(self, talk: Talk, count: int) -> None:
        assert talk.lane
        for _ in range(min(count, talk.last - talk.done)):
            talk.posted.append(talk.lane.done + 1)
            self.courier.passed(talk.lane, talk.done, self.clock)

    @rule(name=NAMES)
    def purge(self, name: str) -> None:
        self.courier.forget(name)
        talk = self.talks.pop(name, None)
        if talk and talk.lane:
            assert talk.lane.gone
            self.lost_turns.append(talk.lane)
            self.lost_suspects += talk.suspect

    @precondition(lambda self: self.lost_turns)
    @rule(fails=st.booleans())
    def a_purged_session_ends_its_turn(self, fails: bool) -> None:
        lane = self.lost_turns.pop()
        self.lost_suspects -= lane.suspect
        self.courier.passed(lane, lane.done + 1, self.clock)
        if fails:
            self.courier.failed(lane, self.clock)
        else:
            self.courier.ended(lane)

    @rule(seconds=st.sampled_from((0.01, 1.0, 20.0, 400.0)))
    def time_passes(self, seconds: float) -> None:
        self.clock += seconds

    @invariant()
    def bounds_hold(self) -> None:
        assert self.courier.out == len(self.out) + len(self.lost_turns) <= TURNS
        assert self.suspects_out <= SUSPECTS

    @invariant()
    def it_knows_what_waits(self) -> None:
        assert self.courier.waiting == sum(talk.last - talk.done for talk in self.talks.values())
        for name, talk in self.talks.items():
            assert self.courier.behind(name) == (talk.done < talk.last)
            if talk.done < talk.last:
                assert self.courier.done(name) == talk.done
        if self.courier.waiting == 0 and not self.out:
            assert self.courier.oldest_since() is None
        else:
            assert self.courier.oldest_since() is not None

    def teardown(self) -> None:
        """Left alone with a sink that takes everything, every record is posted, once and in order."""
        while self.lost_turns:
            self.a_purged_session_ends_its_turn(False)
        for talk in self.out:
            assert talk.lane
            self.courier.ended(talk.lane)
            talk.lane = None
        while self.courier.waiting:
            lane = self.courier.next(self.clock)
            if lane is None:
                wake_at = self.courier.wake_at
                assert wake_at is not None
                assert wake_at > self.clock
                self.clock = wake_at
                continue
            talk = self.talks[lane.session_id]
            talk.lane = lane
            self._post(talk, 2)
            self.courier.ended(lane)
        assert self.courier.next(self.clock + 1e6) is None
        assert self.courier.troubled == 0
        for talk in self.talks.values():
            assert talk.posted == list(range(talk.start + 1, talk.last + 1))


TestCourier = CourierMachine.TestCase


def test_sessions_that_hang_leave_room_for_those_that_do_not() -> None:
    courier = SinkScheduler(Random(1), turns=4, suspects=2)
    for name in "abcd":
        courier.grew(name, 1, 0.0)
    for _ in range(4):
        lane = courier.next(0.0)
        assert lane
        courier.failed(lane, 0.0)
    hanging = [lane.session_id for lane in iter(lambda: courier.next(99.0), None)]
    assert len(hanging) == 2
    courier.grew("well", 1, 0.0)
    lane = courier.next(99.0)
    assert lane
    assert lane.session_id == "well"


def test_a_busy_session_goes_to_the_end_of_the_line_after_its_page() -> None:
    courier = SinkScheduler(Random(1), turns=1)
    for seq in range(1, 100):
        courier.grew("busy", seq, 0.0)
    courier.grew("quiet", 1, 0.0)
    first = courier.next(0.0)
    assert first
    courier.passed(first, 10, 0.0)
    courier.ended(first)
    second = courier.next(0.0)
    assert second
    assert (first.session_id, second.session_id) == ("busy", "quiet")


def test_what_was_accepted_before_a_restart_and_what_comes_after_it_are_one_lane() -> None:
    courier = SinkScheduler(Random(1))
    courier.found("s", done=2, last=5, since=1.0)
    courier.grew("s", 6, 2.0)
    lane = courier.next(0.0)
    assert lane
    assert (lane.done, lane.last, courier.oldest_since(), courier.waiting) == (2, 6, 1.0, 4)
    assert courier.next(0.0) is None


@pytest.mark.parametrize("fails", [True, False])
def test_a_turn_that_ends_after_its_session_was_purged_is_only_given_back(fails: bool) -> None:
    courier = SinkScheduler(Random(1))
    courier.grew("s", 2, 0.0)
    lane = courier.next(0.0)
    assert lane
    courier.forget("s")
    courier.passed(lane, 2, 0.0)
    if fails:
        courier.failed(lane, 0.0)
    else:
        courier.ended(lane)
    assert (courier.out, courier.troubled, courier.waiting, courier.wake_at) == (0, 0, 0, None)
