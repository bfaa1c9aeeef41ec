"""Stages against a list: every sender hears `accepted`, then one last word, and the store's word settles all before."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gateway.session.conversation import receipts as stages_module
from gateway.session.conversation.receipts import (
    LISTENERS,
    REASON_LENGTH,
    Accepted,
    MessageRefused,
    Receipts,
    Stage,
    one_line,
)
from persistence.record import Record, Status


def record(seq: int, status: str = Status.STORED) -> Record:
    return Record("s", seq, f"c{seq}", "user", "message", b"{}", 0.0, status)


class StagesAgainstModel(RuleBasedStateMachine):
    @initialize(loaded=st.integers(0, 5), behind=st.booleans())
    def begin(self, loaded: int, behind: bool) -> None:
        self.stages = Receipts(loaded if behind else 0)
        self.doubtful = set(range(1, loaded + 1)) if behind else set()
        self.last = loaded
        self.unsettled: set[int] = set()
        self.status: dict[int, str] = {}
        self.heard: dict[int, list[Accepted | MessageRefused]] = {}  # by who asked
        self.asked: dict[int, list[int]] = {}  # seq -> who
        self.count = 0

    def _somebody(self, seq: int) -> int:
        self.count += 1
        self.heard[self.count] = []
        self.asked.setdefault(seq, []).append(self.count)
        return self.count

    @rule(senders=st.integers(0, 3), other=st.booleans())
    def accept(self, senders: int, other: bool) -> None:
        """An answer of the agent has a seq too, and nobody who waits."""
        self.last += 1
        if other:
            return
        self.unsettled.add(self.last)
        self.status[self.last] = Status.STORED
        who = [self._somebody(self.last) for _ in range(senders)]
        self.stages.accept(record(self.last), [self.heard[each].append for each in who])
        for each in who:
            assert self.heard[each] == [Accepted(self.last, Status.STORED, Stage.ACCEPTED)]

    @precondition(lambda self: self.last)
    @rule(data=st.data())
    def ask(self, data: st.DataObject) -> None:
        seq = data.draw(st.integers(1, self.last))
        if seq not in self.unsettled and seq not in self.doubtful:
            nobody: list[Accepted | MessageRefused] = []
            assert not self.stages.ask(seq, nobody.append)
            assert not self.stages.ask_doubted(seq, f"c{seq}", Status.DELIVERED, nobody.append)
            assert not nobody
            return
        who = self._somebody(seq)
        status = self.status.setdefault(seq, Status.DELIVERED)
        listen = self.heard[who].append
        assert self.stages.ask(seq, listen) or self.stages.ask_doubted(seq, f"c{seq}", Status.DELIVERED, listen)
        assert self.heard[who] == [Accepted(seq, status, Stage.ACCEPTED)]

    @precondition(lambda self: self.last)
    @rule(data=st.data(), status=st.sampled_from([Status.DELIVERED, Status.EXPIRED]))
    def note(self, data: st.DataObject, status: Status) -> None:
        seq = data.draw(st.integers(1, self.last))
        self.stages.note(seq, status)
        if seq in self.unsettled:
            self.status[seq] = status

    @precondition(lambda self: self.last)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        seq = data.draw(st.integers(1, self.last))
        before, itself = self.stages.settle(seq)
        waited = sorted(each for each in self.unsettled | self.doubtful if each in self.status and each < seq)
        assert [each.seq for each in before] == waited
        known = seq in self.status and seq in self.unsettled | self.doubtful
        assert (itself is not None) == known
        for each in [*before, *([itself] if itself else [])]:
            word = Accepted(each.seq, each.status)
            each.tell(word)
            assert each.cid == f"c{each.seq}"
            assert each.status == self.status.pop(each.seq)
            for who in self.asked.pop(each.seq, [])[-LISTENERS:]:
                assert self.heard[who].pop() == word
        self.unsettled = {each for each in self.unsettled if each > seq}
        self.doubtful = {each for each in self.doubtful if each > seq}

    @invariant()
    def nobody_heard_more(self) -> None:
        assert all(len(words) == 1 for words in self.heard.values())
        assert len(self.stages) == len(self.status)


TestStages = StagesAgainstModel.TestCase
TestStages.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_who_sends_one_record_again_and_again_is_heard_of_a_bounded_number_of_times() -> None:
    stages, words = Receipts(0), list[Accepted | MessageRefused]()
    stages.accept(record(1), [words.append])
    for _ in range(LISTENERS * 3):
        assert stages.ask(1, words.append)
    _, itself = stages.settle(1)
    assert itself is not None
    words.clear()
    itself.tell(MessageRefused("rejected"))
    assert len(words) == LISTENERS


def test_a_store_that_is_far_behind_leaves_the_oldest_in_doubt_and_nothing_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stages_module, "UNSETTLED", 3)
    stages, words = Receipts(0), list[Accepted | MessageRefused]()
    stages.accept(record(1), [], answers=record(9, Status.OPEN))
    for seq in range(2, 7):
        stages.accept(record(seq), [])
    assert len(stages) == 3
    assert [stages.ask(seq, words.append) for seq in range(1, 7)] == [True, False, False, False, True, True]
    words.clear()
    for seq in range(1, 6):  # whether it waits, was let go, or is asked about once more
        assert stages.ask_doubted(seq, f"c{seq}", Status.DELIVERED, words.append)
    assert [word.stage for word in words if isinstance(word, Accepted)] == [Stage.ACCEPTED] * 5
    before, itself = stages.settle(4)
    assert sorted(each.seq for each in before) == [1, 2, 3]
    assert itself is not None
    assert (itself.seq, itself.status) == (4, Status.DELIVERED)
    assert not stages.ask_doubted(4, "c4", Status.DELIVERED, words.append)
    assert stages.ask(5, words.append)


def test_what_is_asked_about_in_doubt_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages_module, "UNSETTLED", 3)
    stages, words = Receipts(100), list[Accepted | MessageRefused]()
    for seq in (*range(1, 101), 1):
        assert stages.ask_doubted(seq, f"c{seq}", Status.STORED, words.append)
    assert len(stages) == 3
    assert words == [Accepted(seq, Status.STORED, Stage.ACCEPTED) for seq in (*range(1, 101), 1)]
    assert [each.seq for each in stages.settle(101)[0]] == [1, 99, 100]


def test_answers_are_never_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages_module, "UNSETTLED", 1)
    stages = Receipts(0)
    for seq in (1, 2, 3):
        stages.accept(record(seq), [], answers=record(9, Status.OPEN))
    assert [each.seq for each in stages.settle(4)[0]] == [1, 2, 3]


def test_an_answer_remembers_what_it_answers() -> None:
    stages, request = Receipts(0), record(1, Status.OPEN)
    stages.accept(record(2), [], answers=request)
    _, itself = stages.settle(2)
    assert itself is not None
    assert itself.answers is request


@given(st.text(max_size=700))
def test_a_stores_reason_is_told_in_one_printable_line(reason: str) -> None:
    line = one_line(reason)
    assert len(line) <= REASON_LENGTH
    assert line == "" or line.isprintable()


def test_a_short_reason_is_told_as_it_is() -> None:
    assert one_line("value too long\n  for type") == "value too long for type"
    assert one_line("x" * 400) == "x" * 299 + "…"
