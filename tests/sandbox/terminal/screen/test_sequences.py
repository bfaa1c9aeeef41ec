"""Control sequences out of text that may end anywhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.terminal.screen.canvas import Canvas
from sandbox.terminal.screen.commands import Commands
from sandbox.terminal.screen.sequences import (
    COLOURS,
    CONTROL,
    CSI,
    ESC,
    MAX_HELD,
    NEWLINE,
    OSC,
    RUN,
    SEQUENCE,
    SGR,
    SWALLOWED,
    TOKEN,
    WIDE_RUN,
    ZERO_WIDTH,
    Unfinished,
)


class Noted(Commands):
    """Commands that note how they were called."""

    def __init__(self) -> None:
        super().__init__(Canvas(20, 6, 0))
        self.said: list[tuple[str, ...]] = []

    def control(self, character: str) -> None:
        self.said.append(("control", character))

    def csi(self, kind: str, params: str) -> None:
        self.said.append(("csi", kind, params))

    def sgr(self, params: str) -> None:
        self.said.append(("sgr", params))

    def esc(self, kind: str) -> None:
        self.said.append(("esc", kind))

    def osc(self, text: str) -> None:
        self.said.append(("osc", text))


def heard(*pieces: str) -> tuple[list[tuple[str, ...]], str]:
    """What was called, and what is still held."""
    commands = Noted()
    unfinished = Unfinished(commands)
    for piece in pieces:
        at = 0
        while at < len(piece):
            at = unfinished.take(piece, at)
    return commands.said, unfinished.held


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("abc ä", RUN),
        ("\r\n", NEWLINE),
        ("\x1b[1;31m", SGR),
        ("\x1b[?25h", CSI),
        ("\x07", CONTROL),
        ("世界", WIDE_RUN),
        ("\u0301", ZERO_WIDTH),
        ("\x1b7", ESC),
        ("\x1b]0;t\x07", OSC),
    ],
)
def test_what_is_whole_is_one_token(text: str, kind: int) -> None:
    found = TOKEN.fullmatch(text)
    assert found is not None
    assert found.lastindex == kind


SEQUENCES = {
    "\x1b[?25h": ("csi", "?h", "25"),
    "\x1b[1;31m": ("sgr", "1;31"),
    "\x1b[3 q": ("csi", " q", "3"),
    "\x1b7": ("esc", "7"),
    "\x1b(0": ("esc", "(0"),
    "\x1b]2;t\x07": ("osc", "2;t"),
    "\x1b]2;t\x9c": ("osc", "2;t"),
    "\x9b2J": ("csi", "J", "2"),
    "\x84": ("control", "\x84"),
}


@given(st.sampled_from(sorted(SEQUENCES)), st.integers(1, 8))
def test_a_sequence_is_the_same_however_it_is_cut(sequence: str, step: int) -> None:
    pieces = [sequence[at : at + step] for at in range(0, len(sequence), step)]
    assert heard(*pieces) == ([SEQUENCES[sequence]], "")


def test_a_control_character_inside_a_sequence_acts_at_once() -> None:
    assert heard("\x1b[2\r;3H") == ([("control", "\r"), ("csi", "H", "2;3")], "")


@pytest.mark.parametrize("text", ["\x1b[2\x18", "\x1bPq#0\x1a", "\x1b]0;t\x18"])
def test_a_sequence_can_be_cancelled(text: str) -> None:
    assert heard(text) == ([("control", text[-1])], "")


@pytest.mark.parametrize("held", ["\x1b", "\x1b[", "\x1b[?200", "\x1b]0;abc", "\x1bP1;2q", "\x1b("])
def test_what_is_unfinished_is_held_as_it_came(held: str) -> None:
    assert heard(held) == ([], held)


@pytest.mark.parametrize("start", ["\x1b[", "\x1b]0;", "\x1bPq", "\x1b(", "\x1b_"])
@pytest.mark.parametrize("filler", ["1;", " ", "0" * 5000], ids=["parameters", "spaces", "digits"])
def test_no_more_is_held_than_a_bound(start: str, filler: str) -> None:
    _, held = heard(start, *[filler] * min(3000, 3 * MAX_HELD // len(filler) + 1))
    assert len(held) <= MAX_HELD


def test_what_only_draws_is_swallowed_and_the_rest_found() -> None:
    found = SWALLOWED.match("text\r\n\x1b[31mred\x1b[2;3Hthere\x1b[?25lmore")
    assert found is not None
    assert found[0].endswith("there")
    assert SEQUENCE.sub("", "a\x1b[31mb\x1b]0;t\x07c\x1bPq#\x1b\\d\x0ee") == "abcde"
    assert COLOURS.findall("\x1b[31ma\x1b[mb\x1b[H") == ["31", ""]
