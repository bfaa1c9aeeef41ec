"""What no core passes on: bounded, and a frame whatever it is about."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.agents.json_lines import MAX_FRAME
from sandbox.agents.remarks import agent_event, not_passed_on


@given(
    st.text(max_size=20), st.binary(max_size=60) | st.builds(lambda text: json.dumps({"a": text}).encode(), st.text())
)
def test_an_event_is_a_frame_whatever_the_agent_said(kind: str, line: bytes) -> None:
    (frame,) = agent_event(kind, line).frames
    said = json.loads(frame)
    assert (said["type"], said["kind"], type(said["event"])) == ("agent_event", kind, dict)
    assert b"\n" not in frame


def test_an_event_has_what_was_said_cut() -> None:
    (frame,) = agent_event("new", b'{"type":"new","data":"%b"}' % (b"x" * (MAX_FRAME - 40))).frames
    event = json.loads(frame)["event"]
    assert event["type"] == "new"
    assert len(frame) < 100_000
    (frame,) = agent_event("no frame", b"\xff words").frames
    assert json.loads(frame)["event"] == {"text": "\ufffd words"}


@pytest.mark.parametrize(
    ("line", "answers"),
    [(b'{"type":"message","seq":7,"content":"hi"}', [7]), (b'{"type":"message","seq":"x"}', None)],
)
def test_a_message_that_was_not_passed_on_is_answered(line: bytes, answers: list[int] | None) -> None:
    error, done = map(json.loads, not_passed_on(line).frames)
    assert (error["type"], error["code"]) == ("error", "agent")
    assert (done["type"], done.get("answers"), done["metadata"]) == ("done", answers, {"error": True})


def test_what_is_no_message_needs_no_answer() -> None:
    assert [json.loads(frame)["type"] for frame in not_passed_on(b'{"type":"permission_response"}').frames] == ["error"]
    assert len(not_passed_on(b"garbage").frames) == 1
