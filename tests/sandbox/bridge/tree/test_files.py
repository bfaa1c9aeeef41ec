"""Looking at live files: what is there is told, what lies elsewhere never, and nothing makes us wait."""

import os
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.bridge.tree import files
from sandbox.bridge.tree.files import Absent, DirectoryListing, FileAt, Item, PathRefused, look
from sandbox.system import jail
from tests.sandbox.trees import in_a_child, make_home, open_descriptors, somebody

SECRET = b"outside"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = make_home(tmp_path / "home")
    (tmp_path / "secret").write_bytes(SECRET)
    (home / "secret").write_bytes(SECRET)
    (home / "agent" / "key").write_bytes(SECRET)
    source = home / "workspace" / "src"
    source.mkdir()
    (source / "main.py").write_bytes(b"print(1)")
    return home


@pytest.fixture(autouse=True)
def _no_descriptor_is_left() -> Iterator[None]:
    before = open_descriptors()
    yield
    assert open_descriptors() == before


def read(home: Path, path: bytes) -> bytes:
    found = look(home, b"workspace", path)
    assert isinstance(found, FileAt)
    try:
        return found.read(0, found.size)
    finally:
        found.close()


def test_a_file_is_opened_with_what_is_known_of_it(home: Path) -> None:
    path = home / "workspace" / "src" / "main.py"
    path.chmod(0o4750)
    os.utime(path, ns=(1, 12345))
    found = look(home, b"workspace", b"src/main.py")
    assert isinstance(found, FileAt)
    assert (found.size, found.mode, found.mtime_ns) == (8, 0o750, 12345)
    assert [found.read(6, 100), found.read(8, 1), found.read(99, 1)] == [b"1)", b"", b""]
    found.close()


@pytest.mark.parametrize("path", [b"src/main.py", b"./src//main.py", b"src/./main.py/"])
def test_a_path_may_be_written_in_many_ways(home: Path, path: bytes) -> None:
    assert read(home, path) == b"print(1)"


def test_a_directory_is_listed_with_every_kind_of_thing_in_it(home: Path) -> None:
    top = home / "workspace"
    (top / os.fsdecode(b"\xff\n")).touch()
    (top / "link").symlink_to("/etc/passwd")
    os.mkfifo(top / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        at = os.open(top, os.O_RDONLY)
        listener.bind(f"/proc/self/fd/{at}/socket")
        os.close(at)
    listing = look(home, b"workspace", b"")
    assert isinstance(listing, DirectoryListing)
    assert [(item.name, item.kind, item.target) for item in listing.items] == [
        (b"fifo", "other", b""),
        (b"link", "symlink", b"/etc/passwd"),
        (b"socket", "other", b""),
        (b"src", "directory", b""),
        (b"\xff\n", "file", b""),
    ]
    inner = look(home, b"workspace", b"src")
    found = (top / "src" / "main.py").stat()
    assert inner == DirectoryListing((Item(b"main.py", "file", stat.S_IMODE(found.st_mode), found.st_mtime_ns, 8),))


def test_a_listing_has_an_end(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_ITEMS", 5)
    for number in range(4):
        (home / "workspace" / str(number)).touch()
    listing = look(home, b"workspace", b"")
    assert isinstance(listing, DirectoryListing)
    assert (len(listing.items), listing.truncated) == (5, False)
    (home / "workspace" / "one more").touch()
    listing = look(home, b"workspace", b"")
    assert isinstance(listing, DirectoryListing)
    assert (len(listing.items), listing.truncated) == (5, True)


@pytest.mark.parametrize(
    "path",
    [b"..", b"../secret", b"src/../../secret", b"src/..", b"/etc/passwd", b"/", b"//", b"src/main.py\0", b"\0"],
)
def test_a_path_that_is_none_is_refused(home: Path, path: bytes) -> None:
    with pytest.raises(PathRefused):
        look(home, b"workspace", path)


@pytest.mark.parametrize(
    "path",
    [
        b"none",
        b"%2e%2e%2fsecret",
        b"..\\secret",
        b"src\\main.py",
        b"src/main.py/x",
        b"...",
        b"n" * 256,
        b"d/" * 65,
        b"d" * 5000,
    ],
)
def test_what_is_not_there_is_absent(home: Path, path: bytes) -> None:
    with pytest.raises(Absent):
        look(home, b"workspace", path)


@pytest.mark.parametrize("root", [b"", b".", b"..", b"state", b"workspace/src", b".aside-1", b"workspace/"])
def test_only_roots_are_looked_into(home: Path, root: bytes) -> None:
    with pytest.raises(Absent):
        look(home, root, b"secret")


@pytest.mark.parametrize(
    "target",
    [
        "../secret",
        "../../secret",
        "../agent/key",
        "..",
        "/",
        "/etc/passwd",
        "/proc/self/root",
        "/proc/self/environ",
        "link",
    ],
)
def test_a_symlink_that_leaves_its_root_is_refused(home: Path, target: str) -> None:
    (home / "workspace" / "link").symlink_to(target)
    (home / "workspace" / "second").symlink_to("src/../link")
    for path in (b"link", b"link/secret", b"second", b"second/etc/passwd"):
        with pytest.raises(PathRefused):
            look(home, b"workspace", path)


def test_a_symlink_that_stays_inside_is_followed(home: Path) -> None:
    (home / "workspace" / "link").symlink_to("src/../src/main.py")
    (home / "workspace" / "dir").symlink_to("src")
    assert read(home, b"link") == b"print(1)"
    assert read(home, b"dir/main.py") == b"print(1)"
    assert isinstance(look(home, b"workspace", b"dir"), DirectoryListing)
    (home / "workspace" / "dangling").symlink_to("none")
    with pytest.raises(Absent):
        look(home, b"workspace", b"dangling")


def test_a_root_that_was_replaced_by_a_symlink_is_absent(home: Path) -> None:
    (home / "agent" / "key").unlink()
    (home / "agent").rmdir()
    (home / "agent").symlink_to("/etc")
    with pytest.raises(Absent):
        look(home, b"agent", b"passwd")


def test_nothing_that_is_no_file_is_opened(home: Path) -> None:
    top = home / "workspace"
    os.mkfifo(top / "fifo")
    (top / "to-fifo").symlink_to("fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        at = os.open(top, os.O_RDONLY)
        listener.bind(f"/proc/self/fd/{at}/socket")
        os.close(at)
    names = [b"fifo", b"to-fifo", b"socket"]
    if os.geteuid() == 0:
        os.mknod(top / "device", stat.S_IFCHR | 0o666, os.makedev(1, 5))
        names.append(b"device")
    for name in names:  # a FIFO without a writer would hold us for ever
        with pytest.raises(PathRefused, match="neither"):
            look(home, b"workspace", name)


def test_what_may_not_be_read_is_refused(open_path: Path) -> None:
    home = make_home(open_path / "home", owner=somebody())

    def work() -> None:
        (home / "workspace" / "file").touch(0o000)
        (home / "workspace" / "directory").mkdir(0o000)
        for path in (b"file", b"directory", b"directory/file"):
            with pytest.raises(PathRefused):
                look(home, b"workspace", path)

    assert in_a_child(work, owner=somebody())


@pytest.mark.parametrize("way", ["openat2", "a walk"])
@pytest.mark.parametrize("swapped", [b"turn", b"turn/secret", b"src/turn/deep/secret"])
def test_a_path_that_is_swapped_all_the_time_never_leads_out(
    home: Path, monkeypatch: pytest.MonkeyPatch, way: str, swapped: bytes
) -> None:
    """10,000 swaps of a directory, or a file, for a symlink to what is outside, while somebody looks."""
    if way == "a walk":
        monkeypatch.setattr(jail, "has_openat2", lambda: False)
    outside = home.parent / "outside"
    (outside / "deep").mkdir(parents=True)
    for directory in (outside, outside / "deep"):
        (directory / "secret").write_bytes(SECRET)
    path, _, rest = swapped.partition(b"turn")
    turn = home / "workspace" / os.fsdecode(path) / "turn"
    good, evil = turn.with_name("good"), turn.with_name("evil")
    if rest:
        (good / "deep").mkdir(parents=True)
        for directory in (good, good / "deep"):
            (directory / "secret").write_bytes(b"inside")
    else:
        good.write_bytes(b"inside")
    evil.symlink_to(outside if rest else outside / "secret")
    good.rename(turn)
    done = threading.Event()

    def swap() -> None:
        for _ in range(5000):
            turn.rename(good)
            evil.rename(turn)
            turn.rename(evil)
            good.rename(turn)
        done.set()

    seen: set[bytes | str] = set()
    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        while not done.is_set():
            try:
                seen.add(read(home, swapped))
            except (PathRefused, Absent) as exc:
                seen.add(type(exc).__name__)
    finally:
        swapper.join()
    assert SECRET not in seen
    assert seen <= {b"inside", "PathRefused", "Absent"}
    assert {b"inside", "PathRefused"} <= seen, "the race was none"
