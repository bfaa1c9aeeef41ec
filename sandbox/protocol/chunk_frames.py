"""Chunks compressed together. Pure: the sender of a frame packs it, the receiver unpacks it.

Small files compress badly alone and well together, so chunks share frames. A frame is small enough to be fetched for
one of its chunks.
"""

import threading
from collections.abc import Iterable, Iterator, Sequence

import zstandard

from sandbox.protocol.entry import MAX_CHUNK, BadEntry, Chunk, Frame, check_chunks, chunk_id

FRAME_BYTES = 512 << 10  # uncompressed; a larger chunk has a frame of its own
LEVEL = 3


class _Tools(threading.local):
    """Making them costs more than using them once, and none may be used by two threads at a time."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=LEVEL)
        self.decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_CHUNK)


_tools = _Tools()


def pack(contents: Sequence[tuple[Chunk, bytes]]) -> Frame:
    """One frame of these chunks, of at most MAX_CHUNK bytes together."""
    data = _tools.compressor.compress(b"".join([content for _, content in contents]))
    return Frame(tuple([chunk for chunk, _ in contents]), data)


def groups(contents: Iterable[tuple[Chunk, bytes]]) -> Iterator[list[tuple[Chunk, bytes]]]:
    """`contents` in the same order, grouped into frames."""
    group: list[tuple[Chunk, bytes]] = []
    size = 0
    for chunk, content in contents:
        if group and size + chunk.size > FRAME_BYTES:
            yield group
            group, size = [], 0
        group.append((chunk, content))
        size += chunk.size
    if group:
        yield group


def unpack(frame: Frame) -> list[memoryview]:
    """The bytes of each chunk of `frame`. Raises BadEntry unless they match the chunks exactly. Takes no more memory
    than a frame of ours needs, whatever the data claim to be."""
    check_chunks(frame.chunks)
    total = sum(chunk.size for chunk in frame.chunks)
    if not frame.chunks or not all(chunk.id for chunk in frame.chunks) or total > MAX_CHUNK:
        raise BadEntry("a frame that cannot be")
    content = memoryview(_decompress(frame.data, total))
    pieces: list[memoryview] = []
    start = 0
    for chunk in frame.chunks:
        piece = content[start : start + chunk.size]
        if chunk_id(piece) != chunk.id:
            raise BadEntry("a chunk that is not what its name says")
        pieces.append(piece)
        start += chunk.size
    return pieces


def _decompress(data: bytes, total: int) -> bytes:
    try:
        if zstandard.get_frame_parameters(data).content_size != total:
            raise BadEntry("a frame of another size than its chunks")
        return _tools.decompressor.decompress(data, max_output_size=total, allow_extra_data=False)
    except zstandard.ZstdError:
        raise BadEntry("a frame that cannot be decompressed") from None
