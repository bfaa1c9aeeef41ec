"""What a newer version stored comes back unchanged, wherever in the document it is."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.stored_members import Unknown, arguments, dump

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
LATER = st.dictionaries(st.text(max_size=8).map(lambda name: f"later {name}") | st.just("_unknown"), VALUES, max_size=3)


@dataclass(frozen=True, slots=True)
class Leaf:
    name: str = ""
    _unknown: Unknown = None


@dataclass(frozen=True, slots=True)
class Stem:
    count: int = 0
    leaves: tuple[Leaf, ...] = ()
    _unknown: Unknown = None


def read(members: Mapping[str, Any]) -> Stem:
    leaves = tuple(Leaf(**arguments(Leaf, each)) for each in members["leaves"])
    return Stem(**arguments(Stem, {**members, "leaves": leaves}))


@given(st.integers(0, 9), st.lists(st.tuples(st.text(max_size=3), LATER), max_size=3), LATER)
def test_a_document_comes_back_as_it_was_and_a_change_keeps_what_is_not_known(
    count: int, leaves: list[tuple[str, dict[str, Any]]], later: dict[str, Any]
) -> None:
    written = {**later, "count": count, "leaves": [{**more, "name": name} for name, more in leaves]}
    stored = read(written)
    assert orjson.loads(dump(stored)) == written
    assert orjson.loads(dump(replace(stored, count=10))) == {**written, "count": 10}
    assert read(orjson.loads(dump(stored))) == stored


def test_a_document_of_this_version_has_nothing_unknown() -> None:
    assert read({"count": 1, "leaves": [{"name": "a"}]}) == Stem(1, (Leaf("a"),))
    assert dump(Stem(1, (Leaf("a"),))) == b'{"count":1,"leaves":[{"name":"a"}]}'


def test_what_is_no_dataclass_is_refused() -> None:
    with pytest.raises(TypeError):
        dump(Stem(leaves=(object(),)))  # type: ignore[arg-type]
