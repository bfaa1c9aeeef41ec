"""The remembered tree: its stamps, how it changes, and how it comes back from a file that may be torn or damaged."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.tree import cache as caches
from sandbox.tree.cache import FORMAT, TreeCache
from sandbox.tree.entry import MAX_MTIME_NS, Chunk, Entry, Kind, chunk_id
from sandbox.tree.kept import Directory, KeptTree, Section, entry_of, is_same_entry, join_names, split_names, tree_of
from sandbox.tree.memory import Memory
from sandbox.tree.problem import TreeProblem, printable, unreadable
from sandbox.tree.scan import TreeScanner
from sandbox.tree.stamps import (
    GRAIN_NS,
    UNSETTLED,
    YOUNG,
    YOUNG_NS,
    Stamp,
    as_kept,
    doubted,
    possible,
    read_at,
    stamp_of,
    written_at,
)
from tests.campaign.size import sized
from tests.sandbox.scans import Keeper, hours_later, make_home, on_disk, tick

FILE, DIRECTORY, LINK = stat.S_IFREG | 0o644, stat.S_IFDIR | 0o755, stat.S_IFLNK | 0o777
NOW = 1_700_000_000_123_456_789
OLD = NOW - YOUNG_NS


# -- stamps -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mtime", "ctime", "believed"),
    [
        (OLD, OLD, True),
        (OLD, OLD + 1, False),
        (OLD + 1, OLD, False),
        (NOW + YOUNG_NS - 1, OLD, False),
        (NOW + YOUNG_NS, OLD, True),  # a time somebody gave it: the ctime is what tells of changes
        (OLD, NOW + 10 * YOUNG_NS, False),
        (0, 0, True),
    ],
)
def test_what_was_young_when_it_was_read_is_not_believed(mtime: int, ctime: int, believed: bool) -> None:
    stamp = (FILE, 5, mtime, ctime, 7)
    kept = read_at(stamp, NOW)
    assert (kept == stamp) == believed
    assert as_kept(kept, stamp), "a walk alone has no reason to doubt it"


@pytest.mark.parametrize(
    ("ctime", "believed"),
    [(NOW - GRAIN_NS, True), (NOW - GRAIN_NS + 1, False), (NOW // 10**9 * 10**9, False), (OLD // 10**9 * 10**9, True)],
)
def test_what_we_wrote_is_believed_after_a_grain_of_the_clock(ctime: int, believed: bool) -> None:
    """A ctime without a fraction comes from a clock with coarse grains."""
    stamp = (FILE, 5, NOW, ctime, 7)
    assert (written_at(stamp, NOW) == stamp) == believed


def test_an_unsettled_file_is_never_as_it_was_kept() -> None:
    stamp = (FILE, 5, OLD, OLD, 7)
    assert not as_kept(doubted(stamp, UNSETTLED), stamp)
    assert not as_kept(stamp, (FILE, 5, OLD, OLD, 8))


def test_a_time_that_cannot_be_kept_is_doubted_and_cut() -> None:
    stamp = (FILE, 5, MAX_MTIME_NS * 1000, OLD, 7)
    assert possible(stamp) == (FILE, 5, MAX_MTIME_NS, OLD, 7, YOUNG)
    assert as_kept(possible(stamp), stamp)
    assert entry_of(b"workspace/a", stamp, b"\x90").mtime_ns == MAX_MTIME_NS


def test_a_stamp_is_what_stat_says(tmp_path: Path) -> None:
    status = os.stat(tmp_path)
    fields = (status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    assert stamp_of(status) == fields


# -- problems ---------------------------------------------------------------------------------------------------------


@given(st.binary(max_size=6000))
def test_any_path_can_be_shown(path: bytes) -> None:
    shown = printable(path)
    assert shown.isprintable()
    assert len(shown) <= 210


def test_a_path_is_shown_as_it_is_where_that_is_possible() -> None:
    assert printable("workspace/häuser".encode()) == "workspace/häuser"
    assert printable(b"a\n\x1b\xff") == "a\\n\\x1b\\xff"
    assert "a: it cannot be opened" not in unreadable("a", PermissionError(13, "Permission denied")).error
    assert "it cannot be opened" in unreadable("a", OSError()).error


# -- the tree ---------------------------------------------------------------------------------------------------------


def section(path: str, *, gone: str = "", **children: tuple[Stamp, bytes | None]) -> Section:
    stamps, contents = [stamp for stamp, _ in children.values()], [content for _, content in children.values()]
    return Section(path.encode(), 0, join_names(children), stamps, contents, gone.encode())


def shape(directory: Directory) -> dict[str, object]:
    assert directory.stamps.keys() == directory.contents.keys() | directory.dirs.keys()
    assert not directory.contents.keys() & directory.dirs.keys()
    return {name: shape(inner) for name, inner in directory.dirs.items()} | dict.fromkeys(directory.contents)


def test_sections_change_a_tree() -> None:
    tree = KeptTree()
    file, directory = ((FILE, 0, 1, 1, 1), b"\x90"), ((DIRECTORY, 0, 1, 1, 1), None)
    tree.apply([section("workspace", a=file, d=directory, e=directory), section("workspace/d", b=file, c=directory)])
    assert shape(tree.roots["workspace"]) == {"a": None, "d": {"b": None, "c": {}}, "e": {}}
    tree.apply([section("workspace", a=directory, d=file, gone="e")])
    assert shape(tree.roots["workspace"]) == {"a": {}, "d": None}
    tree.apply([section("workspace", a=directory), section("workspace/a", x=file)])
    tree.apply([section("workspace", a=directory)])
    assert shape(tree.roots["workspace"]) == {"a": {"x": None}, "d": None}
    copy = KeptTree()
    copy.apply(tree.sections())
    assert shape(copy.roots["workspace"]) == shape(tree.roots["workspace"])


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


# -- the file ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return make_home(tmp_path / "home")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def keeper(home: Path, cache: Path) -> Keeper:
    return Keeper(TreeScanner(home, cache, hours_later))


def restarted(keeper: Keeper, home: Path, cache: Path) -> Keeper:
    return Keeper(TreeScanner(home, cache, hours_later), keeper.token, keeper.tree, keeper.chunks, keeper.generations)


def test_a_restarted_bridge_reads_nothing_again(home: Path, cache: Path, keeper: Keeper) -> None:
    odd = os.fsdecode(b"\xff\n")
    (home / "workspace" / odd).mkdir()
    (home / "workspace" / odd / odd).write_bytes(b"x" * 100_000)
    (home / "workspace" / "link").symlink_to(odd)
    keeper.sync()
    tick(home)
    (home / "agent" / "new").write_bytes(b"new")
    keeper.sync()
    keeper = restarted(keeper, home, cache)
    assert keeper.survey() == (keeper.token, 0, 3)
    done = keeper.sync()
    assert (done.base, done.read_bytes, keeper.told, done.files) == ("generation 2", 0, [], 3)
    assert done.total_bytes == 100_003
    assert keeper.seen() == on_disk(home)


def test_without_a_cache_file_everything_is_told(home: Path, cache: Path, keeper: Keeper) -> None:
    (home / "workspace" / "a").write_bytes(b"a")
    keeper.sync()
    cache.unlink()
    keeper = restarted(keeper, home, cache)
    assert keeper.survey() == (None, 0, 1)
    assert keeper.sync().base is None
    assert keeper.seen() == on_disk(home)


@pytest.mark.soak
def test_damage_at_any_byte_makes_the_tree_an_older_one_or_none(home: Path, cache: Path, keeper: Keeper) -> None:
    (home / "workspace" / "a").write_bytes(b"a")
    keeper.sync()
    first = cache.stat().st_size
    tick(home)
    (home / "workspace" / "b").write_bytes(b"b")
    keeper.sync()
    good = cache.read_bytes()
    assert len(FORMAT) < first < len(good) < 1000

    def known(content: bytes) -> str | None:
        cache.write_bytes(content)
        again = restarted(keeper, home, cache)
        token = again.survey()[0]
        assert again.sync(remember=False).base == (token if token == keeper.token else None)
        return token

    assert known(good) == "generation 2"
    assert known(good + b"\0" * 50) == "generation 2"
    for place in range(0, len(good), sized(7, 1)):
        damaged = bytearray(good)
        damaged[place] ^= 0x10
        assert known(bytes(damaged)) == (None if place < first else "generation 1")
        assert known(good[:place]) == (None if place < first else "generation 1")


def test_what_follows_damage_is_written_over_it(home: Path, cache: Path, keeper: Keeper) -> None:
    (home / "workspace" / "a").write_bytes(b"a")
    keeper.sync()
    for torn in (b"", b"torn", bytes(500)):
        cache.write_bytes(cache.read_bytes() + torn)
        keeper = restarted(keeper, home, cache)
        tick(home)
        (home / "workspace" / f"after {len(torn)}").write_bytes(b"b")
        keeper.sync()
        keeper = restarted(keeper, home, cache)
        assert keeper.survey() == (keeper.token, 0, len(on_disk(home)))


def test_a_well_formed_file_of_another_mind_is_no_cache(home: Path, cache: Path, keeper: Keeper) -> None:
    """A good hash proves that nothing was damaged, not that it makes sense."""
    keeper.sync()
    tree = KeptTree()
    tree.token = "token"
    file = ((FILE, 0, 1, 1, 1), b"\x90")
    for sections in (
        [section("workspace/no/such", a=file)],
        [section("elsewhere", a=file)],
        [section("workspace", gone="nothing")],
        [Section(b"workspace", 0, b"a/b", [(FILE, 0, 1, 1, 1)], [b"\x90"])],
    ):
        cache.write_bytes(FORMAT + caches._record(tree, sections, whole=True))
        assert TreeCache(cache).load().token is None
    payload = b"\xc1"
    cache.write_bytes(FORMAT + caches._HEAD.pack(1, caches._hash(payload)) + payload)
    keeper = restarted(keeper, home, cache)
    assert keeper.survey()[0] is None
    keeper.sync()
    assert restarted(keeper, home, cache).survey()[0] == keeper.token


def test_remembering_costs_what_changed_until_it_is_time_for_a_new_file(home: Path, cache: Path) -> None:
    keeper = Keeper(TreeScanner(home, cache, hours_later))
    for number in range(2000):
        (home / "workspace" / f"file {number}").write_bytes(b"%d" % number)
    keeper.sync()
    whole = cache.stat().st_size
    tick(home)
    (home / "workspace" / "file 1").write_bytes(b"changed")
    keeper.sync()
    assert 0 < cache.stat().st_size - whole < 500
    sizes = []
    for _ in range(4):
        tick(home)
        for number in range(2000):
            (home / "workspace" / f"file {number}").touch()
        keeper.sync()
        sizes.append(cache.stat().st_size)
    assert max(sizes) < 4 * whole + caches.SMALL_LOG
    assert sizes != sorted(sizes), "it was written anew"
    assert restarted(keeper, home, cache).survey() == (keeper.token, 0, 2000)


def test_a_cache_that_cannot_be_written_is_told_and_tried_again(home: Path, tmp_path: Path) -> None:
    cache = tmp_path / "state" / "cache"
    keeper = Keeper(TreeScanner(home, cache, hours_later))
    (home / "workspace" / "a").write_bytes(b"a")
    with pytest.raises(TreeProblem, match="the cache of the tree cannot be written: No such file"):
        keeper.sync()
    assert keeper.survey() == ("generation 1", 0, 1)
    cache.parent.mkdir()
    (cache.parent / "cache.new").write_bytes(b"left by a crash")
    keeper.sync()
    cache.unlink()
    tick(home)
    (home / "workspace" / "a").write_bytes(b"b")
    with pytest.raises(TreeProblem, match="cannot be written"):
        keeper.sync()
    keeper.sync()
    assert restarted(keeper, home, cache).survey() == ("generation 4", 0, 1)


def test_a_memory_that_has_nothing_new_writes_nothing(cache: Path) -> None:
    memory = Memory(cache)
    memory.change("token", {}, [])
    written, edition = cache.stat().st_mtime_ns, memory.edition
    memory.change("token", {}, [])
    assert (cache.stat().st_mtime_ns, memory.edition) == (written, edition)
    memory.change("another", {"agent": b"rules"}, [])
    for each in (memory, Memory(cache)):
        assert (each.tree.token, each.tree.rules) == ("another", {"agent": b"rules"})
