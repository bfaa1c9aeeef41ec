"""The screen model: each feature against xterm.js, and its bounds."""

import tracemalloc
from collections.abc import Iterator

import pytest

from sandbox.protocol.terminal import MAX_PICTURE, MAX_SIDE
from sandbox.terminal.screen.attributes import DEFAULT, Palette
from sandbox.terminal.screen.screen import Screen
from tests.sandbox.terminal.screen.screen_cases import CASES, COLS, ROWS
from tests.sandbox.terminal.screen.xterm import Xterm, differences

# What a program might do next: it tells whether more came across than what is seen.
NEXT = (
    b"go \xcc\x81on\xe4\xb8\x96",
    b"\x1b[?1049l back",
    b"\x1b8restored\t\tx",
    b"\n\n\n\n\n\n\n\x1b8\x1b[31mlow",
    b"31mx\x07\x1b\\y",
    b"\x96\xc2\x80z",
    b"\x1b[3b\x1b[2@\x1b[Kx\x1b[5;1Hlqk",
)


@pytest.fixture(scope="module")
def xterm() -> Iterator[Xterm]:
    with Xterm() as judge:
        yield judge


@pytest.mark.parametrize("name", CASES)
def test_a_picture_shows_what_xterm_shows(name: str, xterm: Xterm) -> None:
    screen = Screen(COLS, ROWS)
    screen.feed(CASES[name])
    assert xterm.tells_apart(screen, CASES[name], *NEXT) == []


@pytest.mark.parametrize("name", CASES)
def test_it_does_not_matter_where_the_bytes_are_cut(name: str) -> None:
    whole, pieces = Screen(COLS, ROWS), Screen(COLS, ROWS)
    whole.feed(CASES[name])
    for at in range(len(CASES[name])):
        pieces.feed(CASES[name][at : at + 1])
    assert pieces.picture() == whole.picture()


def test_nothing_is_drawn_for_a_screen_on_which_nothing_happened() -> None:
    screen = Screen(80, 24)
    assert screen.picture() == b""
    screen.feed(b"")
    assert (screen.picture(), screen.title, screen.cols, screen.rows) == (b"", "", 80, 24)


def test_the_title_can_be_asked_for() -> None:
    screen = Screen(80, 24)
    screen.feed("\x1b]2;höme".encode())
    assert screen.title == ""
    screen.feed(b"\x07")
    assert screen.title == "höme"


@pytest.mark.parametrize(("cols", "rows"), [(2, 1), (2, 2), (1000, 3), (3, 1000)])
def test_any_size_will_do(cols: int, rows: int, xterm: Xterm) -> None:
    screen, fed = Screen(cols, rows), "a世b\r\nwrapped or not\x1b[31mx\x1b[9;9Hy".encode()
    screen.feed(fed)
    assert xterm.tells_apart(screen, fed, b"more\r\n") == []


def test_what_is_repeated_without_end_fills_the_screen(xterm: Xterm) -> None:
    screen, fed = Screen(COLS, ROWS), "x\x1b[100003b\x1b[1;1He\u0301\x1b[100003b世\x1b[100003b".encode()
    screen.feed(fed)
    assert xterm.tells_apart(screen, fed, scrollback=0) == []


def test_on_the_alternate_screen_the_next_character_wraps_too(xterm: Xterm) -> None:
    """It cannot be brought about without a blank in the last column."""
    screen, fed = Screen(COLS, ROWS), b"\x1b[?1049h\x1b[3;1H" + b"x" * COLS + b"\x1b[2J"
    screen.feed(fed)
    for then in (b"", b"next"):
        right, shown = (xterm.see(COLS, ROWS, made + then).dump["alternate"] for made in (fed, screen.picture()))
        assert shown["cursor"] == right["cursor"]


def test_there_are_no_more_looks_than_can_be_told_apart() -> None:
    palette = Palette(list, most=3)
    names = [palette.step(DEFAULT, str(code)) for code in (31, 32)]
    assert len({DEFAULT, *names}) == 3
    crowded = Palette(lambda: names, most=3)
    assert [crowded.step(DEFAULT, str(code)) for code in (31, 32, 33)] == [*names, DEFAULT]
    assert palette.step(DEFAULT, "33") in names  # nobody uses the others


# What is left out


def test_scrollback_is_kept_up_to_its_limit(xterm: Xterm) -> None:
    screen, fed = Screen(COLS, ROWS, scrollback=10), b"".join(b"line %d\r\n" % n for n in range(100))
    screen.feed(fed)
    assert xterm.tells_apart(screen, fed, *NEXT, scrollback=10) == []
    none = Screen(COLS, ROWS, scrollback=0)
    none.feed(fed)
    assert xterm.tells_apart(none, fed, *NEXT, scrollback=0) == []


def test_the_oldest_lines_are_left_out_of_a_long_picture(xterm: Xterm) -> None:
    screen = Screen(200, ROWS, scrollback=5000)
    for n in range(8000):
        screen.feed((f"{n} " + "äöü" * 50 + "\r\n").encode())
    picture = screen.picture()
    assert MAX_PICTURE * 0.7 < len(picture) <= MAX_PICTURE
    dump = xterm.see(200, ROWS, picture, scrollback=5000).dump
    first, *_, last = [line[1:].partition("\u241f ")[0] for line in dump["normal"]["lines"][:-1]]
    assert first > " 5"
    assert last[0] == "7"


@pytest.mark.parametrize("page", [b"", b"normal\x1b[?1049h"])
def test_no_screen_is_too_big_for_a_picture(page: bytes) -> None:
    screen = Screen(MAX_SIDE, 200)
    screen.feed(page)
    for n in range(200):
        cells = (f"\x1b[1;3;4:3;38;5;{n};48;2;{x % 256};{n};2mx" for x in range(0, MAX_SIDE, 4))
        screen.feed("".join(cells).encode() + b"\r\n")
    screen.feed(b"the end")
    picture = screen.picture()
    assert MAX_PICTURE // 2 < len(picture) <= MAX_PICTURE
    assert b"the end" in picture


@pytest.mark.parametrize("start", [b"\x1b", b"\x1b[", b"\x1b[1", b"\x1b]0;", b"\x1bP", b"\x1bPq", b"\x1b_"])
@pytest.mark.parametrize("filler", [b" ", b"\x00", b"\x7f", b"!1", b"1;"])
def test_what_is_unfinished_is_kept_only_so_far(start: bytes, filler: bytes) -> None:
    screen = Screen(80, 24, scrollback=0)
    screen.feed(start)
    for _ in range(100):
        screen.feed(filler * 1000)
    assert len(screen.picture()) < 10_000


def test_a_sequence_too_long_does_nothing_however_it_comes() -> None:
    long = b"\x1b[" + b"0" * 5000 + b"31m\x1b[" + b"1;" * 2500 + b"5Hx\x1b]0;" + b"t" * 5000 + b"\x07"
    whole, pieces = Screen(80, 24), Screen(80, 24)
    whole.feed(long)
    for at in range(0, len(long), 100):
        pieces.feed(long[at : at + 100])
    assert whole.picture() == pieces.picture()
    assert b"31" not in whole.picture()
    assert 4000 < len(whole.title) < 4100


def test_a_small_screen_costs_little() -> None:
    Screen(80, 24).feed(b"warm")
    tracemalloc.start()
    screens = [Screen(80, 24) for _ in range(20)]
    for screen in screens:
        screen.feed(b"$ ls\r\n")
    each = tracemalloc.get_traced_memory()[0] / len(screens)
    tracemalloc.stop()
    assert each < 64 * 1024


def test_memory_does_not_grow_with_what_is_fed() -> None:
    screen = Screen(80, 24, scrollback=100)
    lines = [
        ("".join(f"\x1b[38;2;{a % 256};{b};{a // 256}m" + "e\u0301世" for b in range(30)) + "\r\n").encode()
        for a in range(150)
    ]
    tracemalloc.start()
    sizes = []
    for _ in range(3):
        for line in lines:
            screen.feed(line)
        screen.feed(b"x" + b"\xcc\x81" * 1000 + b"x\x1b[999999999b\x1b]0;" + b"y" * 100_000)
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert sizes[-1] < sizes[0] * 1.5
    assert sizes[-1] < 20 * 1024 * 1024


def test_colours_stay_right_when_there_were_too_many_to_remember(xterm: Xterm) -> None:
    screen = Screen(COLS, ROWS, scrollback=20)
    fed = "".join(
        f"\x1b[38;2;{n % 256};{n // 256 % 256};{n // 65536}m\x1b[{n % 7 + 40}mx" for n in range(12_000)
    ).encode()
    screen.feed(fed)
    assert xterm.tells_apart(screen, fed, scrollback=20) == []


# Another size

RESIZED = {
    "lines": b"one\r\ntwo\r\nthree\r\n$ ",
    "scrollback": b"".join(b"line %d\r\n" % n for n in range(30)) + b"$ ",
    "wrapped lines": b"".join(b"%d: " % n + b"0123456789" * (n % 6) + b"\r\n" for n in range(12)) + b"$ ",
    "the cursor's line": b"x\r\n" + b"0123456789" * 3,
    "the cursor in the middle": b"".join(b"%d: " % n + b"0123456789" * (n % 4) + b"\r\n" for n in range(9))
    + b"\x1b[3;3H",
    "wide characters": "世界漢字".encode() * 9 + b"\r\n" + b"x" + "世界漢字".encode() * 9 + b"\r\n\r\n",
    "combined characters": "e\u0301".encode() * 50 + b"\r\n\r\n",
    "colours": b"\x1b[31m" + b"0123456789" * 5 + b"\x1b[m\r\n\x1b[32mx\r\n",
    "saved": b"x\r\n" * 10 + b"\x1b7" + b"0123456789" * 5 + b"\r\n",
    "a wrapped line, mostly erased": b"0123456789" * 6 + b"\x1b[2;1H\x1b[20X\x1b[3;1H\x1b[20X\x1b[5;1H",
    "region and tabs": b"\x1b[2;4r\x1b[3g\x1b[5G\x1bH\x1b[1;1Hx",
}


@pytest.mark.parametrize("size", [(10, 6), (13, 4), (30, 6), (41, 9), (20, 3), (20, 10), (20, 6), (2, 2)])
@pytest.mark.parametrize("name", RESIZED)
def test_what_is_on_a_screen_that_changes_its_size_stays(name: str, size: tuple[int, int], xterm: Xterm) -> None:
    screen = Screen(COLS, ROWS)
    screen.feed(RESIZED[name])
    screen.resize(*size)
    assert (screen.cols, screen.rows) == size
    right = xterm.see(COLS, ROWS, RESIZED[name], size).dump
    shown = xterm.see(*size, screen.picture()).dump
    assert list(differences({**right, "join": 0}, {**shown, "join": 0})) == []


def test_what_is_pushed_off_a_full_scrollback_is_lost(xterm: Xterm) -> None:
    screen, fed = Screen(COLS, ROWS, scrollback=5), b"".join(b"line %d\r\n" % n for n in range(30)) + b"\x1b7$ "
    screen.feed(fed)
    screen.resize(COLS, 3)
    right = xterm.see(COLS, ROWS, fed, (COLS, 3), scrollback=5).dump
    assert list(differences(right, xterm.see(COLS, 3, screen.picture(), scrollback=5).dump)) == []


def test_what_has_no_room_on_the_alternate_screen_is_cut(xterm: Xterm) -> None:
    screen, fed = (
        Screen(COLS, ROWS),
        b"normal\x1b[?1049h\x1b[H" + b"0123456789" * 2 + "\r\n世世世世世".encode() + b"\x1b[1;1H",
    )
    screen.feed(fed)
    screen.resize(7, 4)
    shown = xterm.see(7, 4, screen.picture()).dump["alternate"]["lines"]
    assert [line.replace("|1|0,0,0,0,0,0", "") for line in shown[:1]] == [" " + "\u241f".join("0123456")]
    assert shown[1].count("世") == 3
    screen.resize(30, 8)
    assert xterm.see(30, 8, screen.picture()).dump["alternate"]["lines"][0] == shown[0]


# Skipped


STATE = (
    b"\x1b[3;5r\x1b[?6;1;2004;1002;1006h\x1b[?25l\x1b[?7l\x1b=\x1b[4;20h\x1b)0\x0e\x1b]0;busy\x07\x1b[3 q\x1b[1;38;5;9m"
)
FLOODS = {
    "text": b"0123456789" * 1000,
    "lines in colour": b"\x1b[0m\x1b[01;34mdir\x1b[0m  \x1b[01;32mfile\x1b[0m\x1b[K\r\n" * 200 + b"\x1b[35m\x1b[7m",
    "colours that are never set back": b"\x1b[31ma\x1b[1mb\x1b[44mc" * 100,
    "true colours": b"".join(b"\x1b[38;2;%d;2;3mx\x1b[48;2;1;%d;3my\x1b[1m" % (n, n) for n in range(100)),
    "state": STATE,
    "state between text": b"x\r\n" * 100 + STATE + b"y\r\n" * 100,
    "the alternate screen": b"x\r\n" * 100 + b"\x1b[?1049hin it" * 3,
    "the alternate screen left": b"x\r\n" + b"\x1b[?1049hin it\x1b[2;3r\x1b[?1049l" * 3,
    "a full reset": STATE + b"x\x1bc\x1b[?2004h",
    "a soft reset": STATE + b"x\x1b[!p",
    "tab stops": b"x\r\n" * 50 + b"\r\x1b[3g" + b"    \x1bH" * 3 + b"\r" + b"flood\r\n" * 50,
    "a tab stop cleared": b"flood\r\n01234567\x1b[g\x1b[3 q01234567\x1b[0gx",
    "strings": b"x\x1bPq" + b"#0~" * 1000 + b"\x1b\\y\x1b]2;t\x1b\\z\x1b_abc\x1b\\" + "\x9b?2004h\x8e".encode(),
    "an end in a sequence": b"x" * 100 + b"\x1b[?200",
    "an end in a character": b"x" * 100 + b"\xe4\xb8",
    "an end in a title": b"x" * 100 + b"\x1b]0;abc",
    "questions": b"x\x1b[c\x1b[6n\x1b[?25$p\x1b]11;?\x07",
}


@pytest.mark.parametrize("name", FLOODS)
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_what_a_program_told_the_terminal_is_carried_over_what_is_skipped(name: str, size: int, xterm: Xterm) -> None:
    flood, tail = FLOODS[name], b"4h\x07\x96\x1b[2J\x1b[H\x1b[3Jafter\tit\r\nlqk"
    screen = Screen(COLS, ROWS)
    screen.feed(b"before\r\n" * 30)
    for at in range(0, len(flood), size):
        screen.skip(flood[at : at + size])
    skipped = xterm.see(COLS, ROWS, screen.picture())
    assert skipped.answers == []
    assert "before" not in "".join(skipped.dump["normal"]["lines"])
    screen.feed(tail)
    right = xterm.see(COLS, ROWS, b"before\r\n" * 30 + flood + tail)
    shown = xterm.see(COLS, ROWS, screen.picture())
    void = ["saved"]  # where things were
    if right.dump["alternateIsOn"]:
        void += [".normal.lines", ".normal.base"]
    left = differences(right.dump, shown.dump)
    assert [one for one in left if not any(name in one for name in void)] == []


def test_the_cursor_is_at_home_after_what_is_skipped() -> None:
    screen, fresh = Screen(COLS, ROWS), Screen(COLS, ROWS)
    screen.feed(b"abc\r\n" * 20)
    screen.skip(b"def\r\n" * 20)
    for one in (screen, fresh):
        one.feed(b"x")
    assert screen.picture() == fresh.picture()
