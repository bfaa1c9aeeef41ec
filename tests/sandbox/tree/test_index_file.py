"""The remembered tree: its stamps, how it changes, and how it comes back from a file that may be torn or damaged."""

import os
import stat
from pathlib import Path

import pytest

from sandbox.system.problem import TreeProblem
from sandbox.tree import index_file as caches
from sandbox.tree.index import Section, TreeIndex
from sandbox.tree.index_file import FORMAT, TreeIndexFile
from sandbox.tree.index_store import TreeIndexStore
from sandbox.tree.scan import TreeScanner
from sandbox.tree.stat_stamp import YOUNG_NS
from tests.campaign.size import sized
from tests.sandbox.scans import Keeper, hours_later, make_home, on_disk, section, tick

FILE, DIRECTORY, LINK = stat.S_IFREG | 0o644, stat.S_IFDIR | 0o755, stat.S_IFLNK | 0o777
NOW = 1_700_000_000_123_456_789
OLD = NOW - YOUNG_NS


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
    tree = TreeIndex()
    tree.token = "token"
    file = ((FILE, 0, 1, 1, 1), b"\x90")
    for sections in (
        [section("workspace/no/such", a=file)],
        [section("elsewhere", a=file)],
        [section("workspace", gone="nothing")],
        [Section(b"workspace", 0, b"a/b", [(FILE, 0, 1, 1, 1)], [b"\x90"])],
    ):
        cache.write_bytes(FORMAT + caches._record(tree, sections, whole=True))
        assert TreeIndexFile(cache).load().token is None
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
    memory = TreeIndexStore(cache)
    memory.change("token", {}, [])
    written, edition = cache.stat().st_mtime_ns, memory.edition
    memory.change("token", {}, [])
    assert (cache.stat().st_mtime_ns, memory.edition) == (written, edition)
    memory.change("another", {"agent": b"rules"}, [])
    for each in (memory, TreeIndexStore(cache)):
        assert (each.tree.token, each.tree.rules) == ("another", {"agent": b"rules"})
