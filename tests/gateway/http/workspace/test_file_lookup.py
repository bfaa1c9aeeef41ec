"""Finding files in a stored tree: paths from strangers, and symlinks as the kernel follows them, never out."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.workspace.file_lookup import (
    briefly,
    children,
    content_tag,
    find,
    listed,
    read_path,
    some,
    when,
    written,
)
from gateway.protocol.errors import ApiError
from sandbox.protocol.entry import Chunk, Entry, Kind
from sandbox.system.jail import Escape, open_beneath
from sandbox.system.kernel import has_openat2


def file(path: bytes, *chunks: Chunk) -> Entry:
    return Entry(path, Kind.FILE, 0o644, 0, sum(chunk.size for chunk in chunks), chunks=chunks)


def directory(path: bytes) -> Entry:
    return Entry(path, Kind.DIRECTORY, 0o755, 0)


def symlink(path: bytes, target: bytes) -> Entry:
    return Entry(path, Kind.SYMLINK, 0o777, 0, target=target)


def tree(*entries: Entry) -> dict[bytes, Entry]:
    return {entry.path: entry for entry in entries}


def raw(path: str) -> bytes:
    return b"/files/s1/" + path.encode()


@pytest.mark.parametrize(
    ("path", "whole", "must_be_directory"),
    [
        ("", b"workspace", True),
        ("a", b"workspace/a", False),
        ("a/b/", b"workspace/a/b", True),
        ("%61", b"workspace/a", False),
        ("%ff%0a%20", b"workspace/\xff\n ", False),
        ("%E2%80%AE", b"workspace/\xe2\x80\xae", False),
        ("%", b"workspace/%", False),
        ("a+b", b"workspace/a+b", False),
        ("..a", b"workspace/..a", False),
        ("%5c", b"workspace/\\", False),  # the policy refuses it; to a tree it is a letter like others
    ],
)
def test_a_path_is_bytes_below_its_root(path: str, whole: bytes, must_be_directory: bool) -> None:
    assert read_path(raw(path), "workspace") == (whole, must_be_directory)
    assert read_path(b"/files/s1", "workspace") == (b"workspace", True)


@pytest.mark.parametrize(
    "path",
    ["/", "/etc/passwd", "a//b", "..", ".", "a/..", "a/../../x", "%2e%2e", "%2e%2e%2fx", "a%2f..%2f..%2fx", "a%00b",
     "//", "x" * 256, "a/" * 70 + "a", "%2f", "%2e"],
)  # fmt: skip
def test_a_path_that_no_tree_can_have_is_a_bad_request(path: str) -> None:
    for root in ("workspace", "agent"):
        with pytest.raises(ApiError) as refusal:
            read_path(raw(path), root)
        assert (refusal.value.status, refusal.value.code) == (400, "bad_path")


ENTRIES = tree(
    directory(b"workspace/d"),
    file(b"workspace/d/f"),
    directory(b"workspace/d/e"),
    symlink(b"workspace/to-f", b"d/f"),
    symlink(b"workspace/d/up", b"../d/./e/../f"),
    symlink(b"workspace/to-d", b"d/"),
    symlink(b"workspace/chain", b"to-d/up"),
    symlink(b"workspace/out", b"../agent/key"),
    symlink(b"workspace/absolute", b"/etc/passwd"),
    symlink(b"workspace/circle", b"circle"),
    symlink(b"workspace/ping", b"pong"),
    symlink(b"workspace/pong", b"ping"),
    symlink(b"workspace/nowhere", b"nothing"),
    symlink(b"workspace/through", b"d/f/x"),
    symlink(b"workspace/self", b"."),
    file(b"agent/key"),
)


@pytest.mark.parametrize(
    ("path", "real"),
    [
        (b"workspace", b"workspace"),
        (b"workspace/d", b"workspace/d"),
        (b"workspace/to-f", b"workspace/d/f"),
        (b"workspace/d/up", b"workspace/d/f"),
        (b"workspace/to-d/f", b"workspace/d/f"),
        (b"workspace/chain", b"workspace/d/f"),
        (b"workspace/self/self/d", b"workspace/d"),
        (b"agent/key", b"agent/key"),
    ],
)
def test_symlinks_are_followed_within_their_root(path: bytes, real: bytes) -> None:
    assert find(ENTRIES, path) == (real, ENTRIES.get(real))


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (b"workspace/out", "link_leads_out"),
        (b"workspace/absolute", "link_leads_out"),
        (b"workspace/circle", "too_many_links"),
        (b"workspace/ping", "too_many_links"),
        (b"workspace/nowhere", "no_such_file"),
        (b"workspace/through", "no_such_file"),
        (b"workspace/d/f/x", "no_such_file"),
        (b"workspace/x", "no_such_file"),
        (b"workspace/key", "no_such_file"),
    ],
)
def test_what_leads_nowhere_is_not_found_and_says_why(path: bytes, code: str) -> None:
    with pytest.raises(ApiError) as refusal:
        find(ENTRIES, path)
    assert (refusal.value.status, refusal.value.code) == (404, code)


NAMES = st.sampled_from([b"a", b"b", b"c"])
PARTS = st.lists(st.sampled_from([b"a", b"b", b"c", b"..", b".", b""]), min_size=1, max_size=4).map(b"/".join)
MADE = st.dictionaries(
    st.lists(NAMES, min_size=1, max_size=3).map(b"/".join), st.one_of(st.none(), st.just(b""), PARTS), max_size=8
)


@pytest.mark.skipif(not has_openat2(), reason="the kernel has no openat2")
@given(made=MADE, asked=st.lists(NAMES, min_size=1, max_size=4).map(b"/".join))
def test_it_finds_what_the_kernel_finds_beneath_a_directory(made: dict[bytes, bytes | None], asked: bytes) -> None:
    """None makes a directory, b"" a file, anything else a symlink with that target."""
    with tempfile.TemporaryDirectory() as top:
        entries = make(Path(top), made)
        directory_fd = os.open(top, os.O_PATH)
        try:
            try:
                fd = open_beneath(directory_fd, asked, os.O_PATH, follow=True)
            except (Escape, OSError):
                with pytest.raises(ApiError):
                    find(entries, b"workspace/" + asked)
            else:
                real = os.readlink(f"/proc/self/fd/{fd}")
                os.close(fd)
                inside = os.fsencode(os.path.relpath(real, os.path.realpath(top)))
                path, _ = find(entries, b"workspace/" + asked)
                assert path == (b"workspace" if inside == b"." else b"workspace/" + inside)
        finally:
            os.close(directory_fd)


def make(top: Path, made: dict[bytes, bytes | None]) -> dict[bytes, Entry]:
    """A tree on the disk, as far as it can be made, and its entries."""
    entries = {}
    for path in sorted(made):
        here, whole, kind = top / os.fsdecode(path), b"workspace/" + path, made[path]
        if here.parent.is_symlink() or not here.parent.is_dir() or here.parent.resolve() != here.parent:
            continue
        if kind is None:
            here.mkdir()
            entries[whole] = directory(whole)
        elif kind == b"":
            here.touch()
            entries[whole] = file(whole)
        else:
            here.symlink_to(os.fsdecode(kind))
            entries[whole] = symlink(whole, kind)
    return entries


def test_children_are_those_directly_below_by_name() -> None:
    entries = tree(file(b"workspace/b"), file(b"workspace/a"), directory(b"workspace/ab"), file(b"workspace/ab/c"))
    inside = [entry.path for entry in children(entries, b"workspace")]
    assert inside == [b"workspace/a", b"workspace/ab", b"workspace/b"]
    assert [entry.path for entry in children(entries, b"workspace/ab")] == [b"workspace/ab/c"]
    assert children(entries, b"workspace/a") == []
    assert children(entries, b"agent") == []


def test_a_name_that_is_not_text_is_given_as_it_is_too() -> None:
    assert written("name", "é".encode()) == {"name": "é"}
    assert written("name", b"\xffx") == {"name": "\ufffdx", "nameBase64": "/3g="}
    shown = listed(Entry(b"workspace/l\xff", Kind.SYMLINK, 0o777, 10**18, target=b"\xfe", unsettled=True))
    assert shown == {
        "name": "l\ufffd", "nameBase64": "bP8=", "type": "symlink", "size": 0, "mode": "0777",
        "mtime": "2001-09-09T01:46:40.000Z", "target": "\ufffd", "targetBase64": "/g==", "unsettled": True,
    }  # fmt: skip


@pytest.mark.parametrize("mtime_ns", [(1 << 63) - 1, -(1 << 63) + 1])
def test_a_time_beyond_every_calendar_is_no_reason_to_fail(mtime_ns: int) -> None:
    assert when(mtime_ns) is None or when(mtime_ns)


def test_a_tag_is_the_same_for_the_same_bytes_only() -> None:
    one, two, hole = Chunk(b"1" * 32, 5), Chunk(b"2" * 32, 5), Chunk(b"", 5)
    contents = [(), (one,), (two,), (one, two), (two, one), (hole,), (hole, hole), (one, hole)]
    tags = [content_tag(file(b"workspace/x", *chunks)) for chunks in contents]
    assert len(set(tags)) == len(contents)
    assert content_tag(file(b"agent/y", one)) == tags[1]
    assert all(tag.startswith('"') and tag.endswith('"') for tag in tags)


def test_an_entry_is_told_briefly_and_only_so_many_are() -> None:
    entries = [file(b"workspace/a"), file(b"workspace/\xff"), directory(b"workspace/d")]
    assert briefly(entries[0]) == {"path": "workspace/a", "type": "file", "size": 0}
    assert some(entries, 2) == [briefly(entries[0]), briefly(entries[1])]
    assert some(entries, 9) == list(map(briefly, entries))
    assert "pathBase64" in briefly(entries[1])


def test_a_date_beyond_every_calendar_is_none() -> None:
    assert when(10**30) is None
