"""Where a program's characters and movements end."""

from hypothesis import given
from hypothesis import strategies as st

from sandbox.terminal.screen.canvas import Canvas
from sandbox.terminal.screen.cells import EMPTY, HALF

COLS, ROWS = 6, 3


def canvas(scrollback: int = 5) -> Canvas:
    return Canvas(COLS, ROWS, scrollback)


def shown(made: Canvas) -> list[str]:
    return [row.text.replace(HALF, "").replace(EMPTY, " ").rstrip() for row in made.page.rows]


def test_what_is_too_long_goes_on_in_the_next_row_and_scrolls() -> None:
    made = canvas()
    made.print_narrow("0123456789abcdefghijklmnop")
    assert shown(made) == ["cdefgh", "ijklmn", "op"]
    assert [row.text for row in made.page.history] == ["012345", "6789ab"]
    assert [row.wrapped for row in made.page.rows] == [True] * 3


def test_without_wrapping_the_last_cell_is_printed_on() -> None:
    made = canvas()
    made.wraparound = False
    made.print_narrow("0123456789")
    assert shown(made)[0] == "012349"
    made.move_to(COLS - 1, 1)
    made.print_wide("世")
    assert "世" not in shown(made)[1]


def test_a_wide_character_that_does_not_fit_goes_on_in_the_next_row() -> None:
    made = canvas()
    made.print_narrow("01234")
    made.print_wide("世界")
    assert shown(made)[:2] == ["01234", "世界"]


def test_what_joins_joins_only_what_was_just_printed() -> None:
    made = canvas()
    made.print_narrow("e")
    made.print_zero("\u0301")
    made.move_by(0, 0)
    made.join = 0
    made.print_zero("\u0308")
    row = made.page.rows[0]
    assert row.at(0) == "e\u0301"
    assert row.at(1) == "\u0308"


def test_what_joins_makes_nothing_of_a_cell_that_is_empty() -> None:
    made = canvas()
    made.wraparound = False
    made.move_to(COLS - 1, 0)
    made.print_wide("世")  # has no room, and is not shown
    made.print_zero("\u0301")
    assert shown(made)[0] == ""


def test_an_index_moves_down_and_scrolls_at_the_end_of_the_region() -> None:
    made = canvas()
    for y in range(ROWS):
        made.move_to(0, y)
        made.print_narrow(str(y))
    made.move_to(1, ROWS - 2)
    made.index()
    assert (made.page.x, made.page.y, shown(made)) == (1, ROWS - 1, ["0", "1", "2"])
    made.index()
    assert (made.page.x, made.page.y, shown(made)) == (1, ROWS - 1, ["1", "2", ""])
    assert [row.text for row in made.page.history] == ["0"]
    made.page.bottom = ROWS - 2
    made.index()
    assert (made.page.y, shown(made)) == (ROWS - 1, ["1", "2", ""]), "below the region nothing scrolls"


def test_a_character_is_repeated_only_right_after_it_was_printed() -> None:
    made = canvas()
    made.print_narrow("x")
    made.repeat(3)
    assert shown(made)[0] == "xxxx"
    made.join = 0
    made.repeat(3)
    assert shown(made)[0] == "xxxx"


def test_a_saved_cursor_comes_back_with_its_look_and_charset() -> None:
    made = canvas()
    made.pen = made.palette.step(made.pen, "31")
    made.designate(0, "0")
    made.move_to(3, 1)
    made.save()
    made.pen = made.palette.step(made.pen, "0")
    made.designate(0, "B")
    made.move_to(0, 0)
    made.restore()
    assert (made.page.x, made.page.y, made.charset) == (3, 1, "0")
    assert made.pen == made.palette.step("\0", "31")


def test_the_other_page_is_turned_to_and_back() -> None:
    made = canvas()
    made.print_narrow("normal")
    made.use_alternate()
    assert made.page is made.alternate
    made.print_narrow("x")
    made.use_normal()
    assert shown(made)[0] == "normal"


def test_tabs_go_to_their_stops_and_back() -> None:
    made = Canvas(20, ROWS, 0)
    made.tab()
    assert made.page.x == 8
    made.tab(5)
    assert made.page.x == 19
    made.back_tab(1)
    assert made.page.x == 16


def test_a_reset_makes_all_as_at_first() -> None:
    made = canvas()
    made.print_narrow("x" * 100)
    made.use_alternate()
    made.insert, made.origin, made.wraparound = True, True, False
    made.reset()
    assert (made.page is made.normal, made.insert, made.origin, made.wraparound) == (True, False, False, True)
    assert shown(made) == [""] * ROWS
    assert not made.normal.history


@given(st.lists(st.tuples(st.sampled_from("uUdDlLnxw"), st.integers(0, 9)), max_size=30))
def test_the_cursor_never_leaves_the_page(moves: list[tuple[str, int]]) -> None:
    made = canvas()
    for kind, count in moves:
        match kind:
            case "u" | "U":
                made.up(count)
            case "d" | "D":
                made.down(count)
            case "l":
                made.move_by(-count, 0)
            case "L":
                made.move_to(count, count)
            case "n":
                made.line_feed()
            case "x":
                made.print_narrow("x" * count)
            case _:
                made.resize(count + 2, count + 1)
        assert 0 <= made.page.x <= made.cols
        assert 0 <= made.page.y < made.rows
        assert all(len(row.text) <= made.cols for row in made.page.rows)
