"""The link's own frames, checked against those of the `websockets` package."""

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.protocol import SERVER, Protocol

from sandbox.framing import BINARY, CLOSE, PING, PONG, TEXT, FrameError, FrameReader, client_frame

SIZES = st.sampled_from([0, 1, 125, 126, 127, 65535, 65536, 70000])
MESSAGES = st.lists(st.tuples(st.sampled_from([TEXT, BINARY, PING, PONG]), st.binary(max_size=125) | SIZES.map(bytes)))


def server_frame(opcode: int, payload: bytes, *, fin: bool = True) -> bytes:
    return Frame(Opcode(opcode), payload, fin).serialize(mask=False)


@given(size=SIZES, opcode=st.sampled_from([TEXT, BINARY, PING, CLOSE]))
def test_a_server_reads_what_the_link_writes(size: int, opcode: int) -> None:
    payload = b"\x03\xe8" if opcode == CLOSE else bytes(min(size, 125) if opcode == PING else size)
    server = Protocol(SERVER, max_size=None)
    server.receive_data(client_frame(opcode, payload))
    (frame,) = cast(list[Frame], server.events_received())
    assert (frame.opcode, bytes(frame.data), frame.fin) == (opcode, payload, True)


def test_no_two_frames_share_a_key() -> None:
    keys = {client_frame(TEXT, b"")[2:6] for _ in range(3000)}
    assert len(keys) > 2990


@given(messages=MESSAGES, cut=st.integers(1, 5000), pieces=st.integers(1, 4))
def test_messages_come_out_whole_and_in_order_however_they_are_cut(
    messages: list[tuple[int, bytes]], cut: int, pieces: int
) -> None:
    sent, expected = b"", []
    for opcode, payload in messages:
        if opcode in (PING, PONG):
            payload = payload[:125]
            sent += server_frame(opcode, payload)
        else:
            step = len(payload) // pieces + 1
            parts = [payload[at : at + step] for at in range(0, max(1, len(payload)), step)]
            for number, part in enumerate(parts):
                sent += server_frame(opcode if number == 0 else 0, part, fin=number == len(parts) - 1)
        expected.append((opcode, payload))
    reader = FrameReader(1 << 20, 8)
    found = [frame for at in range(0, len(sent), cut) for frame in reader.read(sent[at : at + cut])]
    assert found == expected


WRONG = {
    "reserved bits": b"\xc1\x00",
    "a mask": b"\x81\x80\x00\x00\x00\x00",
    "an unknown data frame": b"\x83\x00",
    "an unknown control frame": b"\x8b\x00",
    "a ping in pieces": b"\x09\x00",
    "a long ping": b"\x89\x7e\x00\x7e",
    "a lone continuation": b"\x80\x00",
    "a message inside another": b"\x01\x01a\x81\x01b",
    "a length beyond the bound": b"\x82\x7e\x04\x01",
    "a huge length": b"\x82\x7f" + b"\xff" * 8,
    "fragments beyond the bound in bytes": b"\x01\x7e\x04\x00" + bytes(1024) + b"\x00\x01x",
    "fragments beyond the bound in number": b"\x01\x00" + b"\x00\x00" * 4,
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_frame_is_refused_before_its_payload_and_after_what_came_first(name: str) -> None:
    reader = FrameReader(1024, 4)
    found = []
    with pytest.raises(FrameError):  # noqa: PT012 - what was read before the wrong is the point
        for frame in reader.read(server_frame(TEXT, b"first") + WRONG[name]):
            found.append(frame)
    assert found == [(TEXT, b"first")]
