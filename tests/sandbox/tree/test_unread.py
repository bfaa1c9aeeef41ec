"""What may not be read is named, is kept as it was kept last, or left out, and stops nothing."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.protocol.entry import Kind
from sandbox.protocol.tree import MAX_UNREAD, ScanDone
from sandbox.tree.scan import TreeScanner
from tests.sandbox.scans import NEWEST, Keeper, hours_later, make_home, tick, unprivileged


@pytest.fixture
def home() -> Iterator[Path]:
    with unprivileged() as place:
        home = make_home(place / "home")
        yield home
        for root in ("workspace", "agent"):
            (home / root).chmod(0o700)
        for above, directories, _ in os.walk(home):
            for name in directories:
                (Path(above) / name).chmod(0o700)


@pytest.fixture
def workspace(home: Path) -> Path:
    return home / "workspace"


@pytest.fixture
def keeper(home: Path) -> Keeper:
    return Keeper(TreeScanner(home, home.parent / "cache", hours_later))


def files_of(keeper: Keeper) -> dict[bytes, bytes]:
    return {path: keeper.content(path) for path, entry in keeper.tree.items() if entry.kind == Kind.FILE}


def assert_counted(keeper: Keeper, done: ScanDone) -> None:
    contents = files_of(keeper).values()
    assert (done.files, done.total_bytes) == (len(contents), sum(map(len, contents)))


def test_a_new_file_is_left_out_until_it_may_be_read(workspace: Path, keeper: Keeper) -> None:
    (workspace / "open").write_bytes(b"o")
    (workspace / "shut\n").write_bytes(b"s")
    (workspace / "shut\n").chmod(0)
    for base in (None, NEWEST, NEWEST):
        done = keeper.sync(base=base)
        assert (done.unread, done.unread_count) == ((b"workspace/shut\n",), 1)
        assert files_of(keeper) == {b"workspace/open": b"o"}
        assert_counted(keeper, done)
    (workspace / "shut\n").chmod(0o600)
    done = keeper.sync()
    assert (done.unread, done.unread_count) == ((), 0)
    assert files_of(keeper) == {b"workspace/open": b"o", b"workspace/shut\n": b"s"}


@pytest.mark.parametrize("base", [NEWEST, "another one"])
def test_a_file_that_was_kept_stays_as_it_was(base: str, home: Path, workspace: Path, keeper: Keeper) -> None:
    (workspace / "a").write_bytes(b"one")
    (workspace / "b").write_bytes(b"one, too")
    keeper.sync()
    tick(home)
    (workspace / "a").write_bytes(b"two")
    (workspace / "b").write_bytes(b"two, too")
    (workspace / "a").chmod(0)
    for _ in range(2):
        done = keeper.sync(base=base)
        assert done.unread == (b"workspace/a",)
        assert files_of(keeper) == {b"workspace/a": b"one", b"workspace/b": b"two, too"}
        assert_counted(keeper, done)
    (workspace / "a").chmod(0o600)
    assert_counted(keeper, keeper.sync())
    assert files_of(keeper) == {b"workspace/a": b"two", b"workspace/b": b"two, too"}


@pytest.mark.parametrize("base", [NEWEST, "another one"])
@pytest.mark.parametrize("mode", [0, 0o400])
def test_a_directory_that_was_kept_stays_with_all_in_it(
    mode: int, base: str, home: Path, workspace: Path, keeper: Keeper
) -> None:
    """With 0o400 it may be listed, and nothing in it looked at."""
    (workspace / "d" / "e" / "f").mkdir(parents=True)
    (workspace / "d" / "a").write_bytes(b"a")
    (workspace / "d" / "e" / "f" / "b").write_bytes(b"b")
    (workspace / "c").write_bytes(b"c")
    keeper.sync()
    tick(home)
    (workspace / "d" / "e" / "f" / "b").write_bytes(b"another")
    (workspace / "d" / "new").write_bytes(b"new")
    (workspace / "c").write_bytes(b"another")
    (workspace / "d").chmod(mode)
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        done = keeper.sync(base=base)
        assert (done.unread, done.moved) == ((b"workspace/d",), False)
        assert files_of(keeper) == {
            b"workspace/d/a": b"a",
            b"workspace/d/e/f/b": b"b",
            b"workspace/c": b"another",
        }
        assert keeper.tree[b"workspace/d"].mode == mode
        assert_counted(keeper, done)
    assert len(os.listdir("/proc/self/fd")) == descriptors
    (workspace / "d").chmod(0o700)
    done = keeper.sync()
    assert (done.unread_count, len(files_of(keeper))) == (0, 4)
    assert_counted(keeper, done)


def test_a_new_directory_is_kept_empty_until_it_may_be_read(workspace: Path, keeper: Keeper) -> None:
    (workspace / "d").mkdir()
    (workspace / "d" / "a").write_bytes(b"a")
    (workspace / "d").chmod(0)
    assert keeper.sync().unread == (b"workspace/d",)
    assert (files_of(keeper), keeper.tree[b"workspace/d"].kind) == ({}, Kind.DIRECTORY)
    (workspace / "d").chmod(0o700)
    keeper.sync()
    assert files_of(keeper) == {b"workspace/d/a": b"a"}


@pytest.mark.parametrize("root", ["workspace", "agent"])
def test_a_root_that_may_not_be_read_stays_as_it_was(root: str, home: Path, keeper: Keeper) -> None:
    (home / "workspace" / "a").write_bytes(b"a")
    (home / "agent" / "b").write_bytes(b"b")
    keeper.sync()
    tick(home)
    (home / root).chmod(0)
    for base in (NEWEST, "another one"):
        assert keeper.sync(base=base).unread == (root.encode(),)
        assert files_of(keeper) == {b"workspace/a": b"a", b"agent/b": b"b"}


def test_an_ignore_file_that_may_not_be_read_says_what_it_said(home: Path, workspace: Path, keeper: Keeper) -> None:
    ignore = workspace / ".holdfastignore"
    ignore.write_bytes(b"*.o\n")
    (workspace / "a.o").write_bytes(b"o")
    keeper.sync()
    tick(home)
    ignore.chmod(0)
    assert keeper.sync().unread == (b"workspace/.holdfastignore",)
    assert files_of(keeper) == {b"workspace/.holdfastignore": b"*.o\n"}
    keeper.scanner = TreeScanner(home, home.parent / "cache", hours_later)  # a new bridge does not know
    keeper.sync()
    assert b"workspace/a.o" in files_of(keeper)


def test_what_has_become_something_else_that_may_not_be_read_is_gone(
    home: Path, workspace: Path, keeper: Keeper
) -> None:
    (workspace / "d").mkdir()
    (workspace / "d" / "a").write_bytes(b"a")
    (workspace / "l").symlink_to("d")
    keeper.sync()
    tick(home)
    (workspace / "d" / "a").unlink()
    (workspace / "d").rmdir()
    (workspace / "l").unlink()
    for name in ("d", "l"):
        (workspace / name).write_bytes(b"now a file")
        (workspace / name).chmod(0)
    assert keeper.sync().unread_count == 2
    assert keeper.tree == {}


def test_all_are_counted_and_not_all_named(workspace: Path, keeper: Keeper) -> None:
    for number in range(MAX_UNREAD + 5):
        (workspace / str(number)).touch(0)
    done = keeper.sync()
    assert (len(done.unread), done.unread_count) == (MAX_UNREAD, MAX_UNREAD + 5)
