"""Whether a peer lives, takes what it is sent and pings no more than it may, against a model of a few lines."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from gateway.protocol.close_codes import CloseCode
from gateway.server.front_door import GuardLimits
from gateway.server.liveness import ALIVE, DEAD, PING, SLOW, Liveness
from sandbox.protocol.websocket_frames import FrameError

LIMITS = GuardLimits(ping_after=12.0, dead_after=22.0, stall_seconds=25.0, pings=5, ping_window=10.0)


class PulseAgainstAModel(RuleBasedStateMachine):
    """Silence is counted from the last word, being slow from the last byte taken. Asked once for each silence. Who has
    not taken what was written has not been asked either: that is slow, not dead."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.heard = self.taken_at = 100.0
        self.asked = self.stalled = False
        self.unsent = 0
        self.known = 0  # what was unsent when it was last looked at
        self.pulse = Liveness(self.now)

    @rule(seconds=st.sampled_from([0.5, 2.5, 9.5, 12.0, 22.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(seconds=st.sampled_from([2.5, 12.0, 60.0]))
    def is_not_read_by_a_busy_loop(self, seconds: float) -> None:
        self.now += seconds
        self.pulse.forgive(seconds)
        self.heard += seconds
        self.taken_at += seconds

    @rule()
    def says_something(self) -> None:
        self.pulse.heard_at = self.now
        self.heard, self.asked = self.now, False

    @precondition(lambda self: not self.stalled)
    @rule(unsent=st.integers(1, 100))
    def takes_no_more(self, unsent: int) -> None:
        self.pulse.stall(self.now, unsent)
        self.stalled, self.taken_at, self.unsent, self.known = True, self.now, unsent, unsent

    @precondition(lambda self: self.stalled and self.unsent > 1)
    @rule(taken=st.integers(1, 50))
    def takes_some(self, taken: int) -> None:
        self.unsent = max(1, self.unsent - taken)

    @precondition(lambda self: self.stalled)
    @rule()
    def takes_all(self) -> None:
        self.pulse.flow()
        self.stalled, self.unsent = False, 0

    @rule(read=st.booleans())
    def is_looked_at(self, read: bool) -> None:
        silence = self.now - self.heard if read else 0.0
        if self.unsent < self.known:
            self.taken_at, self.known = self.now, self.unsent
        stuck = self.now - self.taken_at
        if self.stalled and (stuck >= LIMITS.stall_seconds or (stuck >= 22.0 and silence >= 22.0)):
            wanted = SLOW
        elif not self.stalled and silence >= LIMITS.dead_after:
            wanted = DEAD
        elif silence >= LIMITS.ping_after and not self.asked:
            wanted, self.asked = PING, True
        else:
            wanted = ALIVE
        assert self.pulse.verdict(self.now, LIMITS, read=read, unsent=self.unsent) == wanted
        assert self.pulse.stalled == self.stalled


TestPulse = PulseAgainstAModel.TestCase
TestPulse.settings = settings(max_examples=60, stateful_step_count=40)


@given(st.lists(st.sampled_from([0.0, 0.5, 3.0, 11.0]), max_size=60))
def test_pings_are_refused_only_when_more_than_allowed_come_within_a_window(pauses: list[float]) -> None:
    pulse, now, times = Liveness(0.0), 0.0, []
    for pause in pauses:
        now += pause
        times.append(now)
        pulse.heard_at = now
        if (refused := refusal(pulse)) is not None:
            assert refused == CloseCode.TOO_MANY
            assert len([each for each in times if each > now - LIMITS.ping_window]) >= LIMITS.pings
            break
        assert times.count(now) <= 2 * LIMITS.pings + 1


def refusal(pulse: Liveness) -> int | None:
    """The code that one more ping is refused with, if it is."""
    try:
        pulse.pinged(LIMITS)
    except FrameError as error:
        return error.code
    return None


def test_a_flood_of_pings_is_refused_whatever_was_before() -> None:
    for calm in range(12):
        pulse = Liveness(0.0)
        for number in range(calm):
            pulse.heard_at = number * 11.0
            pulse.pinged(LIMITS)
        pulse.heard_at = calm * 11.0
        with pytest.raises(FrameError):
            flood(pulse)


def flood(pulse: Liveness) -> None:
    for _ in range(2 * LIMITS.pings + 2):
        pulse.pinged(LIMITS)


def test_who_takes_a_little_each_time_is_kept_and_who_takes_nothing_is_not() -> None:
    pulse, now = Liveness(0.0), 0.0
    pulse.stall(now, 1000)
    for unsent in range(999, 900, -1):
        now += LIMITS.stall_seconds - 1
        assert pulse.verdict(now, LIMITS, read=True, unsent=unsent) in (ALIVE, PING)
    assert pulse.verdict(now + LIMITS.dead_after, LIMITS, read=True, unsent=unsent) == SLOW
    pulse.flow()
    assert pulse.verdict(now + LIMITS.dead_after, LIMITS, read=True, unsent=0) == DEAD
