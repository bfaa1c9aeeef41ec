"""A row of cells: half a wide character never stays behind."""

from hypothesis import given
from hypothesis import strategies as st

from sandbox.terminal.screen.attributes import DEFAULT
from sandbox.terminal.screen.cells import EMPTY, HALF, CellRow

COLS = 8
LOOK = "\x05"


def row(text: str) -> CellRow:
    made = CellRow()
    cells = "".join(each + HALF if each == "世" else each for each in text)
    made.put(0, cells, DEFAULT * len(cells))
    return made


def is_whole(made: CellRow, *, cols: int = COLS) -> bool:
    """Every first half has its second, and no second half is alone."""
    cells = [made.at(x) for x in range(cols)]
    return all((cells[x] == HALF) == (x > 0 and cells[x - 1] == "世") for x in range(cols))


ROWS = st.lists(st.sampled_from(["a", "b", "世", EMPTY]), max_size=COLS).map("".join).map(row)
PLACE, LOOKS = st.integers(0, COLS - 1), st.sampled_from([DEFAULT, LOOK])


def test_cells_beyond_the_end_are_empty() -> None:
    made = row("ab")
    assert (made.at(1), made.at(2), made.look_at(2), made.length()) == ("b", EMPTY, DEFAULT, 2)
    assert CellRow(LOOK, 3).look_at(2) == LOOK
    assert CellRow(LOOK, 3).length() == 0


@given(ROWS, PLACE, st.integers(0, 20), LOOKS)
def test_erasing_leaves_no_half(made: CellRow, start: int, count: int, look: str) -> None:
    made.resize(COLS)
    made.erase(start, start + count, look, COLS)
    assert is_whole(made)
    assert all(made.at(x) == EMPTY for x in range(start, min(start + count, COLS)))


@given(ROWS, PLACE, st.integers(1, 20), LOOKS)
def test_deleting_leaves_no_half_and_keeps_the_width(made: CellRow, x: int, count: int, look: str) -> None:
    made.resize(COLS)
    made.delete(x, count, look, COLS)
    assert is_whole(made)
    assert len(made.text) == len(made.looks) == COLS


@given(ROWS, PLACE, st.integers(1, 20), LOOKS)
def test_inserting_leaves_no_first_half_alone_and_keeps_the_width(made: CellRow, x: int, count: int, look: str) -> None:
    """A second half may be pushed away from its first, as xterm.js does it: it shows nothing."""
    made.resize(COLS)
    made.insert(x, count, look, COLS)
    cells = [made.at(at) for at in range(COLS + 1)]
    assert all(cells[at + 1] == HALF for at in range(COLS) if cells[at] == "世")
    assert len(made.text) == len(made.looks) == COLS


@given(ROWS, st.integers(2, 20))
def test_cutting_leaves_no_half(made: CellRow, cols: int) -> None:
    made.resize(cols)
    assert is_whole(made, cols=cols)
    assert len(made.text) <= cols


def test_what_joined_a_character_goes_where_it_goes() -> None:
    made = row("abc")
    made.join(1, "\u0301")
    made.insert(0, 1, DEFAULT, COLS)
    assert made.at(2) == "b\u0301"
    made.delete(0, 1, DEFAULT, COLS)
    assert made.at(1) == "b\u0301"
    kept = made.copy()
    made.put(1, "x", DEFAULT)
    assert (made.at(1), kept.at(1)) == ("x", "b\u0301")
    kept.erase(1, 2, LOOK, COLS)
    assert kept.at(1) == EMPTY


def test_a_cell_takes_only_so_many_characters() -> None:
    made = row("a")
    for _ in range(1000):
        made.join(0, "\u0301")
    assert len(made.at(0)) == 32


def test_a_row_that_is_filled_is_empty() -> None:
    made = row("a世")
    made.fill(LOOK, COLS)
    assert (made.length(), made.looks) == (0, LOOK * COLS)
    made.fill(DEFAULT, COLS)
    assert made.text == ""
