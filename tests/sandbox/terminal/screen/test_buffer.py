"""One of a terminal's two buffers."""

from hypothesis import given
from hypothesis import strategies as st

from sandbox.terminal.screen.attributes import DEFAULT
from sandbox.terminal.screen.buffer import ScreenBuffer
from sandbox.terminal.screen.cells import CellRow


def page(rows: int = 4, scrollback: int = 3) -> ScreenBuffer:
    made = ScreenBuffer(10, rows, scrollback)
    for number, row in enumerate(made.rows):
        row.put(0, str(number), DEFAULT)
    return made


def texts(rows: list[CellRow]) -> list[str]:
    return [row.text for row in rows]


def test_what_scrolls_off_the_top_is_kept_up_to_the_scrollback() -> None:
    made = page()
    for _ in range(5):
        made.scroll(DEFAULT)
    assert texts(list(made.history)) == ["2", "3", ""]
    assert texts(made.rows) == [""] * 4


def test_a_region_below_the_top_scrolls_alone() -> None:
    made = page()
    made.top, made.bottom = 1, 2
    made.scroll(DEFAULT, wrapped=True)
    assert texts(made.rows) == ["0", "2", "", "3"]
    assert made.rows[2].wrapped
    assert not made.history


def test_rows_come_in_and_go_within_the_region() -> None:
    made = page()
    made.bottom = 2
    made.insert_rows(1, 1, DEFAULT)
    assert texts(made.rows) == ["0", "", "1", "3"]
    made.delete_rows(0, 2, DEFAULT)
    assert texts(made.rows) == ["1", "", "", "3"]
    made.delete_rows(0, 99, DEFAULT)
    assert texts(made.rows) == ["", "", "", "3"]


def test_a_line_is_found_by_its_number_from_the_oldest() -> None:
    made = page()
    made.scroll(DEFAULT)
    found = [made.line(number) for number in range(6)]
    assert [row and row.text for row in found] == ["0", "1", "2", "3", "", None]


def test_clearing_leaves_what_was_saved_and_voiding_only_the_cursor() -> None:
    made = page()
    made.scroll(DEFAULT)
    made.x, made.y, made.saved.line, made.top = 3, 2, 3, 1
    made.void()
    assert texts(made.rows) == [""] * 4
    assert (made.x, made.y, made.top, made.saved.line) == (3, 2, 1, 2)
    made.tabs = {1}
    made.clear()
    assert (made.x, made.y, made.top, made.bottom, made.saved.line) == (0, 0, 0, 3, 2)
    assert made.tabs == {0, 8}


@given(st.lists(st.tuples(st.integers(2, 30), st.integers(1, 9)), min_size=1, max_size=5), st.integers(0, 3))
def test_the_cursor_stays_on_a_page_of_any_size(sizes: list[tuple[int, int]], y: int) -> None:
    made = page(scrollback=2)
    made.y, made.x = y, 10
    for cols, rows in sizes:
        made.resize(cols, rows)
        made.cut()
        assert (made.cols, len(made.rows), made.top, made.bottom) == (cols, rows, 0, rows - 1)
        assert 0 <= made.y < rows
        assert 0 <= made.x < cols
        assert len(made.history) <= 2


def test_rows_come_back_from_above_if_the_cursor_is_at_the_end() -> None:
    made = page()
    made.y = 3
    made.resize(10, 2)
    assert (texts(list(made.history)), texts(made.rows)) == (["0", "1"], ["2", "3"])
    made.resize(10, 4)
    assert texts(made.rows) == ["0", "1", "2", "3"]
    assert made.y == 3
