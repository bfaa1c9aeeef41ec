"""Text from strangers, made safe to look at."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.text import visible, visible_line


@given(st.text())
def test_nothing_invisible_survives(text: str) -> None:
    shown = visible(text)
    assert all(unicodedata.category(character) not in ("Cc", "Cs") or character in "\t\n" for character in shown)
    assert not set(shown) & set("\x1b\x9b\x07\x08\r\u202e\u200b\u2028")
    assert "\n" not in visible_line(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb\nc", "a\tb\nc"),
        ("a\r\nb\rc", "a\nb\\x0dc"),
        ("\x1b[31m", "\\x1b[31m"),
        ("a\u202eb", "a\\u202eb"),
        ("a\U000e0041b", "a\\U000e0041b"),
    ],
)
def test_control_characters_are_spelled_out(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_a_line_is_one_line_of_bounded_length() -> None:
    assert visible_line("a\nb\tc") == "a\\nb c"
    assert visible_line("x" * 11, longest=10) == "x" * 10 + "…"
