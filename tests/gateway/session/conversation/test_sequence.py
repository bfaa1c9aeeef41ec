"""The session's numbers against a list."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gateway.session.conversation.sequence import REMEMBERED, MessageSequence


class LedgerMachine(RuleBasedStateMachine):
    """The model is every cid ever entered, in order: a cid's seq is its place. The newest 10,000 are remembered."""

    @initialize(before=st.integers(REMEMBERED - 3, REMEMBERED))
    def load(self, before: int) -> None:
        self.entered = [f"old-{n}" for n in range(1, before + 1)]
        self.ledger = MessageSequence(before, {cid: seq for seq, cid in enumerate(self.entered, 1)})
        self.forgotten, self.made = 0, 0

    @rule()
    def enter(self) -> None:
        self.made += 1
        self.entered.append(f"new-{self.made}")
        assert self.ledger.enter(self.entered[-1]) == len(self.entered)
        self.forgotten = max(self.forgotten, len(self.entered) - REMEMBERED)

    @precondition(lambda self: self.entered[-1].startswith("new-"))
    @rule()
    def withdraw(self) -> None:
        cid = self.entered.pop()
        self.ledger.withdraw(cid)
        assert self.ledger.seq_of(cid) is None

    @precondition(lambda self: len(self.entered) > 1)
    @rule(back=st.integers(2, 5))
    def withdraw_an_older_one(self, back: int) -> None:
        with pytest.raises(ValueError, match="newest"):
            self.ledger.withdraw(self.entered[-back])

    @invariant()
    def numbers_are_places(self) -> None:
        assert self.ledger.last_seq == len(self.entered)
        edge = [*range(1, 12), *range(len(self.entered) - 8, len(self.entered) + 1)]
        for seq in edge:
            expected = seq if seq > self.forgotten else None
            assert self.ledger.seq_of(self.entered[seq - 1]) == expected
        assert self.ledger.seq_of("never") is None


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)


def test_a_new_session_begins_at_one() -> None:
    ledger = MessageSequence(0, {})
    assert [ledger.enter(cid) for cid in "abc"] == [1, 2, 3]
    assert ledger.seq_of("b") == 2


def test_a_withdrawn_number_is_given_again_so_that_there_is_no_hole() -> None:
    ledger = MessageSequence(7, {"a": 7})
    assert ledger.enter("b") == 8
    ledger.withdraw("b")
    assert ledger.enter("c") == 8
    assert ledger.seq_of("b") is None


# The check was once an `assert` that also did the work: under `python -O` neither happened.
def test_a_refused_withdrawal_changes_nothing() -> None:
    ledger = MessageSequence(0, {})
    ledger.enter("a")
    ledger.enter("b")
    for cid in ("a", "unknown"):
        with pytest.raises(ValueError, match="newest"):
            ledger.withdraw(cid)
    assert (ledger.last_seq, ledger.seq_of("a"), ledger.seq_of("b")) == (2, 1, 2)


def test_what_is_remembered_is_bounded() -> None:
    ledger = MessageSequence(0, {})
    for n in range(REMEMBERED + 5):
        ledger.enter(str(n))
    assert [ledger.seq_of(str(n)) for n in (0, 4, 5)] == [None, None, 6]


def test_what_is_loaded_stays_the_callers() -> None:
    loaded = {"a": 1}
    MessageSequence(1, loaded).enter("b")
    assert loaded == {"a": 1}


def test_a_forgotten_cid_may_be_used_again_and_its_number_not() -> None:
    ledger = MessageSequence(0, {})
    for cid in "abc":
        ledger.enter(cid)
    assert ledger.cid_of(2) == "b"
    ledger.forget("b", 3)  # that is another's
    assert ledger.seq_of("b") == 2
    ledger.forget("b", 2)
    assert (ledger.seq_of("b"), ledger.cid_of(2)) == (None, None)
    assert ledger.enter("b") == 4
    ledger.forget("b", 2)  # told twice
    assert ledger.seq_of("b") == 4


def test_it_knows_whether_it_knows_every_cid() -> None:
    ledger = MessageSequence(0, {str(n): n for n in range(REMEMBERED - 1)})
    known = [ledger.complete]
    for cid in ("one more", "too many"):
        ledger.enter(cid)
        known.append(ledger.complete)
    assert known == [True, True, False]
    assert not MessageSequence(0, {str(n): n for n in range(REMEMBERED)}).complete
