"""Reads content out of packs: the frames of chunks, in few requests, each hash checked."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from sandbox.protocol.chunk_frames import unpack
from sandbox.protocol.entry import BadEntry, Frame
from sync.errors import Damaged
from sync.format.manifest import ChunkPlace
from sync.format.pack import PackedFrame, read_frame
from sync.snapshots.repository import Repository

NEAR = 256 << 10  # two frames so close together are fetched in one request
MOST = 8 << 20  # in one request, unless a frame is larger

Contents = list[memoryview]  # of a frame's chunks, in their order


def frames_of(places: Mapping[bytes, ChunkPlace], chunks: AbstractSet[bytes]) -> dict[str, list[PackedFrame]]:
    """For each pack, the frames that have these chunks, in their order in the pack. Each has a chunk that no other
    has, so none is fetched for nothing. Pure."""
    found: dict[tuple[str, int], PackedFrame] = {}
    for chunk in chunks:
        pack, frame = places[chunk]
        found[pack, frame.offset] = frame
    wanted = {at: {chunk.id for chunk in frame.chunks} & chunks for at, frame in found.items()}
    holders = Counter(chunk for inside in wanted.values() for chunk in inside)
    by_pack: dict[str, list[PackedFrame]] = defaultdict(list)
    for pack, offset in sorted(found):
        inside = wanted[pack, offset]
        if all(holders[chunk] > 1 for chunk in inside):
            holders.subtract(inside)
        else:
            by_pack[pack].append(found[pack, offset])
    return dict(by_pack)


def runs(frames: Sequence[PackedFrame]) -> list[list[PackedFrame]]:
    """Frames in order, grouped so that neighbours are fetched together. Pure."""
    grouped: list[list[PackedFrame]] = []
    for frame in frames:
        end = frame.offset + frame.length
        if grouped and _is_near(grouped[-1], frame) and end - grouped[-1][0].offset <= MOST:
            grouped[-1].append(frame)
        else:
            grouped.append([frame])
    return grouped


def _is_near(run: Sequence[PackedFrame], frame: PackedFrame) -> bool:
    return frame.offset - (run[-1].offset + run[-1].length) <= NEAR


async def fetch(shelf: Repository, pack: str, frames: Sequence[PackedFrame]) -> AsyncIterator[tuple[Frame, Contents]]:
    """These frames of a pack, given in their order. Raises Damaged, ObjectsUnavailable, ObjectsRefused."""
    key = shelf.keys.pack(pack)
    for run in runs(frames):
        start, end = run[0].offset, run[-1].offset + run[-1].length
        content = await shelf.store.get_range(key, start, end - start)
        if content is None:
            raise Damaged(f"pack {pack} is missing", pack=pack)
        for frame in run:
            at = frame.offset - start
            yield await asyncio.to_thread(_checked, pack, frame, content[at : at + frame.length])


def _checked(pack: str, frame: PackedFrame, data: bytes) -> tuple[Frame, Contents]:
    whole = read_frame(pack, frame, data)
    try:
        return whole, unpack(whole)
    except BadEntry as error:
        raise Damaged(f"pack {pack}: {error}", pack=pack) from error
