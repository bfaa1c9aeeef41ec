"""An agent's output as lines."""

from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.bridge.agent.lines import LineSplitter


@settings(deadline=None)
@given(st.lists(st.lists(st.sampled_from([b"a", b"bc", b"\n", b"defghijk", b"\n\n"]), max_size=8).map(b"".join)))
def test_lines_are_cut_at_newlines_however_they_come(chunks: list[bytes]) -> None:
    splitter = LineSplitter(limit=10)
    lines = [line for chunk in chunks for line in splitter.feed(chunk)] + splitter.finish()
    *whole, rest = b"".join(chunks).split(b"\n")
    expected = [line for line in whole if len(line) <= 10]
    assert lines == expected + ([rest] if 0 < len(rest) <= 10 else [])
    assert splitter.oversized == len([line for line in [*whole, rest] if len(line) > 10])


def test_an_endless_line_is_not_kept() -> None:
    splitter = LineSplitter(limit=1000)
    for _ in range(10_000):
        assert splitter.feed(b"x" * 500) == []
    assert splitter.oversized == 1
    assert splitter.feed(b"\nnext\n") == [b"next"]
