"""A recording: every line is JSON by itself, and what it plays is what was written."""

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gateway.cli.console.asciicast import Recording
from sandbox.protocol.terminal import Size

SIZE = Size(80, 24)


def begun() -> Recording:
    return Recording(SIZE, timestamp=1)


def test_the_header_says_what_a_player_needs() -> None:
    assert json.loads(begun().header) == {
        "version": 2, "width": 80, "height": 24, "timestamp": 1, "env": {"TERM": "xterm-256color"},
    }  # fmt: skip
    full = json.loads(Recording(SIZE, timestamp=1, title="s1", idle_time_limit=2.5).header)
    assert (full["title"], full["idle_time_limit"]) == ("s1", 2.5)


@given(st.binary(max_size=80) | st.text(max_size=40).map(str.encode), st.lists(st.integers(0, 160), max_size=10))
def test_wherever_output_is_cut_the_text_is_the_same(whole: bytes, cuts: list[int]) -> None:
    recording = begun()
    places = sorted({0, len(whole), *(min(cut, len(whole)) for cut in cuts)})
    lines = [recording.output(whole[a:b], float(a)) for a, b in pairwise(places)] + [recording.finished(500)]
    events = [json.loads(line) for line in lines if line]
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines if line)
    assert "".join(text for _, _, text in events) == whole.decode(errors="replace")
    assert [at for at, _, _ in events] == sorted(at for at, _, _ in events)


def test_time_never_goes_back() -> None:
    recording = begun()
    assert json.loads(recording.output(b"a", 2))[0] == 2
    assert json.loads(recording.output(b"b", 1))[0] == 2


def test_a_size_is_written_when_it_changes() -> None:
    recording = begun()
    assert recording.resized(SIZE, 1) == b""
    assert json.loads(recording.resized(Size(100, 30), 1)) == [1, "r", "100x30"]
    assert recording.resized(Size(100, 30), 2) == b""


def test_a_picture_begins_on_an_empty_screen_and_ends_what_was_unfinished() -> None:
    recording = begun()
    assert recording.output("é".encode()[:1], 1) == b""
    lines = recording.painted(b"screen", Size(90, 20), 2).splitlines()
    assert [json.loads(line) for line in lines] == [[2, "o", "�"], [2, "r", "90x20"], [2, "o", "\x1bcscreen"]]
    assert recording.finished(3) == b""
