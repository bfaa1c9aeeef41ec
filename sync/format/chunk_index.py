"""Which chunks of a user are stored already, and where. Pure.

It holds what the packs' own indices say, so it can always be made anew, and knowing too little only means that
something is sent twice. Knowing too much would be a hole in a snapshot, so whoever looks something up says which packs
are marked (the collector may remove them, or they were found damaged): what lies there does not count as stored.
"""

from collections.abc import Container, Sequence

from sync.format.manifest import ChunkPlace
from sync.format.pack import PackedFrame


class ChunkIndex:
    """About 300 bytes a chunk; whoever holds catalogues of many users lets the oldest go."""

    def __init__(self) -> None:
        self._places: dict[bytes, ChunkPlace] = {}
        self._packs: dict[str, Sequence[PackedFrame]] = {}

    def __contains__(self, pack: str) -> bool:
        return pack in self._packs

    def __len__(self) -> int:
        return len(self._places)

    def add(self, pack: str, frames: Sequence[PackedFrame]) -> None:
        """`pack` is stored and holds these frames. What is found in two packs is found in the newer one."""
        self._packs[pack] = frames
        for frame in frames:
            place = ChunkPlace(pack, frame)
            for chunk in frame.chunks:
                self._places[chunk.id] = place

    def drop(self, pack: str) -> None:
        """`pack` is gone, or not to be relied on."""
        for frame in self._packs.pop(pack, ()):
            for chunk in frame.chunks:
                place = self._places.get(chunk.id)
                if place is not None and place.pack == pack:
                    del self._places[chunk.id]

    def find(self, chunk: bytes, marked: Container[str]) -> ChunkPlace | None:
        """Where the chunk lies; None if it has to be stored (again)."""
        place = self._places.get(chunk)
        return None if place is None or place.pack in marked else place
