"""The cutter against `bytes.decode` of the whole."""

from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.terminal.dialects.utf8 import Utf8Cutter

CHARACTERS = "a\x00é߿ࠀ€\ud7ff\ue000￿𐀀😀\U0010ffff�"
# Whole characters, halves of them, and bytes that are in none: surrogates, overlong forms, beyond the last character.
SCRAPS = st.sampled_from(
    [character.encode() for character in CHARACTERS]
    + [character.encode()[:cut] for character in CHARACTERS for cut in (1, 2, 3)]
    + [b"\x80", b"\xbf", b"\xc0\x80", b"\xc1", b"\xe0\x80", b"\xed\xa0\x80", b"\xf0\x80", b"\xf4\x90", b"\xf5", b"\xff"]
) | st.binary(max_size=4)
PIECES = st.lists(st.lists(SCRAPS, max_size=6).map(b"".join) | st.binary(max_size=12), max_size=8)


def every_cut(data: bytes) -> Iterator[list[bytes]]:
    for a in range(len(data) + 1):
        for b in range(a, len(data) + 1):
            yield [data[:a], data[a:b], data[b:]]


def check(pieces: list[bytes]) -> None:
    whole = b"".join(pieces).decode(errors="replace")
    as_bytes, as_text = Utf8Cutter(), Utf8Cutter()
    said = [as_bytes.cut(piece).decode() for piece in pieces]  # every piece is valid by itself
    assert [as_text.text(piece) for piece in pieces] == said
    assert "".join(said) + as_bytes.finish() == whole
    assert "".join(said) + as_text.finish() == whole


@given(PIECES)
@example([])
@example([b"", b""])
def test_pieces_cut_anywhere_say_what_the_whole_says(pieces: list[bytes]) -> None:
    check(pieces)


@pytest.mark.parametrize(
    "data", ["aé€😀z".encode(), b"\xf0\x9f\x98\xe2\x82\xe2\x82\xac\xf0\x80\x80\x80", b"\xe0\x80\xf4\x90a\xc3"]
)
def test_every_cut_into_three_says_what_the_whole_says(data: bytes) -> None:
    for pieces in every_cut(data):
        check(pieces)


@given(st.lists(st.text(max_size=6), max_size=6))
def test_whole_characters_never_wait(texts: list[str]) -> None:
    cutter = Utf8Cutter()
    for text in texts:
        assert cutter.cut(text.encode()) == text.encode()
    assert cutter.finish() == ""


@given(st.lists(SCRAPS, max_size=20))
def test_no_more_than_three_bytes_wait(scraps: list[bytes]) -> None:
    cutter = Utf8Cutter()
    for scrap in scraps:
        cutter.cut(scrap)
        assert len(cutter._begun) <= 3


def test_after_the_end_it_begins_anew() -> None:
    cutter = Utf8Cutter()
    assert (cutter.cut(b"a\xe2\x82"), cutter.finish(), cutter.finish()) == (b"a", "�", "")
    assert cutter.cut(b"\xac") == "�".encode()


def test_output_that_is_valid_is_not_written_anew() -> None:
    for data in (b"plain", "schön".encode()):
        assert Utf8Cutter().cut(data) is data
