"""One-time links against a model of a few lines."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from gateway.auth.links import LINK_SECONDS, Links, Person

ADA, BOB = Person("ada", "ada@example.com"), Person("bob", "bob@example.com")


class LinksAgainstADict(RuleBasedStateMachine):
    """A link signs in the one it was made for, once, in time."""

    made = Bundle("made")

    def __init__(self) -> None:
        super().__init__()
        self.links = Links()
        self.now = 0.0
        self.model: dict[str, tuple[Person, float]] = {}

    @rule(target=made, person=st.sampled_from([ADA, BOB]))
    def issue(self, person: Person) -> str:
        code = self.links.issue(person, now=self.now)
        assert code is not None
        assert code not in self.model
        self.model[code] = (person, self.now + LINK_SECONDS)
        return code

    @rule(code=made)
    def redeem(self, code: str) -> None:
        person, end = self.model.pop(code, (None, 0.0))
        assert self.links.redeem(code, now=self.now) == (person if self.now < end else None)

    @rule(guess=st.text(max_size=50))
    def guess(self, guess: str) -> None:
        assert self.links.redeem(guess, now=self.now) is None

    @rule(seconds=st.sampled_from([1.0, 599.0, 600.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def nothing_is_kept_that_was_used(self) -> None:
        assert len(self.links) <= len(self.model)


TestLinks = LinksAgainstADict.TestCase
TestLinks.settings = settings(max_examples=60, stateful_step_count=30)


def test_a_code_is_nowhere_in_what_is_kept() -> None:
    links = Links()
    code = links.issue(ADA, now=0)
    assert code is not None
    assert code.isalnum(), "a terminal takes all of it for the address"
    assert len(code) == 40
    assert code not in repr(vars(links))


def test_a_user_has_at_most_a_hundred_and_others_are_not_harmed() -> None:
    links = Links()
    made = [links.issue(ADA, now=0) for _ in range(101)]
    assert made[99] is not None
    assert made[100] is None
    assert links.issue(BOB, now=0) is not None
    assert links.issue(ADA, now=LINK_SECONDS) is not None
    assert len(links) == 1


def test_there_are_at_most_ten_thousand() -> None:
    links = Links()
    for number in range(10_000):
        assert links.issue(Person(f"u{number // 100}", "e"), now=0) is not None
    assert links.issue(Person("one more", "e"), now=0) is None
