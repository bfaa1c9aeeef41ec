"""A pack: frames of compressed chunks, one after the other, and at its end an index of them. Pure.

    "HFP1"  salt (16)  frame  frame  ...  index (MessagePack, zstd)  its length (4, little-endian)  its hash (16) "HFPX"

A pack is named by the BLAKE3 hash of all its bytes: it matches its name, or it is damaged. The salt, new for each
pack, gives it a new name: content that is stored again because its old pack is about to be deleted must not be
deleted with it. A reader with a manifest needs no index, because manifests say where each frame is. The index is for
finding content to reuse.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import zstandard
from blake3 import blake3

from sandbox.protocol.entry import BadEntry, Chunk, Frame, check_chunks
from sync.errors import Damaged

HEAD, TAIL = b"HFP1", b"HFPX"
SALT = 16
FOOTER = 24
TARGET_BYTES = 8 << 20  # a pack of this size is uploaded
MAX_CHUNKS = 20_000  # or one with so many chunks
MAX_INDEX = 16 << 20


class PackedFrame(NamedTuple):
    """Where a frame is in its pack, and its chunks."""

    offset: int
    length: int
    chunks: tuple[Chunk, ...]


class _Index(msgspec.Struct, array_like=True, frozen=True):
    frames: list[PackedFrame]


class PackBuilder:
    """A pack in the making. It holds its content in memory: at most about TARGET_BYTES and one frame."""

    def __init__(self, salt: bytes) -> None:
        """`salt` is SALT bytes that no other pack has."""
        self._parts: list[bytes] = [HEAD, salt]
        self._size = len(HEAD) + len(salt)
        self._chunks = 0
        self.frames: list[PackedFrame] = []

    @property
    def full(self) -> bool:
        return self._size >= TARGET_BYTES or self._chunks >= MAX_CHUNKS

    def add(self, frame: Frame) -> None:
        self.frames.append(PackedFrame(self._size, len(frame.data), frame.chunks))
        self._parts.append(frame.data)
        self._size += len(frame.data)
        self._chunks += len(frame.chunks)

    def seal(self) -> tuple[str, bytes]:
        """The finished pack: its name and its bytes. Call it once: it drops the content."""
        index = zstandard.compress(msgspec.msgpack.encode(_Index(self.frames)))
        parts, self._parts = self._parts, []
        content = b"".join([*parts, index, len(index).to_bytes(4, "little"), _short_hash(index), TAIL])
        return blake3(content).hexdigest(), content


def _short_hash(content: bytes) -> bytes:
    return blake3(content).digest(length=16)


def index_length(name: str, footer: bytes) -> int:
    """The length of the index in front of the footer (the pack's last FOOTER bytes). Raises Damaged."""
    length = int.from_bytes(footer[:4], "little")
    if len(footer) != FOOTER or footer[20:] != TAIL or length > MAX_INDEX:
        raise _damaged(name, "it has no end")
    return length


def read_index(name: str, index: bytes, footer: bytes, size: int) -> Sequence[PackedFrame]:
    """The frames of a pack of `size` bytes. Raises Damaged."""
    if _short_hash(index) != footer[4:20]:
        raise _damaged(name, "its index has changed")
    end = size - FOOTER - len(index)
    try:
        frames = msgspec.msgpack.decode(inflate(index, MAX_INDEX), type=_Index).frames
        for frame in frames:
            check_chunks(frame.chunks)
            if not len(HEAD) + SALT <= frame.offset < frame.offset + frame.length <= end:
                raise BadEntry("a frame outside of it")
            if not all(chunk.id for chunk in frame.chunks):
                raise BadEntry("a hole in it")
    except (zstandard.ZstdError, msgspec.DecodeError, BadEntry) as error:
        raise _damaged(name, "its index cannot be read") from error
    return frames


def read_frame(name: str, frame: PackedFrame, data: bytes) -> Frame:
    """The frame in `data`, which was read at its place. Raises Damaged if it is short."""
    if len(data) != frame.length:
        raise _damaged(name, "it is shorter than it was")
    return Frame(frame.chunks, data)


def inflate(content: bytes, limit: int) -> bytes:
    """Decompress data that declares at most `limit` bytes. Raises zstandard.ZstdError."""
    if not 0 <= zstandard.frame_content_size(content) <= limit:
        raise zstandard.ZstdError("it does not say its size, or is too large")
    return zstandard.ZstdDecompressor().decompress(content)


def _damaged(name: str, why: str) -> Damaged:
    return Damaged(f"pack {name}: {why}", pack=name)
