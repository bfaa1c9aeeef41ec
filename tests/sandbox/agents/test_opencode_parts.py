"""The parts of opencode's messages: each becomes a message once, in whatever way its text comes."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sandbox.agents.opencode_parts import MAX_PARTS, OpencodeParts
from sandbox.agents.turn import REPEATED, Turn
from tests.support.cores import heard

TOOL = {"type": "tool", "callID": "c", "tool": "bash"}


def at_work() -> tuple[OpencodeParts, Turn]:
    turn = Turn()
    turn.begin(1)
    return OpencodeParts(), turn


def text(name: str, words: str = "", *, over: bool = False, **more: Any) -> dict[str, Any]:
    return {"id": name, "type": "text", "text": words, "time": {"end": 1} if over else {}, **more}


def blocks(said: list[Any]) -> list[Any]:
    """What messages have, `said` is all that came."""
    return [block for each in said if each["type"] == "sdk_message" for block in each["message"]["message"]["content"]]


def test_text_that_came_in_pieces_is_one_message() -> None:
    parts, turn = at_work()
    said = heard(parts.updated(turn, text("t")))
    for piece in ("one ", "two"):
        said += heard(parts.grown(turn, "t", piece))
    said += heard(parts.updated(turn, text("t", "one two", over=True)))
    said += heard(parts.updated(turn, text("t", "one two", over=True)))
    assert blocks(said) == [{"type": "text", "text": "one two"}]
    assert "".join(each["text"] for each in said if each["type"] == "chunk") == "one two"


def test_text_that_did_not_come_in_pieces_is_streamed_and_a_message() -> None:
    parts, turn = at_work()
    said = heard(parts.updated(turn, text("t", "at once", over=True)))
    assert [each["type"] for each in said] == ["stream_start", "chunk", "stream_end", "sdk_message"]
    assert heard(parts.updated(turn, text("u", "", over=True))) == []
    assert heard(parts.updated(turn, text("v", "of the system", over=True, ignored=True))) == []


def test_other_text_or_a_tool_ends_a_text() -> None:
    parts, turn = at_work()
    said = []
    for name in ("t", "u"):
        heard(parts.updated(turn, text(name)))
        said += heard(parts.grown(turn, name, f"{name} grows"))
    for status in ("pending", "running", "running", "completed", "error"):
        said += heard(parts.updated(turn, {"id": "x", **TOOL, "state": {"status": status, "output": "out"}}))
    said += heard(parts.updated(turn, text("t", "t grows", over=True)))
    assert blocks(said) == [
        {"type": "text", "text": "t grows"},
        {"type": "text", "text": "u grows"},
        {"type": "tool_use", "id": "c", "name": "bash", "input": {}},
        {"type": "tool_result", "tool_use_id": "c", "content": "out", "is_error": False},
    ]


def test_text_that_goes_on_after_a_tool_is_a_further_message() -> None:
    parts, turn = at_work()
    heard(parts.updated(turn, text("t")))
    said = heard(parts.grown(turn, "t", "before "))
    said += heard(parts.updated(turn, {"id": "x", **TOOL, "state": {"status": "running"}}))
    said += heard(parts.grown(turn, "t", "after"))
    said += heard(parts.updated(turn, text("t", "before after", over=True)))
    assert [block["text"] for block in blocks(said) if block["type"] == "text"] == ["before ", "after"]


def test_thinking_is_no_message_and_tokens_count_once() -> None:
    parts, turn = at_work()
    heard(parts.updated(turn, {"id": "r", "type": "reasoning", "time": {"end": 1}}))
    assert heard(parts.grown(turn, "r", "so")) == [{"type": "thinking", "text": "so"}]
    for _ in range(2):
        step = {"id": "s", "type": "step-finish", "tokens": {"input": 3}, "cost": 0.5}
        assert heard(parts.updated(turn, step)) == []
    assert (parts.usage, parts.cost) == ({"inputTokens": 3}, 0.5)


def test_what_has_no_name_or_no_turn_or_is_too_much_is_nothing() -> None:
    parts, turn = at_work()
    for nothing in ({}, text(""), {"id": "p", "type": "of tomorrow"}, {"id": "x", "type": "tool", "state": {}}):
        assert heard(parts.updated(turn, nothing)) == []
    assert heard(parts.grown(turn, "unknown", "x")) == []
    heard(parts.updated(turn, text("t")))
    assert heard(parts.grown(Turn(), "t", "x")) == [], "no turn runs"
    heard(parts.grown(turn, "t", "x" * (REPEATED + 1)))
    heard(parts.grown(turn, "t", "y"))
    assert len(parts.said) == REPEATED + 1
    for number in range(MAX_PARTS + 9):
        heard(parts.updated(turn, text(f"t{number}")))
    assert len(parts.kinds) <= MAX_PARTS + 1


STEPS = st.one_of(
    st.tuples(st.just("piece"), st.sampled_from("tu"), st.text("ab", min_size=1, max_size=3)),
    st.tuples(st.just("part"), st.sampled_from("tu"), st.booleans()),
    st.tuples(st.just("tool"), st.sampled_from("xy"), st.sampled_from(["running", "completed"])),
)


@given(st.lists(STEPS, max_size=30))
def test_in_any_order_each_word_is_in_the_messages_once_and_each_tool_ends_once(steps: list[Any]) -> None:
    parts, turn = at_work()
    whole, closed, said = {"t": "", "u": ""}, set[str](), list[Any]()
    for kind, name, what in steps:
        if kind == "piece" and name in parts.kinds and name not in closed:
            whole[name] += what
            said += heard(parts.grown(turn, name, what))
        elif kind == "part":
            closed |= {name} if what else set()
            said += heard(parts.updated(turn, text(name, whole[name], over=what)))
        elif kind == "tool":
            said += heard(parts.updated(turn, {"id": name, **TOOL, "callID": name, "state": {"status": what}}))
    said += heard(parts.end_text(turn))
    told = "".join(block["text"] for block in blocks(said) if block["type"] == "text")
    assert sorted(told) == sorted("".join(whole.values()))
    ends = [json.dumps(block) for block in blocks(said) if block["type"] != "text"]
    assert len(set(ends)) == len(ends)
