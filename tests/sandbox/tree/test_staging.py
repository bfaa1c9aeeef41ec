"""A tree is restored whole or not at all, whatever it contains, whichever process dies, whatever was in its place."""

import errno
import json
import os
import random
import stat
import tempfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.protocol.chunk_frames import pack
from sandbox.protocol.entry import MAX_NAME, MAX_PATH, BadEntry, Chunk, Entry, Frame, Kind, chunk_id
from sandbox.system import kernel
from sandbox.tree import root_swap
from sandbox.tree.scan import TreeScanner
from sandbox.tree.staging import Staging, StagingIncomplete, begin_empty, recover_swap
from tests.sandbox.scans import Keeper, hours_later
from tests.sandbox.trees import Drawing, Told, in_a_child, make_home, open_descriptors, somebody, tell


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """Where nothing has to wait for a disk."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as path:
        yield Path(path)


@pytest.fixture
def home(memory_path: Path) -> Path:
    return make_home(memory_path / "home")


def large(seed: int, parts: int, size: int = 40_000) -> list[bytes]:
    rng = random.Random(seed)
    return [rng.randbytes(size) for _ in range(parts)]


def sample() -> Drawing:
    drawing = Drawing()
    drawing.directory(b"workspace/src", 0o750)
    drawing.directory(b"workspace/src/empty", 0o700, mtime_ns=0)
    drawing.directory(b"workspace/locked", 0o555)
    drawing.directory(b"workspace/shut", 0o000)
    drawing.directory(b"workspace/shut/within", 0o100)
    drawing.directory(b"agent/.config", 0o755, mtime_ns=-1)
    drawing.file(b"workspace/src/main.py", b"print(1)\n", mode=0o755)
    drawing.file(b"workspace/src/same.py", b"print(1)\n")
    drawing.file(b"workspace/none", mode=0o600)
    drawing.file(b"workspace/locked/secret", b"x" * 100, mode=0o000)
    drawing.file(b"workspace/shut/inner", b"y" * 5000, mode=0o444)
    drawing.file(b"workspace/large", *large(1, 7), mode=0o444, mtime_ns=1)
    drawing.file(b"workspace/repeated", *[b"z" * 20_000] * 9)
    drawing.file(b"agent/sparse", 1 << 20, b"in the middle", 3 << 20)
    drawing.file(b"agent/hollow", 5 << 20, mtime_ns=-(10**18))
    drawing.file(b"agent/\xff\n\x1b[2J -rf", b"odd")
    drawing.file(b"agent/" + b"n" * 255, b"long")
    drawing.symlink(b"workspace/link", b"/etc/passwd")
    drawing.symlink(b"workspace/shut/loop", b"../shut/loop")
    drawing.symlink(b"agent/dangling", b"\xfe" * 300)
    return drawing


def restore(home: Path, drawing: Drawing, token: str = "t", *, aside: bool = False, seed: int = 0) -> None:
    with Staging(home, token) as staging:
        wanted = staging.plan(drawing.entries)
        for frame in drawing.frames(wanted, rng=random.Random(seed)):
            staging.put(frame)
        staging.finish()
        staging.swap(aside=aside)


def beside(home: Path) -> list[str]:
    """What lies beside the roots."""
    return sorted(name for name in os.listdir(home) if name not in ("workspace", "agent"))


# -- a tree as it was -------------------------------------------------------------------------------------------------


def test_every_kind_of_entry_comes_back_as_it_was(tmp_path: Path) -> None:
    home, drawing = make_home(tmp_path / "home"), sample()
    restore(home, drawing)
    assert tell(home) == drawing.told
    assert beside(home) == []


def test_no_mode_stops_an_owner_who_is_not_root(open_path: Path) -> None:
    home, drawing = make_home(open_path / "home", owner=somebody()), sample()
    old = home / "workspace" / "old"

    def work() -> None:
        old.mkdir()
        (old / "file").touch()
        old.chmod(0)
        (home / "workspace").chmod(0o500)
        (home / "agent").chmod(0)
        home.chmod(0o500)
        restore(home, drawing, aside=True)
        restore(home, drawing)
        restore(home, drawing, aside=True)

    assert in_a_child(work, owner=somebody())
    assert tell(home) == drawing.told
    assert beside(home) == [".aside-1", ".aside-2"]


def test_holes_take_no_room(home: Path) -> None:
    drawing = Drawing()
    drawing.file(b"workspace/sparse", 4 << 20, b"x", 16 << 20)
    with Staging(home, "t") as staging:
        for frame in drawing.frames(staging.plan(drawing.entries)):
            staging.put(frame)
        staging.finish()
        assert (staging.files, staging.written_bytes) == (1, (20 << 20) + 1)
        staging.swap(aside=False)
    found = (home / "workspace" / "sparse").stat()
    assert found.st_size == (20 << 20) + 1
    assert found.st_blocks * 512 < 1 << 20


names = st.binary(min_size=1, max_size=12).filter(lambda name: name not in (b".", b"..") and not {0, 47} & set(name))
modes = st.integers(0, 0o777)
times = st.integers(-(2**33) * 10**9 // 8, 2**33 * 10**9)  # what ext4 can keep


def has_single_holes(parts: list[bytes | int]) -> bool:
    return not any(isinstance(one, int) and isinstance(other, int) for one, other in pairwise(parts))


@st.composite
def drawings(draw: st.DrawFn) -> Drawing:
    drawing = Drawing()
    directories = [b"workspace", b"agent"]
    for _ in range(draw(st.integers(0, 12))):
        path = draw(st.sampled_from(directories)) + b"/" + draw(names)
        if path in drawing.told:
            continue
        match draw(st.sampled_from(["file", "small", "directory", "symlink"])):
            case "directory":
                drawing.directory(path, draw(modes), draw(times))
                directories.append(path)
            case "symlink":
                target = draw(st.binary(min_size=1, max_size=50).filter(lambda target: b"\0" not in target))
                drawing.symlink(path, target, draw(times))
            case kind:
                part = (
                    st.binary(min_size=1, max_size=30)
                    if kind == "small"
                    else st.integers(1, 9000) | st.binary(min_size=1, max_size=30)
                )
                parts = draw(st.lists(part, max_size=1 if kind == "small" else 6).filter(has_single_holes))
                drawing.file(path, *parts, mode=draw(modes), mtime_ns=draw(times))
    return drawing


@settings(max_examples=60)
@given(drawing=drawings(), seed=st.integers(0, 99), cut=st.integers(0, 8))
def test_any_tree_comes_back_in_any_order_also_when_it_was_interrupted(drawing: Drawing, seed: int, cut: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        home = make_home(Path(directory))
        with Staging(home, "t") as staging:
            frames = drawing.frames(staging.plan(drawing.entries), rng=random.Random(seed), most=2)
            for frame in frames[:cut]:
                staging.put(frame)
            done = staging.files, staging.written_bytes
        with Staging(home, "t") as staging:
            wanted = staging.plan(drawing.entries)
            assert wanted <= {chunk.id for frame in frames for chunk in frame.chunks}
            has_holes = any(not chunk.id for entry in drawing.entries for chunk in entry.chunks)
            assert has_holes or (staging.files, staging.written_bytes) == done
            for frame in drawing.frames(wanted, rng=random.Random(seed + 1)):
                staging.put(frame)
            staging.finish()
            staging.swap(aside=False)
        assert tell(home) == drawing.told
        _make_removable(home)


def _make_removable(home: Path) -> None:
    for path, (kind, *_) in sorted(tell(home).items()):
        if kind == Kind.DIRECTORY:
            (home / os.fsdecode(path)).chmod(0o700)


# -- what is refused --------------------------------------------------------------------------------------------------

A = Chunk(chunk_id(b"aaa"), 3)


def entry(path: bytes, kind: int = Kind.FILE, mode: int = 0o644, **members: object) -> Entry:
    return Entry(path, kind, mode, 0, **members)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "entries",
    [
        [entry(b"workspace", Kind.DIRECTORY)],
        [entry(b"state/x")],
        [entry(b"workspace/../x")],
        [entry(b"/workspace/x")],
        [entry(b"workspace//x")],
        [entry(b"workspace/x\0")],
        [entry(b"workspace/" + b"n" * 256)],
        [entry(b"workspace" + b"/d" * 64)],
        [entry(b"workspace/x"), entry(b"workspace/x")],
        [entry(b"workspace/x"), entry(b"workspace/x", Kind.DIRECTORY)],
        [entry(b"workspace/no/x")],
        [entry(b"workspace/f"), entry(b"workspace/f/x")],
        [entry(b"workspace/l", Kind.SYMLINK, target=b"/etc"), entry(b"workspace/l/x")],
        [entry(b"workspace/l/x"), entry(b"workspace/l", Kind.SYMLINK, target=b"/etc")],
        [entry(b"workspace/l", Kind.SYMLINK, target=b"")],
        [entry(b"workspace/x", mode=0o4755)],
        [entry(b"workspace/x", size=4, chunks=(A,))],
        [entry(b"workspace/x", size=-1)],
        [entry(b"workspace/x", 3)],
        [entry(b"workspace/d", Kind.DIRECTORY, chunks=(A,), size=3)],
    ],
    ids=lambda entries: repr([(one.path[:30], one.kind) for one in entries]),
)
def test_what_is_no_tree_is_refused_before_anything_is_touched(home: Path, entries: list[Entry]) -> None:
    (home / "workspace" / "kept").write_text("old")
    (home / ".staging-of-another").mkdir()
    with Staging(home, "t") as staging, pytest.raises(BadEntry):
        staging.plan(entries)
    assert beside(home) == [".staging-of-another"]
    assert (home / "workspace" / "kept").read_text() == "old"


def bad_frames() -> dict[str, Frame]:
    good = pack([(A, b"aaa")])
    return {
        "another content": pack([(A, b"bbb")]),
        "garbage": Frame((A,), b"garbage"),
        "nothing": Frame((A,), b""),
        "cut short": Frame((A,), good.data[:-1]),
        "with more": Frame((A,), good.data + b"x"),
        "two frames": Frame((A,), good.data * 2),
        "another size": Frame((Chunk(A.id, 4),), good.data),
        "a hole": Frame((Chunk(b"", 3),), good.data),
        "one good and one bad": pack([(A, b"aaa"), (Chunk(chunk_id(b"ccc"), 3), b"ddd")]),
        "empty": Frame((), pack([]).data),
        "a bomb": pack([(Chunk(A.id, 64 << 20), bytes(64 << 20))]),
    }


@pytest.mark.parametrize("frame", bad_frames().values(), ids=bad_frames().keys())
def test_content_that_is_not_what_it_should_be_is_refused_and_written_nowhere(home: Path, frame: Frame) -> None:
    drawing = Drawing()
    drawing.file(b"workspace/x", b"aaa")
    with Staging(home, "t") as staging:
        assert staging.plan(drawing.entries) == {A.id}
        with pytest.raises(BadEntry):
            staging.put(frame)
        with pytest.raises(StagingIncomplete):
            staging.finish()
    assert tell(home) == {}
    assert not list(home.rglob("x"))


def test_a_tree_that_gives_a_chunk_another_size_is_refused_when_the_chunk_comes(home: Path) -> None:
    with Staging(home, "t") as staging:
        staging.plan([entry(b"workspace/x", size=2, chunks=(Chunk(A.id, 2),))])
        with pytest.raises(BadEntry):
            staging.put(pack([(A, b"aaa")]))


def test_chunks_that_are_not_lacking_are_passed_over(home: Path) -> None:
    """Frames are stored as they were made: beside what is needed they hold what once was needed with it."""
    drawing = Drawing()
    drawing.file(b"workspace/x", b"aaa")
    frame = pack([(Chunk(chunk_id(b"other"), 5), b"other"), (A, b"aaa")])
    with Staging(home, "t") as staging:
        staging.plan(drawing.entries)
        staging.put(frame)
        staging.put(frame)
        staging.finish()
        staging.swap(aside=False)
    assert tell(home) == drawing.told


def test_a_tree_of_which_something_is_lacking_is_not_finished(home: Path) -> None:
    (home / "workspace" / "kept").write_text("old")
    drawing = sample()
    with Staging(home, "t") as staging:
        for frame in drawing.frames(staging.plan(drawing.entries))[1:]:
            staging.put(frame)
        with pytest.raises(StagingIncomplete, match="chunks"):
            staging.finish()
        with pytest.raises(AssertionError):
            staging.swap(aside=False)
    assert list(tell(home)) == [b"workspace/kept"]


# -- going on ---------------------------------------------------------------------------------------------------------


def interrupted(home: Path, drawing: Drawing, *, lacking: int = 1, finish: bool = False) -> Path:
    """Nearly all of a restore; the place of its new tree."""
    with Staging(home, "t") as staging:
        frames = drawing.frames(staging.plan(drawing.entries), most=1)
        for frame in frames[lacking:]:
            staging.put(frame)
        if finish:
            staging.finish()
    return home / root_swap.staging_name("t") / "new"


def test_what_an_interrupted_run_wrote_is_not_asked_for_again(home: Path) -> None:
    drawing = sample()
    interrupted(home, drawing)
    with Staging(home, "t") as staging:
        wanted = staging.plan(drawing.entries)
    # A hole cannot be known from zeros, so a sparse file is asked for again.
    assert wanted <= {sorted(drawing.contents)[0], chunk_id(b"in the middle")}
    restore(home, drawing)
    assert tell(home) == drawing.told


def test_a_run_that_was_interrupted_at_its_very_end_needs_nothing(home: Path) -> None:
    drawing = sample()
    interrupted(home, drawing, lacking=0, finish=True)
    with Staging(home, "t") as staging:
        assert staging.plan(drawing.entries) <= {chunk_id(b"in the middle")}
    restore(home, drawing)
    assert tell(home) == drawing.told


def flip(path: Path) -> None:
    content = path.read_bytes()
    found = path.stat()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    os.utime(path, ns=(found.st_mtime_ns, found.st_mtime_ns))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a flipped bit, with the old time": lambda new: flip(new / "workspace" / "large"),
    "a flipped bit in a small file": lambda new: flip(new / "workspace" / "src" / "main.py"),
    "cut short": lambda new: os.truncate(new / "workspace" / "large", 70_000),
    "longer": lambda new: os.truncate(new / "workspace" / "large", 700_000),
    "empty": lambda new: os.truncate(new / "workspace" / "src" / "main.py", 0),
    "another mode": lambda new: (new / "workspace" / "none").chmod(0o777),
    "another time": lambda new: os.utime(new / "workspace" / "large"),
    "zeros written into a hole": lambda new: (new / "agent" / "sparse").write_bytes(bytes(4 << 20)),
    "a stray file": lambda new: (new / "workspace" / "stray").touch(),
    "a stray directory": lambda new: (new / "agent" / "stray").mkdir(),
    "a stray beside it": lambda new: (new.parent / "old").symlink_to("/"),
    "a stray root": lambda new: (new / "third").mkdir(),
    "a symlink for a directory": lambda new: _replace(new / "workspace" / "src" / "empty", "/"),
    "a symlink for a file": lambda new: _replace(new / "workspace" / "none", "/nonexistent/file"),
    "a FIFO for a file": lambda new: _replace(new / "workspace" / "none", None),
    "one more name of a file": lambda new: os.link(new / "workspace" / "none", new.parent.parent / "name"),
    "no rights": lambda new: (new / "workspace" / "src").chmod(0),
    "no rights at all": lambda new: new.chmod(0),
    "a missing root": lambda new: _remove(new / "agent"),
}


def _remove(path: Path) -> None:
    root_swap.discard(path.parent, path.name)


def _replace(path: Path, target: str | None) -> None:
    """By a symlink, or by a FIFO."""
    _remove(path)
    if target is None:
        os.mkfifo(path)
    else:
        path.symlink_to(target)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_what_was_done_to_a_staging_meanwhile_does_not_come_into_the_tree(
    home: Path, damage: Callable[[Path], object]
) -> None:
    drawing = sample()
    damage(interrupted(home, drawing))
    restore(home, drawing)
    assert tell(home) == drawing.told
    assert (home / "workspace" / "none").stat().st_nlink == 1


@pytest.mark.parametrize("damage", ["", "a flipped bit, with the old time", "a flipped bit in a small file"])
def test_an_owner_who_is_not_root_goes_on_with_files_he_may_not_write(open_path: Path, damage: str) -> None:
    home, drawing = make_home(open_path / "home", owner=somebody()), sample()
    drawing.file(b"workspace/src/object", b"small", mode=0o444)

    def work() -> None:
        new = interrupted(home, drawing, lacking=0, finish=True)
        if damage:
            for name in ("large", "src", "src/main.py"):
                (new / "workspace" / name).chmod(0o700)
            DAMAGES[damage](new)
            for name in ("large", "src/main.py", "src"):
                (new / "workspace" / name).chmod(0o444)
        with Staging(home, "t") as staging:
            wanted = staging.plan(drawing.entries)
            assert chunk_id(b"small") not in wanted
        restore(home, drawing)

    assert in_a_child(work, owner=somebody())
    assert tell(home) == drawing.told


def test_the_staging_of_another_tree_is_removed(home: Path) -> None:
    interrupted(home, sample())
    other = Drawing()
    other.file(b"workspace/only", b"this")
    restore(home, other, "another")
    assert tell(home) == other.told
    assert beside(home) == []


def test_a_restore_that_dies_anywhere_is_gone_on_with(home: Path) -> None:
    drawing = sample()
    rng = random.Random(4)
    deaths = [rng.randrange(20, 130) for _ in range(25)]
    for step in deaths:
        before = tell(home)
        if in_a_child(lambda: restore(home, drawing), dies_at=step):
            break
        recover_swap(home)
        assert tell(home) in (before, drawing.told)
    restore(home, drawing)
    assert tell(home) == drawing.told


def test_few_descriptors_are_open_at_once_and_none_in_the_end(home: Path) -> None:
    drawing = Drawing()
    for number in range(150):
        drawing.directory(b"workspace/%d" % number)
        drawing.file(b"workspace/%d/large" % number, *large(number, 3, 100))
    before = most = open_descriptors()
    with Staging(home, "t") as staging:
        for frame in drawing.frames(staging.plan(drawing.entries), rng=random.Random(0), most=1):
            staging.put(frame)
            most = max(most, open_descriptors())
        staging.finish()
        staging.swap(aside=False)
    assert most - before <= 100
    assert open_descriptors() == before
    assert tell(home) == drawing.told


# -- the swap ---------------------------------------------------------------------------------------------------------


def old_and_new(home: Path) -> tuple[Told, Drawing]:
    for root in ("workspace", "agent"):
        (home / root / "old").write_text(root)
    new = Drawing()
    new.file(b"workspace/new", b"1")
    new.file(b"agent/new", b"2")
    with Staging(home, "t") as staging:
        for frame in new.frames(staging.plan(new.entries)):
            staging.put(frame)
        staging.finish()
    return tell(home), new


@pytest.mark.parametrize("can_exchange", [True, False], ids=["exchange", "two renames"])
@pytest.mark.parametrize("aside", [True, False], ids=["aside", "removed"])
@pytest.mark.parametrize("again", [False, True], ids=["", "and once more in the recovery"])
def test_a_swap_that_dies_at_any_step_is_old_or_new_and_never_a_mix(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool, aside: bool, again: bool
) -> None:
    if not can_exchange:  # as on a file system that has no such call
        monkeypatch.setattr(root_swap, "exchange", lambda *_: False)
    outcomes = set()
    for step in range(0, 200, 3 if again else 1):
        home = make_home(memory_path / str(step))
        old, new = old_and_new(home)
        name = root_swap.staging_name("t")
        if in_a_child(lambda: root_swap.swap_in(home, name, aside=aside), dies_at=step):  # noqa: B023
            break
        if again:
            in_a_child(lambda: recover_swap(home), dies_at=step * 5 % 61)  # noqa: B023
        recover_swap(home)
        found = tell(home)
        assert found in (old, new.told), step
        outcomes.add(found == old)
        asides = [each for each in beside(home) if each.startswith(".aside")]
        if found == new.told and aside:
            assert tell(home / asides[0]) == old
        assert len(asides) <= aside
        recover_swap(home)
        assert tell(home) == found
        restore(home, new, "another")
        assert beside(home) == asides
    else:
        pytest.fail("it never came to its end")
    assert outcomes == {True, False}
    assert tell(home) == new.told


def test_a_swap_that_failed_is_completed_before_the_next_restore_begins(memory_path: Path) -> None:
    for step in range(0, 200, 4):
        home = make_home(memory_path / str(step))
        old, new = old_and_new(home)
        swapped = in_a_child(lambda: root_swap.swap_in(home, root_swap.staging_name("t"), aside=False), dies_at=step)  # noqa: B023
        with Staging(home, "another") as staging:
            staging.plan([])
        assert tell(home) in (old, new.told), step
        if swapped:
            break


def test_a_swap_that_cannot_be_done_leaves_the_old_tree_and_no_intent(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = old_and_new(home)

    def is_busy(*_: object) -> bool:  # as the kernel says of a root that is a mount point
        raise OSError(errno.EBUSY, "Device or resource busy")

    with monkeypatch.context() as patched:
        patched.setattr(root_swap, "exchange", is_busy)
        with pytest.raises(OSError, match="busy"):
            root_swap.swap_in(home, root_swap.staging_name("t"), aside=True)
        recover_swap(home)
    assert tell(home) == old
    restore(home, new)
    assert tell(home) == new.told


def test_a_swap_that_fails_in_the_middle_is_gone_on_with(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, new = old_and_new(home)
    real = kernel.exchange

    def fails_at_the_second_root(directory: int, root: bytes, *rest: int | bytes) -> bool:
        if root == b"agent":
            raise OSError(errno.EIO, "Input/output error")
        return real(directory, root, *rest)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(root_swap, "exchange", fails_at_the_second_root)
        with pytest.raises(OSError, match="output"):
            root_swap.swap_in(home, root_swap.staging_name("t"), aside=False)
    recover_swap(home)
    assert tell(home) == new.told


def test_a_root_made_anew_between_the_two_renames_is_put_aside(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever starts a sandbox makes the roots that are missing, before the bridge looks at them."""
    monkeypatch.setattr(root_swap, "exchange", lambda *_: False)
    old, new = old_and_new(home)
    real = os.rename

    def dies_after_the_first_root_is_away(source: bytes, *rest: object, **named: object) -> None:
        if source == b"workspace" and not (home / "workspace").exists():
            raise KeyboardInterrupt
        real(source, *rest, **named)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", dies_after_the_first_root_is_away)
        with pytest.raises(KeyboardInterrupt):
            root_swap.swap_in(home, root_swap.staging_name("t"), aside=True)
    assert not (home / "workspace").exists()
    (home / "workspace").mkdir()
    (home / "workspace" / "since").touch()
    recover_swap(home)
    assert tell(home) == new.told
    aside = home / ".aside-1"
    assert tell(aside) == old
    assert os.listdir(aside / "workspace.more") == ["since"]


def test_only_the_newest_two_asides_are_kept_and_empty_ones_never(home: Path) -> None:
    for number in range(5):
        (home / "workspace" / f"made-in-round-{number}").touch()
        begin_empty(home)
        assert tell(home) == {}
        begin_empty(home)
    assert beside(home) == [".aside-4", ".aside-5"]
    assert os.listdir(home / ".aside-5" / "workspace") == ["made-in-round-4"]
    assert os.listdir(home / ".aside-4" / "workspace") == ["made-in-round-3"]


@pytest.mark.parametrize("planted", ["9" * 18, "9" * 99, "9" * 248, "007"])
def test_no_number_of_an_aside_is_in_the_way_of_the_next(home: Path, planted: str) -> None:
    (home / f".aside-{planted}" / "workspace").mkdir(parents=True)
    for number in range(4):
        (home / "workspace" / f"made-in-round-{number}").touch()
        begin_empty(home)
        assert tell(home) == {}
    assert len(beside(home)) == 2
    assert list(home.glob(".aside-*/workspace/made-in-round-3"))


@pytest.mark.parametrize("spoilt", ["no rights", "new is a file", "old is a symlink", "a root without rights"])
def test_an_intent_that_cannot_be_carried_out_stops_nobody(open_path: Path, spoilt: str) -> None:
    home, drawing = make_home(open_path / "home", owner=somebody()), sample()
    staging = home / root_swap.staging_name("planted")

    def work() -> None:
        (home / "workspace" / "kept").write_text("old")
        for root in ("workspace", "agent"):
            (staging / "new" / root).mkdir(parents=True)
            (staging / "new" / root).chmod(0o1000 if spoilt == "a root without rights" else 0o1700)
        if spoilt == "no rights":
            (staging / "new").chmod(0)
            staging.chmod(0)
        elif spoilt == "new is a file":
            (staging / "new").rename(staging / "was")
            (staging / "new").touch()
        elif spoilt == "old is a symlink":
            (staging / "old").symlink_to("/")
        (home / ".swap").write_text(json.dumps({"staging": staging.name, "aside": True}))
        recover_swap(home)
        assert not (home / ".swap").exists()
        assert len(list(home.glob("**/kept"))) == 1
        restore(home, drawing)

    assert in_a_child(work, owner=somebody())
    assert tell(home) == drawing.told


@pytest.mark.parametrize("kind", ["file", "directory", "symlink"])
def test_the_longest_path_comes_back(tmp_path: Path, kind: str) -> None:
    home, drawing, path = make_home(tmp_path / "home"), Drawing(), b"workspace"
    while len(path) < MAX_PATH - MAX_NAME - 1:
        path += b"/" + b"n" * 200
        drawing.directory(path)
    path += b"/" + b"l" * (MAX_PATH - len(path) - 1)
    match kind:
        case "file":
            drawing.file(path, b"x" * 40_000)
        case "directory":
            drawing.directory(path)
        case _:
            drawing.symlink(path, b"t" * MAX_PATH)
    restore(home, drawing)
    keeper = Keeper(TreeScanner(home, tmp_path / "cache", hours_later))
    done = keeper.sync()
    assert keeper.tree.keys() == drawing.told.keys()
    assert keeper.seen()[path] == drawing.told[path]
    assert not done.moved
    root_swap.discard(home, "workspace")


def test_the_roots_belong_to_us_alone_after_a_swap(home: Path) -> None:
    (home / "workspace").chmod(0o1777)
    (home / "agent").chmod(0o000)
    restore(home, sample())
    assert [stat.S_IMODE((home / root).stat().st_mode) for root in ("workspace", "agent")] == [0o700, 0o700]


@pytest.mark.parametrize("in_the_way", [".swap", ".swap.new", ".trash", ".staging", "workspace", "agent"])
@pytest.mark.parametrize("what", ["symlink", "dangling", "file", "directory", "fifo", "nothing"])
def test_nothing_in_the_way_is_followed_or_stops_a_restore(tmp_path: Path, in_the_way: str, what: str) -> None:
    home, victim = make_home(tmp_path / "home"), tmp_path / "victim"
    (victim / "new" / "workspace").mkdir(parents=True)
    (victim / "precious").write_text("precious")
    path = home / (root_swap.staging_name("t") if in_the_way == ".staging" else in_the_way)
    if path.exists():
        path.rmdir()
    match what:
        case "symlink":
            path.symlink_to(victim)
        case "dangling":
            path.symlink_to(tmp_path / "nowhere")
        case "file":
            path.write_text('{"staging": ".staging-../../victim", "aside": true}')
        case "directory":
            (path / "inner").mkdir(parents=True)
            path.chmod(0)
        case "fifo":
            os.mkfifo(path)
    recover_swap(home)
    drawing = sample()
    restore(home, drawing)
    assert tell(home) == drawing.told
    assert beside(home) == []
    assert sorted(os.listdir(victim)) == ["new", "precious"]
    assert os.listdir(victim / "new") == ["workspace"]
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    "intent",
    [
        b"",
        b"{",
        b"[]",
        b'{"staging": "../x", "aside": true}',
        b'{"staging": ".staging-00000000000000000000000000000000", "aside": 1}',
        b'{"staging": ".staging-00000000000000000000000000000000", "aside": true}',
        b"[" * 5000,
    ],
)
def test_an_intent_that_nobody_had_changes_nothing(home: Path, intent: bytes) -> None:
    (home / "workspace" / "kept").write_text("old")
    for root in ("workspace", "agent"):
        (home.parent / "x" / "new" / root).mkdir(parents=True)
        (home.parent / "x" / "new" / root).chmod(0o1700)
    (home / ".swap").write_bytes(intent)
    before = tell(home)
    recover_swap(home)
    assert tell(home) == before
    assert beside(home) == []
