"""Rows as the text that prints them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.terminal.screen.canvas import Canvas
from sandbox.terminal.screen.cells import EMPTY
from sandbox.terminal.screen.row_writer import RowWriter
from sandbox.terminal.screen.screen import Screen

COLS, ROWS = 8, 4
PROGRAMS = st.lists(
    st.sampled_from(
        ["a", "bc", "世", "e\u0301", "\r\n", "\x1b[31m", "\x1b[4m", "\x1b[44m", "\x1b[m", "\x1b[X", "\x1b[K"]
    ),
    max_size=30,
).map("".join)


def canvas_of(program: str, height: int = ROWS) -> Canvas:
    screen = Screen(COLS, height, scrollback=20)
    screen.feed(program.encode())
    return screen._canvas


def rows(canvas: Canvas) -> list[tuple[list[str], list[object], bool]]:
    """What is shown, how it looks, whether it goes on from the row above."""
    kept = [*canvas.normal.history, *canvas.normal.rows]
    return [
        (
            [row.at(x) for x in range(COLS)],
            [canvas.palette.look(row.look_at(x)) for x in range(COLS)],
            row.wrapped,
        )
        for row in kept
    ]


@given(PROGRAMS)
def test_what_is_printed_shows_the_same_rows(program: str) -> None:
    canvas = canvas_of(program)
    painter = RowWriter(canvas)
    painter.page(canvas.normal, [*canvas.normal.history, *canvas.normal.rows], 0)
    assert rows(canvas_of("".join(painter.out))) == rows(canvas)


@pytest.mark.parametrize(("height", "edge"), [(ROWS, EMPTY), (1, " ")])
def test_a_row_that_goes_on_from_an_empty_cell_does_so_when_printed(height: int, edge: str) -> None:
    """On a screen of one row nobody can go back up to empty the cell: it shows a space, which looks alike."""
    canvas = canvas_of("abcdefg世\rxy", height)  # the wide character had no room, and is gone
    painter = RowWriter(canvas)
    painter.page(canvas.normal, [*canvas.normal.history, *canvas.normal.rows], 0)
    above, below, *_ = rows(canvas_of("".join(painter.out), height))
    assert ("".join(above[0]), above[2]) == (f"abcdefg{edge}", False)
    assert ("".join(below[0]).strip(EMPTY), below[2]) == ("xy", True)


@given(PROGRAMS)
def test_a_row_costs_no_less_than_it_takes(program: str) -> None:
    canvas = canvas_of(program)
    kept = [*canvas.normal.history, *canvas.normal.rows]
    painter = RowWriter(canvas)
    painter.page(canvas.normal, kept, 0)
    assert len("".join(painter.out).encode()) <= sum(map(painter.cost, kept)) + 100
