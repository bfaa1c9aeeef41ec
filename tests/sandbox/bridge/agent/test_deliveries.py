"""The queue before an agent, against a model of what the agent was given and what the notes have."""

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sandbox.bridge.agent.deliveries import DeliveryQueue, DueDelivery


def queue(*records: tuple[int, bool], lines: int = 100, size: int = 1000) -> DeliveryQueue:
    made = DeliveryQueue(lines, size)
    for seq, waits in records:
        made.add(seq, b"%d" % seq, waits=waits)
    return made


def test_records_come_in_order_and_an_empty_queue_has_nothing() -> None:
    waiting = queue((1, False), (2, True))
    assert waiting.next(0, ready=True) == DueDelivery(1, b"1")
    assert waiting.next(1, ready=True) == DueDelivery(2, b"2")
    assert waiting.next(2, ready=True) is None


def test_what_was_taken_before_is_left_out() -> None:
    waiting = queue((4, True), (5, False), (6, True))
    assert waiting.next(5, ready=True) == DueDelivery(6, b"6")
    assert len(waiting) == 0


def test_a_message_waits_until_the_agent_is_ready_and_what_follows_waits_behind_it() -> None:
    waiting = queue((1, True), (2, True))
    assert waiting.next(0, ready=False) is None
    assert waiting.next(0, ready=True) == DueDelivery(1, b"1")
    assert waiting.next(1, ready=False) is None
    assert len(waiting) == 1


def test_an_answer_goes_ahead_once_and_is_noted_when_its_turn_comes() -> None:
    waiting = queue((2, True), (3, False), (4, True), (5, False))
    assert waiting.next(1, ready=False) == DueDelivery(None, b"3")
    assert waiting.next(1, ready=False) == DueDelivery(None, b"5")
    assert waiting.next(1, ready=False) is None
    assert waiting.next(1, ready=True) == DueDelivery(2, b"2")
    assert waiting.next(2, ready=False) == DueDelivery(3, None)
    assert waiting.next(3, ready=True) == DueDelivery(4, b"4")
    assert waiting.next(4, ready=False) == DueDelivery(5, None)
    assert waiting.next(5, ready=True) is None


def test_a_message_for_the_running_turn_stays_until_the_agent_can_take_it_in_and_answers_pass_it() -> None:
    waiting = DeliveryQueue(100, 1000)
    waiting.add(2, b"queued", waits=True)
    waiting.add(3, b"steers", waits=False, folded=True)
    waiting.add(4, b"answer", waits=False)
    assert waiting.next(1, ready=False, can_fold=False) == DueDelivery(None, b"answer")
    assert waiting.next(1, ready=False, can_fold=False) is None
    assert waiting.next(1, ready=False) == DueDelivery(None, b"steers")
    assert waiting.next(1, ready=True) == DueDelivery(2, b"queued")
    assert waiting.next(2, ready=False, can_fold=False) == DueDelivery(3, None), "it was given"
    assert waiting.next(3, ready=False, can_fold=False) == DueDelivery(4, None)


def test_the_oldest_may_be_one_that_cannot_be_taken_in_now_and_is_cancelled_then() -> None:
    waiting = DeliveryQueue(100, 1000)
    waiting.add(2, b"steers", waits=False, folded=True)
    waiting.add(3, b"answer", waits=False)
    assert waiting.next(1, ready=False, can_fold=False) == DueDelivery(None, b"answer")
    assert waiting.hold(2)
    waiting.drop_held(2)
    assert waiting.next(1, ready=False, can_fold=False) == DueDelivery(3, None)


def test_a_gateway_that_comes_back_delivers_again_and_an_answer_is_not_given_twice() -> None:
    waiting = queue((2, True), (3, False))
    assert waiting.next(1, ready=False) == DueDelivery(None, b"3")
    waiting.drop()
    assert waiting.next(1, ready=True) is None
    waiting.add(2, b"2", waits=True)
    waiting.add(3, b"3", waits=False)
    assert waiting.next(1, ready=False) is None
    assert waiting.next(1, ready=True) == DueDelivery(2, b"2")
    assert waiting.next(2, ready=True) == DueDelivery(3, None)


def test_the_next_process_knows_nothing_of_what_the_last_one_was_given_ahead() -> None:
    waiting = queue((2, True), (3, False))
    assert waiting.next(1, ready=False) == DueDelivery(None, b"3")
    waiting.forget_process()
    waiting.add(3, b"3", waits=False)
    assert waiting.next(2, ready=False) == DueDelivery(3, b"3")


def test_a_record_that_is_held_back_is_not_given_nor_what_follows_it_until_it_is_dropped() -> None:
    waiting = queue((1, False), (2, False), (3, False))
    assert waiting.hold(2)
    assert waiting.hold(2), "asked twice"
    assert waiting.next(0, ready=True) == DueDelivery(1, b"1")
    assert waiting.next(1, ready=True) is None
    assert waiting.next(1, ready=False) is None
    waiting.drop_held(2)
    assert waiting.next(1, ready=True) == DueDelivery(3, b"3")


def test_what_was_given_ahead_or_is_not_here_cannot_be_held_back() -> None:
    waiting = queue((2, True), (3, False))
    assert waiting.next(1, ready=False) == DueDelivery(None, b"3")
    assert not waiting.hold(3)
    assert not waiting.hold(4)
    waiting.drop_held(2)
    assert waiting.next(1, ready=True) == DueDelivery(2, b"2"), "it was not held back"


def test_nothing_is_given_ahead_past_a_record_that_is_held_back() -> None:
    waiting = queue((2, True), (3, False), (4, False))
    assert waiting.hold(3)
    assert waiting.next(1, ready=False) is None
    waiting.drop_held(3)
    assert waiting.next(1, ready=False) == DueDelivery(None, b"4")


def test_the_room_of_a_record_that_was_dropped_is_free_again() -> None:
    waiting = queue((1, True), (2, True), size=2)
    full = [waiting.full]
    assert waiting.hold(1)
    waiting.drop_held(1)
    full.append(waiting.full)
    assert full == [True, False]
    assert waiting.hold(2)
    waiting.drop()
    waiting.add(2, b"2", waits=True)
    assert waiting.next(0, ready=True) == DueDelivery(2, b"2"), "another gateway knows nothing of it"


def test_the_oldest_record_says_how_long_it_is() -> None:
    waiting = queue((10, True), (2000, True))
    sizes = [waiting.oldest_bytes]
    for taken in (0, 10):
        waiting.next(taken, ready=True)
        sizes.append(waiting.oldest_bytes)
    assert sizes == [2, 4, 0]


def test_it_is_full_by_lines_or_by_bytes_and_not_when_they_are_gone() -> None:
    assert not queue((1, True), lines=2).full
    assert queue((1, True), (2, True), lines=2).full
    waiting = queue((1, True), (2, True), size=2)
    full = [waiting.full]
    waiting.next(0, ready=True)
    full.append(waiting.full)
    waiting.add(3, b"long", waits=True)
    full.append(waiting.full)
    waiting.drop()
    full.append(waiting.full)
    assert full == [True, False, True, False]


class OneProcessAfterTheOther(RuleBasedStateMachine):
    """A gateway delivers in order, and again from what was noted when its link or the process was lost. An agent is
    given every record that waits once and in order, ready or not; what does not wait, once in each process."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = DeliveryQueue(100, 10_000)
        self.waits: list[bool] = []
        self.sent = 0
        self.taken = 0
        self.ready = True
        self.messages: list[int] = []
        self.answers: list[int] = []  # of this process
        self.noted_answers: list[int] = []  # before this process

    @rule(waits=st.booleans())
    def write(self, waits: bool) -> None:
        self.waits.append(waits)
        self.deliver()

    def deliver(self) -> None:
        for seq in range(self.sent + 1, len(self.waits) + 1):
            self.queue.add(seq, b"%d" % seq, waits=self.waits[seq - 1])
        self.sent = len(self.waits)

    @rule(ready=st.booleans())
    def turn(self, ready: bool) -> None:
        self.ready = ready

    @rule()
    def pull(self) -> None:
        due = self.queue.next(self.taken, ready=self.ready)
        if due is None:
            return
        if due.noted is not None:
            assert due.noted > self.taken
            self.taken = due.noted
        if due.line is not None:
            seq = int(due.line)
            assert self.ready or not self.waits[seq - 1]
            (self.messages if self.waits[seq - 1] else self.answers).append(seq)
            assert due.noted is None or due.noted == seq
            assert due.noted is not None or not self.waits[seq - 1]

    @rule()
    def attach(self) -> None:
        self.queue.drop()
        self.sent = self.taken
        self.deliver()

    @precondition(lambda self: self.answers)
    @rule()
    def die(self) -> None:
        self.queue.forget_process()
        self.noted_answers += [seq for seq in self.answers if seq <= self.taken]
        self.answers = []
        self.sent = self.taken
        self.deliver()

    @invariant()
    def every_message_once_and_in_order(self) -> None:
        assert self.messages == [seq for seq in range(1, self.taken + 1) if self.waits[seq - 1]]

    @invariant()
    def every_answer_once(self) -> None:
        given_now = self.noted_answers + self.answers
        assert len(set(given_now)) == len(given_now)
        noted = [seq for seq in range(1, self.taken + 1) if not self.waits[seq - 1]]
        assert set(noted) <= set(given_now)


TestOneProcessAfterTheOther = OneProcessAfterTheOther.TestCase
