"""Who starts next, against a model that serves one after the other; and what never happens, whatever is asked."""

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.limits.start_queue import StartLimits, StartQueue
from persistence.record import NO_USER

USERS = st.sampled_from("abcd")
FREE = StartLimits(at_once=1000, at_once_per_user=1000)


def serve_in_turns(asked: list[tuple[str, int]]) -> list[str]:
    """The model: one pass after the other over the users in the order they came, one session each."""
    queues: dict[str, list[str]] = {}
    for user, number in asked:
        queues.setdefault(user, []).append(f"{user}{number}")
    served = []
    while queues:
        for user in list(queues):
            served.append(queues[user].pop(0))
            if not queues[user]:
                del queues[user]
    return served


@given(st.lists(st.tuples(USERS, st.integers(0, 9)), unique=True))
def test_users_take_turns_and_positions_tell_the_order(asked: list[tuple[str, int]]) -> None:
    queue = StartQueue(FREE)
    for user, number in asked:
        queue.ask(f"{user}{number}", user)
    wanted = serve_in_turns(asked)
    assert [key for key, _ in queue.positions()] == wanted
    assert [place for _, place in queue.positions()] == list(range(1, len(wanted) + 1))
    assert [queue.position(key) for key in wanted] == list(range(1, len(wanted) + 1))
    begun = []
    while (key := queue.next()) is not None:
        assert queue.position(key) is None
        begun.append(key)
        rest = wanted[len(begun) :]
        assert [queue.position(key) for key in rest] == list(range(1, len(rest) + 1)), "one fewer is before each"
    assert begun == wanted


def test_a_hundred_of_one_user_are_one_turn_ahead_of_anothers_first() -> None:
    queue = StartQueue(StartLimits(at_once=1, at_once_per_user=1))
    for number in range(100):
        queue.ask(f"mal{number}", "mal")
    queue.ask("vic", "vic")
    assert queue.position("vic") == 2
    assert queue.next() == "mal0"
    assert queue.next() is None
    queue.over("mal0")
    assert queue.next() == "vic"


def test_who_may_not_is_passed_over_and_told_which_limit_it_is() -> None:
    queue = StartQueue(StartLimits(at_once=8, at_once_per_user=8, running=3, running_per_user=2))
    for key, user in [("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("c1", "c")]:
        queue.ask(key, user)
    assert str(queue.full("a", counting_waiting=True)) == (
        "2 sandboxes of this user run, the most that HOLDFAST_MAX_RUNNING_PER_USER allows: put one to sleep, or wait "
        "until one sleeps"
    )
    assert queue.full("b") is None
    assert [queue.next() for _ in range(4)] == ["a1", "b1", "c1", None]  # the house is full
    assert "that HOLDFAST_MAX_RUNNING allows" in str(queue.full("a"))
    queue.ask("a4", "a", runs=True)
    assert queue.next() == "a4", "what runs already is found again, full or not"
    for key in ("b1", "c1"):
        queue.over(key)
        assert queue.stopped(key)
    assert not queue.stopped("b1")
    queue.ask("b2", "b")
    assert queue.next() == "b2", "a has as many as one may"
    assert queue.next() is None
    assert (queue.running, queue.running_of("a"), queue.waiting, queue.under_way) == (3, 2, 2, 3)
    for key in ("a2", "a3", "a3"):
        queue.leave(key)
    assert queue.waiting == 0


def test_the_services_sessions_have_every_place_and_take_turns_as_one_users_do() -> None:
    queue = StartQueue(StartLimits(at_once=8, at_once_per_user=2, running=3, running_per_user=1))
    for number in range(4):
        queue.ask(f"s{number}", NO_USER)
    assert [queue.next() for _ in range(3)] == ["s0", "s1", None], "no more at once than a user"
    queue.over("s0")
    assert queue.next() == "s2"
    queue.over("s1")
    assert queue.next() is None
    assert "that HOLDFAST_MAX_RUNNING allows" in str(queue.full(NO_USER))


def test_one_user_begins_only_so_many_at_once_and_a_sandbox_has_one_place() -> None:
    queue = StartQueue(StartLimits(at_once=8, at_once_per_user=2, running=2, running_per_user=2))
    for number in range(3):
        queue.ask(f"a{number}", "a")
    assert [queue.next() for _ in range(3)] == ["a0", "a1", None]
    queue.over("a0")
    assert queue.next() is None, "its places are taken"
    queue.ask("a0", "a")
    assert queue.next() == "a0", "it has its place already"
    assert queue.running == 2


def test_what_will_ask_in_a_moment_is_counted_with_those_that_wait() -> None:
    queue = StartQueue(StartLimits(running=9, running_per_user=2))
    queue.expect("a1", "a")
    assert queue.full("a", counting_waiting=True) is None
    queue.expect("a2", "a")
    assert queue.full("a") is None
    assert queue.full("a", counting_waiting=True) is not None
    queue.forget("a2")
    queue.ask("a1", "a")
    queue.expect("a1", "a")
    assert queue.full("a", counting_waiting=True) is None, "it is one"
    queue.ask("b", "b", runs=True)
    assert queue.full("b", counting_waiting=True) is None
    assert queue.next() == "a1"
    queue.expect("a1", "a")
    assert queue.full("a", counting_waiting=True) is None


def test_nobody_is_in_their_own_way() -> None:
    """A session that waited for its turn, and was woken by name meanwhile, counted itself as one that took a place."""
    queue = StartQueue(StartLimits(at_once=1, at_once_per_user=1, running=9, running_per_user=2))
    queue.ask("a1", "a")
    assert queue.next() == "a1"
    queue.ask("a2", "a")
    assert queue.full("a", counting_waiting=True) is not None, "for a third one"
    assert queue.full("a", counting_waiting=True, own=["a2"]) is None
    queue.over("a1")
    assert queue.next() == "a2"
    assert queue.full("a", counting_waiting=True) is not None
    assert queue.full("a", counting_waiting=True, own=["a2"]) is None, "it has its place"
    assert queue.placed() == ["a1", "a2"]
    queue.expect("a3", "a")
    assert queue.full("a", counting_waiting=True, own=["a3"]) is not None, "others have them all"


def test_what_waits_for_its_users_own_limit_takes_no_place_from_others() -> None:
    """One message to each of ten sleeping sessions: eight waited for their user's limit, and all others got 429."""
    queue = StartQueue(StartLimits(at_once=8, at_once_per_user=8, running=4, running_per_user=2))
    for number in range(10):
        queue.ask(f"mal{number}", "mal")
    assert queue.full("ann", counting_waiting=True) is None, "two places are promised to mal"
    queue.expect("bob1", "bob")
    assert queue.full("ann", counting_waiting=True) is None
    queue.expect("bob2", "bob")
    assert "that HOLDFAST_MAX_RUNNING allows" in str(queue.full("ann", counting_waiting=True)), "all four are promised"
    queue.forget("bob2")
    assert [queue.next() for _ in range(3)] == ["mal0", "mal1", None]
    assert queue.full("ann", counting_waiting=True) is None
    queue.ask("mal0", "mal")
    queue.over("mal0")
    queue.ask("mal0", "mal")
    assert queue.full("ann", counting_waiting=True) is None, "it has its place already"
    for number in range(5):
        queue.ask(f"service{number}", NO_USER)
    for user in ("ann", NO_USER):
        refusal = str(queue.full(user, counting_waiting=True))
        assert "that HOLDFAST_MAX_RUNNING allows" in refusal, "the services may have every place"


class Queue(RuleBasedStateMachine):
    """Whatever is asked, in whatever order, the bounds hold, nobody waits who could begin, and who is below their own
    limit is refused only if every place is taken, or promised to others who could take it."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = StartLimits(at_once=3, at_once_per_user=2, running=6, running_per_user=3)
        self.queue = StartQueue(self.limits)
        self.waiting: dict[str, tuple[str, bool]] = {}
        self.expected: set[str] = set()
        self.begun: dict[str, str] = {}
        self.running: dict[str, str] = {}

    keys = st.tuples(USERS, st.integers(0, 5)).map(lambda pair: f"{pair[0]}{pair[1]}")

    @rule(key=keys, runs=st.booleans())
    def ask(self, key: str, runs: bool) -> None:
        self.queue.ask(key, key[0], runs=runs)
        self.expected.discard(key)
        if key not in self.begun:
            self.waiting.setdefault(key, (key[0], runs))

    @rule(key=keys)
    def expect(self, key: str) -> None:
        self.queue.expect(key, key[0])
        if key not in self.waiting and key not in self.running:
            self.expected.add(key)

    @rule(key=keys)
    def forget(self, key: str) -> None:
        self.queue.forget(key)
        self.expected.discard(key)

    @rule(key=keys)
    def leave(self, key: str) -> None:
        self.queue.leave(key)
        self.waiting.pop(key, None)

    @rule(key=keys)
    def over(self, key: str) -> None:
        self.queue.over(key)
        self.begun.pop(key, None)

    @rule(key=keys)
    def stopped(self, key: str) -> None:
        assert self.queue.stopped(key) == (self.running.pop(key, None) is not None)

    @rule()
    def go_on(self) -> None:
        while (key := self.queue.next()) is not None:
            user, runs = self.waiting.pop(key)
            if not runs and key not in self.running:
                assert len(self.running) < self.limits.running
                assert Counter(self.running.values())[user] < self.limits.running_per_user
            self.begun[key] = self.running[key] = user
        for user, runs in self.waiting.values():
            places = Counter(self.running.values())
            room = len(self.running) < self.limits.running and places[user] < self.limits.running_per_user
            busy = len(self.begun) >= self.limits.at_once
            busy = busy or Counter(self.begun.values())[user] >= self.limits.at_once_per_user
            assert busy or not (room or runs), "it could begin"

    @invariant()
    def bounds_hold(self) -> None:
        assert len(self.begun) <= self.limits.at_once
        assert all(count <= self.limits.at_once_per_user for count in Counter(self.begun.values()).values())
        assert (self.queue.waiting, self.queue.under_way) == (len(self.waiting), len(self.begun))
        assert self.queue.running == len(self.running)
        assert dict(self.queue.positions()).keys() == self.waiting.keys()
        assert all(self.queue.is_under_way(key) for key in self.begun)
        assert all(self.queue.waits(key) for key in self.waiting)
        assert not any(self.queue.waits(key) for key in self.begun.keys() - self.waiting.keys())
        for key, place in self.queue.positions():
            assert self.queue.position(key) == place

    @invariant()
    def who_is_refused_has_no_place(self) -> None:
        """The model gives a place to each that wants one and may have it, and looks whether one is left."""
        wanted = {key for key, (_, runs) in self.waiting.items() if not runs} | self.expected
        wanted -= self.running.keys()
        taken = Counter(self.running.values())
        for key in wanted:
            if taken[key[0]] < self.limits.running_per_user:
                taken[key[0]] += 1
        for user in "abcd":
            own = Counter(self.running.values())[user] + sum(key[0] == user for key in wanted)
            served = own < self.limits.running_per_user and taken.total() < self.limits.running
            full = self.queue.full(user, counting_waiting=True)
            assert (full is None) == served
            assert full is None or full.of_user == (own >= self.limits.running_per_user)


TestQueue: Any = Queue.TestCase
