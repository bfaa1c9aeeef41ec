"""A picture: what a terminal that was reset is to be sent to become this one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.protocol.terminal import MAX_PICTURE
from sandbox.terminal.screen.screen import Screen
from sandbox.terminal.screen.snapshot import draw

TOLD = (
    "text", "世", "e\u0301", "\r\n", "\x1b[31m", "\x1b[2;3H", "\x1b[2;4r", "\x1b[?6h", "\x1b[3g", "\x1bH", "\x1b(0",
    "\x1b)0", "\x0e", "\x1b7", "\x1b[?7l", "\x1b[4h", "\x1b[?1049h", "\x1b[?1049l", "\x1b[?2004h", "\x1b]2;t\x07",
)  # fmt: skip


def drawn(screen: Screen) -> bytes:
    return draw(screen._canvas, screen._commands)


def fed(program: bytes) -> Screen:
    screen = Screen(12, 5, scrollback=20)
    screen.feed(program)
    return screen


@given(st.lists(st.sampled_from(TOLD), max_size=25).map("".join))
def test_a_picture_of_a_picture_shows_the_same(program: str) -> None:
    first = fed(drawn(fed(program.encode())))
    assert drawn(fed(drawn(first))) == drawn(first)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (b"\x1b]2;title\x07", b"\x1b]2;title\x1b\\"),
        (b"\x1b[2;4r", b"\x1b[2;4r"),
        (b"\x1b[?6h", b"\x1b[?6h"),
        (b"\x1b[?7l", b"\x1b[?7l"),
        (b"\x1b[4h", b"\x1b[4h"),
        (b"\x1b[20h", b"\x1b[20h"),
        (b"\x1b[?1049h", b"\x1b[?1047h"),
        (b"\x1b(0", b"\x1b(0"),
        (b"\x1b[3g", b"\x1b[3g"),
    ],
)
def test_what_a_program_told_is_told_again(program: bytes, said: bytes) -> None:
    assert said in drawn(fed(program))
    assert said not in drawn(fed(b"x"))


def test_it_begins_by_ending_whatever_was_begun() -> None:
    assert drawn(fed(b"x")).startswith(b"\x18")


def test_the_oldest_rows_are_left_out_first() -> None:
    screen = Screen(1000, 5, scrollback=5000)
    for number in range(2000):
        screen.feed(b"%04d" % number + b"x" * 900 + b"\r\n")
    picture = drawn(screen)
    assert len(picture) <= MAX_PICTURE
    assert b"1999x" in picture
    assert b"0000x" not in picture
