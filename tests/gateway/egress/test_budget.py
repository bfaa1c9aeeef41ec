"""What sessions and users have spent on models, and whether they may spend more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.egress import budget
from gateway.egress.budget import NO_LIMIT, Ledger, Over, SpendEntry, SpendLimit, Spent, read_journal
from gateway.egress.meter import Tokens
from gateway.egress.prices import NANO

DAY, NEXT = "2026-01-01", "2026-01-02"


def spent(cost: int, tokens: int = 0) -> Spent:
    return Spent(1, Tokens(output=tokens), cost)


def entry(cost: int, tokens: int = 0, *, session: str = "s", user: str = "u", day: str = DAY) -> SpendEntry:
    return SpendEntry(session, user, day, spent(cost, tokens))


class Spending(RuleBasedStateMachine):
    """Requests that come, go out, end, and are cut off by kills; the model is what they really cost."""

    LIMIT, USER_LIMIT, LARGEST = 100, 150, 30

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.journal = b""
        self.real: dict[str, int] = {"a": 0, "b": 0}
        self.open: dict[str, tuple[str, int]] = {}  # session and cost, of what went out
        self.count = 0

    def write(self) -> None:
        self.journal += self.ledger.take_lines()

    @rule(session=st.sampled_from("ab"), most=st.integers(1, LARGEST), share=st.floats(0, 1))
    def ask(self, session: str, most: int, share: float) -> None:
        self.count += 1
        name = f"r{self.count}"
        budgets = SpendLimit(cost=self.LIMIT), SpendLimit(cost=self.USER_LIMIT)
        answer = self.ledger.enter(name, entry(most, session=session), *budgets)
        self.write()
        if answer is True:
            self.open[name] = session, int(most * share)
        else:
            assert answer is False or isinstance(answer, Over)
            assert self.open or answer is not False, "nothing is under way, so nothing is waited for"

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.open)))
        session, cost = self.open.pop(name)
        self.real[session] += cost
        self.ledger.settle(name, spent(cost))
        self.write()

    @rule(cut=st.integers(0, 40))
    def kill(self, cut: int) -> None:
        """The last line may be written in part: then the request that it was about has not gone out, or is open."""
        half = b'["open","half' + b"x" * cut
        self.ledger = read_journal((self.journal + half).splitlines())
        for session, cost in self.open.values():
            self.real[session] += cost
        self.open.clear()
        self.journal = self.ledger.whole()

    @invariant()
    def no_more_than_the_limit_and_one_request_is_spent(self) -> None:
        for session, cost in self.real.items():
            under_way = sum(each for name, each in self.open.values() if name == session)
            assert cost + under_way < self.LIMIT + self.LARGEST
            assert cost <= self.ledger.of_session(session).cost
        whole = sum(self.real.values()) + sum(each for _, each in self.open.values())
        assert whole < self.USER_LIMIT + self.LARGEST

    @invariant()
    def the_journal_says_the_same(self) -> None:
        if not self.open:
            read = read_journal(self.journal.splitlines())
            assert (read.sessions(), read.users(DAY)) == (self.ledger.sessions(), self.ledger.users(DAY))


TestSpending = Spending.TestCase


def test_what_is_under_way_makes_wait_and_what_is_spent_refuses() -> None:
    ledger = Ledger()
    assert ledger.enter("one", entry(8), SpendLimit(cost=10)) is True
    assert ledger.enter("two", entry(8), SpendLimit(cost=10)) is True
    assert ledger.enter("three", entry(1), SpendLimit(cost=10)) is False
    ledger.settle("one", spent(2))
    assert ledger.enter("three", entry(1), SpendLimit(cost=10)) is False
    ledger.settle("two", spent(9))
    assert ledger.enter("three", entry(1), SpendLimit(cost=10)) == Over(False, True, 11, 10)
    assert ledger.enter("three", entry(1)) is True, "without a budget"
    assert ledger.enter("four", entry(1, session="t"), NO_LIMIT, SpendLimit(cost=11)) == Over(True, True, 11, 11)
    assert ledger.enter("four", entry(1, session="t", day=NEXT), NO_LIMIT, SpendLimit(cost=11)) is True


def test_tokens_have_a_limit_of_their_own() -> None:
    ledger = Ledger()
    assert ledger.enter("one", entry(0, 50), SpendLimit(tokens=40)) is True
    assert ledger.enter("two", entry(0, 50), SpendLimit(tokens=40)) is False
    ledger.settle("one", spent(0, 41))
    over = ledger.enter("two", entry(0, 50), SpendLimit(cost=1, tokens=40))
    assert str(over) == "this session's budget is used up: 41 of 40 tokens (budget, at create)"
    assert "your budget of today is used up: 0.2500 of 0.25 USD (HOLDFAST_BUDGET_PER_USER" in str(
        Over(True, True, NANO // 4, NANO // 4)
    )


def test_what_was_open_at_a_kill_counts_by_its_estimate() -> None:
    ledger = Ledger()
    ledger.enter("one", entry(8, 3))
    ledger.enter("two", entry(5))
    ledger.settle("two", spent(1))
    read = read_journal(ledger.take_lines().splitlines())
    assert read.of_session("s") == Spent(2, Tokens(output=3), 9, estimated=1)
    assert read.of_user("u", DAY) == read.of_session("s")
    assert (read.of_session("t"), read.of_user("u", NEXT)) == (Spent(), Spent())
    assert read.enter("three", entry(1), SpendLimit(cost=9)) == Over(False, True, 9, 9)


def test_what_the_gateway_knows_counts_where_it_is_more() -> None:
    ledger = Ledger()
    ledger.know("s", Spent(2, Tokens(1, 2, 3, 4), 50))
    ledger.know("s", Spent(1, Tokens(5, 0, 0, 0), 7, 8, 1))
    known = Spent(2, Tokens(5, 2, 3, 4), 50, 8, 1)
    assert ledger.of_session("s") == known
    ledger.take_lines()
    ledger.know("s", known)
    assert ledger.take_lines() == b""


def test_a_journal_that_is_written_anew_has_all_and_what_is_under_way() -> None:
    ledger = Ledger()
    ledger.enter("one", entry(8))
    ledger.settle("one", spent(7))
    ledger.enter("two", entry(5))
    whole = ledger.whole()
    assert ledger.take_lines() == b""
    read = read_journal(whole.splitlines())
    assert read.of_session("s").cost == read.of_user("u", DAY).cost == 12


def test_days_that_are_over_are_forgotten_when_nothing_of_them_is_under_way() -> None:
    ledger = Ledger()
    ledger.enter("one", entry(8))
    ledger.enter("two", entry(8, user="v"))
    ledger.settle("two", spent(1))
    ledger.forget_days(NEXT)
    assert (list(ledger.users(DAY)), ledger.users(NEXT)) == (["u"], {})
    ledger.settle("one", spent(1))
    ledger.forget_days(NEXT)
    assert ledger.users(DAY) == {}


def test_the_session_that_asked_longest_ago_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MOST_SESSIONS", 2)
    ledger = Ledger()
    ledger.enter("one", entry(8, session="a"))
    for session in "bc":
        ledger.know(session, spent(1))
    assert list(ledger.sessions()) == ["a", "c"], "what is under way stays"
    ledger.enter("two", entry(8, session="c"))
    ledger.enter("three", entry(8, session="d"))
    assert list(ledger.sessions()) == ["a", "c", "d"]


@given(
    st.lists(
        st.binary(max_size=30)
        | st.sampled_from(
            [
                b'["settled","x",1,0,0,0,0,1,0,0]',
                b'["session","s",1]',
                b'["user","u","d",1,0,0,0,0,true,0,0]',
                b'["open","x","s","u","d",1,0,0,0,0,-1,0,0]',
                b'["open",1]',
                b"[1]",
                b"{}",
                b"[",
            ]
        ),
        max_size=8,
    )
)
def test_lines_that_nobody_knows_are_left_out(lines: list[bytes]) -> None:
    known = b'["session","s",1,0,0,0,0,7,0,0]'
    assert read_journal([*lines, known]).of_session("s").cost == 7
