"""A stream of server-sent events, in pieces of any size."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.bridge.agent import server_events
from sandbox.bridge.agent.long_lines import WHOLE
from sandbox.bridge.agent.server_events import EventSplitter

STREAM = (
    b': a remark\n\nevent: message\nid: 1\ndata: {"a":1}\n\n'
    b'data:{"b":\r\ndata: 2}\r\n\r\nretry: 5\n\ndata\n\ndata: {"c":3}\n\ndata: {"never":'
)


@given(sizes=st.lists(st.integers(0, 40), max_size=20))
def test_events_are_the_same_however_they_come(sizes: list[int]) -> None:
    events, found, at = EventSplitter(), [], 0
    for size in [*sizes, len(STREAM)]:
        found += events.feed(STREAM[at : at + size])
        at += size
    assert found == [b'{"a":1}', b'{"b": 2}', b"", b'{"c":3}']
    assert events.oversized == 0


def test_a_long_event_is_cut() -> None:
    data = b'data: {"a":"' + b"x" * (2 * WHOLE) + b'"}\n\n'
    events = EventSplitter()
    (found,) = [each for at in range(0, len(data), 65_536) for each in events.feed(data[at : at + 65_536])]
    assert "bytes left out" in json.loads(found)["a"]


def test_an_event_that_is_too_long_all_the_same_is_left_out_and_the_next_is_read() -> None:
    events = EventSplitter()
    numbers = b"[" + b"1," * WHOLE + b"1]"
    assert events.feed(b"data: 1\ndata: " + numbers + b"\n\ndata: 2\n\n") == [b"2"]
    assert events.oversized == 1


def test_many_short_lines_of_one_event_are_too_long_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_events, "WHOLE", 20)
    events = EventSplitter()
    assert events.feed(b"data: 12345\n" * 5 + b"\ndata: 2\n\n") == [b"2"]
    assert events.oversized == 1
