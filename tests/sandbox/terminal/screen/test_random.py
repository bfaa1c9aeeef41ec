"""The screen model on what nobody would write: random programs judged by xterm.js, and random bytes."""

import random
from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sandbox.protocol.terminal import MAX_SIDE
from sandbox.terminal.screen.screen import Screen
from tests.campaign.size import sized
from tests.sandbox.terminal.screen.xterm import Xterm, XtermFailed, differences

SCROLLBACK = 50

NARROW = [
    "a",
    "hello world",
    "x" * 15,
    "é",
    "─│",
    "😀",
    "  ",
    "0123456789abcdefghij",
    "~{}|`qx",
    "e\u0301",
    "\u0301",
    "\u200b",
]
WIDE = ["世", "世界漢字", "a世b", "日本語テキスト", "世\u0301"]
CONTROLS = [
    *(bytes([n]) for n in (0, 7, 8, 9, 10, 11, 13, 14, 15, 24, 127)),
    b"\r\n",
    b"\xc2\x84",
    b"\xc2\x85",
    b"\xc2\x88",
]
LOOKS = [
    *("0", "1", "2", "3", "4", "5", "7", "8", "9", "21", "22", "24", "27", "31", "42", "91", "104", "53", "55", "39"),
    *("38;5;200", "48;5;17", "38;2;1;2;3", "48:2::9:8:7", "4:3", "58;5;9", "58:2::1:2:3", "59", "49", "1;31;44"),
    *("38;5", "38;2;1", "48;2;300;2;3;4", "4:0", "4:9", "38:5:3;1", ":3", ";"),
]
MODES = [1, 2, 6, 9, 12, 25, 45, 47, 66, 1000, 1002, 1003, 1004, 1006, 1016, 1047, 1048, 1049, 2004, 2026]
ESCAPES = [*"78DEHM=>no~c", "(0", "(B", ")0", "*A", "+0", "(A", "#8", "%G", "[!p", "[s", "[u"]
STRINGS = [b"\x1b]0;title\x07", b"\x1b]2;t\xc3\xa9\x1b\\", b"\x1bP1$q\x1b\\", b"\x1b_abc\x1b\\", b"\x1b^\xc3\xa9\x1b\\"]
ODD = [
    b"\x1b[3\n1m",
    b"\x1b[1;2",
    b"\x1b]0;un",
    b"\x1b",
    b"\x1b[5\xc3\xa9",
    b"\xe4\xb8",
    b"\xff\xfe",
    b"\xf0\x9f",
    b"\x1bP12",
]

NUMBERS = st.sampled_from([b"", b"0", b"1", b"2", b"3", b"999"]) | st.integers(0, 12).map(b"%d".__mod__)
PLACES = st.builds(
    lambda one, two, final: b"\x1b[" + one + b";" + two + final, NUMBERS, NUMBERS, st.sampled_from([b"H", b"r"])
)
MOVES = st.builds(
    lambda number, final: b"\x1b[" + number + final.encode(),
    NUMBERS,
    st.sampled_from([*"@ABCDEFGIKLMPSTXZ`abdefg", " @", " A", "'}", "'~", " q", '"q']),
)
# Erasing up to the cursor only from the first column: see tests/sandbox/terminal/screen/xterm.py.
ERASURES = st.sampled_from(
    [b"\x1b[J", b"\x1b[2J", b"\x1b[3J", b"\r\x1b[1J", b"\x1b[?J", b"\x1b[?2J", b"\x1b[?K", b"\x1b[?1K"]
)
SWITCHES = st.builds(lambda mode, on: b"\x1b[?%d%c" % (mode, on), st.sampled_from(MODES), st.sampled_from(b"hl"))
ANSI = st.builds(lambda mode, on: b"\x1b[%d%c" % (mode, on), st.sampled_from([4, 20]), st.sampled_from(b"hl"))
AUTOWRAP = st.sampled_from([b"\x1b[?7l", b"\x1b[?7h"])


def programs(pieces: int, *, wide: bool) -> st.SearchStrategy[bytes]:
    """Wide characters, or lines that do not wrap: where both meet, cells are left that no picture can bring about."""
    texts = st.sampled_from([text.encode() for text in (NARROW + WIDE if wide else NARROW)])
    piece = st.one_of(
        texts,
        texts,
        st.sampled_from(CONTROLS),
        st.sampled_from(LOOKS).map(lambda look: f"\x1b[{look}m".encode()),
        MOVES,
        PLACES,
        ERASURES,
        SWITCHES if wide else SWITCHES | AUTOWRAP,
        ANSI,
        st.sampled_from(ESCAPES).map(lambda escape: b"\x1b" + escape.encode()),
        st.sampled_from(STRINGS + ODD),
    )
    return st.lists(piece, max_size=pieces).map(b"".join)


SESSIONS = st.booleans().flatmap(lambda wide: st.tuples(programs(40, wide=wide), programs(8, wide=wide)))
SIZES = st.tuples(st.integers(4, 14), st.integers(2, 6))


@pytest.fixture(scope="module")
def xterm() -> Iterator[Xterm]:
    with Xterm() as judge:
        yield judge


def cannot_be_drawn(screen: Screen, xterm: Xterm, fed: bytes) -> bool:
    """A character set in use that came with a cursor saved on the other screen; or, on the alternate screen, an empty
    last cell after which the next character wraps: only printing leads there."""
    try:
        dump = xterm.see(screen.cols, screen.rows, fed, scrollback=SCROLLBACK).dump
    except XtermFailed:
        return True
    page = dump["alternate"] if dump["alternateIsOn"] else dump["normal"]
    level, in_use, *designated = dump["charset"]
    if in_use not in (designated[level], page["saved"][3]):
        return True
    if page is dump["normal"] or page["cursor"][0] < screen.cols:
        return False
    cells = page["lines"][page["cursor"][1]][1:].split("\u241f")
    return len(cells) < screen.cols or cells[-1].startswith("|1")


@pytest.mark.soak
@settings(max_examples=sized(300, 5000))
@given(SIZES, SESSIONS)
def test_whatever_a_program_writes_its_picture_shows_it_and_goes_on_like_it(
    xterm: Xterm, size: tuple[int, int], session: tuple[bytes, bytes]
) -> None:
    fed, then = session
    screen = Screen(*size, scrollback=SCROLLBACK)
    screen.feed(fed)
    if not cannot_be_drawn(screen, xterm, fed):
        assert xterm.tells_apart(screen, fed, then, b"\x1b[?1049l", scrollback=SCROLLBACK) == []


@given(SIZES, SESSIONS, st.randoms(use_true_random=False))
def test_the_pieces_in_which_it_comes_do_not_matter(
    size: tuple[int, int], session: tuple[bytes, bytes], rng: random.Random
) -> None:
    fed = b"".join(session)
    whole, pieces = Screen(*size), Screen(*size)
    whole.feed(fed)
    at = 0
    while at < len(fed):
        end = at + rng.randint(1, 6)
        pieces.feed(fed[at:end])
        at = end
    assert pieces.picture() == whole.picture()


AT_THE_CURSOR = ["7", "8", "H", "[s", "[u", "#8"]  # what is told there, or saved, depends on what was drawn
TOLD = st.one_of(
    st.sampled_from([text.encode() for text in NARROW + WIDE]),
    st.sampled_from([b"\r\n", b"\t", b"\x0e", b"\x0f", b"\x1b[2J", b"\x1b[5;3H", b"\x1b[K", b"\x1b[3g"]),
    st.sampled_from(LOOKS).map(lambda look: f"\x1b[{look}m".encode()),
    PLACES.filter(lambda place: place.endswith(b"r")),
    SWITCHES,
    AUTOWRAP,
    ANSI,
    st.sampled_from([b"\x1b" + escape.encode() for escape in ESCAPES if escape not in AT_THE_CURSOR]),
    st.sampled_from(STRINGS),
)


@settings(max_examples=sized(100, 5000))
@given(SIZES, st.lists(TOLD, max_size=40).map(b"".join), st.integers(1, 50))
def test_what_a_random_program_told_the_terminal_survives_skipping(
    xterm: Xterm, size: tuple[int, int], flood: bytes, step: int
) -> None:
    screen, tail = Screen(*size, scrollback=SCROLLBACK), b"\x1b[2J\x1b[H\x1b[3Ja\tb\x1b[2;2Hlqk"
    for at in range(0, len(flood), step):
        screen.skip(flood[at : at + step])
    screen.feed(tail)
    right = xterm.see(*size, flood + tail, scrollback=SCROLLBACK).dump
    shown = xterm.see(*size, screen.picture(), scrollback=SCROLLBACK).dump
    void = ["saved"] + [".normal.lines", ".normal.base"] * right["alternateIsOn"]
    assert [one for one in differences(right, shown) if not any(name in one for name in void)] == []


@given(
    st.lists(
        st.binary(max_size=200)
        | st.tuples(st.integers(-1, MAX_SIDE), st.integers(-1, MAX_SIDE))
        | programs(10, wide=True).map(lambda fed: fed + b"\x1b[?7l")
        | st.binary(max_size=50).map(lambda flood: (flood,)),
        max_size=12,
    )
)
@example([b"\x1b[?7l\x1b[5G\xe4\xb8\x96\xcc\x81", b"\x1b[3;5H\x1b[1J"])
@example([(5, 1), b"01234\x1b[1Kx"])
@example([b"\x1b[?45h", (2, 1), b"\xe4\xb8\x96" * 5, (1, 1), b"x\b\b\b"])
def test_nothing_that_is_fed_skipped_or_resized_raises(
    steps: list[bytes | tuple[int, int] | tuple[bytes]],
) -> None:
    screen = Screen(5, 3, scrollback=20)
    for step in steps:
        match step:
            case bytes():
                screen.feed(step)
            case (bytes() as flood,):
                screen.skip(flood)
            case (int() as cols, int() as rows):
                screen.resize(cols, rows)
                assert screen.cols >= max(cols, 2)
                assert screen.rows == max(rows, 1)
        screen.picture().decode(errors="ignore")
