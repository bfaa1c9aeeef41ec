"""However many kinds an agent invents: each is counted once, and they take no more room than is said."""

from hypothesis import given
from hypothesis import strategies as st

from sandbox.bridge.agent.unknown import LONGEST, MOST_KINDS, OTHERS, UnknownKinds


@given(st.lists(st.text(max_size=LONGEST + 20), max_size=200), st.integers(1, 20))
def test_all_are_counted_and_told_once(kinds: list[str], most: int) -> None:
    counted, named = UnknownKinds(), set()
    for kind in kinds:
        if (name := counted.add(kind)) is not None:
            assert name not in named
            named.add(name)
    assert bool(counted) == bool(kinds)
    assert set(counted.counts) == named
    assert len(named) <= MOST_KINDS + 1
    assert all(name.isprintable() and name.isascii() and 0 < len(name) <= LONGEST for name in named)
    told = 0
    while counted:
        taken = counted.take(most)
        assert 0 < len(taken) <= most
        told += sum(taken.values())
    assert told == len(kinds)


def test_kinds_beyond_the_bound_are_counted_together() -> None:
    counted = UnknownKinds()
    names = [counted.add(f"kind {n}") for n in range(MOST_KINDS + 2)]
    assert names[-2:] == [OTHERS, None]
    assert counted.counts[OTHERS] == 2
    assert counted.add("kind 1") is None
    assert counted.take(1) == {"kind 0": 1}


def test_a_kind_is_printable() -> None:
    counted = UnknownKinds()
    assert (counted.add("\x1b\x002J\n"), counted.add(""), counted.add("\t")) == ("__2J_", "none", "_")
