"""A manifest: one tree, or its changes since another one, and where each of its chunks is. Pure.

    "HFM1"  zstd(MessagePack of `Manifest`)

A manifest is named by the BLAKE3 hash of its bytes; its salt makes the name unique. Most manifests are differences:
they name their `bases`, the removed paths and the new entries, so that a generation costs what changed. A row of
differences begins with a whole tree. A new row begins when one has grown too long, or keeps too much content that was
changed or removed since (`wants_whole`). A manifest says where the content of its own entries is: `packs`, frames in
packs, chunks in frames. An entry names its chunks by their number among all chunks of all frames; a negative number
is a hole of so many bytes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import msgspec
import zstandard
from blake3 import blake3

from sandbox.protocol.entry import ROOTS, BadEntry, Chunk, Entry, Kind, check_entry, check_path
from sync.errors import Damaged, TooLarge
from sync.format.pack import PackedFrame, inflate

MAGIC = b"HFM1"
FORMAT = 1
MAX_MANIFEST = 1 << 30  # bytes, unpacked
MAX_DEPTH = 64  # differences in a row
SMALL_ROW = 128 << 10  # bytes of differences that are never worth a whole manifest
SMALL_WASTE = 64 << 20  # bytes of content that are never worth one


class ChunkPlace(NamedTuple):
    """Where a chunk is: in which frame of which pack."""

    pack: str
    frame: PackedFrame


class _Entry(msgspec.Struct, array_like=True, frozen=True):
    path: bytes
    kind: int
    mode: int
    mtime_ns: int
    size: int
    target: bytes
    chunks: tuple[int, ...]
    unsettled: bool


class Manifest(msgspec.Struct, array_like=True, frozen=True):
    format: int
    bases: tuple[str, ...]  # it is a difference from these, the whole tree first; () for a whole tree
    packs: tuple[str, ...]
    frames: tuple[tuple[int, int, int, tuple[Chunk, ...]], ...]  # pack, offset, length, chunks
    removed: tuple[bytes, ...]
    entries: tuple[_Entry, ...]
    skipped: tuple[bytes, ...]  # sockets, FIFOs, devices that were there; only some are named
    skipped_count: int
    salt: bytes


class ManifestHead(msgspec.Struct, array_like=True, frozen=True):
    """The part of a manifest that a collector needs."""

    format: int
    bases: tuple[str, ...]
    packs: tuple[str, ...]


@dataclass(slots=True)
class StoredTree:
    """A whole tree, built from a row of manifests. Every chunk that an entry names has a place."""

    entries: dict[bytes, Entry] = field(default_factory=dict)
    places: dict[bytes, ChunkPlace] = field(default_factory=dict)
    skipped: tuple[bytes, ...] = ()
    skipped_count: int = 0

    def apply(self, manifest: Manifest) -> None:
        """Raises BadEntry, IndexError."""
        chunks: list[Chunk] = []
        for number, offset, length, inside in manifest.frames:
            if min(number, offset, length) < 0:
                raise BadEntry("a frame that cannot be")
            place = ChunkPlace(manifest.packs[number], PackedFrame(offset, length, inside))
            for chunk in inside:
                self.places[chunk.id] = place
            chunks += inside
        for path in manifest.removed:
            check_path(path)
            self.entries.pop(path, None)
        for stored in manifest.entries:
            entry = Entry(
                stored.path,
                stored.kind,
                stored.mode,
                stored.mtime_ns,
                stored.size,
                stored.target,
                tuple([chunks[number] if number >= 0 else Chunk(b"", -number) for number in stored.chunks]),
                stored.unsettled,
            )
            check_entry(entry)
            self.entries[entry.path] = entry
        self.skipped, self.skipped_count = manifest.skipped, manifest.skipped_count

    @property
    def files(self) -> int:
        return sum(entry.kind != Kind.DIRECTORY for entry in self.entries.values())

    @property
    def total_bytes(self) -> int:
        return sum(entry.size for entry in self.entries.values())


@dataclass(frozen=True, slots=True)
class Change:
    """The difference between two trees: new and changed entries, and removed paths."""

    entries: Sequence[Entry]
    removed: Sequence[bytes]
    skipped: tuple[bytes, ...] = ()
    skipped_count: int = 0

    def __bool__(self) -> bool:
        return bool(self.entries or self.removed)


def difference(before: Mapping[bytes, Entry], after: Mapping[bytes, Entry]) -> Change:
    """The change that turns `before` into `after`."""
    changed = [entry for path, entry in after.items() if before.get(path) != entry]
    return Change(changed, [path for path in before if path not in after])


def check_tree(entries: Mapping[bytes, Entry]) -> None:
    """Raise BadEntry unless each of these entries is in a root, or in a directory that is one of them."""
    for path in entries:
        above = path.rpartition(b"/")[0]
        if above not in ROOTS and ((parent := entries.get(above)) is None or parent.kind != Kind.DIRECTORY):
            raise BadEntry("an entry that lies in no directory")


def compose(change: Change, places: Mapping[bytes, ChunkPlace], bases: tuple[str, ...], salt: bytes) -> Manifest:
    """The manifest of `change`. Every chunk that its entries name must have a place. Raises BadEntry if a chunk has
    another size there."""
    packs: dict[str, int] = {}
    frames: set[tuple[str, int]] = set()  # pack and offset
    rows: list[tuple[int, int, int, tuple[Chunk, ...]]] = []
    numbers: dict[Chunk, int] = {}
    count = 0
    for entry in change.entries:
        for chunk in entry.chunks:
            if not chunk.id or chunk in numbers:
                continue
            pack, frame = places[chunk.id]
            if (pack, frame.offset) not in frames:
                frames.add((pack, frame.offset))
                rows.append((packs.setdefault(pack, len(packs)), frame.offset, frame.length, frame.chunks))
                for inside in frame.chunks:
                    numbers.setdefault(inside, count)
                    count += 1
            if chunk not in numbers:
                raise BadEntry("a chunk of another size than it has")
    entries = tuple(
        [
            _Entry(
                entry.path,
                entry.kind,
                entry.mode,
                entry.mtime_ns,
                entry.size,
                entry.target,
                tuple([numbers[chunk] if chunk.id else -chunk.size for chunk in entry.chunks]),
                entry.unsettled,
            )
            for entry in change.entries
        ]
    )
    removed, skipped = tuple(change.removed), change.skipped
    return Manifest(FORMAT, bases, tuple(packs), tuple(rows), removed, entries, skipped, change.skipped_count, salt)


def encode(manifest: Manifest) -> tuple[str, bytes]:
    """Its name and its bytes. Raises TooLarge if no reader would accept it."""
    plain = msgspec.msgpack.encode(manifest)
    if len(plain) > MAX_MANIFEST:
        raise TooLarge("the workspace has too many files and chunks for one manifest")
    content = MAGIC + zstandard.compress(plain, 3)
    return blake3(content).hexdigest(), content


def decode(name: str, content: bytes) -> Manifest:
    """Raises Damaged."""
    return _decode(name, content, _whole)


def decode_head(name: str, content: bytes) -> ManifestHead:
    """Raises Damaged."""
    return _decode(name, content, _head)


T = TypeVar("T", Manifest, ManifestHead)
_whole: msgspec.msgpack.Decoder[Manifest] = msgspec.msgpack.Decoder(Manifest)
_head: msgspec.msgpack.Decoder[ManifestHead] = msgspec.msgpack.Decoder(ManifestHead)


def _decode(name: str, content: bytes, decoder: "msgspec.msgpack.Decoder[T]") -> T:
    if blake3(content).hexdigest() != name or content[:4] != MAGIC:
        raise _damaged(name, "it is not what its name says")
    try:
        manifest = decoder.decode(inflate(content[4:], MAX_MANIFEST))
    except (zstandard.ZstdError, msgspec.DecodeError, RecursionError) as error:
        raise _damaged(name, "it cannot be read") from error
    if manifest.format != FORMAT:
        raise _damaged(name, f"format {manifest.format} is of a newer version")
    return manifest


def put_together(row: Iterable[tuple[str, Manifest]]) -> StoredTree:
    """The tree of a row of manifests (name, manifest), the whole one first. Raises Damaged."""
    tree, at = StoredTree(), ""
    try:
        for name, manifest in row:
            at = name
            tree.apply(manifest)
        check_tree(tree.entries)
    except (BadEntry, IndexError) as error:
        raise _damaged(at, str(error)) from error
    return tree


def wants_whole(depth: int, row_bytes: int, whole_bytes: int, *, held_bytes: int, tree_bytes: int) -> bool:
    """Whether a row of `depth` differences, `row_bytes` in all, should be followed by a whole manifest: it is long,
    or longer than a whole one, or the content that it protects from collection (`held_bytes`) is far more than the
    tree has now."""
    if depth >= MAX_DEPTH or row_bytes > max(whole_bytes, SMALL_ROW):
        return True
    return held_bytes > 2 * tree_bytes + SMALL_WASTE


def _damaged(name: str, why: str) -> Damaged:
    return Damaged(f"manifest {name}: {why}", manifest=name)
