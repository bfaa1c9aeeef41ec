"""The remembered tree: it changes by sections, and believes only what is found the same."""

import stat

import pytest

from sandbox.protocol.entry import Chunk, Entry, Kind, chunk_id
from sandbox.tree.index import (
    Directory,
    TreeIndex,
    entry_of,
    is_same_entry,
    join_names,
    pack_chunks,
    split_names,
    tree_of,
)
from sandbox.tree.stat_stamp import ANY_INODE, UNSETTLED, YOUNG_NS, doubted
from tests.sandbox.scans import section

FILE, DIRECTORY, LINK = stat.S_IFREG | 0o644, stat.S_IFDIR | 0o755, stat.S_IFLNK | 0o777
NOW = 1_700_000_000_123_456_789

OLD = NOW - YOUNG_NS


def shape(directory: Directory) -> dict[str, object]:
    assert directory.stamps.keys() == directory.contents.keys() | directory.dirs.keys()
    assert not directory.contents.keys() & directory.dirs.keys()
    return {name: shape(inner) for name, inner in directory.dirs.items()} | dict.fromkeys(directory.contents)


def test_sections_change_a_tree() -> None:
    tree = TreeIndex()
    file, directory = ((FILE, 0, 1, 1, 1), b"\x90"), ((DIRECTORY, 0, 1, 1, 1), None)
    tree.apply([section("workspace", a=file, d=directory, e=directory), section("workspace/d", b=file, c=directory)])
    assert shape(tree.roots["workspace"]) == {"a": None, "d": {"b": None, "c": {}}, "e": {}}
    tree.apply([section("workspace", a=directory, d=file, gone="e")])
    assert shape(tree.roots["workspace"]) == {"a": {}, "d": None}
    tree.apply([section("workspace", a=directory), section("workspace/a", x=file)])
    tree.apply([section("workspace", a=directory)])
    assert shape(tree.roots["workspace"]) == {"a": {"x": None}, "d": None}
    assert tree.roots["workspace"].all_files == 2
    copy = TreeIndex()
    copy.apply(tree.sections())
    assert shape(copy.roots["workspace"]) == shape(tree.roots["workspace"])


def test_a_tree_whose_files_have_new_numbers_forgets_the_old_ones() -> None:
    tree = TreeIndex()
    file, directory = ((FILE, 0, 1, 1, 7), b"\x90"), ((DIRECTORY, 0, 1, 1, 8), None)
    tree.apply([section("workspace", a=file, d=directory), section("workspace/d", b=file)])
    tree.renumber()
    found = [stamp for each in tree.sections() for stamp in each.stamps]
    assert sorted(found) == [(DIRECTORY, 0, 1, 1, ANY_INODE), *[(FILE, 0, 1, 1, ANY_INODE)] * 2]
    assert shape(tree.roots["workspace"]) == {"a": None, "d": {"b": None}}


def test_names_are_joined_and_split() -> None:
    for names in ([], ["a"], ["a", "\udcff", "b\nc"]):
        assert split_names(join_names(names)) == names


def test_what_makes_an_entry_another_one() -> None:
    stamp = (FILE, 5, 1, 1, 1)
    assert is_same_entry(stamp, (FILE, 9, 1, 2, 2))
    assert is_same_entry(stamp, (FILE | stat.S_ISUID, 5, 1, 1, 1)), "that bit is not kept"
    for other in ((FILE ^ 0o100, 5, 1, 1, 1), (LINK, 5, 1, 1, 1), (FILE, 5, 2, 1, 1), doubted(stamp, UNSETTLED)):
        assert not is_same_entry(stamp, other)
        assert not is_same_entry(other, stamp)


def test_a_tree_of_entries_believes_only_what_is_found_the_same() -> None:
    chunk = Chunk(chunk_id(b"abc"), 3)
    entries = [
        Entry(b"workspace/d/f", Kind.FILE, 0o644, OLD, 3, b"", (chunk,)),
        Entry(b"workspace/d/sparse", Kind.FILE, 0o644, OLD, 103, b"", (chunk, Chunk(b"", 100))),
        Entry(b"workspace/d/unsettled", Kind.FILE, 0o644, OLD, 3, b"", (chunk,), unsettled=True),
        Entry(b"workspace/d/l", Kind.SYMLINK, 0o777, OLD, target=b"f"),
        Entry(b"workspace/d/not there", Kind.FILE, 0o644, OLD),
        Entry(b"workspace/d", Kind.DIRECTORY, 0o755, OLD),
    ]
    tree = tree_of(entries)
    directory = tree.find("workspace/d")
    assert directory.data_bytes == 9
    found = [
        ("f", (FILE, 3, OLD, 9, 9)),
        ("sparse", (FILE, 3, OLD, 9, 9)),
        ("unsettled", (FILE, 3, OLD, 9, 9)),
        ("l", (LINK, 1, OLD, 9, 9)),
        ("unknown", (FILE, 3, OLD, 9, 9)),
    ]
    tree.believe("workspace/d", found, NOW)
    tree.believe("workspace", [("d", (DIRECTORY, 4096, OLD, 9, 9))], NOW)
    tree.believe("workspace/no such directory", found, NOW)
    assert {name for name, stamp in directory.stamps.items() if len(stamp) == 5} == {"f", "l"}
    assert tree.find("workspace").stamps["d"] == (DIRECTORY, 4096, OLD, 9, 9)
    rebuilt = [
        entry_of(f"{path}/{name}".encode(), stamp, inner.contents.get(name))
        for path, inner in tree.roots["workspace"].below("workspace")
        for name, stamp in inner.stamps.items()
    ]
    assert sorted(rebuilt, key=lambda entry: entry.path) == sorted(entries, key=lambda entry: entry.path)
    with pytest.raises(KeyError):
        tree_of(entries[:1])


def test_a_child_weighs_what_its_content_does_if_it_is_a_file() -> None:
    content = pack_chunks([Chunk(chunk_id(b"abc"), 3), Chunk(b"", 100), Chunk(chunk_id(b"de"), 2)])
    directory = Directory()
    directory.put("file", (FILE, 105, 1, 1, 1), content)
    directory.put("link", (LINK, 1, 1, 1, 1), b"file")
    directory.put("inner", (DIRECTORY, 4096, 1, 1, 1), None)
    weighed = {name: directory.data_bytes_of(name) for name in ("file", "link", "inner", "not there")}
    assert weighed == {"file": 5, "link": 0, "inner": 0, "not there": 0}, "holes take no room"
