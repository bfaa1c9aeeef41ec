"""Erasing, inserting, deleting and scrolling."""

import pytest

from sandbox.terminal.screen.canvas import Canvas
from sandbox.terminal.screen.cells import EMPTY
from sandbox.terminal.screen.edits import Edits

COLS = 5


@pytest.fixture
def canvas() -> Canvas:
    made = Canvas(COLS, 3, 5)
    for y, text in enumerate(("abcde", "fghij", "klmno")):
        made.move_to(0, y)
        made.print_narrow(text)
    made.move_to(2, 1)
    return made


def shown(canvas: Canvas) -> list[str]:
    return [row.text.replace(EMPTY, ".").ljust(COLS, ".") for row in canvas.page.rows]


@pytest.mark.parametrize(("which", "line"), [(0, "fg..."), (1, "...ij"), (2, "....."), (3, "fghij")])
def test_a_line_is_erased_after_before_or_whole(canvas: Canvas, which: int, line: str) -> None:
    Edits(canvas).erase_line(which)
    assert shown(canvas) == ["abcde", line, "klmno"]


@pytest.mark.parametrize(
    ("which", "rows"),
    [
        (0, ["abcde", "fg...", "....."]),
        (1, [".....", "...ij", "klmno"]),
        (2, ["....."] * 3),
        (3, ["abcde", "fghij", "klmno"]),
    ],
)
def test_the_screen_is_erased_after_before_or_whole(canvas: Canvas, which: int, rows: list[str]) -> None:
    canvas.page.history.extend(canvas.page.rows[:1])
    Edits(canvas).erase_display(which)
    assert shown(canvas) == rows
    assert bool(canvas.page.history) == (which != 3)


@pytest.mark.parametrize(("y", "wrapped"), [(0, [False, False, True]), (1, [False, False, False]), (2, [False] * 3)])
def test_a_line_that_is_erased_to_its_end_does_not_go_on_in_the_row_below(
    canvas: Canvas, y: int, wrapped: list[bool]
) -> None:
    for row in canvas.page.rows:
        row.wrapped = True
    canvas.move_to(COLS - 1, y)
    Edits(canvas).erase_display(1)
    assert [row.wrapped for row in canvas.page.rows] == wrapped


def test_cells_are_erased_inserted_and_deleted_at_the_cursor(canvas: Canvas) -> None:
    edits = Edits(canvas)
    edits.insert_cells(1)
    assert shown(canvas)[1] == "fg.hi"
    edits.delete_cells(2)
    assert shown(canvas)[1] == "fgi.."
    edits.erase_cells(1)
    assert shown(canvas)[1] == "fg..."


def test_rows_come_and_go_at_the_cursor_but_not_outside_the_region(canvas: Canvas) -> None:
    edits = Edits(canvas)
    edits.insert_rows(1)
    assert shown(canvas) == ["abcde", ".....", "fghij"]
    edits.delete_rows(1)
    assert shown(canvas) == ["abcde", "fghij", "....."]
    canvas.page.bottom, canvas.page.y = 0, 1
    edits.insert_rows(1)
    edits.delete_rows(1)
    assert shown(canvas) == ["abcde", "fghij", "....."]


def test_the_region_scrolls_in_four_directions(canvas: Canvas) -> None:
    edits = Edits(canvas)
    edits.scroll_up(1)
    assert shown(canvas) == ["fghij", "klmno", "....."]
    edits.scroll_down(1)
    assert shown(canvas) == [".....", "fghij", "klmno"]
    edits.scroll_left(2)
    assert shown(canvas) == [".....", "hij..", "mno.."]
    edits.scroll_right(1)
    assert shown(canvas) == [".....", ".hij.", ".mno."]


def test_columns_come_and_go_at_the_cursor(canvas: Canvas) -> None:
    edits = Edits(canvas)
    edits.insert_columns(1)
    assert shown(canvas) == ["ab.cd", "fg.hi", "kl.mn"]
    edits.delete_columns(2)
    assert shown(canvas) == ["abd..", "fgi..", "kln.."]


def test_what_is_protected_is_erased_only_on_purpose(canvas: Canvas) -> None:
    edits = Edits(canvas)
    canvas.pen = canvas.palette.protect(canvas.pen, True)
    canvas.print_narrow("X")
    canvas.pen = canvas.palette.protect(canvas.pen, False)
    edits.erase_line_unprotected(2)
    assert shown(canvas)[1] == "..X.."
    edits.erase_display_unprotected(2)
    assert shown(canvas) == [".....", "..X..", "....."]
    edits.erase_display(2)
    assert shown(canvas) == ["....."] * 3


def test_the_screen_can_be_filled_to_align_it(canvas: Canvas) -> None:
    Edits(canvas).align()
    assert shown(canvas) == ["E" * COLS] * 3
    assert (canvas.page.x, canvas.page.y) == (0, 0)
