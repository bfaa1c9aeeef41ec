"""Messages between the gateway and a bridge: whatever is sent comes out the same, and nothing else comes out."""

import tracemalloc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.protocol import tree as wire
from sandbox.protocol.entry import Chunk, Entry, Frame, Kind
from sandbox.protocol.tree import TreeWireError

FRAME = Frame((Chunk(b"i" * 32, 3),), b"\x28\xb5\x2f\xfd")
FILE = Entry(b"workspace/\xff\n", Kind.FILE, 0o644, -1, 3, chunks=(Chunk(b"i" * 32, 3),), unsettled=True)
DOWN: list[wire.Down] = [
    wire.ScanAsk("token", ("*.pyc", "é"), wire.TreeLimits(5, 6)),
    wire.ScanAsk(),
    wire.RestoreAsk("token", aside=True),
    wire.SurveyAsk(("a",)),
    wire.QuietAsk(),
    wire.ReleaseAsk(),
    wire.Want((0, 7)),
    wire.Remember("token"),
    wire.RestoreEntries((FILE, Entry(b"agent/l", Kind.SYMLINK, 0o777, 0, target=b"\xfe"))),
    wire.RestorePlan(),
    wire.Chunks(FRAME),
    wire.RestoreEnd(),
]
UP: list[wire.Up] = [
    wire.Batch((FILE,), (b"agent/gone",), (wire.Offer(b"i" * 32, 3),)),
    wire.Chunks(FRAME, last=True),
    wire.Chunks(None, last=True),
    wire.ScanDone("base", 1, 2, 3, (b"workspace/socket",), 4),
    wire.ScanDone(None, 0, 0, 0),
    wire.Need((b"i" * 32,), last=False),
    wire.Progress(1, 2),
    wire.Restored(),
    wire.Survey(held=True, known=None, changed=0, files=9),
    wire.Done(),
    wire.Trouble("too_many", "more than 5 files"),
]


@pytest.mark.parametrize("message", DOWN)
def test_what_the_gateway_says_is_what_the_bridge_reads(message: wire.Down) -> None:
    assert wire.decode_down(wire.encode(message)) == message


@pytest.mark.parametrize("message", UP)
def test_what_the_bridge_says_is_what_the_gateway_reads(message: wire.Up) -> None:
    assert wire.decode_up(wire.encode(message)) == message


def test_nobody_says_the_others_words() -> None:
    with pytest.raises(TreeWireError):
        wire.decode_up(wire.encode(wire.ReleaseAsk()))
    with pytest.raises(TreeWireError):
        wire.decode_down(wire.encode(wire.Restored()))


def test_a_message_with_a_field_nobody_knows_is_refused() -> None:
    payload = msgspec.msgpack.encode({"type": "Remember", "token": "t", "more": 1})
    with pytest.raises(TreeWireError):
        wire.decode_down(payload)


def test_a_message_too_long_is_not_even_looked_at() -> None:
    with pytest.raises(TreeWireError, match="too long"):
        wire.decode_up(b"\xc1" * (wire.MAX_TREE_MESSAGE + 1))


TOO_MANY = {
    "entries": {"type": "Batch", "entries": [0] * (wire.BATCH_ENTRIES + 1)},
    "removed": {"type": "Batch", "removed": [b"x"] * 4_000_000},
    "offers": {"type": "Batch", "offers": [[b"", 1]] * 1_000_000},
    "ids": {"type": "Need", "ids": [b"x"] * 4_000_000, "last": False},
    "skipped": {"type": "ScanDone", "skipped": [b"x"] * 4_000_000},
    "unread": {"type": "ScanDone", "unread": [b"x"] * (wire.MAX_UNREAD + 1)},
}


@pytest.mark.parametrize("member", TOO_MANY)
def test_too_many_elements_are_refused_before_they_are_decoded(member: str) -> None:
    payload = msgspec.msgpack.encode(TOO_MANY[member])
    assert len(payload) < wire.MAX_TREE_MESSAGE
    tracemalloc.start()
    try:
        with pytest.raises(TreeWireError):
            wire.decode_up(payload)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_what_is_nested_without_end_is_refused() -> None:
    deep = b"\x82\xa4type\xa5Batch\xa7entries" + b"\x91" * 200_000 + b"\x90"
    with pytest.raises(TreeWireError):
        wire.decode_up(deep)


@given(st.binary(max_size=300))
def test_noise_is_refused_without_repeating_it(payload: bytes) -> None:
    for decode in (wire.decode_up, wire.decode_down):
        with pytest.raises(TreeWireError, match=r"^a message that cannot be read$"):
            decode(payload)


@given(st.sampled_from(UP), st.data())
def test_a_message_cut_short_is_refused(message: wire.Up, data: st.DataObject) -> None:
    payload = wire.encode(message)
    with pytest.raises(TreeWireError):
        wire.decode_up(payload[: data.draw(st.integers(0, len(payload) - 1))])
