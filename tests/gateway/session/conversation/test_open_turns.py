"""Debts: each `done` answers the oldest message, the first answer wins, an ended process owes nothing."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.session.conversation import open_turns
from gateway.session.conversation.open_turns import OpenTurns
from persistence.record import Record

TYPES = ("permission_request", "question")


def asked(seq: int, type: str) -> Record:
    return Record("s", seq, f"agent:e:{seq}", "assistant", type, b"{}", 0.0, "open")


class DebtsAgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.seq = 2
        self.unanswered = [(1, "c1", 0.5)]
        self.open = {"r0": asked(2, TYPES[0])}
        self.answered: set[str] = set()
        self.withdrawn: set[str] = set()
        self.waiting: list[int] = []  # passed by a later one
        self.had: set[int] = set()  # a `done`
        self.debts = OpenTurns(list(self.unanswered), dict(self.open))

    @rule(passed=st.booleans())
    def deliver(self, passed: bool) -> None:
        if passed:
            self.seq += 1
            self.waiting.append(self.seq)
        self.seq += 1
        self._deliver(self.seq)

    @precondition(lambda self: self.waiting)
    @rule()
    def deliver_what_was_passed(self) -> None:
        self._deliver(self.waiting.pop(0))

    def _deliver(self, seq: int) -> None:
        self.unanswered.append((seq, f"c{seq}", seq / 2))
        self.unanswered.sort()
        self.debts.deliver(seq, f"c{seq}", seq / 2)

    @rule(named=st.none() | st.lists(st.integers(1, 12), max_size=4))
    def done(self, named: list[int] | None) -> None:
        seqs = [each[0] for each in self.unanswered]
        answered = seqs[:1] if named is None else [seq for seq in seqs if seq in named]
        since = [seq / 2 for seq in answered if seq > 1] + [0.5 for seq in answered if seq == 1]
        got = self.debts.done(named, self.waiting[0] if self.waiting else None)
        assert got == min(since, default=None)
        self.unanswered = [each for each in self.unanswered if each[0] not in answered]
        self.had.update(answered)
        if answered:  # what a restart finds owed is what is owed: no more, no less
            owed = {each[0] for each in self.unanswered} | set(self.waiting)
            told = {seq for seq in self.had if seq <= self.debts.answered or seq in self.debts.ahead}
            assert told == self.had
            assert not any(seq <= self.debts.answered or seq in self.debts.ahead for seq in owed)

    @rule(name=st.sampled_from(["r0", "r1", "r2"]), type=st.sampled_from(TYPES))
    def ask(self, name: str, type: str) -> None:
        self.seq += 1
        before = [self.open.pop(name)] if name in self.open else []
        self.open[name] = asked(self.seq, type)
        self.answered.discard(name)
        self.withdrawn.discard(name)
        assert self.debts.ask(name, self.open[name]) == before

    @rule(name=st.sampled_from(["r0", "r1", "r2", "never"]), type=st.sampled_from(TYPES))
    def answer(self, name: str, type: str) -> None:
        got = self.debts.answer(name, type)
        if name in self.open and self.open[name].type == type:
            assert got == self.open.pop(name)
            self.answered.add(name)
        else:
            late = name in self.answered | self.withdrawn
            assert got == ("already_answered" if late else "unknown_request")

    @rule(name=st.sampled_from(["r0", "r1", "r2", "never"]))
    def withdraw(self, name: str) -> None:
        assert self.debts.withdraw(name) == self.open.get(name)
        if self.open.pop(name, None) or name in self.answered:
            self.answered.discard(name)
            self.withdrawn.add(name)

    @rule(name=st.sampled_from(["r0", "r1", "never"]))
    def open_again(self, name: str) -> None:
        self.debts.open_again(name, asked(1, TYPES[0]))
        if name in self.answered:
            self.answered.discard(name)
            self.open[name] = asked(1, TYPES[0])

    @precondition(lambda self: self.unanswered)
    @rule(taken=st.none() | st.integers(0, 60))
    def end(self, taken: int | None) -> None:
        gone, requests = self.debts.end(taken)
        assert gone == [(seq, cid) for seq, cid, _ in self.unanswered if taken is None or seq <= taken]
        assert requests == self.open
        self.unanswered = self.unanswered[len(gone) :]
        self.open = {}

    @invariant()
    def they_agree(self) -> None:
        assert self.debts.unanswered == len(self.unanswered)
        assert self.debts.open == list(self.open.values())


TestDebts = DebtsAgainstModel.TestCase
TestDebts.settings = settings(max_examples=60, stateful_step_count=30)


def test_a_late_answer_hears_that_it_is_late_until_a_thousand_others_came() -> None:
    owed = OpenTurns([], {})
    for number in range(open_turns.REMEMBERED + 1):
        owed.ask(f"r{number}", asked(number + 1, TYPES[0]))
        assert isinstance(owed.answer(f"r{number}", TYPES[0]), Record)
    assert owed.answer("r1", TYPES[0]) == "already_answered"
    assert owed.answer("r0", TYPES[0]) == "unknown_request"


def test_what_was_answered_ahead_is_not_owed_after_a_restart() -> None:
    owed = OpenTurns([(5, "c5", 1.0), (7, "c7", 2.0)], {}, answered=4, ahead=(7,))
    assert owed.unanswered == 1
    assert owed.done([7]) is None
    assert owed.done([5, 9]) == 1.0
    assert (owed.answered, owed.ahead) == (7, ())


def test_of_too_many_that_are_answered_ahead_the_newest_are_kept() -> None:
    owed = OpenTurns([], {})
    seqs = range(1, open_turns.MOST_AHEAD + 3)
    for seq in seqs:
        owed.deliver(seq, f"c{seq}", 0.0)
    assert owed.done(seqs[1:]) == 0.0
    assert (owed.answered, owed.ahead) == (0, tuple(seqs[2:]))


def test_beyond_its_bounds_the_oldest_request_is_no_longer_open() -> None:
    owed = OpenTurns([], {})
    records = [asked(seq, TYPES[1]) for seq in range(1, open_turns.MOST_OPEN + 2)]
    gone = [closed for record in records for closed in owed.ask(f"r{record.seq}", record)]
    assert gone == records[:1]
    assert owed.open == records[1:]
    large = Record("s", 999, "agent:e:999", "assistant", TYPES[1], b"x" * open_turns.OPEN_BYTES, 0.0, "open")
    assert owed.ask("large", large) == records[1:]
    assert owed.open == [large]
