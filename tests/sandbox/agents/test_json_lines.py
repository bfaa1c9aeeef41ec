"""Lines of JSON in, bounded frames out."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.agents.catalogue import CORES
from sandbox.agents.core import Launch, Past
from sandbox.agents.json_lines import (
    MAX_FRAME,
    MAX_TEXT,
    MOST_NESTED,
    amount,
    count,
    cut,
    cut_text,
    frame,
    items,
    joins_turn,
    line,
    members,
    read,
    seq_of,
    text,
    waits_for_turn,
    words_of,
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(max_size=8), VALUES, max_size=4))
def test_an_object_is_read_as_it_was_written(value: dict[str, object]) -> None:
    assert read(line(value)) == value


@given(st.binary(max_size=40))
def test_what_is_no_object_is_an_empty_one(data: bytes) -> None:
    assert read(data) == {}


@pytest.mark.parametrize("data", [b"[" * 100_000, b"{", b"[1]", b'"x"', b"\xff", b'{"a":NaN}'])
def test_nothing_raises(data: bytes) -> None:
    assert read(data) == {}


def test_half_a_pair_of_surrogates_is_replaced_and_the_rest_is_read() -> None:
    assert read(rb'{"text":"a\ud83d"}') == {"text": "a?"}


def test_long_strings_are_cut_with_a_remark_and_pictures_are_counted() -> None:
    picture = {"type": "base64", "media_type": "image/png", "data": "QUJD" * 100_000}
    said = json.loads(frame("sdk_message", {"a": "x" * (MAX_TEXT + 1000), "b": picture, "c": None}))
    assert said["type"] == "sdk_message"
    assert said["a"] == "x" * MAX_TEXT + "\n[1000 characters left out]"
    assert said["b"] == {"type": "base64", "media_type": "image/png", "data": "", "omitted": 400_000}
    assert "c" not in said
    assert cut_text("x" * (MAX_TEXT + 30)) == "x" * (MAX_TEXT + 30), "a remark of before is not cut off"
    assert cut({"type": "base64", "data": 1}) == {"type": "base64", "data": 1}


def test_a_frame_that_is_too_long_all_the_same_is_cut_shorter_or_keeps_its_type() -> None:
    many = frame("x", {"parts": ["y" * MAX_TEXT] * 100})
    assert 100_000 < len(many) < MAX_FRAME
    assert json.loads(frame("x", {"requestId": "r", "parts": [1] * MAX_FRAME})) == {"type": "x", "requestId": "r"}


def test_what_is_nested_without_end_is_cut() -> None:
    deep: object = []
    for _ in range(900):
        deep = [deep]
    assert len(json.dumps(cut(deep))) < 200


def test_parts_of_another_type_are_nothing() -> None:
    assert (text("a"), text(1), members({"a": 1}), members([]), items([{}, 1]), items({})) == (
        "a", "", {"a": 1}, {}, [{}], [],
    )  # fmt: skip
    assert words_of("plain") == "plain"
    assert words_of([{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]) == "a\nb"


def test_a_number_that_some_readers_refuse_is_nothing() -> None:
    """A gateway that cannot read it takes the whole frame for output, and a `done` for none."""
    said = orjson.loads(frame("done", {"turns": 10**400, "least": -(2**63), "most": 2**64 - 1, "yes": True}))
    assert said == {"type": "done", "turns": None, "least": -(2**63), "most": 2**64 - 1, "yes": True}


def test_a_count_and_an_amount_are_numbers_that_can_be_added() -> None:
    assert [count(each) for each in (0, 7, -1, True, 1.5, 10**400, "7")] == [0, 7, None, None, None, None, None]
    assert [amount(each) for each in (7, -0.5)] == [7.0, -0.5]
    assert [amount(each) for each in (True, float("inf"), float("nan"), 10**400, None)] == [None] * 5


def test_what_is_nested_too_deeply_to_be_written_is_not_read() -> None:
    for depth in (MOST_NESTED - 1, MOST_NESTED, 900, 988, 989, 990):
        found = read(b'{"a":%b%b}' % (b"[" * depth, b"]" * depth))
        assert bool(found) is (depth < MOST_NESTED)
    assert read(b'{"a":[%b]}' % b",".join([b"[]"] * 1000)) == {"a": [[]] * 1000}


@pytest.mark.parametrize("agent", sorted(CORES.keys() - {"plain"}))
def test_no_core_fails_at_what_can_just_be_read(agent: str) -> None:
    for depth in range(900, 1000):
        deep = b"[" * depth + b"]" * depth
        core = CORES[agent]()
        core.command(Launch(("agent",), {"HOME": "/agent"}), Past())
        core.begin(b'{"type":"start","mode":"all"}')
        core.up([b'{"id":1,"result":{}}', b'{"id":2,"result":{"sessionId":"s","thread":{"id":"t"}}}'])
        core.down(b'{"type":"message","seq":1,"content":"go"}')
        request = b'{"subtype":"can_use_tool","tool_name":"Bash","input":{"a":%b}}' % deep
        core.up([b'{"type":"control_request","request_id":"r","request":%b}' % request])
        tool = b'{"sessionUpdate":"tool_call","toolCallId":"t","status":"completed","rawOutput":%b}' % deep
        core.up([b'{"method":"session/update","params":{"update":%b}}' % tool])
        item = b'{"type":"mcpToolCall","id":"i","result":%b}' % deep
        core.up([b'{"method":"item/completed","params":{"item":%b}}' % item])


@pytest.mark.parametrize("broken", [b"\xff", b"\xe2\x82", b"\xed\xa0\x80", b"a\xf0"])
def test_what_is_no_utf_8_is_replaced_and_the_rest_is_read(broken: bytes) -> None:
    found = read(b'{"type":"result","text":"a' + broken + b'b"}')
    assert found["type"] == "result"
    assert found["text"].startswith("a")
    assert found["text"].endswith("b")
    assert "\ufffd" in found["text"]
    assert read(broken) == read(b'{"type":' + broken) == {}


def test_of_a_message_its_number_is_read() -> None:
    assert [seq_of(each) for each in ({"seq": 7}, {"seq": "7"}, {})] == [7, None, None]


def test_a_message_waits_for_a_turn_or_joins_the_one_that_runs() -> None:
    steering: tuple[dict[str, Any], ...] = (
        {"metadata": {"steer": True}},
        {"metadata": {"steer": 1}},
        {"metadata": True},
        {},
    )
    lines = [line({"type": "message", **each}) for each in steering]
    assert [joins_turn(each) for each in lines] == [True, False, False, False]
    assert [waits_for_turn(each) for each in lines] == [False, True, True, True]
    for no_message in (b"", b"[]", b'{"type":"permission_response","metadata":{"steer":true}}'):
        assert joins_turn(no_message) is waits_for_turn(no_message) is False
