"""Connection counts and whose address counts."""

from functools import partial

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.server.admission import GUESTS, TOO_MANY, TOO_MANY_FROM_ADDRESS, Admission, ConnectionSlot, Proxies


def nothing() -> None:
    pass


class CountersAgainstAList(RuleBasedStateMachine):
    """The counts equal those of a plain list of who is inside."""

    def __init__(self) -> None:
        super().__init__()
        self.counters = Admission(total=6, per_address=3, per_user=2)
        self.inside: list[tuple[str, ConnectionSlot]] = []
        self.users: list[tuple[str, object]] = []

    @rule(address=st.sampled_from(["a", "b", "c"]))
    def enter(self, address: str) -> None:
        place = self.counters.enter(address, evict=nothing)
        same = sum(1 for known, _ in self.inside if known == address)
        wanted = TOO_MANY if len(self.inside) >= 6 else TOO_MANY_FROM_ADDRESS if same >= 3 else None
        assert place.refusal is wanted
        if wanted is None:
            self.inside.append((address, place))
        else:
            place.leave()

    @rule(at=st.integers(0, 5))
    def leave_twice(self, at: int) -> None:
        if at < len(self.inside):
            _, place = self.inside.pop(at)
            place.leave()
            place.leave()

    @rule(user=st.sampled_from(["u", "v"]))
    def admit(self, user: str) -> None:
        release = self.counters.admit_user(user)
        assert (release is None) == (sum(1 for known, _ in self.users if known == user) >= 2)
        if release is not None:
            self.users.append((user, release))

    @rule(at=st.integers(0, 3))
    def release_twice(self, at: int) -> None:
        if at < len(self.users):
            _, release = self.users.pop(at)
            assert callable(release)
            release()
            release()

    @invariant()
    def total_is_right(self) -> None:
        assert self.counters.total == len(self.inside)


TestCounters = CountersAgainstAList.TestCase
TestCounters.settings = settings(max_examples=60, stateful_step_count=30)


def test_the_oldest_guest_makes_room_for_the_newest() -> None:
    counters = Admission(total=1, per_address=9, per_user=9)
    counters.enter("a", evict=nothing)
    evicted: list[int] = []
    places = [counters.enter("b", evict=partial(evicted.append, n)) for n in range(GUESTS + 3)]
    assert evicted == [0, 1, 2]
    assert all(place.refusal is TOO_MANY for place in places)
    places[5].leave()
    counters.enter("b", evict=nothing)
    assert evicted == [0, 1, 2]


def test_an_ipv6_network_counts_as_one_address_and_a_mapped_one_as_ipv4() -> None:
    counters = Admission(total=9, per_address=1, per_user=9)
    assert counters.enter("2001:db8::1", evict=nothing).refusal is None
    assert counters.enter("2001:db8::2", evict=nothing).refusal is TOO_MANY_FROM_ADDRESS
    assert counters.enter("2001:db8:0:1::1", evict=nothing).refusal is None
    assert counters.enter("10.0.0.1", evict=nothing).refusal is None
    assert counters.enter("::ffff:10.0.0.1", evict=nothing).refusal is TOO_MANY_FROM_ADDRESS
    assert counters.enter(None, evict=nothing).refusal is None


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("10.0.0.1", "203.0.113.7", "203.0.113.7"),
        ("10.0.0.1", "6.6.6.6, 203.0.113.7", "203.0.113.7"),  # the left one is the client's own invention
        ("10.0.0.1", "203.0.113.7, 10.0.0.2", "203.0.113.7"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "nonsense", "10.0.0.1"),
        ("10.0.0.1", "203.0.113.7, nonsense, 10.0.0.2", "10.0.0.2"),
        ("10.0.0.1", "203.0.113.7:5555", "203.0.113.7"),
        ("10.0.0.1", "[2001:db8::1]:443", "2001:db8::1"),
    ],
)
def test_the_client_is_the_nearest_address_that_is_no_proxy(peer: str, forwarded: str, client: str) -> None:
    proxies = Proxies(["10.0.0.0/8"])
    assert proxies.trusts(peer)
    assert proxies.client_of(peer, forwarded) == client


def test_nobody_is_trusted_unless_named() -> None:
    assert not Proxies([]).trusts("127.0.0.1")
    assert not Proxies(["10.0.0.0/8"]).trusts("11.0.0.1")
    assert not Proxies(["10.0.0.0/8"]).trusts("unix:")
    assert Proxies(["10.0.0.0/8"]).trusts("::ffff:10.1.1.1")


def test_a_client_behind_a_proxy_is_counted_by_its_own_address() -> None:
    counters = Admission(total=9, per_address=1, per_user=9)
    release = counters.admit_address("203.0.113.1")
    assert release is not None
    assert counters.admit_address("203.0.113.1") is None
    release()
    release()
    assert counters.admit_address("203.0.113.1") is not None


def test_what_is_no_address_counts_as_it_is_written() -> None:
    counters = Admission(total=9, per_address=1, per_user=9)
    assert counters.enter("fe80::1%eth0", evict=nothing).refusal is None
    assert counters.enter("not:an:address", evict=nothing).refusal is None
    assert counters.enter("not:an:address", evict=nothing).refusal is TOO_MANY_FROM_ADDRESS


def test_a_place_without_an_address_is_given_back() -> None:
    counters = Admission(total=1, per_address=1, per_user=1)
    counters.enter(None, evict=nothing).leave()
    assert counters.total == 0
    assert Proxies(["10.0.0.0/8"]).client_of("10.0.0.1", "10.0.0.3, 10.0.0.2") == "10.0.0.3"
