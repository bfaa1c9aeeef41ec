"""The order of a session's output: dealt with in turn, shown in turn, nothing held shown before its time."""

from functools import partial

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.session.conversation import release_order
from gateway.session.conversation.release_order import HeldLine, ReleaseOrder


class OrderAgainstModel(RuleBasedStateMachine):
    """Lines are numbers. Some are shown at once when they are dealt with, every third is held until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.order = ReleaseOrder(lambda shown, line, itself: self.shown.append((int(line), shown, itself)))
        self.given = 0
        self.dealt: list[int] = []
        self.shown: list[tuple[int, bytes, bool]] = []
        self.held: dict[int, HeldLine] = {}
        self.storing = 0
        self.slowed = False
        self.events_with_held: list[int] = []

    def _deal_line(self, number: int, hold: bool) -> None:
        self.dealt.append(number)
        if hold:
            self.held[number] = self.order.hold(b"%d" % number)
        else:
            self.order.show(b"shown", b"%d" % number)

    def _deal_event(self, number: int) -> None:
        self.dealt.append(number)
        self.events_with_held += [number] if self.held else []

    @rule(hold=st.booleans())
    def line(self, hold: bool) -> None:
        self.given += 1
        self.order.deal(partial(self._deal_line, self.given, hold), size=len(b"%d" % self.given))

    @rule()
    def event(self) -> None:
        self.given += 1
        self.order.deal(partial(self._deal_event, self.given), after_held=True)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.held)))
        self.order.release(self.held.pop(number), b"released")

    @rule()
    def shut(self) -> None:
        self.order.shut()

    @rule()
    def open(self) -> None:
        self.order.open()

    @rule(slowed=st.booleans())
    def pace(self, slowed: bool) -> None:
        self.slowed = slowed
        before = len(self.dealt)
        if slowed:
            self.order.slow()
            assert len(self.dealt) == before
        else:
            self.order.hasten()

    @precondition(lambda self: self.storing < 3)
    @rule()
    def store(self) -> None:
        self.storing += 1
        self.order.store(10)

    @precondition(lambda self: self.storing)
    @rule()
    def stored(self) -> None:
        self.storing -= 1
        self.order.stored(10)

    @invariant()
    def everything_in_its_turn(self) -> None:
        assert self.dealt == list(range(1, len(self.dealt) + 1)), "dealt with in the order they came"
        numbers = [number for number, _, _ in self.shown]
        assert numbers == sorted(numbers), "shown in the order they came"
        assert not set(numbers) & set(self.held), "nothing held is shown"
        assert all((shown == b"released") is itself for _, shown, itself in self.shown)
        assert not self.events_with_held, "an event that waits for what is held is not dealt with before"
        assert self.order.bytes >= 0
        if self.order.settled and not self.slowed:
            assert len(self.dealt) == self.given
            assert self.order.bytes == 10 * self.storing

    def teardown(self) -> None:
        self.pace(False)
        self.order.open()
        while self.held:
            self.order.release(self.held.pop(min(self.held)), b"released")
        assert self.order.settled
        self.everything_in_its_turn()


TestOrder = OrderAgainstModel.TestCase
TestOrder.settings = settings(max_examples=100, stateful_step_count=40)


def test_too_many_records_on_their_way_to_the_store_hold_up_everything_until_one_has_arrived() -> None:
    dealt: list[int] = []
    waits = ReleaseOrder(lambda *_: None)
    for _ in range(release_order.STORED_AT_ONCE):
        waits.store(1)
    waits.deal(partial(dealt.append, 1))
    assert dealt == []
    assert not waits.settled
    waits.stored(1)
    assert dealt == [1]
    assert waits.settled
