"""Our own frames, both ways, checked against those of the `websockets` package, and what the reader must not accept."""

from typing import cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.protocol import SERVER, Protocol

from sandbox.protocol.websocket_frames import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    FrameError,
    FrameReader,
    client_frame,
    frame,
    frame_close,
    frame_text,
)

SIZES = st.sampled_from([0, 1, 125, 126, 127, 65535, 65536, 70000])
PAYLOADS = st.binary(max_size=20) | SIZES.map(bytes)
BOTH_ENDS = pytest.mark.parametrize("masked", [True, False], ids=["from a client", "from a server"])


def wire(opcode: int, payload: bytes, *, masked: bool, fin: bool = True, rsv1: bool = False) -> bytes:
    made = bytearray(Frame(Opcode(opcode), payload, fin).serialize(mask=masked))
    made[0] |= 0x40 if rsv1 else 0
    return bytes(made)


def read_all(reader: FrameReader, data: bytes) -> list[tuple[int, bytes]]:
    reader.feed(data)
    found = []
    while (message := reader.read()) is not None:
        found.append(message)
    return found


# Writing


@given(size=SIZES, opcode=st.sampled_from([TEXT, BINARY, PING, CLOSE]))
@example(size=126, opcode=TEXT)
@example(size=65536, opcode=BINARY)
def test_a_server_reads_what_our_client_writes(size: int, opcode: int) -> None:
    payload = b"\x03\xe8" if opcode == CLOSE else bytes(min(size, 125) if opcode == PING else size)
    server = Protocol(SERVER, max_size=None)
    server.receive_data(client_frame(opcode, payload))
    (read,) = cast(list[Frame], server.events_received())
    assert (read.opcode, bytes(read.data), read.fin) == (opcode, payload, True)


def test_no_two_frames_share_a_key() -> None:
    keys = {client_frame(TEXT, b"")[2:6] for _ in range(3000)}
    assert len(keys) > 2990


@given(SIZES)
@example(125)
@example(126)
@example(65535)
@example(65536)
def test_our_servers_frames_are_what_the_protocol_says(size: int) -> None:
    payload = bytes(size)
    assert frame_text(payload) == Frame(Opcode.TEXT, payload).serialize(mask=False)
    if size <= 125:
        assert frame(PING, payload) == Frame(Opcode.PING, payload).serialize(mask=False)


def test_a_close_reason_is_cut_between_characters() -> None:
    made = frame_close(4404, "ä" * 100)
    assert made[0] == 0x80 | CLOSE
    assert len(made) <= 2 + 125
    assert made[4:].decode() == "ä" * 61


# Reading


@st.composite
def conversations(draw: st.DrawFn) -> tuple[bool, bytes, list[tuple[int, bytes]]]:
    masked, sent, expected = draw(st.booleans()), bytearray(), []
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from([TEXT, BINARY, PING, PONG]))
        if kind in (PING, PONG):
            payload = draw(st.binary(max_size=125))
            sent += wire(kind, payload, masked=masked)
            expected.append((kind, payload))
            continue
        parts = draw(st.lists(PAYLOADS, min_size=1, max_size=4))
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            sent += wire(0 if number else kind, part, masked=masked, fin=last)
            if not last and draw(st.booleans()):
                sent += wire(PING, b"between", masked=masked)
                expected.append((PING, b"between"))
        expected.append((kind, b"".join(parts)))
    return masked, bytes(sent), expected


@given(conversations(), st.lists(st.integers(1, 5000), max_size=40))
def test_whatever_way_the_bytes_come_in_the_messages_are_the_same(
    conversation: tuple[bool, bytes, list[tuple[int, bytes]]], cuts: list[int]
) -> None:
    masked, sent, expected = conversation
    reader, found, at = FrameReader(1 << 20, 1024, masked=masked), [], 0
    for cut in cuts:
        found += read_all(reader, sent[at : at + cut])
        at += cut
    found += read_all(reader, sent[at:])
    assert found == expected


@BOTH_ENDS
@pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536])
def test_a_frame_that_comes_byte_by_byte_is_read_when_its_last_byte_is_there(size: int, masked: bool) -> None:
    reader, sent = FrameReader(1 << 20, 1024, masked=masked), wire(TEXT, b"x" * size, masked=masked)
    head, middle = sent[:14], sent[14:-1]
    for at in range(min(len(head), len(sent) - 1)):
        assert read_all(reader, head[at : at + 1]) == []
    assert read_all(reader, middle) == []
    assert read_all(reader, sent[-1:]) == [(TEXT, b"x" * size)]


@given(st.binary(max_size=200), st.booleans())
def test_garbage_is_read_within_the_bounds_or_refused(data: bytes, masked: bool) -> None:
    try:
        found = read_all(FrameReader(100, 10, masked=masked), data)
    except FrameError as error:
        assert error.code in (1002, 1009)  # noqa: PT017 - both ways out are right; this is what each must look like
    else:
        assert all(len(payload) <= (100 if kind < CLOSE else 125) for kind, payload in found)


# First byte, length byte without its mask bit, and what follows a mask.
WRONG = {
    "a reserved bit": (0xA1, 0, b"", 1002),
    "compression nobody agreed to": (0xC1, 0, b"", 1002),
    "an unknown data frame": (0x83, 0, b"", 1002),
    "an unknown control frame": (0x8B, 0, b"", 1002),
    "a ping in pieces": (0x09, 0, b"", 1002),
    "a long ping": (0x89, 126, b"\x00\x7e", 1002),
    "a continuation of nothing": (0x80, 0, b"", 1002),
    "a length beyond the bound": (0x82, 126, b"\x04\x01", 1009),
    "a length of eight bytes beyond the bound": (0x81, 127, (1025).to_bytes(8, "big"), 1009),
    "a huge length": (0x82, 127, b"\xff" * 8, 1009),
}


@BOTH_ENDS
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_frame_is_refused_before_its_payload_and_after_what_came_first(name: str, masked: bool) -> None:
    first, size, length, code = WRONG[name]
    wrong = bytes((first, size | (0x80 if masked else 0))) + length + (bytes(4) if masked else b"")
    reader = FrameReader(1024, 4, masked=masked)
    reader.feed(wire(TEXT, b"first", masked=masked) + wrong)
    assert reader.read() == (TEXT, b"first")
    with pytest.raises(FrameError) as caught:
        reader.read()
    assert caught.value.code == code


@BOTH_ENDS
@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ([(TEXT, b"a", False), (TEXT, b"b", True)], 1002),  # a message inside another
        ([(TEXT, bytes(1000), False), (0, bytes(25), True)], 1009),
        ([(TEXT, b"", False), *[(0, b"", False)] * 4], 1009),
    ],
    ids=["a message inside another", "too many bytes in all", "too many pieces"],
)
def test_fragments_are_refused_at_the_one_too_many(
    parts: list[tuple[int, bytes, bool]], code: int, masked: bool
) -> None:
    reader = FrameReader(1024, 4, masked=masked)
    *good, wrong = [wire(opcode, payload, masked=masked, fin=fin) for opcode, payload, fin in parts]
    assert read_all(reader, b"".join(good)) == []
    with pytest.raises(FrameError) as caught:
        read_all(reader, wrong)
    assert caught.value.code == code


@BOTH_ENDS
def test_the_mask_of_the_other_end_is_refused(masked: bool) -> None:
    with pytest.raises(FrameError) as caught:
        read_all(FrameReader(1024, 4, masked=masked), wire(TEXT, b"hi", masked=not masked))
    assert caught.value.code == 1002


@BOTH_ENDS
def test_as_many_fragments_as_are_allowed_are_taken_each_time(masked: bool) -> None:
    pieces = [wire(TEXT if n == 0 else 0, b"abcd"[n : n + 1], masked=masked, fin=n == 3) for n in range(4)]
    assert read_all(FrameReader(100, 4, masked=masked), b"".join(pieces) * 2) == [(TEXT, b"abcd")] * 2


def test_inflating_is_bounded_by_what_is_left_of_the_message() -> None:
    reader = FrameReader(100, 8, masked=True)
    rooms = []

    def inflate(opcode: int, payload: bytes, fin: bool, rsv1: bool, room: int) -> bytes:
        rooms.append(room)
        return payload * 10

    reader.inflate = inflate
    packed = wire(TEXT, b"abc", masked=True, fin=False, rsv1=True) + wire(0, b"d", masked=True)
    assert read_all(reader, packed) == [(TEXT, b"abc" * 10 + b"d" * 10)]
    assert rooms == [100, 70]
    with pytest.raises(FrameError) as caught:
        read_all(reader, wire(TEXT, b"0123456789ab", masked=True, rsv1=True))
    assert caught.value.code == 1009


@BOTH_ENDS
def test_what_was_not_read_can_be_taken_away_and_read_by_another(masked: bool) -> None:
    first, second = (wire(TEXT, word, masked=masked) for word in (b"first", b"second"))
    reader = FrameReader(1000, 10, masked=masked)
    reader.feed(first + second)
    assert reader.read() == (TEXT, b"first")
    assert reader.rest() == second
    assert reader.read() is None
    assert read_all(FrameReader(1000, 10, masked=masked), second) == [(TEXT, b"second")]


@BOTH_ENDS
def test_what_is_pending_is_counted_and_can_be_forgotten(masked: bool) -> None:
    whole = wire(TEXT, b"first", masked=masked)
    begun = wire(TEXT, b"some", masked=masked, fin=False)
    reader = FrameReader(1000, 10, masked=masked)
    reader.feed(whole + begun + wire(0, b"more", masked=masked)[:3])
    assert reader.pending == len(whole + begun) + 3
    assert reader.read() == (TEXT, b"first")
    assert reader.read() is None
    assert (reader.pending, reader.joined) == (len(b"some") + 3, 1)
    reader.forget()
    assert reader.pending == 0


@BOTH_ENDS
def test_a_message_that_was_read_takes_no_memory_behind_the_beginning_of_the_next(masked: bool) -> None:
    whole, next_one = (wire(TEXT, letter * 500_000, masked=masked) for letter in (b"x", b"y"))
    begun = next_one[:1000]
    reader = FrameReader(1_000_000, 10, masked=masked)
    for at in range(0, len(whole + begun), 100_000):
        reader.feed((whole + begun)[at : at + 100_000])
        found = reader.read()
    assert found == (TEXT, b"x" * 500_000)
    assert reader.held == len(whole + begun)
    assert reader.read() is None
    assert (reader.held, reader.pending) == (1000, 1000)
    reader.feed(next_one[1000:])
    assert reader.read() == (TEXT, b"y" * 500_000)


@BOTH_ENDS
@pytest.mark.parametrize(("first", "whole"), [(b"", False), (b"some", False), (None, True)])
def test_how_long_a_message_may_become_is_known_from_its_beginning(
    masked: bool, first: bytes | None, whole: bool
) -> None:
    """In fragments it may become as long as any, however short the first of them is: who makes room asks once."""
    before = b"" if first is None else wire(TEXT, first, masked=masked, fin=False)
    long = wire(TEXT if first is None else 0, b"x" * 200, masked=masked, fin=whole)
    reader = FrameReader(1000, 10, masked=masked)
    reader.feed(before + long[:50])
    assert reader.read() is None
    assert reader.unfinished == (200 if whole else 1000)
    reader.feed(long[50:])
    assert (reader.read() is not None) is whole
    assert reader.unfinished == (0 if whole else 1000)
