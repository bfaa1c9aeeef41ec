"""The careful reader against the standard library's, which can be asked to look at every member it meets."""

import json
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.protocol.strict_json import MAX_DEPTH, MAX_ELEMENTS, MAX_KEYS, BadJson, load_object, within_depth

# One name, several spellings; and names that look like what separates members.
NAMES = st.sampled_from(
    ['"a"', r'"\u0061"', '"b"', r'"\u0062"', '":"', r'"\""', r'"\\"', '"a:b"', '""', '"é"', r'"\u00e9"']
)
SPACE = st.sampled_from(["", " ", "\n", "\t\r\n"])
SCALARS = st.sampled_from(["1", "-0.5", "true", "null", '":"', r'"\\\":{"', '"[]{}"', r'"\u003a"', '""', "1e3"])


def objects(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    member = st.builds("{}{}{}:{}{}".format, SPACE, NAMES, SPACE, SPACE, values)
    return st.builds(lambda members, space: "{" + ",".join(members) + space + "}", st.lists(member, max_size=4), SPACE)


def arrays(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(values, max_size=3).map(lambda items: "[" + ",".join(items) + "]")


SPELLED = st.recursive(SCALARS, lambda values: objects(values) | arrays(values), max_leaves=12)


class Twice(Exception):
    pass


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise Twice
    return dict(pairs)


@settings(deadline=None, max_examples=120)
@given(objects(SPELLED))
def test_an_object_is_read_exactly_when_no_member_is_named_twice(text: str) -> None:
    try:
        expected = json.loads(text, object_pairs_hook=unique)
    except Twice:
        with pytest.raises(BadJson, match="twice"):
            load_object(text)
        with pytest.raises(BadJson, match="twice"):
            load_object(text.encode())
    else:
        assert load_object(text) == expected
        assert load_object(text.encode()) == expected


@settings(deadline=None, max_examples=80)
@given(st.binary() | st.text(st.characters()) | SPELLED | SPELLED.map(lambda text: text[:-1]))
def test_whatever_comes_is_read_or_refused_and_nothing_else(raw: bytes | str) -> None:
    with suppress(BadJson):
        assert isinstance(load_object(raw), dict)


@pytest.mark.parametrize(
    "text",
    [
        r'{"a":1,"a":1}',
        r'{"a":1,"\u0061":2}',
        r'{"\u0061":1,"\u0061":2}',
        r'{"x":{"a":1,"a":2}}',
        r'{"x":[[{"y":{"a":1,"\u0061":2}}]]}',
        r'{"a:b":":","x":{"c":"\":","\u0063":0}}',
        '{"a" :1 ,\n"a"\t: 2}',
        '{"":1,"":2}',
    ],
)
def test_a_member_named_twice_is_found_however_it_is_spelled_and_wherever(text: str) -> None:
    assert isinstance(orjson.loads(text), dict)
    with pytest.raises(BadJson, match="twice"):
        load_object(text)


@pytest.mark.parametrize("text", [r'{"a":{"b":1},"b":{"a":1}}', r'{"a":"a","b":["a",{"a":"\"a\":"}]}', '{"a":1,"A":2}'])
def test_one_name_in_different_objects_is_no_repetition(text: str) -> None:
    assert load_object(text) == json.loads(text)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":-Infinity}',
        b'{"a":1' + b"0" * 4000 + b"}",
        b'{"a":1e4000}',
        b'{"a":-1e999}',
        rb'{"a":"\ud800"}',
        rb'{"a":"\udc00\ud800"}',
        rb'{"\ud800":1}',
        b'{"a":"\xed\xa0\x80"}',
        b'{"a":"\xff"}',
        b'{"a":"\x00"}',
        b'{"a":"\n"}',
        b"\xef\xbb\xbf{}",
        b"{} {}",
        b"{'a':1}",
        b'{"a":1,}',
        b'{"a":0x1}',
        b'{"a":01}',
    ],
)
def test_what_is_no_json_is_refused(raw: bytes) -> None:
    with pytest.raises(BadJson, match="not JSON"):
        load_object(raw)


def test_a_lone_surrogate_in_a_python_string_is_refused() -> None:
    with pytest.raises(BadJson, match="not JSON"):
        load_object('{"a":"\ud800"}')


@pytest.mark.parametrize("raw", [b"[]", b'"a"', b"1", b"null", b"true", b'[{"a":1}]'])
def test_json_that_is_no_object_is_refused(raw: bytes) -> None:
    with pytest.raises(BadJson, match="not a JSON object"):
        load_object(raw)


def nested(opening: str, closing: str, depth: int) -> str:
    """An object with `depth` levels in all."""
    return '{"x":' + opening * (depth - 1) + "1" + closing * (depth - 1) + "}"


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_64_levels_are_read_and_65_are_not(opening: str, closing: str) -> None:
    deepest, deeper = nested(opening, closing, MAX_DEPTH), nested(opening, closing, MAX_DEPTH + 1)
    assert MAX_DEPTH == 64
    assert load_object(deepest) == json.loads(deepest)
    assert within_depth(json.loads(deepest))
    with pytest.raises(BadJson, match="deeper than 64"):
        load_object(deeper)
    assert not within_depth(json.loads(deeper))


@pytest.mark.parametrize("depth", [1_000, 5_000, 400_000])
def test_an_abyss_is_refused(depth: int) -> None:
    with pytest.raises(BadJson):
        load_object(nested("[", "]", depth))
    with pytest.raises(BadJson):
        load_object('{"x":' + "[" * depth)


def members(count: int) -> dict[str, int]:
    return {str(n): n for n in range(count)}


def test_10_000_members_are_read_and_one_more_is_not() -> None:
    assert MAX_KEYS == 10_000
    assert len(load_object(orjson.dumps(members(10_000)))) == 10_000
    with pytest.raises(BadJson, match="more than 10000 members"):
        load_object(orjson.dumps(members(10_001)))


def test_members_count_together_wherever_they_are() -> None:
    spread = {"x": [members(100) for _ in range(99)], "y": members(98)}  # and "x" and "y" themselves
    assert load_object(orjson.dumps(spread)) == spread
    with pytest.raises(BadJson, match="more than 10000 members"):
        load_object(orjson.dumps(spread | {"z": 1}))


@pytest.mark.parametrize("element", [1, "a,b", [], [1], {}])
def test_elements_of_arrays_are_counted(element: object) -> None:
    """1 MiB of empty arrays once took 120 ms."""
    most = MAX_ELEMENTS // (2 if element == [1] else 1)
    assert len(load_object(orjson.dumps({"x": [element] * (most - 1), "y": []}))["x"]) == most - 1
    for number in (most + 1, 20 * most):
        with pytest.raises(BadJson, match="more than 10000"):
            load_object(orjson.dumps({"x": [element] * number}))


@pytest.mark.parametrize("text", [b",", b'\\",\\\\', b"[],"])
def test_commas_in_strings_are_no_elements(text: bytes) -> None:
    value = {"x": text.decode() * 30_000, "y": [1, 2]}
    assert load_object(orjson.dumps(value)) == value


def test_what_is_wide_and_no_json_is_refused_at_once() -> None:
    """A pattern that looks for strings may take the square of the length for quotes that are not closed."""
    for text in (b'{"' + b'\\"' * 300_000, b'"' * 300_001, b'{"a":"' + b'",' * 300_000):
        with pytest.raises(BadJson):
            load_object(text)


def peak_of(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# A pattern that could give back what it took once made 120 MiB of a 1 MiB string with a colon in it.
@pytest.mark.parametrize("filling", [b":x", rb":\n", rb"\":"])
def test_a_long_string_is_looked_through_without_memory_of_its_own(filling: bytes) -> None:
    raw = b'{"a":"' + filling * ((1 << 20) // len(filling)) + b'"}'
    assert peak_of(lambda: load_object(raw)) < peak_of(lambda: orjson.loads(raw)) + (2 << 20)
