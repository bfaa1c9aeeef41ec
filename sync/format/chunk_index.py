"""Which chunks of a user are stored already, and where. Pure.

It repeats the packs' own indices, so it can always be rebuilt. If it knows too little, something is only sent twice.
If it knew too much, a snapshot would have a hole. So each lookup names the marked packs (the collector may delete
them, or they are damaged), and a chunk in one of those does not count as stored.
"""

from collections.abc import Container, Sequence

from sync.format.manifest import ChunkPlace
from sync.format.pack import PackedFrame


class ChunkIndex:
    """About 300 bytes a chunk. A caller with catalogues of many users drops the oldest."""

    def __init__(self) -> None:
        self._places: dict[bytes, ChunkPlace] = {}
        self._packs: dict[str, Sequence[PackedFrame]] = {}

    def __contains__(self, pack: str) -> bool:
        return pack in self._packs

    def __len__(self) -> int:
        return len(self._places)

    def add(self, pack: str, frames: Sequence[PackedFrame]) -> None:
        """`pack` is stored and holds these frames. A chunk in two packs is found in the newer one."""
        self._packs[pack] = frames
        for frame in frames:
            place = ChunkPlace(pack, frame)
            for chunk in frame.chunks:
                self._places[chunk.id] = place

    def drop(self, pack: str) -> None:
        """`pack` is gone, or unreliable."""
        for frame in self._packs.pop(pack, ()):
            for chunk in frame.chunks:
                place = self._places.get(chunk.id)
                if place is not None and place.pack == pack:
                    del self._places[chunk.id]

    def find(self, chunk: bytes, marked: Container[str]) -> ChunkPlace | None:
        """Where the chunk is; None if it must be stored (again)."""
        place = self._places.get(chunk)
        return None if place is None or place.pack in marked else place
