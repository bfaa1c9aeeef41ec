"""The last remembered tree, in memory, with the stamps of its entries. Pure.

It is made for one question, asked for each of many thousands of names: is this one unchanged? So each directory has
the stamps of its children in one dict, and the rest beside it. Names are text as `os.fsdecode` makes it, because that
is how the system lists them; paths are bytes only where they leave this process.

A tree changes by sections, one for each directory in which something is different. The cache file holds the same
sections, so a tree read from there has gone the same way as the one in memory.
"""

import stat
from collections.abc import Iterable, Iterator, Mapping
from os import fsdecode, fsencode
from typing import Final

import msgspec

from sandbox.protocol.entry import MODE_BITS, ROOTS, Chunk, Entry, Kind
from sandbox.tree.stat_stamp import (
    DOUBT,
    MODE,
    MTIME,
    SIZE,
    UNSETTLED,
    YOUNG,
    Stamp,
    kept_mtime,
    possible,
    renumbered,
    written_at,
)

KINDS: Final = {stat.S_IFREG: Kind.FILE, stat.S_IFDIR: Kind.DIRECTORY, stat.S_IFLNK: Kind.SYMLINK}
_TYPE_BITS: Final = 0o170000
_TYPES: Final = {kind: file_type for file_type, kind in KINDS.items()}

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[Chunk, ...])


class Section(msgspec.Struct, frozen=True, array_like=True):
    """The differences in the directory `path`. Names are joined by `/`, which none of them contains."""

    path: bytes
    data_bytes: int  # of the files in it afterwards
    names: bytes
    stamps: list[tuple[int, ...]]
    contents: list[bytes | None]  # of a file its packed chunks, of a symlink its target, of a directory nothing
    gone: bytes = b""


class Directory:
    """`contents` has the files and symlinks, `dirs` the directories, `stamps` both."""

    __slots__ = ("contents", "data_bytes", "dirs", "stamps")

    def __init__(self) -> None:
        self.stamps: dict[str, Stamp] = {}
        self.contents: dict[str, bytes] = {}
        self.dirs: dict[str, Directory] = {}
        self.data_bytes = 0

    def put(self, name: str, stamp: Stamp, content: bytes | None) -> None:
        self.stamps[name] = stamp
        if content is None:
            self.contents.pop(name, None)
            self.dirs.setdefault(name, Directory())
        else:
            self.dirs.pop(name, None)
            self.contents[name] = content

    def remove(self, name: str) -> None:
        del self.stamps[name]
        self.contents.pop(name, None)
        self.dirs.pop(name, None)

    def data_bytes_of(self, name: str) -> int:
        """The bytes of content of the child `name`, if it is a file."""
        content = self.contents.get(name)
        if content is None or not stat.S_ISREG(self.stamps[name][MODE]):
            return 0
        return data_bytes(unpack_chunks(content))

    @property
    def all_files(self) -> int:
        """How many files and symlinks are in it, at any depth."""
        return sum(len(inner.contents) for _, inner in self.below(""))

    def below(self, path: str) -> Iterator[tuple[str, "Directory"]]:
        """This directory, called `path`, and every directory in it, parents first."""
        waiting = [(path, self)]
        while waiting:
            at, directory = waiting.pop()
            yield at, directory
            waiting.extend((f"{at}/{name}", inner) for name, inner in directory.dirs.items())


class TreeIndex:
    """`token` names it, None if it has no name yet; `rules` are the rules by which each root was read."""

    def __init__(self) -> None:
        self.token: str | None = None
        self.rules: dict[str, bytes] = {}
        self.roots = {fsdecode(root): Directory() for root in ROOTS}

    def find(self, path: str) -> Directory:
        """Raises KeyError if there is no such directory."""
        root, *names = path.split("/")
        directory = self.roots[root]
        for name in names:
            directory = directory.dirs[name]
        return directory

    def apply(self, sections: Iterable[Section]) -> None:
        """Raises KeyError or ValueError if they do not fit; then the tree is of no use any more."""
        for section in sections:
            directory = self.find(fsdecode(section.path))
            for name in split_names(section.gone):
                directory.remove(name)
            names = split_names(section.names)
            for name, stamp, content in zip(names, section.stamps, section.contents, strict=True):
                directory.put(name, stamp, content)
            directory.data_bytes = section.data_bytes

    def believe(self, path: str, found: Iterable[tuple[str, Stamp]], now_ns: int) -> None:
        """Take over the stamps found in `path` at `now_ns`, if the entries can be those of this tree."""
        try:
            directory = self.find(path)
        except KeyError:
            return
        for name, stamp in found:
            kept = directory.stamps.get(name)
            if kept is not None and is_same_entry(kept, stamp):
                if stat.S_ISDIR(stamp[MODE]):
                    directory.stamps[name] = possible(stamp)
                elif stat.S_ISLNK(stamp[MODE]) or kept[SIZE] == stamp[SIZE]:
                    directory.stamps[name] = written_at(stamp, now_ns)

    def renumber(self) -> None:
        """Files have other inodes than those that were kept."""
        for root, top in self.roots.items():
            for _, directory in top.below(root):
                directory.stamps = {name: renumbered(stamp) for name, stamp in directory.stamps.items()}

    def sections(self) -> Iterator[Section]:
        """All of it, as differences from nothing."""
        for root, top in self.roots.items():
            for path, directory in top.below(root):
                if directory.stamps:
                    contents = [directory.contents.get(name) for name in directory.stamps]
                    names, stamps = join_names(directory.stamps), list(directory.stamps.values())
                    yield Section(fsencode(path), directory.data_bytes, names, stamps, contents)


def tree_of(entries: Iterable[Entry]) -> TreeIndex:
    """A tree of these entries, none of whose stamps can be believed yet. Raises KeyError if a directory is missing."""
    tree = TreeIndex()
    for entry in sorted(entries, key=lambda entry: entry.path.count(b"/")):
        above, _, name = fsdecode(entry.path).rpartition("/")
        directory = tree.find(above)
        doubt = UNSETTLED if entry.unsettled else YOUNG
        mode = _TYPES[Kind(entry.kind)] | entry.mode
        directory.put(name, (mode, entry.size, entry.mtime_ns, 0, 0, doubt), _content(entry))
        directory.data_bytes += data_bytes(entry.chunks)
    return tree


def _content(entry: Entry) -> bytes | None:
    if entry.kind == Kind.FILE:
        return pack_chunks(entry.chunks)
    return entry.target if entry.kind == Kind.SYMLINK else None


def entry_of(path: bytes, stamp: Stamp, content: bytes | None) -> Entry:
    mode, mtime_ns = stamp[MODE] & MODE_BITS, kept_mtime(stamp[MTIME])
    if content is None:
        return Entry(path, Kind.DIRECTORY, mode, mtime_ns)
    if stat.S_ISLNK(stamp[MODE]):
        return Entry(path, Kind.SYMLINK, mode, mtime_ns, 0, content)
    chunks = unpack_chunks(content)
    return Entry(path, Kind.FILE, mode, mtime_ns, size_of(chunks), b"", chunks, is_unsettled(stamp))


def is_same_entry(one: Stamp, other: Stamp) -> bool:
    """Whether two stamps of equal content make the same entry."""
    same_mode = (one[MODE] ^ other[MODE]) & (_TYPE_BITS | MODE_BITS) == 0
    return same_mode and one[MTIME] == other[MTIME] and not is_unsettled(one) and not is_unsettled(other)


def is_unsettled(stamp: Stamp) -> bool:
    return UNSETTLED in stamp[DOUBT:]


def pack_chunks(chunks: Iterable[Chunk]) -> bytes:
    return _encoder.encode(tuple(chunks))


def unpack_chunks(packed: bytes) -> tuple[Chunk, ...]:
    return _decoder.decode(packed)


def data_bytes(chunks: Iterable[Chunk]) -> int:
    """The sizes of its files; holes take no room."""
    return sum(chunk.size for chunk in chunks if chunk.id)


def size_of(chunks: Iterable[Chunk]) -> int:
    return sum(chunk.size for chunk in chunks)


def join_names(names: Mapping[str, object] | Iterable[str]) -> bytes:
    return fsencode("/".join(names))


def split_names(names: bytes) -> list[str]:
    return fsdecode(names).split("/") if names else []
