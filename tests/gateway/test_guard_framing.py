"""The frame reader against an independent writer, and what it must not accept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from gateway.framing import BINARY, CLOSE, PING, PONG, TEXT, FrameError, FrameReader, frame, frame_close, frame_text


def masked(opcode: int, payload: bytes, *, fin: bool = True, rsv1: bool = False) -> bytes:
    wire = bytearray(Frame(Opcode(opcode), payload, fin).serialize(mask=True))
    wire[0] |= 0x40 if rsv1 else 0
    return bytes(wire)


def read_all(reader: FrameReader, data: bytes) -> list[tuple[int, bytes]]:
    reader.feed(data)
    found = []
    while (event := reader.read()) is not None:
        found.append(event)
    return found


payloads = st.one_of(st.binary(max_size=20), st.sampled_from([125, 126, 127, 65535, 65536]).map(lambda n: b"x" * n))


@st.composite
def conversations(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, bytes]]]:
    wire, expected = bytearray(), []
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from([TEXT, BINARY, PING, PONG]))
        if kind in (PING, PONG):
            payload = draw(st.binary(max_size=125))
            wire += masked(kind, payload)
            expected.append((kind, payload))
            continue
        parts = draw(st.lists(payloads, min_size=1, max_size=4))
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            wire += masked(0 if number else kind, part, fin=last)
            if not last and draw(st.booleans()):
                wire += masked(PING, b"between")
                expected.append((PING, b"between"))
        expected.append((kind, b"".join(parts)))
    return bytes(wire), expected


@given(conversations(), st.lists(st.integers(1, 5000), max_size=40))
def test_whatever_way_the_bytes_come_in_the_messages_are_the_same(
    conversation: tuple[bytes, list[tuple[int, bytes]]], cuts: list[int]
) -> None:
    wire, expected = conversation
    reader, found, at = FrameReader(1 << 20, 1024), [], 0
    for cut in cuts:
        found += read_all(reader, wire[at : at + cut])
        at += cut
    found += read_all(reader, wire[at:])
    assert found == expected


@pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536])
def test_a_frame_that_comes_byte_by_byte_is_read_when_its_last_byte_is_there(size: int) -> None:
    reader, wire = FrameReader(1 << 20, 1024), masked(TEXT, b"x" * size)
    head, tail = wire[:14], wire[14:]
    for at in range(len(head) - 1):
        assert read_all(reader, head[at : at + 1]) == []
    found = read_all(reader, head[-1:])
    found += read_all(reader, tail[:-1])
    assert found == ([] if tail else [(TEXT, b"x" * size)])
    if tail:
        assert read_all(reader, tail[-1:]) == [(TEXT, b"x" * size)]


@given(st.binary(max_size=200))
def test_garbage_ends_in_a_frame_error_or_waits(data: bytes) -> None:
    reader = FrameReader(1000, 10)
    codes = [1002]
    try:
        found = read_all(reader, data)
    except FrameError as exc:
        codes.append(exc.code)
    else:
        assert all(len(payload) <= 1000 for _, payload in found)
    assert codes[-1] in (1002, 1009)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x81\x02hi", 1002),  # not masked
        (masked(TEXT, b"hi", rsv1=True), 1002),
        (b"\xa1\x80\0\0\0\0", 1002),
        (b"\x83\x80\0\0\0\0", 1002),
        (b"\x8b\x80\0\0\0\0", 1002),
        (b"\x09\x80\0\0\0\0", 1002),  # a fragmented ping
        (b"\x89\xfe\x00\x7e", 1002),  # a ping of 126 bytes
        (masked(0, b"x"), 1002),  # a continuation of nothing
        (masked(TEXT, b"a", fin=False) + masked(TEXT, b"b"), 1002),
        (b"\x81\xff" + (2**63).to_bytes(8, "big") + b"\0\0\0\0", 1009),
        (b"\x81\xff" + (101).to_bytes(8, "big") + b"\0\0\0\0", 1009),  # refused before its payload is there
        (masked(TEXT, b"a" * 60, fin=False) + masked(0, b"b" * 41), 1009),
        (masked(TEXT, b"", fin=False) + masked(0, b"", fin=False) * 8, 1009),
    ],
)
def test_what_the_protocol_forbids_is_refused(data: bytes, code: int) -> None:
    with pytest.raises(FrameError) as caught:
        read_all(FrameReader(100, 8), data)
    assert caught.value.code == code


def test_eight_fragments_are_taken_where_eight_are_allowed() -> None:
    data = masked(TEXT, b"a", fin=False) + masked(0, b"b", fin=False) * 6 + masked(0, b"c")
    assert read_all(FrameReader(100, 8), data * 2) == [(TEXT, b"abbbbbbc")] * 2


@given(st.sampled_from([0, 1, 125, 126, 127, 65535, 65536, 70000]))
def test_our_frames_are_what_the_protocol_says(size: int) -> None:
    payload = b"x" * size
    assert frame_text(payload) == Frame(Opcode.TEXT, payload).serialize(mask=False)
    if size <= 125:
        assert frame(PING, payload) == Frame(Opcode.PING, payload).serialize(mask=False)


def test_a_close_reason_is_cut_between_characters() -> None:
    wire = frame_close(4404, "ä" * 100)
    assert wire[0] == 0x80 | CLOSE
    assert len(wire) <= 2 + 125
    assert wire[4:].decode() == "ä" * 61


def test_inflating_is_bounded_by_what_is_left_of_the_message() -> None:
    reader = FrameReader(100, 8)
    rooms = []

    def inflate(opcode: int, payload: bytes, fin: bool, rsv1: bool, room: int) -> bytes:
        rooms.append(room)
        return payload * 10

    reader.inflate = inflate
    assert read_all(reader, masked(TEXT, b"abc", fin=False, rsv1=True) + masked(0, b"d")) == [
        (TEXT, b"abc" * 10 + b"d" * 10)
    ]
    assert rooms == [100, 70]
    with pytest.raises(FrameError) as caught:
        read_all(reader, masked(TEXT, b"0123456789ab", rsv1=True))
    assert caught.value.code == 1009
