"""Batches of a scan: the found entries and their content, in bounded pieces."""

import functools
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import Final

from sandbox.protocol.chunk_frames import groups, pack
from sandbox.protocol.entry import BadEntry, Chunk, Entry, Frame
from sandbox.protocol.tree import BATCH_BYTES, BATCH_ENTRIES, MAX_OFFERS, Batch, Offer

MESSAGE_BYTES: Final = 2 << 20  # about; one entry may be larger
_CHUNK_BYTES: Final = 42  # of a message, for a chunk or an offer
_ENTRY_BYTES: Final = 40
_COMPRESSORS: Final = 2


@functools.cache
def _compressors() -> ThreadPoolExecutor:
    """Compression is most of the work of a first scan, and needs no lock of the interpreter."""
    return ThreadPoolExecutor(_COMPRESSORS, "compress")


class PendingBatch:
    """A batch whose content waits in memory. Independent of the scan, which may go on meanwhile."""

    def __init__(self, message: Batch, contents: Sequence[tuple[Chunk, bytes]]) -> None:
        self.message = message
        self._contents = contents

    def frames(self, wanted: Sequence[int]) -> Iterator[Frame]:
        """The content of these offers, compressed. Raises BadEntry if one was not made."""
        return chain.from_iterable(job.result() for job in self.packing(wanted))

    def packing(self, wanted: Sequence[int]) -> list[Future[list[Frame]]]:
        """The same, as work under way: few pieces of it, as to wait for another thread costs more than to pack a
        frame."""
        if not all(0 <= number < len(self._contents) for number in wanted):
            raise BadEntry("something wanted that was not offered")
        grouped = list(groups(self._contents[number] for number in dict.fromkeys(wanted)))
        share = -(-len(grouped) // _COMPRESSORS) or 1
        shares = (grouped[start : start + share] for start in range(0, len(grouped), share))
        return [_compressors().submit(_pack_all, some) for some in shares]


def _pack_all(grouped: Sequence[Sequence[tuple[Chunk, bytes]]]) -> list[Frame]:
    return [pack(group) for group in grouped]


class BatchBuilder:
    """Collects a batch. Ask before an offer whether there is room, and after anything whether it is full."""

    def __init__(self) -> None:
        self._number = 0  # of the batch in the making
        self._begin()

    def _begin(self) -> None:
        self._entries: list[Entry] = []
        self._removed: list[bytes] = []
        self._contents: list[tuple[Chunk, bytes]] = []
        self._offered: set[bytes] = set()
        self._content_bytes = 0
        self._message_bytes = 0

    @property
    def is_empty(self) -> bool:
        return not self._message_bytes

    @property
    def is_full(self) -> bool:
        return len(self._entries) >= BATCH_ENTRIES or self._message_bytes >= MESSAGE_BYTES

    def has_room(self, chunk: Chunk) -> bool:
        if chunk.id in self._offered:
            return True
        return self._content_bytes + chunk.size <= BATCH_BYTES and len(self._contents) < MAX_OFFERS

    def offer(self, chunk: Chunk, content: bytes) -> None:
        """Once a batch for each chunk, however often it is called."""
        if chunk.id not in self._offered:
            self._offered.add(chunk.id)
            self._contents.append((chunk, content))
            self._content_bytes += chunk.size
            self._message_bytes += _CHUNK_BYTES

    def mark(self) -> tuple[int, int]:
        """Where the offers are now."""
        return self._number, len(self._contents)

    def take_back(self, mark: tuple[int, int]) -> None:
        """Forget the offers made since `mark`, unless a batch was taken meanwhile: its offers are made."""
        number, offers = mark
        if number != self._number:
            return
        for chunk, _ in self._contents[offers:]:
            self._offered.remove(chunk.id)
            self._content_bytes -= chunk.size
            self._message_bytes -= _CHUNK_BYTES
        del self._contents[offers:]

    def tell(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._message_bytes += _ENTRY_BYTES + len(entry.path) + len(entry.target) + _CHUNK_BYTES * len(entry.chunks)

    def tell_removed(self, path: bytes) -> None:
        self._removed.append(path)
        self._message_bytes += _ENTRY_BYTES + len(path)

    def take(self) -> PendingBatch:
        """The batch as it is; the next one begins empty."""
        offers = tuple([Offer(chunk.id, chunk.size) for chunk, _ in self._contents])
        batch = PendingBatch(Batch(tuple(self._entries), tuple(self._removed), offers), self._contents)
        self._number += 1
        self._begin()
        return batch
