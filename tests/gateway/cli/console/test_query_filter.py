"""Old questions are not asked again: whatever is cut where, a terminal answers exactly what a program asks now."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.cli.console.query_filter import CANCEL, MAX_HELD, QueryFilter

QUERIES = [
    b"\x1b[c", b"\x1b[0c", b"\x1b[>c", b"\x1b[>0c", b"\x1b[=c", b"\xc2\x9bc", b"\x1bZ", b"\xc2\x9a",
    b"\x1b[5n", b"\x1b[6n", b"\x1b[?6n", b"\x1b[?996n", b"\x1b[\n6n",
    b"\x1b[?2026$p", b"\x1b[4$p", b"\x1b[>q", b"\x1b[>0q", b"\x1b[?u", b"\x1b[x", b"\x1b[1x", b"\x1b[?4m",
    b"\x1b[?2;1;0S", b"\x1b[2$w", b"\x1b[1;1;1;1;1;1*y",
    b"\x1b[14t", b"\x1b[14;2t", b"\x1b[18t", b"\x1b[21t", b"\x1b[13t", b"\x1b[11t",
    b"\x1b]10;?\x07", b"\x1b]11;?\x1b\\", b"\x1b]12;?\x07", b"\x1b]4;1;?\x07", b"\x1b]4;1;?;2;?\x1b\\",
    b"\x1b]52;c;?\x07", b"\xc2\x9d10;?\xc2\x9c", b"\x1b]21;foreground=?\x1b\\", b"\x1b]1337;ReportCellSize\x07",
    b"\x1bP+q544e\x1b\\", b"\x1bP$qm\x1b\\", b"\x1bP$q q\xc2\x9c", b"\x1b_Gi=31,s=1,v=1,a=q,t=d;AAAA\x1b\\",
]  # fmt: skip
HARMLESS = [
    b"plain text", "größe 中文 🙂".encode(), b"\r\n", b"\x1b[m", b"\x1b[1;31m", b"\x1b[38;2;1;2;3m", b"\x1b[H",
    b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25l", b"\x1b[2 q", b"\x1b[1q", b"\x1b[22;0t", b"\x1b[8;24;80t",
    b"\x1b[2J", b"\x1b[1;5r",
    b"\x1b[>4;2m", b"\x1b[>4n", b"\x1b[>1u", b"\x1b[<u", b"\x1b[?1c", b"\x1b[!p", b"\x1b[3S", b"\x1b[2T", b"\x1b[u",
    b"\x1b]0;is it 10;?\x07", b"\x1b]2;title\x1b\\", b"\x1b]10;#ffffff\x07", b"\x1b]4;1;rgb:ff/00/00\x1b\\",
    b"\x1b]52;c;aGk=\x07",
    b"\x1b]8;;http://h/?a=?\x1b\\", b"\x1bP0;0;8q#0~~\x1b\\", b"\x1b_Ga=T,f=100;AAAA\x1b\\",
    b"\x1b7", b"\x1b8", b"\x1b(0", b"\x1bc", b"\x1b=",
    b"\xc2\xa0", b"\xc3\xa9", b"\x1b[3\x18", b"\x1b]0;half\x18", b"\x07",
]  # fmt: skip


class Terminal:
    """What any terminal does with bytes, slowly: it notes whole sequences, in order, and what is not part of one."""

    def __init__(self) -> None:
        self._state = "ground"
        self._sequence = b""
        self.seen: list[bytes] = []

    def write(self, data: bytes) -> None:
        for byte in data.replace(b"\xc2", b"").decode("latin1"):
            self._take(byte.encode("latin1"))

    def _take(self, byte: bytes) -> None:
        if byte in (b"\x18", b"\x1a"):
            self._state, self._sequence = "ground", b""
        elif byte == b"\x1b":
            if self._state in ("]", "P_"):
                self._done()
            self._state, self._sequence = "escape", b"\x1b"
        elif self._state == "ground" and byte in b"\x9b\x9d\x90\x9f":
            self._introduce(bytes((byte[0] - 0x40,)))
        elif self._state == "ground":
            self._sequence = byte
            self._done()
        elif self._state == "escape":
            self._introduce(byte)
        elif self._state == "[":
            self._sequence += byte if byte >= b" " else b""
            if byte >= b"@":
                self._done()
        elif byte == b"\x9c" or (byte == b"\x07" and self._state == "]"):
            self._done()
        else:
            self._sequence += byte

    def _introduce(self, byte: bytes) -> None:
        self._sequence = b"\x1b" + byte
        self._state = {b"[": "[", b"]": "]", b"P": "P_", b"_": "P_"}.get(byte, "ground")
        if self._state == "ground":
            self._done()

    def _done(self) -> None:
        if self._sequence != b"\x1b\\":
            self.seen.append(self._sequence)
        self._state, self._sequence = "ground", b""


def seen(*pieces: bytes) -> list[bytes]:
    terminal = Terminal()
    for piece in pieces:
        terminal.write(piece)
    return terminal.seen


ASKING = {seen(query)[0] for query in QUERIES}


@pytest.mark.parametrize("query", QUERIES)
def test_every_question_is_left_out_of_what_is_old_and_stays_in_what_is_new(query: bytes) -> None:
    assert QueryFilter().old(b"a" + query + b"b") == b"ab"
    assert QueryFilter().new(b"a" + query + b"b") == b"a" + query + b"b"


@pytest.mark.parametrize("sequence", HARMLESS)
def test_what_asks_nothing_stays_as_it_is(sequence: bytes) -> None:
    assert QueryFilter().old(b"a" + sequence + b"b") == b"a" + sequence + b"b"


def test_an_enquiry_is_a_question_too() -> None:
    assert QueryFilter().old(b"a\x05b") == b"ab"


pieces = st.lists(st.sampled_from(QUERIES) | st.sampled_from(HARMLESS), max_size=12).map(b"".join)


@st.composite
def cut(draw: st.DrawFn) -> list[tuple[bytes, bool]]:
    """A stream in pieces, each old or new."""
    whole = draw(pieces)
    cuts = sorted({0, len(whole), *draw(st.lists(st.integers(0, len(whole)), max_size=8))})
    return [(whole[a:b], draw(st.booleans())) for a, b in pairwise(cuts)]


@given(pieces, st.data())
def test_it_does_not_matter_where_old_output_is_cut(whole: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(whole)))
    once, twice = QueryFilter(), QueryFilter()
    assert once.old(whole) + once.new(b"") == twice.old(whole[:at]) + twice.old(whole[at:]) + twice.new(b"")


@given(cut())
def test_the_terminal_answers_what_ends_in_new_output_and_shows_all_the_rest(stream: list[tuple[bytes, bool]]) -> None:
    questions, terminal, alone = QueryFilter(), Terminal(), Terminal()
    expected: list[bytes] = []
    for piece, old in stream:
        for at in range(len(piece)):  # byte by byte: which sequence ends in which piece
            before = len(alone.seen)
            alone.write(piece[at : at + 1])
            expected += [each for each in alone.seen[before:] if not (old and each in ASKING)]
        terminal.write(questions.old(piece) if old else questions.new(piece))
    terminal.write(questions.new(b""))
    assert terminal.seen == expected


@given(st.binary(max_size=200), st.data())
def test_new_output_passes_whole_whatever_it_is(junk: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(junk)))
    questions = QueryFilter()
    assert questions.new(junk[:at]) + questions.new(junk[at:]) == junk


@given(st.binary(max_size=200).map(lambda junk: re.sub(rb"[\x05\x1b\xc2]", b"", junk)))
def test_what_has_no_sequence_in_it_stays_as_it_is(junk: bytes) -> None:
    assert QueryFilter().old(junk) == junk


@pytest.mark.parametrize("start", [b"\x1b]52;c;", b"\x1bP0;1q", b"\x1b_Ga=T;", b"\xc2\x9d0;"])
def test_a_long_string_is_not_held_back_until_its_end(start: bytes) -> None:
    questions = QueryFilter()
    long = b"A" * MAX_HELD
    assert questions.old(start + long) == start + long
    assert questions.old(b"10;?") == b"", "so much can wait"
    assert questions.old(b"\x1b") == b""
    assert questions.old(b"\\ \x1b[6n.") == b"10;?\x1b\\ .", "its end was found"


def test_a_long_string_may_be_cut_in_its_end() -> None:
    questions = QueryFilter()
    start = b"\x1b]0;" + b"A" * MAX_HELD
    assert questions.old(start + b"\xc2") == start + b"\xc2"
    assert questions.old(b"\x9c\x1b[c.") == b"\x9c."


def test_a_question_that_is_half_on_the_screen_is_cancelled() -> None:
    questions = QueryFilter()
    assert questions.new(b"a\x1b[") == b"a\x1b["
    assert questions.old(b"6nb") == CANCEL + b"b"


def test_what_is_half_on_the_screen_is_cancelled_before_a_picture() -> None:
    questions = QueryFilter()
    assert questions.forget() == b""
    questions.new(b"\x1b]0;half a ti")
    assert questions.forget() == CANCEL
    assert questions.old(b"a\x1b[cb") == b"ab", "nothing of it is remembered"
    questions.old(b"\x1b[")
    assert questions.forget() == b"", "it was never written"
