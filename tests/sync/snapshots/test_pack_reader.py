"""Which frames are fetched for which chunks, and in how many requests."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sandbox.protocol.entry import Chunk
from sync.format.manifest import ChunkPlace
from sync.format.pack import PackedFrame
from sync.snapshots.pack_reader import MOST, NEAR, frames_of, runs

IDS = [bytes([number]) * 32 for number in range(8)]
frames = st.lists(st.lists(st.sampled_from(IDS), min_size=1, max_size=4), min_size=1, max_size=8)


@given(frames, st.sets(st.sampled_from(IDS)))
def test_every_chunk_comes_and_every_frame_brings_one_that_no_other_does(
    rows: list[list[bytes]], wanted: set[bytes]
) -> None:
    places: dict[bytes, ChunkPlace] = {}
    for number, row in enumerate(rows):
        frame = PackedFrame(number * 10, 10, tuple(Chunk(each, 1) for each in row))
        for each in row:
            places[each] = ChunkPlace(f"p{number % 3}", frame)
    chunks = wanted & places.keys()
    found = frames_of(places, chunks)
    brought = [{chunk.id for chunk in frame.chunks} & chunks for inside in found.values() for frame in inside]
    assert set().union(*brought) == chunks
    for number, one in enumerate(brought):
        others = set().union(*(brought[:number] + brought[number + 1 :]))
        assert one - others
    for inside in found.values():
        assert [frame.offset for frame in inside] == sorted(frame.offset for frame in inside)


@given(st.lists(st.tuples(st.integers(0, 2 * NEAR), st.integers(1, NEAR)), max_size=60))
def test_frames_that_lie_near_each_other_come_in_one_request_of_bounded_size(gaps: list[tuple[int, int]]) -> None:
    at, row = 20, []
    for gap, length in gaps:
        row.append(PackedFrame(at + gap, length, ()))
        at += gap + length
    grouped = runs(row)
    assert [frame for run in grouped for frame in run] == row
    for run in grouped:
        assert run[-1].offset + run[-1].length - run[0].offset <= MOST
        for before, after in pairwise(run):
            assert after.offset - before.offset - before.length <= NEAR
    for run, following in pairwise(grouped):
        first = following[0]
        is_far = first.offset - run[-1].offset - run[-1].length > NEAR
        assert is_far or first.offset + first.length - run[0].offset > MOST


def test_a_frame_larger_than_a_request_comes_alone() -> None:
    large = PackedFrame(20, 2 * MOST, ())
    assert runs([large, PackedFrame(20 + 2 * MOST, 5, ())]) == [[large], [PackedFrame(20 + 2 * MOST, 5, ())]]
