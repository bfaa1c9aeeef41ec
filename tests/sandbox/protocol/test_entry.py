"""What may be part of a tree, and what may not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.protocol.entry import (
    ID_BYTES,
    MAX_CHUNK,
    MAX_DEPTH,
    MAX_FILE,
    MAX_MTIME_NS,
    MAX_NAME,
    MAX_PATH,
    MOST_CHUNKS,
    BadEntry,
    Chunk,
    Entry,
    Kind,
    check_chunks,
    check_entry,
    check_path,
    chunk_id,
)
from sandbox.protocol.tree import MAX_TREE_MESSAGE, Batch, encode

ID = b"i" * ID_BYTES
NAMES = st.binary(min_size=1, max_size=MAX_NAME).filter(
    lambda name: b"/" not in name and b"\0" not in name and name not in (b".", b"..")
)


@given(st.sampled_from([b"workspace", b"agent"]), st.lists(NAMES, max_size=10))
def test_any_name_the_kernel_allows_makes_a_path(root: bytes, names: list[bytes]) -> None:
    check_path(b"/".join([root, *names]))


@pytest.mark.parametrize(
    "path",
    [
        b"",
        b"/",
        b"elsewhere/a",
        b"/workspace/a",
        b"Workspace/a",
        b"workspace/",
        b"workspace//a",
        b"workspace/.",
        b"workspace/../agent",
        b"workspace/a\0b",
        b"workspace/" + b"n" * (MAX_NAME + 1),
        b"workspace" + b"/a" * MAX_DEPTH,
        b"workspace" + (b"/" + b"n" * MAX_NAME) * (MAX_PATH // MAX_NAME + 1),
    ],
)
def test_a_path_that_is_not_ours_is_refused(path: bytes) -> None:
    with pytest.raises(BadEntry) as refused:
        check_path(path)
    assert len(path) < 20 or path.decode() not in str(refused.value)


def test_the_longest_and_the_deepest_path_are_allowed() -> None:
    check_path(b"workspace" + b"/a" * (MAX_DEPTH - 1))
    path = b"workspace" + (b"/" + b"n" * MAX_NAME) * 15
    check_path(path + b"/" + b"n" * (MAX_PATH - len(path) - 1))


@pytest.mark.parametrize(
    "entry",
    [
        Entry(b"workspace/a", Kind.FILE, 0o644, 0),
        Entry(b"workspace/a", Kind.FILE, 0o777, -MAX_MTIME_NS, 5, chunks=(Chunk(ID, 5),)),
        Entry(b"workspace/a", Kind.FILE, 0, MAX_MTIME_NS, MAX_FILE, chunks=(Chunk(b"", MAX_FILE),), unsettled=True),
        Entry(b"workspace/a", Kind.FILE, 0, 0, 6, chunks=(Chunk(b"", 2), Chunk(ID, 1), Chunk(b"", 3))),
        Entry(b"workspace/a", Kind.FILE, 0o644, 0, MOST_CHUNKS, chunks=(Chunk(ID, 1),) * MOST_CHUNKS),
        Entry(b"agent/a", Kind.DIRECTORY, 0o755, 1),
        Entry(b"agent/a", Kind.SYMLINK, 0o777, 1, target=b"../../etc/passwd"),
    ],
)
def test_what_a_scan_can_tell_is_allowed(entry: Entry) -> None:
    check_entry(entry)


@pytest.mark.parametrize(
    "entry",
    [
        Entry(b"etc/passwd", Kind.FILE, 0o644, 0),
        Entry(b"workspace/a", Kind.FILE, 0o4755, 0),
        Entry(b"workspace/a", Kind.FILE, -1, 0),
        Entry(b"workspace/a", Kind.FILE, 0o644, MAX_MTIME_NS + 1),
        Entry(b"workspace/a", Kind.FILE, 0o644, -MAX_MTIME_NS - 1),
        Entry(b"workspace/a", Kind.FILE, 0o644, 0, -1),
        Entry(b"workspace/a", Kind.FILE, 0o644, 0, MAX_FILE + 1),
        Entry(b"workspace/a", Kind.FILE, 0o644, 0, target=b"b"),
        Entry(b"workspace/a", Kind.FILE, 0o644, 0, 6, chunks=(Chunk(ID, 5),)),
        Entry(b"workspace/a", Kind.FILE, 0o644, 0, 5, chunks=(Chunk(ID[1:], 5),)),
        Entry(b"workspace/a", Kind.FILE, 0o644, 0, 5, chunks=(Chunk(b"", 2), Chunk(b"", 3))),
        Entry(b"workspace/a", Kind.FILE, 0o644, 0, MOST_CHUNKS + 1, chunks=(Chunk(ID, 1),) * (MOST_CHUNKS + 1)),
        Entry(b"workspace/a", Kind.SYMLINK, 0o777, 0),
        Entry(b"workspace/a", Kind.SYMLINK, 0o777, 0, target=b"a\0b"),
        Entry(b"workspace/a", Kind.SYMLINK, 0o777, 0, target=b"a" * (MAX_PATH + 1)),
        Entry(b"workspace/a", Kind.SYMLINK, 0o777, 0, 1, target=b"b"),
        Entry(b"workspace/a", Kind.SYMLINK, 0o777, 0, target=b"b", chunks=(Chunk(ID, 5),)),
        Entry(b"workspace/a", Kind.DIRECTORY, 0o755, 0, 1),
        Entry(b"workspace/a", Kind.DIRECTORY, 0o755, 0, target=b"b"),
        Entry(b"workspace/a", Kind.DIRECTORY, 0o755, 0, chunks=(Chunk(ID, 5),)),
        Entry(b"workspace/a", 3, 0o755, 0),
    ],
)
def test_what_no_scan_could_tell_is_refused(entry: Entry) -> None:
    with pytest.raises(BadEntry):
        check_entry(entry)


@pytest.mark.parametrize(
    "chunk",
    [
        Chunk(ID, 0),
        Chunk(ID, -1),
        Chunk(ID, MAX_CHUNK + 1),
        Chunk(ID + b"x", 1),
        Chunk(b"", 0),
        Chunk(b"", MAX_FILE + 1),
    ],
)
def test_a_chunk_that_cannot_be_is_refused(chunk: Chunk) -> None:
    check_chunks([Chunk(ID, MAX_CHUNK), Chunk(b"", 1)])
    with pytest.raises(BadEntry):
        check_chunks([Chunk(ID, 1), chunk])


def test_the_entry_with_the_most_chunks_fits_into_a_message() -> None:
    chunks = (Chunk(ID, MAX_CHUNK),) * MOST_CHUNKS
    entry = Entry(b"workspace/" + b"n" * MAX_NAME, Kind.FILE, 0o644, 0, MOST_CHUNKS * MAX_CHUNK, chunks=chunks)
    assert len(encode(Batch((entry,)))) < MAX_TREE_MESSAGE


def test_a_chunk_is_named_by_its_bytes() -> None:
    assert chunk_id(b"abc") == chunk_id(memoryview(b"xabc")[1:])
    assert chunk_id(b"abc").hex() == "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"
