"""Manifests: a row of differences adds up to the last tree, and damage is noticed or changes nothing."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any

import msgspec
import pytest
import zstandard
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from sandbox.protocol.entry import BadEntry, Chunk, Entry, Kind
from sync.errors import Damaged, SyncFailed
from sync.format import manifest as manifests
from sync.format.manifest import (
    FORMAT,
    MAGIC,
    MAX_DEPTH,
    MAX_MANIFEST,
    SMALL_ROW,
    SMALL_WASTE,
    Change,
    ChunkPlace,
    StoredTree,
    check_tree,
    compose,
    decode,
    decode_head,
    difference,
    encode,
    put_together,
    wants_whole,
)
from sync.format.pack import PackedFrame

Tree = dict[bytes, Entry]
SALT = b"s" * 16
CHUNKS = [Chunk(bytes([number]) * 32, number + 1) for number in range(8)]
FRAMES = [PackedFrame(100 * number, 50, tuple(CHUNKS[number : number + 3])) for number in range(6)]
PLACES = {
    chunk.id: ChunkPlace(f"{number % 2:064x}", frame) for number, frame in enumerate(FRAMES) for chunk in frame.chunks
}

names = st.sampled_from([b"a", b"b", b"\xff\n", b"n" * 255])
modes, times = st.integers(0, 0o777), st.integers(-(1 << 63) + 1, (1 << 63) - 1)
rows = st.lists(st.sampled_from(CHUNKS) | st.builds(Chunk, st.just(b""), st.integers(1, 1 << 40)), max_size=4).filter(
    lambda row: all(one.id or other.id for one, other in pairwise(row))
)  # two holes in a row are one


@st.composite
def entries(draw: st.DrawFn, path: bytes) -> Entry:
    match draw(st.sampled_from(Kind)):
        case Kind.FILE:
            row = tuple(draw(rows))
            size, unsettled = sum(chunk.size for chunk in row), draw(st.booleans())
            return Entry(path, Kind.FILE, draw(modes), draw(times), size, b"", row, unsettled)
        case Kind.SYMLINK:
            return Entry(
                path, Kind.SYMLINK, draw(modes), draw(times), 0, draw(st.sampled_from([b"/x", b"..", b"\xff"]))
            )
        case _:
            return Entry(path, Kind.DIRECTORY, draw(modes), draw(times))


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    tree: Tree = {}
    for root in (b"workspace", b"agent"):
        above = [root]
        for _ in range(draw(st.integers(0, 5))):
            path = draw(st.sampled_from(above)) + b"/" + draw(names)
            if path not in tree:
                tree[path] = draw(entries(path))
                if tree[path].kind == Kind.DIRECTORY:
                    above.append(path)
    return tree


def stored(
    change: Change, bases: tuple[str, ...] = (), places: Mapping[bytes, ChunkPlace] = PLACES
) -> tuple[str, bytes]:
    return encode(compose(change, places, bases, SALT))


def whole(tree: Tree) -> Change:
    return difference({}, tree)


def read(row: Iterable[tuple[str, bytes]]) -> StoredTree:
    return put_together([(name, decode(name, content)) for name, content in row])


@given(st.lists(trees(), min_size=1, max_size=5))
def test_a_row_of_differences_adds_up_to_the_last_tree(history: list[Tree]) -> None:
    row = [stored(whole(history[0]))]
    for before, after in pairwise(history):
        row.append(stored(difference(before, after), tuple(name for name, _ in row)))
    tree = read(row)
    assert tree.entries == history[-1]
    assert tree.files == sum(entry.kind != Kind.DIRECTORY for entry in history[-1].values())
    assert tree.total_bytes == sum(entry.size for entry in history[-1].values())
    for entry in tree.entries.values():
        for chunk in entry.chunks:
            if chunk.id:
                assert chunk in tree.places[chunk.id].frame.chunks
    assert decode_head(*row[-1]).bases == tuple(name for name, _ in row[:-1])
    assert set(decode_head(*row[-1]).packs) <= {place.pack for place in PLACES.values()}


@given(trees(), trees())
def test_a_difference_is_empty_exactly_between_equal_trees(one: Tree, other: Tree) -> None:
    assert bool(difference(one, other)) == (one != other)


def test_a_manifest_names_only_the_packs_it_needs_and_a_frame_once() -> None:
    entry = Entry(b"workspace/f", Kind.FILE, 0o644, 0, 4, b"", (CHUNKS[0], CHUNKS[0], CHUNKS[1]))
    manifest = compose(Change([entry, msgspec.structs.replace(entry, path=b"workspace/g")], []), PLACES, (), SALT)
    pack, frame = PLACES[CHUNKS[0].id]
    assert CHUNKS[1] in frame.chunks
    assert manifest.packs == (pack,)
    assert manifest.frames == ((0, frame.offset, frame.length, frame.chunks),)


def test_the_same_tree_with_another_salt_has_another_name() -> None:
    change = whole({b"agent/f": Entry(b"agent/f", Kind.FILE, 0o644, 0)})
    one, other = (encode(compose(change, {}, (), salt))[0] for salt in (b"1", b"2"))
    assert one != other


def test_what_was_skipped_is_told_by_the_last_of_a_row() -> None:
    first = stored(Change([], [], (b"workspace/socket",), 1))
    tree = read([first, stored(Change([], [], (b"agent/fifo",), 7), (first[0],))])
    assert (tree.skipped, tree.skipped_count) == ((b"agent/fifo",), 7)


def test_a_chunk_that_is_named_with_another_size_than_it_has_is_refused() -> None:
    right = Entry(b"workspace/e", Kind.FILE, 0o644, 0, CHUNKS[0].size, b"", (CHUNKS[0],))
    wrong = Entry(b"workspace/f", Kind.FILE, 0o644, 0, 9, b"", (Chunk(CHUNKS[0].id, 9),))
    for entries in ([wrong], [right, wrong]):
        with pytest.raises(BadEntry, match="another size"):
            compose(Change(entries, []), PLACES, (), SALT)


@pytest.mark.parametrize(
    "paths",
    [
        [(b"workspace", Kind.DIRECTORY)],
        [(b"workspace/d/f", Kind.FILE)],
        [(b"workspace/d", Kind.FILE), (b"workspace/d/f", Kind.FILE)],
        [(b"workspace/d", Kind.SYMLINK), (b"workspace/d/f", Kind.FILE)],
    ],
)
def test_entries_that_lie_in_no_directory_are_no_tree(paths: list[tuple[bytes, Kind]]) -> None:
    tree = {path: Entry(path, kind, 0o755, 0, 0, b"x" if kind == Kind.SYMLINK else b"") for path, kind in paths}
    with pytest.raises(BadEntry, match="no directory"):
        check_tree(tree)
    with pytest.raises(Damaged, match="no directory"):
        read([stored(whole(tree))])


def test_every_flipped_bit_and_every_cut_is_noticed() -> None:
    tree = {
        b"workspace/f": Entry(b"workspace/f", Kind.FILE, 0o644, 5, CHUNKS[3].size, b"", (CHUNKS[3],)),
        b"workspace/l": Entry(b"workspace/l", Kind.SYMLINK, 0o777, 5, 0, b"f"),
    }
    name, content = stored(whole(tree))
    for place in range(len(content)):
        for bit in range(8):
            flipped = bytearray(content)
            flipped[place] ^= 1 << bit
            for reading in (decode, decode_head):
                with pytest.raises(Damaged, match=f"manifest {name}") as caught:
                    reading(name, bytes(flipped))
                assert caught.value.manifest == name
        with pytest.raises(Damaged):
            decode(name, content[:place])


def named(content: bytes) -> tuple[str, bytes]:
    """Content under the name that it should have: what no accident makes."""
    return blake3(content).hexdigest(), content


numbers = st.integers(-3, 10) | st.integers(-(1 << 63), (1 << 63) - 1)
any_chunks = st.lists(st.tuples(st.sampled_from([b"", b"i" * 32, b"short"]), numbers), max_size=3)
any_entries = st.tuples(
    st.sampled_from([b"", b"workspace/a", b"workspace/a/b", b"agent/../x", b"/etc", b"workspace", b"agent/\0"]),
    st.integers(-1, 4),
    numbers,
    numbers,
    numbers,
    st.sampled_from([b"", b"x"]),
    st.lists(numbers, max_size=3),
    st.booleans(),
)
any_manifests = st.tuples(
    st.just(FORMAT),
    st.just(()),
    st.lists(st.just("0" * 64), max_size=2),
    st.lists(st.tuples(numbers, numbers, numbers, any_chunks), max_size=3),
    st.lists(st.sampled_from([b"workspace/a", b"..", b""]), max_size=1),
    st.lists(any_entries, max_size=3),
    st.just(()),
    numbers,
    st.just(SALT),
)


@given(any_manifests)
def test_a_manifest_that_says_what_cannot_be_is_damaged_or_a_tree(members: tuple[Any, ...]) -> None:
    name, content = named(MAGIC + zstandard.compress(msgspec.msgpack.encode(members)))
    with suppress(Damaged):
        check_tree(read([(name, content)]).entries)


@given(st.binary(max_size=100))
def test_what_is_no_manifest_is_damaged_and_never_a_crash(plain: bytes) -> None:
    for content in (plain, MAGIC + plain, MAGIC + zstandard.compress(plain)):
        for reading in (decode, decode_head):
            with pytest.raises(Damaged):
                reading(*named(content))


def test_nesting_without_end_is_damaged() -> None:
    deep = b"\x99\x01\x90\x90" + b"\x91" * 200_000
    for reading in (decode, decode_head):
        with pytest.raises(Damaged):
            reading(*named(MAGIC + zstandard.compress(deep)))


def test_a_manifest_of_a_newer_version_says_so() -> None:
    name, content = stored(Change([], []))
    manifest = msgspec.structs.replace(decode(name, content), format=FORMAT + 1)
    with pytest.raises(Damaged, match="newer version"):
        decode(*encode(manifest))


def test_a_manifest_that_would_fill_the_memory_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    name, content = stored(Change([], [b"workspace/" + b"x" * 200]))
    monkeypatch.setattr(manifests, "MAX_MANIFEST", 100)
    with pytest.raises(Damaged):
        decode(name, content)
    assert MAX_MANIFEST > 1 << 20


def test_a_new_row_is_begun_when_one_is_long_or_has_grown_larger_than_a_whole() -> None:
    wants = partial(wants_whole, held_bytes=0, tree_bytes=0)
    assert not wants(MAX_DEPTH - 1, 0, 0)
    assert wants(MAX_DEPTH, 0, 0)
    assert not wants(1, SMALL_ROW, 0)
    assert wants(1, SMALL_ROW + 1, 0)
    assert not wants(1, SMALL_ROW + 1, SMALL_ROW + 1)


def test_a_new_row_is_begun_when_one_keeps_much_more_than_the_tree_has() -> None:
    wants = partial(wants_whole, 1, 0, 0)
    assert not wants(held_bytes=SMALL_WASTE, tree_bytes=0)
    assert wants(held_bytes=SMALL_WASTE + 1, tree_bytes=0)
    assert not wants(held_bytes=SMALL_WASTE + 200, tree_bytes=100)
    assert wants(held_bytes=SMALL_WASTE + 201, tree_bytes=100)


def test_manifests_are_what_they_were() -> None:
    """The format is a promise: whoever changes this changes FORMAT, and reads the old one as well."""
    entry = Entry(b"workspace/f", Kind.FILE, 0o644, 5, CHUNKS[0].size, b"", (CHUNKS[0],))
    manifest = compose(Change([entry], [b"agent/x"], (b"agent/s",), 2), PLACES, ("0" * 64,), SALT)
    plain = msgspec.msgpack.decode(msgspec.msgpack.encode(manifest))
    pack, frame = PLACES[CHUNKS[0].id]
    assert plain == [
        1,
        ["0" * 64],
        [pack],
        [[0, frame.offset, frame.length, [[chunk.id, chunk.size] for chunk in frame.chunks]]],
        [b"agent/x"],
        [[b"workspace/f", 0, 0o644, 5, 1, b"", [0], False]],
        [b"agent/s"],
        2,
        SALT,
    ]


def test_a_manifest_that_nobody_could_read_again_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = compose(Change([Entry(b"workspace/a", Kind.DIRECTORY, 0o755, 0)], []), {}, (), b"salt")
    encode(manifest)
    monkeypatch.setattr(manifests, "MAX_MANIFEST", 10)
    with pytest.raises(SyncFailed, match="too many files") as failed:
        encode(manifest)
    assert failed.value.permanent
