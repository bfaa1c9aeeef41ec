"""Files cut into chunks, and chunks packed into frames and out again."""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from sandbox.protocol.chunk_frames import FRAME_BYTES, groups, pack, unpack
from sandbox.protocol.entry import MAX_CHUNK, BadEntry, Chunk, Entry, Frame, Kind, check_chunks, chunk_id
from sandbox.protocol.tree import BATCH_BYTES, BATCH_ENTRIES, Batch, encode
from sandbox.tree.batch import BatchBuilder
from sandbox.tree.chunker import (
    LARGE_FILE,
    ONE_CHUNK,
    SMALLEST_HOLE,
    WINDOW,
    Chunker,
    Piece,
    Swapped,
    Vanished,
    extents,
    open_file,
    read_link,
)

KIB, MIB = 1 << 10, 1 << 20


@contextmanager
def opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


def cut(path: Path, size: int | None = None) -> list[Piece]:
    status = path.stat()
    with opened(path) as fd:
        return list(Chunker().pieces(fd, status.st_size if size is None else size, status.st_blocks))


def joined(pieces: list[Piece]) -> bytes:
    return b"".join(content or bytes(chunk.size) for chunk, content in pieces)


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


# -- cutting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, ONE_CHUNK, ONE_CHUNK + 1, 200 * KIB, WINDOW - 1, WINDOW, WINDOW + 1, 7 * MIB])
def test_the_chunks_of_a_file_are_its_content(tmp_path: Path, size: int) -> None:
    path = tmp_path / "f"
    path.write_bytes(noise(size))
    pieces = cut(path)
    assert joined(pieces) == noise(size)
    assert all(chunk == Chunk(chunk_id(content), len(content)) for chunk, content in pieces)
    check_chunks(chunk for chunk, _ in pieces)
    assert len(pieces) == min(size, 1) if size <= ONE_CHUNK else len(pieces) <= size / (16 * KIB) + 1


def test_windows_make_no_cuts_of_their_own(tmp_path: Path) -> None:
    """What begins at another place in its window is cut at the same places."""
    path, moved = tmp_path / "f", tmp_path / "g"
    path.write_bytes(noise(9 * MIB))
    moved.write_bytes(noise(300 * KIB, seed=2) + noise(9 * MIB))
    ids, moved_ids = ({chunk.id for chunk, _ in cut(at)} for at in (path, moved))
    assert len(ids - moved_ids) <= 2


@pytest.mark.parametrize("seed", range(5))
def test_one_byte_in_a_large_file_changes_little(tmp_path: Path, seed: int) -> None:
    path, content = tmp_path / "f", bytearray(noise(20 * MIB))
    path.write_bytes(content)
    before = {chunk.id for chunk, _ in cut(path)}
    content[random.Random(seed).randrange(len(content))] ^= 1
    path.write_bytes(content)
    assert 0 < sum(chunk.size for chunk, _ in cut(path) if chunk.id not in before) <= 256 * KIB


def test_a_file_that_ends_early_is_what_it_was(tmp_path: Path) -> None:
    path = tmp_path / "f"
    for length, size in ((10, 100), (10, 5 * MIB), (0, 5 * MIB), (3 * MIB, 5 * MIB), (4 * MIB, 5 * MIB)):
        path.write_bytes(noise(length))
        assert joined(cut(path, size)) == noise(length)
        path.write_bytes(noise(size))
        assert joined(cut(path, length)) == noise(size)[:length]


def test_a_huge_sparse_file_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with path.open("wb") as file:
        file.seek(1 << 40)
        file.write(noise(300 * KIB))
        file.truncate((1 << 40) + (1 << 30))
    pieces = cut(path)
    assert sum(chunk.size for chunk, _ in pieces) == (1 << 40) + (1 << 30)
    assert sum(chunk.size for chunk, content in pieces if content) < 400 * KIB
    assert noise(300 * KIB) in b"".join(content for _, content in pieces)
    assert pieces[0] == (Chunk(b"", 1 << 40), b"")
    assert pieces[-1][0].id == b""


def test_a_large_file_has_large_chunks(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with path.open("wb") as file:
        file.write(noise(8 * MIB))
        file.truncate(LARGE_FILE)
    sizes = [chunk.size for chunk, content in cut(path) if content]
    assert sum(sizes) == 8 * MIB
    assert max(sizes) > 192 * KIB
    assert min(sizes[:-1]) >= 64 * KIB


@given(st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=8), st.integers(0, 9000))
def test_holes_are_found_and_small_ones_are_not(
    tmp_path_factory: pytest.TempPathFactory, runs: list[tuple[int, bool]], tail: int
) -> None:
    path = tmp_path_factory.mktemp("sparse") / "f"
    with path.open("wb") as file:
        for pages, is_data in runs:
            if is_data:
                file.write(b"d" * pages * 4096)
            else:
                file.seek(pages * 4096, os.SEEK_CUR)
        file.truncate(file.tell() + tail)
    content = path.read_bytes()
    with opened(path) as fd:
        found = list(extents(fd, len(content)))
    assert [start for start, _, _ in found] == [0, *(end for _, end, _ in found)][: len(found)]
    assert sum(end - start for start, end, _ in found) == len(content)
    for start, end, is_hole in found:
        assert not is_hole or (end - start >= SMALLEST_HOLE and not any(content[start:end]))
    assert joined(cut(path)) == content
    path.unlink()


def test_a_sparse_file_that_shrinks_while_it_is_read_ends(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with path.open("wb") as file:
        file.truncate(10 * MIB)
        with opened(path) as fd:
            reading = extents(fd, 20 * MIB)
            assert next(reading) == (0, 10 * MIB, True)
            file.truncate(0)
            assert list(reading) == [(10 * MIB, 20 * MIB, False)]
            assert list(Chunker().pieces(fd, 20 * MIB, 1)) == []


# -- opening ----------------------------------------------------------------------------------------------------------


def test_only_files_are_opened_and_nothing_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "fifo")
    with opened(tmp_path) as directory:
        fd, status = open_file(directory, "file", "workspace/file")
        os.close(fd)
        assert status.st_size == 1
        for name in ("link", "directory", "fifo"):
            with pytest.raises(Swapped):
                open_file(directory, name, name)
        assert read_link(directory, "link", "workspace/link") == b"file"
        with pytest.raises(Swapped):
            read_link(directory, "file", "file")
        for gone in (open_file, read_link):
            with pytest.raises(Vanished):
                gone(directory, "nothing", "nothing")


# -- frames -----------------------------------------------------------------------------------------------------------


def pieces_of(*contents: bytes) -> list[Piece]:
    return [(Chunk(chunk_id(content), len(content)), content) for content in contents]


@given(st.lists(st.binary(min_size=1, max_size=2000), min_size=1, max_size=20))
def test_what_is_packed_comes_out(contents: list[bytes]) -> None:
    frame = pack(pieces_of(*contents))
    assert [bytes(piece) for piece in unpack(frame)] == contents


def test_chunks_share_frames_up_to_a_size_and_keep_their_order() -> None:
    pieces = pieces_of(*(noise(size, seed) for seed, size in enumerate([1, FRAME_BYTES - 1, 1, MAX_CHUNK, 5, 6])))
    grouped = list(groups(pieces))
    assert [piece for group in grouped for piece in group] == pieces
    assert [[chunk.size for chunk, _ in group] for group in grouped] == [[1, FRAME_BYTES - 1], [1], [MAX_CHUNK], [5, 6]]
    assert list(groups([])) == []
    for group in grouped:
        assert len(unpack(pack(group))) == len(group)


def test_a_frame_that_is_not_what_it_says_is_refused() -> None:
    one, two = pieces_of(b"one" * 100, b"two" * 100)
    good = pack([one, two])
    data = good.data
    bad_frames = [
        Frame((), data),
        Frame((), b""),
        Frame((one[0],), data),
        Frame((two[0], one[0]), data),
        Frame((one[0], two[0], one[0]), data),
        Frame((one[0], Chunk(b"", 300)), data),
        Frame((Chunk(one[0].id, 600),), data),
        Frame((Chunk(b"short", 600),), data),
        Frame((Chunk(one[0].id, 0), two[0]), data),
        Frame(tuple(pieces_of(bytes(MAX_CHUNK))[0][0] for _ in range(2)), data),
        Frame(good.chunks, data + b"x"),
        Frame(good.chunks, data + data),
        Frame(good.chunks, data[:-1]),
        Frame(good.chunks, data[:6]),
        Frame(good.chunks, b""),
        Frame(good.chunks, zstandard.ZstdCompressor(write_content_size=False).compress(one[1] + two[1])),
        Frame(good.chunks, zstandard.compress(one[1] + two[1] + b"x")),
    ]
    unpack(good)
    for frame in bad_frames:
        with pytest.raises(BadEntry):
            unpack(frame)


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_damaged_frame_is_refused(place: int, change: int) -> None:
    pieces = pieces_of(noise(500), b"text" * 500)
    frame = pack(pieces)
    data = bytearray(frame.data)
    data[place % len(data)] ^= change
    try:
        content = [bytes(piece) for piece in unpack(Frame(frame.chunks, bytes(data)))]
    except BadEntry:
        return
    assert content == [content for _, content in pieces]  # a bit that means nothing


def test_a_bomb_is_refused_before_it_takes_memory() -> None:
    compressor = zstandard.ZstdCompressor(level=19).compressobj(size=1 << 30)
    bomb = b"".join([*(compressor.compress(bytes(1 << 24)) for _ in range(64)), compressor.flush()])
    with pytest.raises(BadEntry, match="another size"):
        unpack(Frame(tuple(chunk for chunk, _ in pieces_of(bytes(MAX_CHUNK))), bomb))
    lying = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 24))
    with pytest.raises(BadEntry):
        unpack(Frame(tuple(chunk for chunk, _ in pieces_of(bytes(MAX_CHUNK))), lying))


# -- batches ----------------------------------------------------------------------------------------------------------


def test_a_batch_offers_a_chunk_once_and_sends_what_is_wanted() -> None:
    builder, pieces = BatchBuilder(), pieces_of(b"a" * 5, b"b" * 6, b"a" * 5)
    for piece in pieces:
        builder.offer(*piece)
    batch = builder.take()
    assert [offer.size for offer in batch.message.offers] == [5, 6]
    assert builder.is_empty
    (frame,) = batch.frames([1, 0, 1])
    assert [bytes(piece) for piece in unpack(frame)] == [b"b" * 6, b"a" * 5]
    assert list(batch.frames([])) == []
    for wanted in ([2], [-1], [0, 2]):
        with pytest.raises(BadEntry, match="not offered"):
            batch.frames(wanted)


def test_a_batch_has_room_for_so_much_content() -> None:
    builder = BatchBuilder()
    full = pieces_of(*(noise(MAX_CHUNK, seed) for seed in range(BATCH_BYTES // MAX_CHUNK)))
    for piece in full:
        assert builder.has_room(piece[0])
        builder.offer(*piece)
    assert not builder.has_room(pieces_of(b"x")[0][0])
    assert builder.has_room(full[0][0]), "what is offered already needs no room"


def test_offers_are_taken_back_unless_they_are_made() -> None:
    builder, (first, second) = BatchBuilder(), pieces_of(b"first", b"second")
    builder.offer(*first)
    mark = builder.mark()
    builder.offer(*second)
    builder.take_back(mark)
    builder.offer(*second)
    builder.take_back(mark)
    assert [offer.id for offer in builder.take().message.offers] == [first[0].id]
    builder.offer(*second)
    builder.take_back(mark)
    assert not builder.is_empty


def until_full(tell: Callable[[BatchBuilder], None]) -> Batch:
    builder = BatchBuilder()
    while not builder.is_full:
        tell(builder)
    return builder.take().message


def test_a_batch_is_full_by_its_entries_or_by_its_length() -> None:
    directory = Entry(b"workspace/d", Kind.DIRECTORY, 0o755, 0)
    assert len(until_full(lambda builder: builder.tell(directory)).entries) == BATCH_ENTRIES
    file = Entry(b"workspace/" + b"f" * 200, Kind.FILE, 0, 1 << 60, chunks=(Chunk(b"i" * 32, 1 << 20),) * 99)
    assert 1.5 * MIB < len(encode(until_full(lambda builder: builder.tell(file)))) <= 2.1 * MIB
    gone = b"workspace/" + b"n" * 100
    assert 1 * MIB < len(encode(until_full(lambda builder: builder.tell_removed(gone)))) <= 2.1 * MIB
