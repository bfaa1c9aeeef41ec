"""Who starts next, against a model that serves one after the other; and what never happens, whatever is asked."""

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.limits.starts import StartLimits, StartQueue
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
        "as many sandboxes of this user run as may, 2 (HOLDFAST_MAX_RUNNING_PER_USER): put one to sleep, or wait "
        "until one is"
    )
    assert queue.full("b") is None
    assert [queue.next() for _ in range(4)] == ["a1", "b1", "c1", None]  # the house is full
    assert "(HOLDFAST_MAX_RUNNING)" in str(queue.full("a"))
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
    assert "(HOLDFAST_MAX_RUNNING)" in str(queue.full(NO_USER))


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


class Queue(RuleBasedStateMachine):
    """Whatever is asked, in whatever order, the bounds hold, and nobody waits who could begin."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = StartLimits(at_once=3, at_once_per_user=2, running=6, running_per_user=3)
        self.queue = StartQueue(self.limits)
        self.waiting: dict[str, tuple[str, bool]] = {}
        self.begun: dict[str, str] = {}
        self.running: dict[str, str] = {}

    keys = st.tuples(USERS, st.integers(0, 5)).map(lambda pair: f"{pair[0]}{pair[1]}")

    @rule(key=keys, runs=st.booleans())
    def ask(self, key: str, runs: bool) -> None:
        self.queue.ask(key, key[0], runs=runs)
        if key not in self.begun:
            self.waiting.setdefault(key, (key[0], runs))

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
        for key, place in self.queue.positions():
            assert self.queue.position(key) == place


TestQueue: Any = Queue.TestCase
