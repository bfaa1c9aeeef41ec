"""What changes often is told of soon, not too often, and as it is in the end."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.feed.throttle import Throttle


def test_the_first_change_is_told_soon_and_what_comes_with_it_is_told_with_it() -> None:
    assert Throttle(soon=1, interval=10).next is None
    pacing = Throttle(soon=1, interval=10)
    assert pacing.stir("a", 100) == 101
    assert pacing.stir("a", 100.5) is None
    pacing.stir("b", 100.5)
    assert pacing.next == 101
    assert pacing.due(100.9) == []
    assert pacing.due(101) == ["a"]
    assert pacing.next == 101.5


def test_the_next_telling_is_an_interval_later_and_after_a_rest_soon_again() -> None:
    pacing = Throttle(soon=1, interval=10)
    pacing.stir("a", 100)
    assert pacing.due(101) == ["a"]
    pacing.stir("a", 102)
    assert pacing.next == 111
    assert pacing.due(111) == ["a"]
    pacing.stir("a", 120.5)
    assert pacing.next == 121.5  # soon after the change, which is later than the interval's end
    assert pacing.due(121.5) == ["a"]
    pacing.stir("a", 500)
    assert pacing.next == 501


def test_what_is_no_more_is_not_told_of() -> None:
    pacing = Throttle(soon=1, interval=10)
    pacing.stir("a", 100)
    pacing.forget("a")
    pacing.forget("never heard of")
    assert pacing.next is None
    assert pacing.due(200) == []


def test_of_much_that_is_due_some_is_told_and_the_rest_stays_due() -> None:
    pacing = Throttle(soon=1, interval=10)
    for name in "abc":
        pacing.stir(name, 100)
    assert pacing.due(101, 2) == ["a", "b"]
    assert pacing.next == 101
    assert pacing.due(101, 2) == ["c"]
    assert pacing.next is None


changes = st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 3)), max_size=60)


@given(changes)
def test_of_any_changes_the_last_is_told_none_too_often_and_nothing_is_kept(changes: list[tuple[str, float]]) -> None:
    pacing, now = Throttle(soon=0.5, interval=2), 0.0
    stirred: dict[str, float] = {}
    told: dict[str, list[float]] = {"a": [], "b": [], "c": []}

    def tell_until(end: float) -> None:
        while (due := pacing.next) is not None and due <= end:
            for name in pacing.due(due):
                told[name].append(due)

    for name, later in changes:
        now += later
        tell_until(now)
        pacing.stir(name, now)
        stirred[name] = now
    tell_until(now + 10)
    for name, last in stirred.items():
        assert last <= told[name][-1] <= last + 2.5
        assert all(second - first >= 2 - 1e-9 for first, second in zip(told[name], told[name][1:], strict=False))
    pacing.due(now + 20)
    assert not pacing._told
    assert not pacing._due
