"""Numbers at known places of a JSON document, whatever its size."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.egress.counts import MOST, MOST_NAMES, CountFinder, FoundCounts, found_in

USAGE, MODEL = (("usage",), ("message", "usage")), (("model",), ("message", "model"))
names = st.sampled_from(["usage", "message", "model", "input_tokens", "details", "a b", "", 'quo"te', "ü"])
leaves = (
    st.integers(-5, MOST * 10)
    | st.booleans()
    | st.none()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["claude-x", "ä" * 99, "x" * 101])
)
documents = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4), max_leaves=20
)


def looked_for(data: bytes, cuts: list[int]) -> FoundCounts:
    finder = CountFinder(USAGE, MODEL)
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, end in itertools.pairwise(edges):
        finder.feed(data[start:end])
    return finder.found


@given(documents, st.lists(st.integers(0, 10_000), max_size=6), st.booleans())
@example({"usage": {"input_tokens": 3, "details": {"cached": 2, "x": {"y": 1}}}, "model": "m"}, [5], False)
@example([{"message": {"usage": {"input_tokens": 1}, "model": "b"}, "model": "a"}, {"usage": {"x": 2}}], [], True)
@example([[{"usage": {"x": 2}}]], [], False)
@example({"a": {"a": {"a": {"a": {"a": {"usage": {"x": 1}}}}}}, "usage": {"x": 2}}, [], False)
def test_a_document_that_passes_by_says_what_a_whole_one_says(document: Any, cuts: list[int], spaced: bool) -> None:
    data = json.dumps(document, indent=1 if spaced else None, ensure_ascii=spaced).encode()
    assert looked_for(data, cuts) == found_in(json.loads(data), USAGE, MODEL)


@given(st.binary(max_size=200) | st.text('{}[]",:\\ 1ue', max_size=200).map(str.encode), st.lists(st.integers(0, 200)))
def test_garbage_is_harmless_and_the_same_however_it_is_cut(data: bytes, cuts: list[int]) -> None:
    assert looked_for(data, cuts) == looked_for(data, [])


@pytest.mark.parametrize(
    ("said", "counts", "model"),
    [
        (b'{"usage":{"input_tokens":3},"model":"m"}', {"input_tokens": 3}, "m"),
        (b'{"us\\u0061ge":{"input_tokens":3}}', {"input_tokens": 3}, ""),
        (b'{"usage":{"input_tokens":3},"usage":{"input_tokens":2}}', {"input_tokens": 3}, ""),
        (b'{"usage":{"input_tokens":-3,"b":1.5,"c":true,"d":null,"e":"7"}}', {}, ""),
        (b'{"usage":7,"model":{"model":"m"}}', {}, ""),
        (b'{"x":"{\\"usage\\":{\\"input_tokens\\":3}}"}', {}, ""),
        (b'}}]]{"usage":{"input_tokens":3}}', {"input_tokens": 3}, ""),
        (b'{"model":"two words"}', {}, ""),
        (b'{"model":"\\x"}', {}, ""),
    ],
)
def test_what_is_found(said: bytes, counts: dict[str, int], model: str) -> None:
    found = looked_for(said, [])
    assert (found.counts, found.model) == (counts, model)


def test_a_long_text_or_a_deep_document_takes_no_room() -> None:
    finder = CountFinder(USAGE, MODEL)
    finder.feed(b'{"' + b"k" * 100_000 + b'":"')
    for _ in range(100):
        finder.feed(b"x" * 100_000)
        assert len(finder._piece) < 1000
    finder.feed(b'","deep":' + b'{"a":[' * 10_000)
    assert len(finder._keys) < 10
    finder.feed(b"]}" * 10_000 + b',"usage":{"input_tokens":3}}')
    assert finder.found.counts == {"input_tokens": 3}


def test_names_without_end_take_no_room() -> None:
    names = {chr(97 + first) + chr(97 + second): 1 for first in range(26) for second in range(26)}
    finder = CountFinder(USAGE, MODEL)
    finder.feed(json.dumps({"usage": names}).encode())
    assert len(finder.found.counts) == MOST_NAMES
