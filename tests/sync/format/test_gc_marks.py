"""Two marks, a grace apart, and nothing named between them."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync.errors import Damaged
from sync.format.checksummed import seal
from sync.format.gc_marks import Mark, Marks, damaged_in, decode, distrusted, encode, look

GRACE = 100.0
names = st.sampled_from(["a", "b", "c"])
looks = st.lists(
    st.tuples(st.floats(0, 150), st.floats(0, 20), st.sets(names), st.sets(names), st.sets(names)), max_size=12
)


@given(looks)
def test_only_that_goes_which_every_look_of_a_whole_grace_found_unnamed(
    steps: list[tuple[float, float, set[str], set[str], set[str]]],
) -> None:
    """The model: since when each name was unnamed in every look, taken at the end of the look that began it."""
    marks: dict[str, Mark] = {}
    unnamed: dict[str, float] = {}
    now = 1000.0
    for passed, took, found, named, damaged in steps:
        began = now + passed
        now = began + took
        marks = distrusted(Marks(marks), damaged, ()).packs
        marks, doomed = look(found, named, marks, began=began, now=now, grace=GRACE)
        expected = {name for name in found - named if name in unnamed and began - unnamed[name] >= GRACE}
        assert set(doomed) == expected
        assert set(doomed) <= marks.keys()
        assert {name for name, mark in marks.items() if mark.since is not None} == found - named
        assert {name for name, mark in marks.items() if mark.since is None} <= named
        unnamed = {name: unnamed.get(name, now) for name in found - named}


def test_a_long_look_does_not_count_twice() -> None:
    """Marked at its end, judged by its beginning: what changed while it looked has a whole grace before it."""
    marks, doomed = look({"a"}, set(), {}, began=0, now=500, grace=GRACE)
    assert (marks, doomed) == ({"a": Mark(500)}, [])
    marks, doomed = look({"a"}, set(), marks, began=599, now=900, grace=GRACE)
    assert (marks, doomed) == ({"a": Mark(500)}, [])
    assert look({"a"}, set(), marks, began=600, now=900, grace=GRACE)[1] == ["a"]


def test_named_again_it_begins_anew() -> None:
    marks, _ = look({"a"}, set(), {}, began=0, now=0, grace=GRACE)
    marks, doomed = look({"a"}, {"a"}, marks, began=99, now=99, grace=GRACE)
    assert (marks, doomed) == ({}, [])
    marks, doomed = look({"a"}, set(), marks, began=150, now=150, grace=GRACE)
    assert (marks, doomed) == ({"a": Mark(150)}, [])


def test_what_has_to_go_stays_marked_until_it_is_gone() -> None:
    marks, doomed = look({"a"}, set(), {"a": Mark(0)}, began=100, now=100, grace=GRACE)
    assert (marks, doomed) == ({"a": Mark(0)}, ["a"])
    assert look(set(), set(), marks, began=101, now=101, grace=GRACE) == ({}, [])


def test_a_clock_that_went_back_begins_anew() -> None:
    assert look({"a"}, set(), {"a": Mark(1000)}, began=10, now=10, grace=GRACE) == ({"a": Mark(10)}, [])


def test_a_damaged_object_stays_marked_while_it_is_named_whether_or_not_it_is_there() -> None:
    marks = distrusted(Marks(), ["a"], []).packs
    for found in ({"a"}, set[str]()):
        assert look(found, {"a"}, marks, began=5000, now=5000, grace=GRACE) == ({"a": Mark(damaged=True)}, [])
    assert look(set(), set(), marks, began=5000, now=5000, grace=GRACE) == ({}, [])


def test_a_damaged_object_goes_after_two_looks_like_any_other() -> None:
    """It was known as damaged for long; that is no mark of a look that found it unnamed."""
    marks = {"a": Mark(damaged=True)}
    marks, doomed = look({"a"}, set(), marks, began=5000, now=5000, grace=GRACE)
    assert (marks, doomed) == ({"a": Mark(5000, damaged=True)}, [])
    assert look({"a"}, set(), marks, began=5100, now=5100, grace=GRACE)[1] == ["a"]


def test_distrust_keeps_what_was_known() -> None:
    marks = distrusted(Marks({"a": Mark(5)}, {"m": Mark(6)}), ["a", "b"], ["n"])
    assert marks.packs == {"a": Mark(5, damaged=True), "b": Mark(damaged=True)}
    assert marks.manifests == {"m": Mark(6), "n": Mark(damaged=True)}
    assert damaged_in(marks) == {"a", "b", "n"}
    assert damaged_in(Marks()) == frozenset()


some_marks = st.dictionaries(names, st.builds(Mark, st.none() | st.floats(0, 1e12), st.booleans()))


@given(st.builds(Marks, some_marks, some_marks))
def test_what_is_written_is_read_back(marks: Marks) -> None:
    assert decode("k", encode(marks)) == marks


def test_every_flipped_bit_and_every_cut_is_noticed() -> None:
    content = encode(Marks({"a": Mark(1.5)}))
    for place in range(len(content)):
        for bit in range(8):
            flipped = bytearray(content)
            flipped[place] ^= 1 << bit
            with pytest.raises(Damaged, match="k"):
                decode("k", bytes(flipped))
        with pytest.raises(Damaged):
            decode("k", content[:place])


@pytest.mark.parametrize("inside", [b"", b"[]", b'{"packs":1}', msgspec.json.encode({"packs": {"a": {"since": "x"}}})])
def test_marks_that_are_none_are_damaged(inside: bytes) -> None:
    with pytest.raises(Damaged, match="k cannot be read"):
        decode("k", seal(inside))
