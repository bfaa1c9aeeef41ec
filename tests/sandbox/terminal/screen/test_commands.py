"""What each control sequence does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.terminal.screen.canvas import Canvas
from sandbox.terminal.screen.commands import Commands


def commands() -> Commands:
    return Commands(Canvas(20, 6, 5))


def at(made: Commands) -> tuple[int, int]:
    return made.canvas.page.x, made.canvas.page.y


@pytest.mark.parametrize(
    ("kind", "params", "place"),
    [
        ("H", "3;5", (4, 2)),
        ("H", "", (0, 0)),
        ("f", "99;99", (19, 5)),
        ("A", "", (10, 2)),
        ("B", "2", (10, 5)),
        ("C", "0", (11, 3)),
        ("D", "99", (0, 3)),
        ("E", "1", (0, 4)),
        ("F", "1", (0, 2)),
        ("G", "7", (6, 3)),
        ("d", "1", (10, 0)),
        ("Z", "1", (8, 3)),
        ("no such", "1", (10, 3)),
        ("A", "1;" * 3000, (10, 3)),
    ],
)
def test_the_cursor_moves(kind: str, params: str, place: tuple[int, int]) -> None:
    made = commands()
    made.canvas.move_to(10, 3)
    made.csi(kind, params)
    assert at(made) == place


def test_control_characters_move_it_too() -> None:
    made = commands()
    made.canvas.print_narrow("ab")
    for character, place in (("\b", (1, 0)), ("\n", (1, 1)), ("\t", (8, 1)), ("\r", (0, 1)), ("\x85", (0, 2))):
        made.control(character)
        assert at(made) == place
    made.control("\x07")
    assert at(made) == (0, 2)


def test_margins_need_two_rows_and_send_the_cursor_home() -> None:
    made = commands()
    made.canvas.move_to(5, 5)
    made.csi("r", "4;4")
    assert (made.canvas.page.top, made.canvas.page.bottom) == (0, 5)
    made.csi("r", "2;4")
    assert (made.canvas.page.top, made.canvas.page.bottom, at(made)) == (1, 3, (0, 0))


def test_modes_are_set_and_taken_back() -> None:
    made = commands()
    made.csi("h", "4;20")
    made.csi("?h", "6;45;2004")
    made.csi("?l", "7")
    canvas = made.canvas
    assert (canvas.insert, canvas.newline, canvas.origin, canvas.reverse_wrap, canvas.wraparound) == (
        True, True, True, True, False,
    )  # fmt: skip
    assert made.modes.paste
    made.esc("c")
    assert (canvas.insert, canvas.origin, canvas.reverse_wrap, canvas.wraparound) == (False, False, False, True)
    assert not made.modes.paste


@pytest.mark.parametrize("mode", ["47", "1047", "1049"])
def test_the_alternate_screen_is_turned_to_and_left(mode: str) -> None:
    made = commands()
    made.csi("?h", mode)
    assert made.canvas.page is made.canvas.alternate
    made.csi("?l", mode)
    assert made.canvas.page is made.canvas.normal


def test_tab_stops_are_set_and_cleared() -> None:
    made = commands()
    made.canvas.move_to(3, 0)
    made.esc("H")
    assert made.canvas.page.tabs == {0, 3, 8, 16}
    made.csi("g", "")
    assert made.canvas.page.tabs == {0, 8, 16}
    made.csi("g", "3")
    assert made.canvas.page.tabs == set()


@pytest.mark.parametrize(
    ("text", "title"), [("0;a;b", "a;b"), ("2;t", "t"), ("1;t", None), ("x;t", None), ("²;t", None), ("52;c;x", None)]
)
def test_the_title_is_kept(text: str, title: str | None) -> None:
    made = commands()
    made.osc(text)
    assert made.title == title


def test_character_sets_are_designated_and_shifted() -> None:
    made = commands()
    made.esc(")0")
    assert made.canvas.charset == "B"
    made.control("\x0e")
    assert made.canvas.charset == "0"
    made.control("\x0f")
    made.esc("(no such set")
    assert made.canvas.charset == "B"


@given(st.text(max_size=3), st.text("0123456789;:", max_size=12))
def test_whatever_comes_after_it_nothing_joins_what_was_before(kind: str, params: str) -> None:
    made = commands()
    made.canvas.print_narrow("x")
    made.csi(kind, params)
    assert made.canvas.join == 0
