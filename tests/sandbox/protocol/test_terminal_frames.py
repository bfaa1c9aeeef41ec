"""The scans of a spliced terminal, judged by the `websockets` library: it writes the frames, and reads what passes."""

import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side, State

from sandbox.protocol.terminal import MAX_BYTES, MAX_CONTROL, MAX_PICTURE
from sandbox.protocol.terminal_frames import DownScan, UpScan, inputs, payloads
from sandbox.protocol.websocket_frames import BINARY, CLOSE, PING, PONG, TEXT, FrameError, client_frame, frame

MAX, FRAGMENTS = 1 << 20, 8


def noise(size: int) -> bytes:
    """The same each time, or hypothesis could not find a failing example again."""
    return random.Random(size).randbytes(size)


sizes = st.one_of(st.integers(0, 3), st.sampled_from([124, 125, 126, 127, 128, 4096, MAX_BYTES]), st.integers(0, 700))
controls = st.tuples(st.sampled_from([PING, PONG]), st.binary(max_size=125))


def make(opcode: int, payload: bytes, *, fin: bool = True, mask: bool) -> bytes:
    return Frame(Opcode(opcode), payload, fin).serialize(mask=mask)


def heard(frames: bytes, side: Side) -> list[bytes]:
    """What the library reads from them: every message whole, or it fails."""
    reader = Protocol(side, state=State.OPEN, max_size=None)
    reader.receive_data(frames)
    found = []
    for event in reader.events_received():
        assert isinstance(event, Frame)
        assert event.fin
        found.append(bytes(event.data))
    assert reader.parser_exc is None
    return found


def pieces(stream: bytes, cuts: Sequence[int]) -> Iterator[bytes]:
    places = sorted({cut % (len(stream) + 1) for cut in cuts} | {0, len(stream)})
    return (stream[a:b] for a, b in pairwise(places))


@dataclass
class Seen:
    """Everything in its order: payloads that passed, and asides."""

    events: list[tuple[str, int, bytes]]

    @classmethod
    def of(cls, scan: DownScan | UpScan, stream: Iterator[bytes], read: Callable[[bytes], list[bytes]]) -> "Seen":
        events: list[tuple[str, int, bytes]] = []
        for piece in stream:
            passed = scan.feed(piece)
            while True:
                events += [("passed", BINARY, payload) for payload in read(passed)]
                if scan.aside is None:
                    break
                events.append(("aside", *scan.take()))
                passed = scan.feed(b"")
        return cls(events)


def feed_in_steps(scan: DownScan | UpScan, stream: bytes, step: int) -> None:
    for at in range(0, len(stream), step):
        scan.feed(stream[at : at + step])


def refused_or_whole(scan: DownScan | UpScan, stream: Iterator[bytes], side: Side) -> int:
    """The code of its refusal, 0 if there was none; `heard` fails for what is not whole."""
    try:
        Seen.of(scan, stream, lambda frames: heard(frames, side))
    except FrameError as error:
        return error.code
    return 0


@given(
    st.lists(st.one_of(sizes.map(noise).map(lambda p: (BINARY, p)), controls, st.binary(max_size=300).map(
        lambda p: (TEXT, p))), max_size=12),
    st.lists(st.integers(0, 1 << 20), max_size=8),
)  # fmt: skip
def test_what_a_bridge_sends_passes_whole_and_in_order_however_it_is_cut(
    messages: list[tuple[int, bytes]], cuts: list[int]
) -> None:
    stream = b"".join(make(opcode, payload, mask=False) for opcode, payload in messages)
    scan = DownScan()
    seen = Seen.of(scan, pieces(stream, cuts), lambda frames: heard(frames, Side.CLIENT))
    assert seen.events == [("passed" if opcode == BINARY else "aside", opcode, payload) for opcode, payload in messages]
    assert scan.passed_bytes == sum(len(payload) for opcode, payload in messages if opcode == BINARY)


Message = tuple[int, list[bytes], list[bytes]]  # opcode, fragments, pings between them

client_messages: st.SearchStrategy[list[Message]] = st.lists(
    st.tuples(
        st.sampled_from([BINARY, BINARY, TEXT]),
        st.lists(sizes.map(noise), min_size=1, max_size=FRAGMENTS),
        st.lists(st.binary(max_size=20), max_size=3),
    ),
    max_size=8,
)


@given(client_messages, st.lists(st.integers(0, 1 << 20), max_size=8))
def test_what_a_viewer_sends_passes_masked_as_it_came_and_fragments_come_joined(
    messages: list[Message], cuts: list[int]
) -> None:
    stream, wanted = b"", []
    for opcode, fragments, pings in messages:
        if opcode == BINARY and len(fragments) == 1:
            wanted.append(("passed", BINARY, fragments[0]))
        for number, fragment in enumerate(fragments):
            last = number == len(fragments) - 1
            stream += make(opcode if number == 0 else 0, fragment, fin=last, mask=True)
            if not last:
                for ping in pings:
                    stream += make(PING, ping, mask=True)
                    wanted.append(("aside", PING, ping))
        if opcode != BINARY or len(fragments) > 1:
            wanted.append(("aside", opcode, b"".join(fragments)))
    scan = UpScan(MAX, FRAGMENTS)
    if any(len(fragments) > 1 and sum(map(len, fragments)) > 64 << 10 for _, fragments, _ in messages):
        with pytest.raises(FrameError, match="longer than 65536"):
            Seen.of(scan, pieces(stream, cuts), lambda frames: heard(frames, Side.SERVER))
        return
    assert Seen.of(scan, pieces(stream, cuts), lambda frames: heard(frames, Side.SERVER)).events == wanted
    assert scan.passed_frames == sum(kind == "passed" for kind, _, _ in wanted)


@given(
    st.lists(st.tuples(st.sampled_from([BINARY, BINARY, TEXT, PING]), st.sampled_from([0, 1, 64, 125])), max_size=4),
    st.sampled_from([(BINARY, 126), (TEXT, 126)]) | st.none(),
    st.integers(1, 3),
    st.sampled_from([b"", b"", b"\x82", b"\x82\x05ab"]),
    st.booleans(),
)
def test_what_passes_whole_is_what_feeding_it_lets_pass(
    made: list[tuple[int, int]], longer: tuple[int, int] | None, times: int, rest: bytes, mask: bool
) -> None:
    """The short way for equal frames counts as the long one does, or leaves all as it was."""
    made = [*made, longer] if longer else made
    data = b"".join(make(opcode, noise(size), mask=mask) for opcode, size in made) * times + rest
    scans = [UpScan(MAX, FRAGMENTS) if mask else DownScan() for _ in range(2)]
    if whole := scans[0].passes_whole(data):
        assert scans[1].feed(data) == data
        assert scans[1].aside is None
        assert isinstance(scans[0], DownScan) or whole == scans[0].passed_frames
    else:
        assert rest or len(made) != 1 or made[0][0] != BINARY or made[0][1] >= 126  # equal frames do
        assert _outcome(scans[0], data) == _outcome(scans[1], data)
    assert _counted(scans[0]) == _counted(scans[1])


def _outcome(scan: DownScan | UpScan, data: bytes) -> object:
    try:
        return scan.feed(data), scan.aside
    except FrameError as error:
        return error.code


def _counted(scan: DownScan | UpScan) -> int:
    return scan.passed_bytes if isinstance(scan, DownScan) else scan.passed_frames


def test_nothing_passes_whole_where_something_waits_or_is_expected() -> None:
    key, typed = frame(BINARY, b"a"), client_frame(BINARY, b"a")
    down, up = DownScan(), UpScan(MAX, FRAGMENTS)
    for scan, piece in ((down, key), (up, typed)):
        scan.feed(piece[:1])
        assert not scan.passes_whole(piece)
        scan.feed(piece[1:])
        assert scan.passes_whole(piece)
        scan.keep(piece)
        assert not scan.passes_whole(piece)
        assert scan.feed(b"") == piece
        assert not scan.passes_whole(piece + piece[:2] + piece)
    assert not down.passes_whole(b"\x82\x7f" + bytes(8))
    assert not up.passes_whole(b"\x82\xff" + bytes(12))
    down.expect_picture()
    assert not down.passes_whole(key)
    up.feed(make(TEXT, b"b", fin=False, mask=True))
    assert not up.passes_whole(typed)
    assert not UpScan(MAX, FRAGMENTS, passes=False).passes_whole(typed)
    for scan, text, piece in (
        (DownScan(), frame(TEXT, b"t"), key),
        (UpScan(MAX, FRAGMENTS), client_frame(TEXT, b"t"), typed),
    ):
        scan.feed(text)
        assert scan.aside is not None
        assert not scan.passes_whole(piece), "it would overtake what was not taken yet"


def test_a_run_of_equal_frames_is_counted_at_once() -> None:
    down, up = DownScan(), UpScan(MAX, FRAGMENTS)
    assert down.passes_whole(frame(BINARY, b"keys") * 3)
    assert down.passed_bytes == 12
    assert up.passes_whole(client_frame(BINARY, b"keys") * 3) == up.passed_frames == 3


def test_more_frames_than_fit_one_go_do_not_pass_whole() -> None:
    typed = client_frame(BINARY, b"a")
    assert UpScan(MAX, FRAGMENTS).passes_whole(typed * 1000) == 1000
    assert not UpScan(MAX, FRAGMENTS).passes_whole(typed * 1001)


def test_frames_pass_byte_for_byte() -> None:
    stream = client_frame(BINARY, b"one") + client_frame(BINARY, b"x" * 200) + client_frame(BINARY, b"y" * 70000)
    assert UpScan(MAX, FRAGMENTS).feed(stream) == stream
    output = frame(BINARY, b"one") + frame(BINARY, b"x" * 4096)
    assert DownScan().feed(output) == output


def test_a_picture_is_an_aside_may_be_large_and_is_not_counted() -> None:
    scan = DownScan()
    scan.expect_picture()
    picture = os.urandom(MAX_PICTURE)
    stream = make(PING, b"", mask=False) + make(BINARY, picture, mask=False) + make(BINARY, b"live", mask=False)
    seen = Seen.of(scan, pieces(stream, [5, 70_000, 1_000_000]), lambda frames: heard(frames, Side.CLIENT))
    assert seen.events == [("aside", PING, b""), ("aside", BINARY, picture), ("passed", BINARY, b"live")]
    assert scan.passed_bytes == 4


def test_bytes_that_are_kept_are_looked_at_later() -> None:
    scan = UpScan(MAX, FRAGMENTS)
    one, two = client_frame(BINARY, b"one"), client_frame(BINARY, b"two")
    assert scan.feed(one[:3]) == b""
    scan.keep(one[3:])
    scan.keep(two[:1])
    assert scan.feed(b"") == one
    scan.keep(two[1:])
    assert scan.feed(b"") == two
    scan.keep(one)
    scan.keep(two)
    assert scan.feed(b"") == one + two


BAD_DOWN = {
    "masked": client_frame(BINARY, b"x"),
    "masked text": client_frame(TEXT, b"x"),
    "fragment": make(BINARY, b"x", fin=False, mask=False),
    "continuation": make(0, b"x", mask=False),
    "reserved bit": bytes([0xC2, 0]),
    "unknown opcode": bytes([0x83, 0]),
    "unknown control": bytes([0x8B, 0]),
    "fragmented ping": bytes([0x09, 0]),
    "long ping": bytes([0x89, 126, 0, 126]),
    "long output": bytes([0x82, 126]) + (MAX_BYTES + 1).to_bytes(2, "big"),
    "very long output": bytes([0x82, 127]),
    "long text": bytes([0x81, 126]) + (MAX_CONTROL + 1).to_bytes(2, "big"),
    "endless text": bytes([0x81, 127]) + (1 << 40).to_bytes(8, "big"),
}


@pytest.mark.parametrize("bad", BAD_DOWN.values(), ids=BAD_DOWN.keys())
@pytest.mark.parametrize("step", [1, 1000])
def test_a_bridge_that_breaks_the_rules_is_found_out_before_it_has_sent_all(bad: bytes, step: int) -> None:
    stream = make(BINARY, b"good", mask=False) + bad
    scan = DownScan()
    with pytest.raises(FrameError):
        feed_in_steps(scan, stream, step)


def test_a_picture_that_is_too_large_is_refused_by_its_head() -> None:
    scan = DownScan()
    scan.expect_picture()
    with pytest.raises(FrameError):
        scan.feed(bytes([0x82, 127]) + (MAX_PICTURE + 1).to_bytes(8, "big"))


def masked(first: int, size: int, more: bytes = b"") -> bytes:
    return bytes([first, 0x80 | size]) + more


BAD_UP = {
    "not masked": frame(BINARY, b"x"),
    "text not masked": frame(TEXT, b"x"),
    "reserved bit": masked(0xC2, 0),
    "reserved bit on text": masked(0xA1, 0),
    "unknown opcode": masked(0x83, 0),
    "unknown control": masked(0x8B, 0),
    "fragmented ping": masked(0x09, 0),
    "long ping": masked(0x89, 126, b"\0\x7e"),
    "continuation of nothing": make(0, b"x", mask=True),
    "message within a message": make(BINARY, b"x", fin=False, mask=True) + make(TEXT, b"y", mask=True),
    "binary within a message": make(TEXT, b"x", fin=False, mask=True) + make(BINARY, b"y", mask=True),
    "too long": masked(0x82, 127, (MAX + 1).to_bytes(8, "big") + bytes(4)),
    "too long text": masked(0x81, 127, (1 << 62).to_bytes(8, "big") + bytes(4)),
    "too many fragments": make(BINARY, b"", fin=False, mask=True) + make(0, b"", fin=False, mask=True) * FRAGMENTS,
    "fragments too long": make(BINARY, b"x" * 40_000, fin=False, mask=True) + make(0, b"x" * 40_000, mask=True),
}


@pytest.mark.parametrize("bad", BAD_UP.values(), ids=BAD_UP.keys())
@pytest.mark.parametrize("step", [1, 1 << 20])
def test_a_viewer_that_breaks_the_rules_is_found_out_before_it_has_sent_all(bad: bytes, step: int) -> None:
    stream = client_frame(BINARY, b"good") + bad
    scan = UpScan(MAX, FRAGMENTS)
    with pytest.raises(FrameError):
        feed_in_steps(scan, stream, step)


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=5), st.booleans())
def test_any_bytes_either_pass_as_whole_frames_or_are_refused(junk: bytes, cuts: list[int], up: bool) -> None:
    scan: DownScan | UpScan = UpScan(300, FRAGMENTS) if up else DownScan()
    side = Side.SERVER if up else Side.CLIENT
    assert refused_or_whole(scan, pieces(junk, cuts), side) in (0, 1002, 1009)


def test_mutated_streams_never_let_a_half_frame_pass() -> None:
    """A small corpus of whole conversations, with bytes flipped, cut out and repeated."""
    rng = random.Random(11)
    corpus = [
        b"".join(client_frame(BINARY, os.urandom(size)) for size in (0, 1, 125, 126, 500)),
        make(TEXT, b'{"type":"resize","cols":80,"rows":24}', mask=True) + client_frame(BINARY, b"ls\r"),
        make(BINARY, b"a", fin=False, mask=True) + make(PING, b"p", mask=True) + make(0, b"b", mask=True),
        client_frame(CLOSE, b"\x03\xe8bye"),
    ]
    for round_ in range(3000):
        stream = bytearray(b"".join(rng.sample(corpus, rng.randint(1, 3))))
        for _ in range(rng.randint(0, 3)):
            at = rng.randrange(len(stream))
            match rng.randrange(3):
                case 0:
                    stream[at] ^= 1 << rng.randrange(8)
                case 1:
                    del stream[at : at + rng.randint(1, 9)]
                case _:
                    stream[at:at] = stream[at : at + rng.randint(1, 9)]
            if not stream:
                break
        cuts = [rng.randrange(600) for _ in range(3)]
        code = refused_or_whole(UpScan(4096, FRAGMENTS), pieces(bytes(stream), cuts), Side.SERVER)
        assert code in (0, 1002, 1009), round_


def test_a_long_message_byte_by_byte_and_many_small_ones_at_once_cost_no_more_than_their_bytes() -> None:
    """Neither may be copied again for each byte or frame: a million steps of a megabyte each would not end."""
    scan = UpScan(MAX, FRAGMENTS)
    long = client_frame(BINARY, bytes(MAX))
    assert b"".join(scan.feed(long[at : at + 1]) for at in range(len(long))) == long
    asides = make(TEXT, b"{}", mask=True) * 100_000
    seen = Seen.of(scan, iter([asides]), lambda frames: heard(frames, Side.SERVER))
    assert len(seen.events) == 100_000


def test_payloads_are_what_the_frames_hold() -> None:
    parts = [b"", b"a", b"b" * 125, b"c" * 126, b"d" * MAX_BYTES]
    assert list(payloads(b"".join(frame(BINARY, part) for part in parts))) == parts


def test_inputs_are_what_the_masked_frames_hold() -> None:
    parts = [b"", b"a", b"b" * 125, b"c" * 126, b"d" * 70_000]
    assert list(inputs(b"".join(client_frame(BINARY, part) for part in parts))) == parts


def test_a_read_full_of_tiny_frames_is_looked_at_in_several_goes() -> None:
    scan = UpScan(MAX, FRAGMENTS)
    stream = client_frame(BINARY, b"") * 2500
    goes = [scan.feed(stream)]
    while scan.more:
        goes.append(scan.feed(b""))
    assert [len(go) // 6 for go in goes] == [1000, 1000, 500]
    assert b"".join(goes) == stream


def test_what_is_held_is_counted_and_can_be_forgotten() -> None:
    begun, whole = Frame(Opcode.CONT, b"x" * 100).serialize(mask=True), client_frame(TEXT, b"aside")
    fragment = Frame(Opcode.TEXT, b"some", fin=False).serialize(mask=True)
    scan = UpScan(1000, 10)
    assert scan.held == 0
    scan.feed(whole + fragment + begun[:50])
    assert scan.held == len(whole + fragment) + 50
    scan.take()
    scan.feed(b"")
    assert scan.held == len(b"some") + 50
    scan.forget()
    assert (scan.held, scan.aside, scan.more) == (0, None, False)


def test_a_frame_that_has_begun_is_as_long_as_its_head_says() -> None:
    whole = client_frame(BINARY, noise(5000))
    scan = UpScan(MAX, FRAGMENTS)
    assert scan.unfinished == 0
    for piece in (whole[:100], whole[100:4000]):
        assert not scan.feed(piece)
        assert scan.unfinished == len(whole)
    scan.feed(whole[4000:])
    assert scan.unfinished == 0
