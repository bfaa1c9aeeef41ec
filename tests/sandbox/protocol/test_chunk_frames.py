"""Chunks compressed together come back as they were, or not at all."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.protocol.chunk_frames import FRAME_BYTES, groups, pack, unpack
from sandbox.protocol.entry import MAX_CHUNK, BadEntry, Chunk, Frame, chunk_id


def chunk_of(content: bytes) -> tuple[Chunk, bytes]:
    return Chunk(chunk_id(content), len(content)), content


CONTENTS = st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=6, unique=True)


@given(CONTENTS)
def test_what_is_packed_is_unpacked(contents: list[bytes]) -> None:
    frame = pack([chunk_of(content) for content in contents])
    assert [bytes(piece) for piece in unpack(frame)] == contents


@given(st.lists(st.sampled_from([1, FRAME_BYTES // 2, FRAME_BYTES, FRAME_BYTES + 1]), max_size=8))
def test_groups_keep_the_order_and_the_bound(sizes: list[int]) -> None:
    contents = [(Chunk(b"%032d" % n, size), b"") for n, size in enumerate(sizes)]
    cut = list(groups(contents))
    assert [each for group in cut for each in group] == contents
    for group in cut:
        assert len(group) == 1 or sum(chunk.size for chunk, _ in group) <= FRAME_BYTES
    for group, after in pairwise(cut):
        assert sum(chunk.size for chunk, _ in [*group, after[0]]) > FRAME_BYTES


GOOD = pack([chunk_of(b"one"), chunk_of(b"two")])
LARGE = Chunk(bytes(32), MAX_CHUNK)


@pytest.mark.parametrize(
    "frame",
    [
        Frame((), GOOD.data),
        Frame((Chunk(b"", 6),), GOOD.data),
        Frame((LARGE, LARGE), GOOD.data),
        Frame(GOOD.chunks[:1], GOOD.data),
        Frame(GOOD.chunks[::-1], GOOD.data),
        Frame(GOOD.chunks, b"not compressed"),
        Frame(GOOD.chunks, GOOD.data[:-1]),
        Frame(GOOD.chunks, GOOD.data + b"x"),
    ],
)
def test_what_cannot_be_is_refused(frame: Frame) -> None:
    with pytest.raises(BadEntry):
        unpack(frame)
