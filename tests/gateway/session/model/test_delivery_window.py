"""The pending window against a list: order kept, nothing lost, bounds held, every entry leaves exactly once."""

import math
from collections.abc import Iterable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gateway.limits.inbound_bytes import InboundBytes
from gateway.session.model.delivery_window import DeliveryWindow, WindowEntry, WindowLimits

LIMITS = WindowLimits(
    away_records=4,
    away_bytes=60,
    away_seconds=10.0,
    connected_records=6,
    connected_bytes=100,
    link_records=3,
    link_bytes=40,
)
TYPES = st.sampled_from(["message", "permission_response", "raw"])
SEQS = st.integers(0, 30)


def entry(seq: int, size: int = 1, since: float = 0.0, type: str = "message", **flags: bool) -> WindowEntry:
    return WindowEntry(seq, f"c{seq}", b"x" * size, since, type, **flags)


def seqs(entries: Iterable[WindowEntry]) -> list[int]:
    return [each.seq for each in entries]


class WindowMachine(RuleBasedStateMachine):
    """The model is the list of what should be in the window, and for each seq where it stands. Only the model decides
    what `durable` and `sent` mean; of the window's entries only the seq is believed.
    """

    @initialize(restored=st.integers(0, 6), perhaps_sent=st.booleans())
    def begin(self, restored: int, perhaps_sent: bool) -> None:
        """A gateway before this one may have left stored records, and may have sent all of them."""
        self.window = DeliveryWindow(LIMITS, InboundBytes(1 << 30))
        self.now, self.last, self.away_since = 0.0, 0, -math.inf
        self.connected = False
        self.queue: list[int] = []
        self.size: dict[int, int] = {}
        self.since: dict[int, float] = {}
        self.type: dict[int, str] = {}
        self.durable: set[int] = set()
        self.on_link: set[int] = set()  # sent, and neither confirmed nor settled since
        self.held: set[int] = set()  # being cancelled
        self.until: dict[int, float] = {}  # given more time
        self.left: dict[int, str] = {}
        for _ in range(restored):
            self._admit(5, "message", since=-3.0, durable=True, sent=perhaps_sent)

    def _admit(self, size: int, type: str, since: float, *, durable: bool = False, sent: bool = False) -> None:
        self.last += 1
        self.window.admit(entry(self.last, size, since, type, durable=durable, sent=sent))
        self.queue.append(self.last)
        self.size[self.last], self.since[self.last], self.type[self.last] = size, since, type
        self.durable |= {self.last} if durable else set()
        self.on_link |= {self.last} if sent else set()

    def _leave(self, gone: list[WindowEntry], expected: list[int], reason: str) -> None:
        assert seqs(gone) == expected
        for seq in expected:
            assert seq not in self.left
            self.left[seq] = reason
            self.queue.remove(seq)
            self.on_link.discard(seq)

    def _bytes(self, some: Iterable[int]) -> int:
        return sum(self.size[seq] for seq in some)

    @rule(seconds=st.floats(0, 12))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(size=st.integers(1, 50), type=TYPES, refusable=st.booleans())
    def offer(self, size: int, type: str, refusable: bool) -> None:
        records, room = (6, 100) if self.connected else (4, 60)
        fits = len(self.queue) < records and self._bytes(self.queue) + size <= room
        word = "busy" if self.connected else "buffer_full"
        assert self.window.refusal(size) == (None if fits else word)
        if fits or not refusable:
            self._admit(size, type, self.now)

    @rule(seq=SEQS)
    def store(self, seq: int) -> None:
        self.window.stored(seq)
        if seq in self.queue:
            self.durable.add(seq)

    @rule(seq=SEQS)
    def accept(self, seq: int) -> None:
        self.window.accepted(seq)
        if seq in self.queue:
            self.durable.add(seq)

    @rule()
    def store_everything(self) -> None:
        for seq in self.queue:
            self.store(seq)

    @precondition(lambda self: not self.on_link)
    @rule()
    def connect(self) -> None:
        self.window.connect()
        self.connected = True

    @rule()
    def disconnect(self) -> None:
        self.window.disconnect(self.now)
        if self.connected:
            self.connected, self.away_since = False, self.now

    @precondition(lambda self: not self.connected)
    @rule(taken=SEQS)
    def settle(self, taken: int) -> None:
        self._leave(self.window.settle(taken), self._takeable(taken), "taken")
        self.on_link.clear()

    @rule()
    def send(self) -> None:
        ready = seqs(self.window.next_to_send())
        waiting = [seq for seq in self.queue if seq not in self.on_link - self.held]
        assert self.held.isdisjoint(ready)
        assert ready == waiting[: len(ready)]  # nothing is overtaken, nothing unsure goes out again
        assert self.durable.issuperset(ready)
        if not self.connected:
            assert not ready
            return
        self.on_link.update(ready)
        assert len(self.on_link) <= 3
        assert self._bytes(self.on_link) <= 40 or len(self.on_link) == 1
        if (rest := waiting[len(ready) :]) and rest[0] in self.durable - self.held:
            # What stays behind had no room: the link is used as far as it may be.
            assert self.on_link
            assert len(self.on_link) == 3 or self._bytes(self.on_link) + self.size[rest[0]] > 40

    @rule(seq=SEQS)
    def take(self, seq: int) -> None:
        self._leave(self.window.taken(seq), self._takeable(seq), "taken")

    def _takeable(self, seq: int) -> list[int]:
        """What is on the link up to there, and before anything that is held."""
        first = min((each for each in self.held if each in self.queue), default=math.inf)
        return [each for each in self.queue if each in self.on_link and each <= seq and each < first]

    @rule(seq=SEQS)
    def hold(self, seq: int) -> None:
        found = self.window.find(seq)
        assert (found is not None) == (seq in self.queue)
        if found is not None:
            found.held = True
            self.held.add(seq)

    @rule(seq=SEQS, seconds=st.floats(0, 40))
    def extend(self, seq: int, seconds: float) -> None:
        if (found := self.window.find(seq)) is not None:
            found.until = self.until[seq] = self.now + seconds

    def _due(self) -> dict[int, float]:
        """When each entry expires, if nothing changes."""
        if self.connected:
            return {}
        aging = [seq for seq in self.queue if seq in self.durable and seq not in self.on_link | self.held]
        usual = {seq: max(self.since[seq], self.away_since) + 10.0 for seq in aging}
        return {seq: max(due, self.until.get(seq, -math.inf)) for seq, due in usual.items()}

    @rule()
    def expire(self) -> None:
        self._leave(
            self.window.expire(self.now), [seq for seq, due in self._due().items() if due <= self.now], "expired"
        )

    @precondition(lambda self: self.window.next_expiry() is not None)
    @rule()
    def wait_until_something_expires(self) -> None:
        due = self.window.next_expiry()
        assert due is not None
        self.now = max(self.now, due)
        expected = [seq for seq, when in self._due().items() if when <= self.now]
        assert expected
        self._leave(self.window.expire(self.now), expected, "expired")

    @rule(seq=SEQS)
    def withdraw(self, seq: int) -> None:
        gone = self.window.withdraw(seq)
        self._leave([gone] if gone else [], [seq] if seq in self.queue else [], "withdrawn")

    @rule(seq=SEQS)
    def recall(self, seq: int) -> None:
        gone = self.window.recall(seq)
        expected = [seq] if seq in self.queue and seq not in self.on_link else []
        self._leave([gone] if gone else [], expected, "recalled")

    @rule(types=st.frozensets(TYPES, min_size=1, max_size=2))
    def withdraw_all(self, types: frozenset[str]) -> None:
        expected = [seq for seq in self.queue if self.type[seq] in types]
        self._leave(self.window.withdraw_all(types), expected, "withdrawn")

    @invariant()
    def says_what_is_in_it(self) -> None:
        assert len(self.window) == len(self.queue)
        assert self.window.oldest == (self.queue[0] if self.queue else None)
        assert self.window.queued_bytes == self._bytes(self.queue)
        assert seqs(self.window.unsure()) == [seq for seq in self.queue if seq in self.on_link - self.held]
        assert [each.seq for each in self.window] == self.queue
        due = self._due()
        assert [self.window.expires_at(each) for each in self.window] == [due.get(seq) for seq in self.queue]
        assert self.window.next_expiry() == min(self._due().values(), default=None)

    def teardown(self) -> None:
        if not hasattr(self, "window"):
            return
        self._leave(self.window.clear(), list(self.queue), "cleared")
        assert sorted(self.left) == list(range(1, self.last + 1))
        assert (len(self.window), self.window.queued_bytes, self.window.clear()) == (0, 0, [])


TestWindow = WindowMachine.TestCase
TestWindow.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def connected(*entries: WindowEntry, limits: WindowLimits = LIMITS) -> DeliveryWindow:
    window = DeliveryWindow(limits, InboundBytes(1 << 30))
    for each in entries:
        window.admit(each)
    window.connect()
    return window


def test_the_defaults_are_those_of_the_design() -> None:
    limits = WindowLimits()
    assert (limits.away_records, limits.away_seconds) == (100, 300.0)
    assert (limits.connected_records, limits.connected_bytes) == (1000, 8 << 20)
    assert (limits.link_records, limits.link_bytes) == (64, 2 << 20)


def test_of_500_sends_to_an_absent_sandbox_100_are_held_and_400_refused() -> None:
    window = DeliveryWindow(WindowLimits(), InboundBytes(1 << 30))
    answers = []
    for seq in range(1, 501):
        answers.append(window.refusal(10))
        if answers[-1] is None:
            window.admit(entry(seq, 10, durable=True))
    assert answers == [None] * 100 + ["buffer_full"] * 400
    window.connect()
    arrived = []
    while sent := window.next_to_send():
        arrived += seqs(window.taken(sent[-1].seq))
    assert arrived == list(range(1, 101))


def test_a_record_is_not_sent_before_it_is_durable_and_holds_up_those_behind_it() -> None:
    window = connected(entry(1, durable=True), entry(2), entry(3, durable=True))
    assert seqs(window.next_to_send()) == [1]
    window.stored(2)
    assert seqs(window.next_to_send()) == [2, 3]
    assert window.next_to_send() == []


def test_a_record_larger_than_the_link_may_carry_goes_alone() -> None:
    window = connected(entry(1, 10, durable=True), entry(2, 99, durable=True), entry(3, 1, durable=True))
    assert seqs(window.next_to_send()) == [1]
    window.taken(1)
    assert seqs(window.next_to_send()) == [2]
    assert window.next_to_send() == []
    window.taken(2)
    assert seqs(window.next_to_send()) == [3]


def test_what_was_sent_waits_for_the_bridges_word_and_is_then_gone_or_sent_again() -> None:
    window = connected(entry(1, durable=True), entry(2, durable=True))
    window.next_to_send()
    window.disconnect(0.0)
    assert window.expire(1e9) == []
    assert window.next_expiry() is None
    assert seqs(window.unsure()) == [1, 2]
    assert seqs(window.settle(1)) == [1]
    assert window.unsure() == []
    window.connect()
    assert seqs(window.next_to_send()) == [2]


# `settle` once took out whatever the bridge claimed, also what it had never been given.
def test_a_bridge_that_claims_what_it_was_never_sent_is_not_believed() -> None:
    window = connected(entry(1, durable=True))
    window.next_to_send()
    window.admit(entry(2, durable=True))
    assert seqs(window.taken(1 << 60)) == [1]
    window.disconnect(0.0)
    assert window.settle(1 << 60) == []
    assert len(window) == 1


def test_age_counts_from_when_the_sandbox_went_away_or_the_record_came() -> None:
    window = connected(entry(1, since=0.0, durable=True))
    assert (window.next_expiry(), window.expire(1e9)) == (None, [])
    window.disconnect(100.0)
    window.disconnect(109.0)  # it was away already
    window.admit(entry(2, since=105.0, durable=True))
    assert window.next_expiry() == 110.0
    assert window.expire(109.9) == []
    assert seqs(window.expire(110.0)) == [1]
    assert window.next_expiry() == 115.0


# With a difference of two floats on one side and a sum on the other a timer could fire and find nothing to do, for ever
# on a clock that only moves from timer to timer.
@pytest.mark.parametrize("since", [0.1, 0.7, 1.1, 3.3, 1e6 + 0.1, 12345.678])
def test_something_expires_at_the_very_moment_that_was_told(since: float) -> None:
    window = DeliveryWindow(WindowLimits(away_seconds=0.3), InboundBytes(1 << 30))
    window.admit(entry(1, since=since, durable=True))
    due = window.next_expiry()
    assert due is not None
    assert window.expire(math.nextafter(due, 0.0)) == []
    assert seqs(window.expire(due)) == [1]


def test_a_record_that_is_not_durable_does_not_expire() -> None:
    window = DeliveryWindow(LIMITS, InboundBytes(1 << 30))
    window.admit(entry(1))
    assert (window.next_expiry(), window.expire(1e9)) == (None, [])
    window.stored(1)
    assert seqs(window.expire(1e9)) == [1]
    window.stored(1)  # too late to matter
    assert len(window) == 0


def test_room_on_the_link_comes_back_with_what_is_withdrawn() -> None:
    window = connected(*(entry(seq, durable=True) for seq in range(1, 6)))
    assert seqs(window.next_to_send()) == [1, 2, 3]
    assert window.withdraw(2) is not None
    assert window.withdraw(2) is None
    assert seqs(window.next_to_send()) == [4]


def test_a_record_that_just_fills_the_window_comes_in() -> None:
    away, near = DeliveryWindow(LIMITS, InboundBytes(1 << 30)), connected()
    assert (away.refusal(60), away.refusal(61)) == (None, "buffer_full")
    assert (near.refusal(100), near.refusal(101)) == (None, "busy")


def test_what_is_only_accepted_may_be_sent_and_is_known_as_such_when_it_is_taken() -> None:
    window = connected(entry(1), entry(2), entry(3))
    window.accepted(1)
    window.accepted(2)
    assert seqs(window.next_to_send()) == [1, 2]
    window.stored(2)
    assert [(each.seq, each.stored) for each in window.taken(2)] == [(1, False), (2, True)]


def test_all_windows_of_a_user_share_one_bound_and_give_back_what_they_held() -> None:
    shared = InboundBytes(100)
    first, second = DeliveryWindow(LIMITS, shared), DeliveryWindow(LIMITS, shared)
    first.admit(entry(1, size=60))
    assert (second.refusal(40), second.refusal(41)) == (None, "buffer_full")
    second.connect()
    assert second.refusal(41) == "busy"
    first.close()
    assert (shared.held, second.refusal(41)) == (0, None)


def test_an_answer_is_refused_only_where_its_users_windows_hold_twice_what_they_may() -> None:
    shared = InboundBytes(100)
    window = DeliveryWindow(LIMITS, shared)
    window.admit(entry(1, size=199))
    assert (window.refusal(1), window.answer_refusal()) == ("buffer_full", None)
    window.admit(entry(2))
    assert window.answer_refusal() == "buffer_full"
