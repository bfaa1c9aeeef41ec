"""Wrapped lines at another width."""

from hypothesis import given
from hypothesis import strategies as st

from sandbox.terminal.screen.buffer import ScreenBuffer
from sandbox.terminal.screen.cells import EMPTY, HALF
from sandbox.terminal.screen.reflow import reflow
from sandbox.terminal.screen.screen import Screen


def page_of(lines: list[str], cols: int) -> ScreenBuffer:
    """A page on which these lines were printed; the cursor is below them."""
    screen = Screen(cols, 4, scrollback=500)
    screen.feed("".join(f"{line}\r\n" for line in lines).encode())
    return screen._canvas.normal


def lines_of(page: ScreenBuffer) -> list[str]:
    """The lines, each in one piece."""
    lines: list[str] = []
    for row in [*page.history, *page.rows]:
        text = row.text.replace(HALF, "").rstrip(EMPTY)
        if row.wrapped and lines:
            lines[-1] += text
        else:
            lines.append(text)
    while lines and not lines[-1]:
        lines.pop()
    return lines


LINES = st.lists(st.text("abc世", min_size=1, max_size=30), max_size=8)


@given(LINES, st.integers(3, 20), st.integers(3, 20))
def test_lines_stay_what_they_are_at_any_width(lines: list[str], old: int, new: int) -> None:
    page = page_of(lines, old)
    before = lines_of(page)
    reflow(page, old, new)
    assert lines_of(page) == before == lines
    assert len(page.rows) == 4
    for row in [*page.history, *page.rows]:
        assert row.length() <= new


def test_the_line_with_the_cursor_is_left_alone() -> None:
    screen = Screen(10, 4, scrollback=10)
    screen.feed(b"0123456789abc")
    page = screen._canvas.normal
    reflow(page, 10, 5)
    assert [row.text for row in page.rows[:2]] == ["0123456789", "abc"]


def test_the_same_width_changes_nothing() -> None:
    page = page_of(["abc" * 9], 10)
    rows = list(page.rows)
    reflow(page, 10, 10)
    assert page.rows == rows
