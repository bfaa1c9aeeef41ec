"""One-time tickets against a model of a few lines."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from gateway.auth.tickets import TICKET_SECONDS, Tickets
from gateway.auth.tokens import Principal

ADA = Principal("user", "ada", "ada@example.com", 1000.0, "header")


class TicketsAgainstADict(RuleBasedStateMachine):
    """A ticket opens exactly what it was made for, once, in time."""

    made = Bundle("made")

    def __init__(self) -> None:
        super().__init__()
        self.tickets = Tickets()
        self.now = 0.0
        self.model: dict[str, tuple[str, str, str | None, float]] = {}

    @rule(target=made, user=st.sampled_from("uv"), session=st.sampled_from("st"), origin=st.sampled_from(["o", None]))
    def issue(self, user: str, session: str, origin: str | None) -> str:
        text = self.tickets.issue(Principal("user", user, "e"), session, origin, now=self.now)
        assert text is not None
        assert text not in self.model
        self.model[text] = (user, session, origin, self.now + TICKET_SECONDS)
        return text

    @rule(text=made, session=st.sampled_from("st"), origin=st.sampled_from(["o", None]))
    def redeem(self, text: str, session: str, origin: str | None) -> None:
        who = self.tickets.redeem(text, session, origin, now=self.now)
        wanted = self.model.pop(text, None)
        if wanted is not None and wanted[1:3] == (session, origin) and self.now < wanted[3]:
            assert who is not None
            assert (who.user_id, who.via) == (wanted[0], "ticket")
        else:
            assert who is None

    @rule(seconds=st.sampled_from([1.0, 29.0, 30.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def nothing_is_kept_that_was_used(self) -> None:
        assert len(self.tickets) <= len(self.model)


TestTickets = TicketsAgainstADict.TestCase
TestTickets.settings = settings(max_examples=60, stateful_step_count=30)


def test_a_ticket_carries_the_end_of_the_token_it_was_bought_with() -> None:
    tickets = Tickets()
    text = tickets.issue(ADA, "s", None, now=0)
    assert text is not None
    who = tickets.redeem(text, "s", None, now=29.9)
    assert who == Principal("user", "ada", "ada@example.com", 1000.0, "ticket")
    assert tickets.redeem(text, "s", None, now=29.9) is None


def test_a_user_has_at_most_a_hundred_and_others_are_not_harmed() -> None:
    tickets = Tickets()
    made = [tickets.issue(ADA, "s", None, now=0) for _ in range(101)]
    assert made[99] is not None
    assert made[100] is None
    assert tickets.issue(Principal("user", "bob", "e"), "s", None, now=0) is not None
    assert tickets.issue(ADA, "s", None, now=TICKET_SECONDS) is not None
    assert len(tickets) == 1


def test_there_are_at_most_ten_thousand() -> None:
    tickets = Tickets()
    for number in range(10_000):
        assert tickets.issue(Principal("user", f"u{number // 100}", "e"), "s", None, now=0) is not None
    assert tickets.issue(Principal("user", "one more", "e"), "s", None, now=0) is None


def test_those_whom_a_user_lets_look_do_not_use_up_the_users_own_tickets() -> None:
    tickets = Tickets()
    owner = Principal("user", "ada", "ada@example.com", 1e10)
    guest = Principal("user", "ada", "ada@example.com", 1e10, session_id="s", role="view")
    while tickets.issue(guest, "s", None, now=0.0) is not None:
        pass
    text = tickets.issue(owner, "s", None, now=0.0)
    assert text is not None
    assert tickets.redeem(text, "s", None, now=1.0) == Principal("user", "ada", "ada@example.com", 1e10, "ticket")
