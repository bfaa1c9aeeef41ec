"""Below a directory and nowhere else, by the kernel's help and without it."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox.system import jail, kernel
from sandbox.system.jail import Escape, follow_beneath, open_beneath, walk_beneath

Opens = Callable[[int, bytes, int], int]
WAYS: dict[str, Opens] = {
    "the kernel's way": lambda at, path, flags: open_beneath(at, path, flags),
    "following": lambda at, path, flags: open_beneath(at, path, flags, follow=True),
    "step by step": walk_beneath,
    "step by step, following": follow_beneath,
}


@pytest.fixture(params=WAYS.values(), ids=list(WAYS))
def way(request: pytest.FixtureRequest) -> Opens:
    opens: Opens = request.param
    return opens


@pytest.fixture
def top(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "victim").write_text("alive")
    inner = tmp_path / "top" / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "file").write_text("inside")
    for name, target in {
        "out": "../../victim",
        "abs": str(tmp_path / "victim"),
        "up": "..",
        "here": "a/b/file",
        "self": "self",
        "proc": "/proc/self/root",
        "dir": "a",
    }.items():
        (tmp_path / "top" / name).symlink_to(target)
    (inner / "up").symlink_to("../../..")
    fd = os.open(tmp_path / "top", os.O_PATH | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def content(fd: int) -> bytes:
    try:
        return os.read(fd, 100)
    finally:
        os.close(fd)


@pytest.mark.parametrize("path", [b"a/b/file", b"./a//b/./file"])
def test_what_lies_below_is_opened(top: int, way: Opens, path: bytes) -> None:
    assert content(way(top, path, os.O_RDONLY)) == b"inside"


@pytest.mark.parametrize(
    "path",
    [
        b"../victim",
        b"a/../../victim",
        b"/etc/passwd",
        b"out",
        b"abs",
        b"up/victim",
        b"a/b/up/victim",
        b"dir/b/up/victim",
        b"self",
        b"proc/etc/passwd",
        b"..",
    ],
)
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_PATH, os.O_PATH | os.O_DIRECTORY])
def test_what_lies_elsewhere_is_not(top: int, way: Opens, path: bytes, flags: int) -> None:
    with pytest.raises((Escape, NotADirectoryError)):
        way(top, path, flags)


def test_a_symlink_that_stays_below_is_followed_only_when_asked(top: int) -> None:
    assert content(open_beneath(top, b"here", os.O_RDONLY, follow=True)) == b"inside"
    assert content(open_beneath(top, b"dir/b/file", os.O_RDONLY, follow=True)) == b"inside"
    for path in (b"here", b"dir/b/file", b"dir/../a/b/file"):
        assert content(follow_beneath(top, path, os.O_RDONLY)) == b"inside"
    for opens in (open_beneath, walk_beneath):
        for path in (b"here", b"dir/b/file"):
            with pytest.raises(Escape):
                opens(top, path, os.O_RDONLY)


@pytest.mark.parametrize("path", [b"root/etc/passwd", b"cwd", b"exe", b"fd/0", b"root", b"task/%d/cwd" % os.getpid()])
def test_magic_links_are_never_followed(way: Opens, path: bytes) -> None:
    top = os.open("/proc/self", os.O_PATH | os.O_DIRECTORY)
    try:
        with pytest.raises((Escape, NotADirectoryError)):
            way(top, path, os.O_PATH)
    finally:
        os.close(top)


def test_what_is_not_there_is_absent(top: int, way: Opens) -> None:
    for path in (b"none", b"a/none", b"a/b/none/x"):
        with pytest.raises(FileNotFoundError):
            way(top, path, os.O_RDONLY)
    with pytest.raises(NotADirectoryError):
        way(top, b"a/b/file/x", os.O_RDONLY)


def test_a_kernel_without_the_call_is_walked_around(top: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jail, "has_openat2", lambda: False)
    for path in (b"a/b/file", b"here"):
        assert content(open_beneath(top, path, os.O_RDONLY, follow=True)) == b"inside"
    with pytest.raises(Escape):
        open_beneath(top, b"here", os.O_RDONLY)


def test_two_names_change_places_in_one_step(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "other").symlink_to("anywhere")
    at = os.open(tmp_path, os.O_RDONLY)
    try:
        if kernel.exchange(at, b"one", at, b"other"):
            assert (tmp_path / "one").is_symlink()
            assert (tmp_path / "other").is_dir()
        with pytest.raises(FileNotFoundError):
            kernel.exchange(at, b"one", at, b"missing")
        kernel.syncfs(at)
    finally:
        os.close(at)
    with pytest.raises(OSError, match="Bad file descriptor"):
        kernel.syncfs(at)


def test_without_the_kernels_help_a_path_may_be_long_and_not_endless(top: int, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    os.close(follow_beneath(top, b"a/b/../../" * 100, os.O_RDONLY))
    os.close(follow_beneath(top, b"", os.O_RDONLY))
    deep = tmp_path / "top"
    for _ in range(300):
        deep = deep / "d"
        deep.mkdir()
    with pytest.raises(Escape):
        follow_beneath(top, b"d/" * 300, os.O_RDONLY)
    with pytest.raises(NotADirectoryError):
        follow_beneath(top, b"here/more", os.O_RDONLY)
    with pytest.raises(FileNotFoundError):
        follow_beneath(top, b"dir/nothing", os.O_RDONLY)
    assert len(os.listdir("/proc/self/fd")) == before
