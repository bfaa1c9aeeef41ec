"""The messages of a terminal's link: what one end says the other reads, and what nobody says is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.protocol import terminal as wire
from sandbox.protocol.messages import MAX_NUMBER, WireError, clip
from sandbox.protocol.terminal import (
    MAX_CONTROL,
    MAX_SIDE,
    NAME,
    NOWHERE,
    Down,
    Exit,
    Greeting,
    Open,
    Reset,
    Resize,
    Resized,
    Size,
    TerminalTrouble,
    Up,
    can_be_asked_for,
    decode_down,
    decode_up,
    encode,
)
from sandbox.protocol.values import Position

sides = st.integers(1, MAX_SIDE)
sizes = st.builds(Size, sides, sides)
epochs = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
offsets = st.integers(0, MAX_NUMBER)
places = st.builds(Position, epochs, offsets)
titles = st.text(max_size=40).map(clip)
downs = st.one_of(
    st.builds(Open.of, st.none() | sizes, st.sampled_from(["drive", "view"]), st.none() | places, st.booleans()),
    st.builds(Resize, sides, sides),
)
ups = st.one_of(
    st.builds(Greeting.of, epochs, offsets, sizes, offsets, st.booleans(), titles),
    st.builds(Reset.of, epochs, offsets, sizes),
    st.builds(Exit, st.none() | st.integers(0, 255), st.none() | st.from_regex(r"SIG[A-Z0-9+]{1,13}", fullmatch=True)),
    st.builds(Resized, sides, sides),
    st.builds(TerminalTrouble, st.from_regex(r"[a-z_]{1,32}", fullmatch=True), titles),
)


# A bridge outlives upgrades, so these bytes stay as they are: a bridge of another version says and reads them.
DOWN_AS_SAID: list[tuple[Down, bytes]] = [
    (
        Open.of(None, "view", None),
        b'{"type":"open","role":"view","epoch":null,"offset":0,"anew":false,"cols":null,"rows":null}',
    ),
    (
        Open.of(Size(80, 24), "drive", Position("e", 40), True),
        b'{"type":"open","role":"drive","epoch":"e","offset":40,"anew":true,"cols":80,"rows":24}',
    ),
    (
        Open.of(Size(1, 1000), "drive", None),
        b'{"type":"open","role":"drive","epoch":null,"offset":0,"anew":false,"cols":1,"rows":1000}',
    ),
    (Resize(80, 24), b'{"type":"resize","cols":80,"rows":24}'),
]
UP_AS_SAID: list[tuple[Up, bytes]] = [
    (
        Greeting.of("e", 0, Size(80, 24), 0, False),
        b'{"type":"hello","epoch":"e","offset":0,"replayed":0,"picture":false,"title":"","cols":80,"rows":24}',
    ),
    (
        Greeting.of("e", MAX_NUMBER, Size(1, 1000), 7, True, "vim \u00e9\x07\ud800"),
        (
            b'{"type":"hello","epoch":"e","offset":9007199254740991,"replayed":7,"picture":true,'
            b'"title":"vim \xc3\xa9 ?","cols":1,"rows":1000}'
        ),
    ),
    (Reset.of("f", 9, Size(80, 24)), b'{"type":"reset","epoch":"f","offset":9,"cols":80,"rows":24}'),
    (Exit(0, None), b'{"type":"exit","code":0,"signal":null}'),
    (Exit(None, "SIGKILL"), b'{"type":"exit","code":null,"signal":"SIGKILL"}'),
    (Resized(9, 9), b'{"type":"resized","cols":9,"rows":9}'),
    (TerminalTrouble("input_full", "no\nroom"), b'{"type":"trouble","code":"input_full","reason":"no room"}'),
]


@pytest.mark.parametrize(("message", "said"), DOWN_AS_SAID)
def test_a_gateway_says_and_a_bridge_reads_the_same_bytes_in_every_version(message: Down, said: bytes) -> None:
    assert encode(message) == said
    assert decode_down(said) == message


@pytest.mark.parametrize(("message", "said"), UP_AS_SAID)
def test_a_bridge_says_and_a_gateway_reads_the_same_bytes_in_every_version(message: Up, said: bytes) -> None:
    assert encode(message) == said
    assert decode_up(said) == message


def test_what_may_be_left_out_may() -> None:
    assert decode_down(b'{"type":"open","role":"view","later":[1]}') == Open("view")
    assert (Open("view").size, Open("view").after, Open("view").anew) == (None, None, False)
    assert decode_up(b'{"type":"exit"}') == Exit(None, None)


def test_a_size_is_a_size() -> None:
    size = Size(80, 24)
    shown = Greeting.of("e", 0, size, 0, False).size, Reset.of("e", 0, size).size, Resized(80, 24).size
    assert {*shown, Resize(80, 24).size, Open.of(size, "drive", None).size} == {size}


@given(downs)
def test_what_a_gateway_says_a_bridge_reads(message: Down) -> None:
    assert decode_down(encode(message)) == message


@given(ups)
def test_what_a_bridge_says_a_gateway_reads(message: Up) -> None:
    said = encode(message)
    assert decode_up(said) == message
    assert len(said) <= MAX_CONTROL


@given(st.text(max_size=5000))
def test_whatever_is_in_a_title_or_a_reason_it_fits_and_is_one_line(text: str) -> None:
    for message in (Greeting.of("e", 0, Size(1, 1), 0, False, text), TerminalTrouble("hm", text)):
        said = encode(message)
        assert len(said) <= MAX_CONTROL
        read = decode_up(said)
        shown = read.title if isinstance(read, Greeting) else read.reason if isinstance(read, TerminalTrouble) else ""
        assert shown == clip(text)
        assert "\n" not in shown


@given(places)
def test_a_place_that_can_be_asked_for_is_understood(place: Position) -> None:
    assert can_be_asked_for(place)
    assert decode_down(encode(Open.of(None, "drive", place))) == Open.of(None, "drive", place)


def test_nowhere_can_be_asked_for_and_what_a_bridge_would_not_read_cannot() -> None:
    assert can_be_asked_for(NOWHERE)
    for epoch, offset in (("", 0), ("a b", 0), ("x" * 65, 0), ("e\n", 0), ("e", -1), ("e", MAX_NUMBER + 1)):
        assert not can_be_asked_for(Position(epoch, offset))
        with pytest.raises(WireError):
            decode_down(encode(Open.of(None, "drive", Position(epoch, offset))))


OPEN: dict[str, Any] = {
    "type": "open", "role": "drive", "epoch": None, "offset": 0, "anew": False, "cols": 80, "rows": 24,
}  # fmt: skip
HELLO: dict[str, Any] = {
    "type": "hello", "epoch": "e", "offset": 0, "replayed": 0, "picture": False, "title": "", "cols": 80, "rows": 24,
}  # fmt: skip
RESET = {"type": "reset", "epoch": "e", "offset": 0, "cols": 80, "rows": 24}
EXIT = {"type": "exit", "code": 0, "signal": None}
TROUBLE = {"type": "trouble", "code": "hm", "reason": ""}
WORDS: list[bytes] = [
    b"", b"{", b"[]", b"7", b"null", b'"open"', b"{}", b'{"type":7}', b'{"type":"other"}', b"\xff",
    b'{"type":"\\ud800"}', b"[" * 5000, b'{"type":"open"}' + b" " * MAX_CONTROL, b'{"type":NaN}',
]  # fmt: skip
NO_NUMBERS: tuple[Any, ...] = (-1, MAX_NUMBER + 1, 1.5, "1", None, True, [], 10**30)
NO_SIDES: tuple[Any, ...] = (0, -1, MAX_SIDE + 1, 80.0, "80", True, [])
NO_EPOCHS: tuple[Any, ...] = ("", "a b", "x" * 65, "e\n", 7, [], "\u00e9")


def spoilt(good: dict[str, Any], member: str, values: tuple[Any, ...]) -> list[bytes]:
    return [json.dumps(good | {member: value}).encode() for value in values]


@pytest.mark.parametrize(
    "said",
    [
        *WORDS,
        *spoilt(OPEN, "role", ("admin", None, 7, ["drive"])),
        *spoilt(OPEN, "anew", (None, 1, "true")),
        *spoilt(OPEN, "epoch", NO_EPOCHS),
        *spoilt(OPEN | {"epoch": "e"}, "offset", NO_NUMBERS),
        *spoilt(OPEN, "cols", NO_SIDES),
        *spoilt(OPEN, "rows", (*NO_SIDES, None)),
        b'{"type":"open","role":"drive","epoch":"e"}',
        b'{"type":"open","role":"drive","cols":80}',
        *spoilt({"type": "resize", "cols": 80, "rows": 24}, "cols", (*NO_SIDES, None)),
        *spoilt(OPEN, "type", ("hello",)),
    ],
)
def test_what_no_gateway_says_is_refused_without_being_repeated(said: bytes) -> None:
    with pytest.raises(WireError) as refused:
        decode_down(said)
    assert len(str(refused.value)) < 40


@pytest.mark.parametrize(
    "said",
    [
        *WORDS,
        *spoilt(HELLO, "epoch", (*NO_EPOCHS, None)),
        *spoilt(HELLO, "offset", NO_NUMBERS),
        *spoilt(HELLO, "replayed", NO_NUMBERS),
        *spoilt(HELLO, "picture", (None, 1, "no")),
        *spoilt(HELLO, "title", (None, 7)),
        *spoilt(HELLO, "cols", (*NO_SIDES, None)),
        *spoilt(RESET, "epoch", (*NO_EPOCHS, None)),
        *spoilt(RESET, "offset", NO_NUMBERS),
        *spoilt(RESET, "rows", (*NO_SIDES, None)),
        *spoilt(EXIT, "code", (-1, 256, 1.0, "0", True)),
        *spoilt(EXIT, "signal", (9, "", "sigkill", "X" * 17, "A\n")),
        *spoilt({"type": "resized", "cols": 80, "rows": 24}, "cols", (*NO_SIDES, None)),
        *spoilt(TROUBLE, "code", (None, 7, "", "Loud", "x" * 33, "a b")),
        *spoilt(TROUBLE, "reason", (None, 7)),
        *spoilt(HELLO, "type", ("open",)),
    ],
)
def test_what_no_bridge_says_is_refused_without_being_repeated(said: bytes) -> None:
    with pytest.raises(WireError) as refused:
        decode_up(said)
    assert len(str(refused.value)) < 40


def test_names_are_short_words() -> None:
    assert all(NAME.fullmatch(name) for name in ("main", "1", "A-b_c", "x" * 64))
    assert not any(NAME.fullmatch(name) for name in ("", "-a", "_a", "a b", "a/b", "x" * 65, "a\n", "\u00e9"))
    assert wire.MAX_BYTES < 1 << 16
