"""Scans of real trees that change between and during them: what is told is what is there."""

import contextlib
import os
import random
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from sandbox.protocol.entry import MAX_DEPTH, MAX_FILE, Chunk, Entry, Kind
from sandbox.protocol.tree import BATCH_BYTES, MAX_SKIPPED, ScanAsk, Survey, SurveyAsk, TreeLimits
from sandbox.system.mapped_files import find_mapped
from sandbox.system.problem import TreeProblem
from sandbox.tree import chunker, scan_report
from sandbox.tree.scan import TreeScanner
from sync.machine.reconcile import Decision, Newest, decide
from tests.sandbox.scans import NEWEST, NOBODY, Keeper, hours_later, make_home, on_disk, tick, unprivileged

MIB = 1 << 20


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return make_home(tmp_path / "home")


@pytest.fixture
def workspace(home: Path) -> Path:
    return home / "workspace"


@pytest.fixture
def keeper(home: Path, tmp_path: Path) -> Keeper:
    return Keeper(TreeScanner(home, tmp_path / "cache", hours_later))


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


# -- any sequence of edits --------------------------------------------------------------------------------------------

NAMES = st.sampled_from(
    [os.fsdecode(name) for name in (b"a", b"b", b"c d", b"e\nf", b"\xff\xfe", "ü".encode(), b"-n", b"\x1b[1m")]
)
PATHS = st.builds(
    lambda root, parts: "/".join([root, *parts]),
    st.sampled_from(["workspace", "workspace", "agent"]),
    st.lists(NAMES, min_size=1, max_size=3),
)
CONTENTS = st.sampled_from([b"", b"x", b"y", b"text" * 1000, noise(20_000), noise(70_000), noise(70_000, 2)])


class Edits(RuleBasedStateMachine):
    """Programs edit, the keeper syncs now and then, the bridge restarts, what a scan told is lost. After each sync the
    kept tree is the one on the disk."""

    @initialize(patient=st.booleans())
    def begin(self, patient: bool) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="edits")).resolve()
        self.home = make_home(self.place / "home")
        # An impatient scanner believes no stamp, since all is young; a patient one lives in a world of old files.
        self.clock = hours_later if patient else time.time_ns
        self.keeper = Keeper(self.scanner())

    def scanner(self) -> TreeScanner:
        return TreeScanner(self.home, self.place / "cache", self.clock)

    def teardown(self) -> None:
        shutil.rmtree(self.place)

    def edit(self, path: str, how: Callable[[Path], object]) -> None:
        """What would lead out of the home is left: a program's symlinks may point anywhere, a test writes only here."""
        at = self.home / path
        with contextlib.suppress(OSError, RuntimeError):  # a RuntimeError is a loop of links, until Python 3.13
            if at.parent.resolve().is_relative_to(self.home) and not (at.is_symlink() and at.exists()):
                how(at)

    @rule(path=PATHS, content=CONTENTS)
    def write(self, path: str, content: bytes) -> None:
        self.edit(path, lambda at: at.write_bytes(content))

    @rule(path=PATHS, content=CONTENTS)
    def write_below(self, path: str, content: bytes) -> None:
        def write(at: Path) -> None:
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_bytes(content)

        self.edit(path, write)

    @rule(path=PATHS, content=CONTENTS)
    def write_without_a_trace(self, path: str, content: bytes) -> None:
        """The same size, the same time of change, the same inode."""

        def write(at: Path) -> None:
            before = at.lstat()
            at.write_bytes(content[: before.st_size].ljust(before.st_size, b"-"))
            os.utime(at, ns=(before.st_atime_ns, before.st_mtime_ns))

        self.edit(path, write)

    @rule(path=PATHS, place=st.integers(0, 300_000), size=st.integers(0, 600_000))
    def make_sparse(self, path: str, place: int, size: int) -> None:
        def write(at: Path) -> None:
            with at.open("wb") as file:
                file.seek(place)
                file.write(b"data")
                file.truncate(size)

        self.edit(path, write)

    @rule(path=PATHS)
    def make_directory(self, path: str) -> None:
        self.edit(path, lambda at: at.mkdir(parents=True))

    @rule(path=PATHS, to=st.sampled_from(["a", "../..", "/nonexistent/file", "x" * 300]))
    def link(self, path: str, to: str) -> None:
        self.edit(path, lambda at: at.symlink_to(to))

    @rule(path=PATHS, to=PATHS)
    def link_hard(self, path: str, to: str) -> None:
        self.edit(path, lambda at: os.link(at, self.home / to, follow_symlinks=False))

    @rule(path=PATHS, to=PATHS)
    def rename(self, path: str, to: str) -> None:
        self.edit(path, lambda at: at.rename(self.home / to))

    @rule(path=PATHS)
    def remove(self, path: str) -> None:
        self.edit(path, lambda at: shutil.rmtree(at) if at.is_dir() and not at.is_symlink() else at.unlink())

    @rule(path=PATHS)
    def unlink(self, path: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self.home / path)

    @rule(path=PATHS, mode=st.sampled_from([0o600, 0o644, 0o700, 0o755, 0o4755, 0o777]))
    def change_mode(self, path: str, mode: int) -> None:
        self.edit(path, lambda at: None if at.is_symlink() else at.chmod(mode))

    @rule(path=PATHS, when=st.sampled_from([0, -5, 10**18, 4 * 10**18, 10**19]))
    def change_time(self, path: str, when: int) -> None:
        self.edit(path, lambda at: os.utime(at, ns=(when, when), follow_symlinks=False))

    @rule()
    def restart(self) -> None:
        self.keeper.scanner = self.scanner()

    @rule()
    def sync_and_lose_it(self) -> None:
        tick(self.home)
        self.keeper.sync(remember=False)
        tick(self.home)

    @rule(base=st.sampled_from([NEWEST, NEWEST, NEWEST, "another", None]))
    def sync(self, base: str | None) -> None:
        tick(self.home)
        done = self.keeper.sync(base=base)
        expected = on_disk(self.home)
        assert self.keeper.seen() == expected
        assert done.files == sum(kind != Kind.DIRECTORY for kind, *_ in expected.values())
        weights = [chunk.size for entry in self.keeper.tree.values() for chunk in entry.chunks if chunk.id]
        assert done.total_bytes == sum(weights)
        assert self.keeper.survey() == (self.keeper.token, 0, done.files)
        tick(self.home)

    @rule()
    def tell_it_all_to_somebody_new(self) -> None:
        tick(self.home)
        self.keeper.sync()
        stranger = Keeper(TreeScanner(self.home, self.place / "no cache"))
        stranger.sync(remember=False)
        assert stranger.take(stranger.scanner.scan(ScanAsk())) == self.keeper.tree
        tick(self.home)


TestEdits = Edits.TestCase
TestEdits.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


# -- what is read, and what is not ------------------------------------------------------------------------------------


def test_what_has_not_changed_is_neither_read_nor_told(home: Path, workspace: Path, keeper: Keeper) -> None:
    for number in range(30):
        (workspace / f"{number}").write_bytes(noise(30_000, number))
    first = keeper.sync()
    assert (first.base, first.read_bytes, first.total_bytes) == (None, 900_000, 900_000)
    second = keeper.sync()
    assert (second.base, second.read_bytes, second.total_bytes, second.files) == ("generation 1", 0, 900_000, 30)
    assert keeper.told == []
    tick(home)
    (workspace / "7").write_bytes(b"other")
    third = keeper.sync()
    assert (third.read_bytes, keeper.entries_told) == (5, {b"workspace/7"})


def test_a_tree_of_another_base_is_told_whole_and_not_read_again(home: Path, workspace: Path, keeper: Keeper) -> None:
    (workspace / "d").mkdir()
    (workspace / "d" / "a").write_bytes(noise(50_000))
    (workspace / "gone").write_bytes(b"x")
    keeper.sync()
    tick(home)
    (workspace / "gone").unlink()
    (workspace / "new").write_bytes(b"new")
    done = keeper.sync(base="something else")
    assert (done.base, done.read_bytes) == (None, 3)
    assert keeper.seen() == on_disk(home)


def test_whoever_has_no_base_is_offered_everything(home: Path, workspace: Path, keeper: Keeper) -> None:
    (workspace / "a").write_bytes(noise(50_000))
    keeper.sync()
    keeper.chunks.clear()
    assert keeper.sync(base=None).read_bytes == 50_000
    assert keeper.seen() == on_disk(home)
    assert keeper.sync().read_bytes == 0


def test_a_file_younger_than_two_seconds_is_read_again(home: Path, workspace: Path, tmp_path: Path) -> None:
    clock_ns = time.time_ns()
    keeper = Keeper(TreeScanner(home, tmp_path / "cache", lambda: clock_ns))
    (workspace / "young").write_bytes(b"young")
    assert keeper.sync().read_bytes == 5
    assert keeper.survey() == (keeper.token, 0, 1)
    assert keeper.sync().read_bytes == 5
    assert keeper.told == [], "it is what it was, so there is nothing to tell"
    clock_ns = hours_later()
    assert keeper.sync(remember=False).read_bytes == 5
    assert keeper.sync(remember=False).read_bytes == 0, "nobody has to say that what is known to be known is known"


def test_a_change_that_hides_its_time_is_found(home: Path, workspace: Path, keeper: Keeper) -> None:
    path = workspace / "a"
    path.write_bytes(b"before")
    before = path.stat()
    keeper.sync()
    tick(home)
    path.write_bytes(b"after!")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (before.st_size, before.st_mtime_ns, before.st_ino) == (after.st_size, after.st_mtime_ns, after.st_ino)
    keeper.sync()
    assert keeper.content(b"workspace/a") == b"after!"


def test_a_directory_has_a_time_too(home: Path, workspace: Path, keeper: Keeper) -> None:
    (workspace / "d").mkdir()
    keeper.sync()
    tick(home)
    (workspace / "d" / "a").write_bytes(b"")
    (workspace / "d" / "a").unlink()
    keeper.sync()
    assert keeper.entries_told == {b"workspace/d"}
    assert keeper.seen() == on_disk(home)


def test_what_was_touched_and_is_the_same_is_not_told(home: Path, workspace: Path, keeper: Keeper) -> None:
    path = workspace / "a"
    path.write_bytes(noise(100_000))
    keeper.sync()
    tick(home)
    path.chmod(0o600)
    path.chmod(0o644)
    assert keeper.sync(remember=False).read_bytes == 100_000
    assert keeper.told == []
    assert keeper.sync(remember=False).read_bytes == 0


def test_what_is_removed_is_told_to_the_last_leaf(home: Path, workspace: Path, keeper: Keeper) -> None:
    for path in ("d/e/f", "d/g", "x/y", "z/w"):
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / path).write_bytes(b"x")
    keeper.sync()
    tick(home)
    shutil.rmtree(workspace / "d")
    shutil.rmtree(workspace / "x")
    (workspace / "x").write_bytes(b"a file now")
    (workspace / "z" / "w").unlink()
    (workspace / "z" / "w").mkdir()
    assert keeper.survey() == (keeper.token, 8, 1)
    keeper.sync()
    assert keeper.removed_told == {os.fsencode(f"workspace/{path}") for path in ("d", "d/e", "d/e/f", "d/g", "x/y")}
    assert keeper.entries_told == {b"workspace/x", b"workspace/z", b"workspace/z/w"}
    assert keeper.seen() == on_disk(home)


def test_many_removals_come_in_many_batches(workspace: Path, keeper: Keeper) -> None:
    directory = workspace.joinpath(*["n" * 240] * 8)
    directory.mkdir(parents=True)
    for number in range(2200):
        os.symlink("x", directory / f"{number}")
    keeper.sync()
    assert len(keeper.told) == 3
    shutil.rmtree(workspace / ("n" * 240))
    keeper.sync()
    assert len(keeper.told) == 3
    assert keeper.tree == {}


def test_one_byte_in_20_mb_offers_little(home: Path, workspace: Path, keeper: Keeper) -> None:
    (workspace / "big").write_bytes(noise(20 * MIB))
    keeper.sync()
    assert len(keeper.told) >= 20 * MIB / BATCH_BYTES
    assert all(not batch.entries for batch in keeper.told[:-1])
    tick(home)
    with (workspace / "big").open("r+b") as file:
        file.seek(7 * MIB)
        file.write(b"!")
    keeper.sync()
    assert 0 < keeper.sent_bytes <= 256 * 1024
    assert keeper.seen() == on_disk(home)


def test_equal_content_is_offered_once_a_batch(home: Path, workspace: Path, keeper: Keeper) -> None:
    for number in range(100):
        (workspace / f"{number}").write_bytes(b"the same")
    keeper.sync()
    (batch,) = keeper.told
    assert len(batch.offers) == 1
    assert keeper.seen() == on_disk(home)


def test_a_huge_sparse_file_counts_by_what_is_in_it(workspace: Path, keeper: Keeper) -> None:
    with (workspace / "sparse").open("wb") as file:
        file.seek(1 << 42)
        file.write(b"end")
    done = keeper.sync(limits=TreeLimits(total_bytes=1 << 20))
    entry = keeper.tree[b"workspace/sparse"]
    assert entry.size == (1 << 42) + 3
    assert done.total_bytes <= 64 << 10


# -- what changes while it is read ------------------------------------------------------------------------------------


def scan_disturbed(keeper: Keeper, disturb: Callable[[int], None]) -> None:
    """Scan, and do something between any two batches: in the middle of a file that is larger than a batch."""
    scan = keeper.scanner.scan(ScanAsk(keeper.token))

    class Disturbed:
        done = property(lambda _: scan.done)

        def batches(self) -> Iterator[object]:
            for number, batch in enumerate(scan.batches()):
                yield batch
                disturb(number)

    keeper.keep(scan, keeper.take(Disturbed()))  # type: ignore[arg-type]


def test_a_file_changed_once_while_it_is_read_is_read_again(home: Path, workspace: Path, keeper: Keeper) -> None:
    path = workspace / "big"
    path.write_bytes(noise(6 * MIB))

    def disturb(number: int) -> None:
        if number == 0:
            path.write_bytes(noise(5 * MIB, 2))

    scan_disturbed(keeper, disturb)
    assert not keeper.tree[b"workspace/big"].unsettled
    assert keeper.seen() == on_disk(home)
    assert keeper.sync().total_bytes == 5 * MIB


def test_a_file_that_never_settles_is_kept_as_last_read(home: Path, workspace: Path, keeper: Keeper) -> None:
    path = workspace / "big"
    path.write_bytes(noise(6 * MIB))
    sizes = iter([7 * MIB, 5 * MIB, 6 * MIB, 8 * MIB, 9 * MIB])
    scan_disturbed(keeper, lambda number: os.truncate(path, next(sizes)))
    entry = keeper.tree[b"workspace/big"]
    assert entry.unsettled
    assert entry.size == len(keeper.content(b"workspace/big"))
    assert noise(6 * MIB)[: 4 * MIB] == keeper.content(b"workspace/big")[: 4 * MIB]
    assert keeper.survey()[1] == 1
    tick(home)
    keeper.sync()
    assert not keeper.tree[b"workspace/big"].unsettled
    assert keeper.seen() == on_disk(home)


def test_a_file_somebody_writes_all_the_time_is_kept_somehow(home: Path, workspace: Path, keeper: Keeper) -> None:
    """In one batch: the offers of an attempt in vain are taken back, and what is told is what was sent."""
    path = workspace / "log"
    path.write_bytes(noise(3 * MIB))
    ended = threading.Event()

    def write() -> None:
        with path.open("r+b") as file:
            while not ended.is_set():
                file.seek(0, os.SEEK_END)
                file.write(b"one more line\n")
                file.flush()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        unsettled = False
        while not unsettled:
            keeper.sync()
            entry = keeper.tree[b"workspace/log"]
            assert entry.size == len(keeper.content(b"workspace/log"))
            assert keeper.content(b"workspace/log").startswith(noise(3 * MIB))
            unsettled = entry.unsettled
    finally:
        ended.set()
        writer.join()
    keeper.sync()
    assert keeper.seen() == on_disk(home)


def become_nothing(path: Path) -> None:
    path.unlink()


def become_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/nonexistent/file")


def become_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "inner").write_bytes(b"inner")


def become_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def become_another(path: Path) -> None:
    path.unlink()
    path.write_bytes(b"another")


@pytest.mark.parametrize("become", [become_nothing, become_link, become_directory, become_fifo, become_another])
@pytest.mark.parametrize("known", [False, True])
def test_a_name_that_becomes_something_else_is_told_as_what_it_became(
    home: Path, workspace: Path, keeper: Keeper, become: Callable[[Path], None], known: bool
) -> None:
    """One of the two is read when they change, the other one is yet to come."""
    paths = workspace / "one", workspace / "two"
    if known:
        for path in paths:
            path.write_bytes(b"known")
        (workspace / "three").write_bytes(b"three")
        keeper.sync()
        tick(home)
    for seed, path in enumerate(paths):
        path.write_bytes(noise(6 * MIB, seed))

    def disturb(number: int) -> None:
        if number == 0:
            for path in paths:
                become(path)
            tick(home)  # what is read in the tick in which it was written is read once more

    scan_disturbed(keeper, disturb)
    assert keeper.seen() == on_disk(home)
    tick(home)
    assert keeper.sync().read_bytes == 0
    assert keeper.seen() == on_disk(home)


def test_symlinks_change_into_other_things_too(home: Path, workspace: Path, keeper: Keeper) -> None:
    names = [workspace / f"link {number}" for number in range(40)]
    for path in names:
        path.symlink_to("x")
    (workspace / "big").write_bytes(noise(6 * MIB))

    def disturb(number: int) -> None:
        if number == 0:
            for place, path in enumerate(names):
                (become_nothing, become_directory, become_another, become_fifo)[place % 4](path)

    scan_disturbed(keeper, disturb)
    tick(home)
    keeper.sync()
    assert keeper.seen() == on_disk(home)


def test_a_name_that_changes_faster_than_we_look_is_a_problem(
    workspace: Path, keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_report, "SWAPS", 1)
    paths = workspace / "one", workspace / "two"
    for seed, path in enumerate(paths):
        path.write_bytes(noise(6 * MIB, seed))

    def disturb(_: int) -> None:
        for path in paths:
            become_link(path)

    with pytest.raises(TreeProblem, match="changes its kind all the time"):
        scan_disturbed(keeper, disturb)


def test_a_directory_swapped_for_a_symlink_leads_nowhere(
    home: Path, workspace: Path, keeper: Keeper, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (workspace / "d").mkdir()
    (workspace / "d" / "mine").write_bytes(b"mine")
    keeper.sync()
    tick(home)
    (workspace / "big").write_bytes(noise(6 * MIB))

    def disturb(number: int) -> None:
        if number == 0:
            shutil.rmtree(workspace / "d")
            (workspace / "d").symlink_to(outside)

    scan_disturbed(keeper, disturb)
    assert keeper.tree[b"workspace/d"].kind == Kind.DIRECTORY
    assert {path for path in keeper.tree if path.startswith(b"workspace/d/")} == set()
    tick(home)
    keeper.sync()
    assert keeper.tree[b"workspace/d"].kind == Kind.SYMLINK
    assert keeper.seen() == on_disk(home)


SWAPS = """
import os
while True:
    for one, other in (("workspace/d", "workspace/l"), ("workspace/f", "workspace/m")):
        os.rename(one, "spare")
        os.rename(other, one)
        os.rename("spare", other)
        os.write(1, b".")
"""


def test_a_racing_swapper_gets_nothing_from_outside(workspace: Path, keeper: Keeper, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("a", "secret"):
        (outside / name).write_bytes(b"secret")
    (workspace / "d").mkdir()
    (workspace / "d" / "a").write_bytes(b"mine")
    (workspace / "f").write_bytes(b"mine")
    (workspace / "l").symlink_to(outside)
    (workspace / "m").symlink_to(outside / "secret")
    swaps = tmp_path / "swaps"
    with swaps.open("wb") as counted:
        swapper = subprocess.Popen([sys.executable, "-c", SWAPS], cwd=workspace.parent, stdout=counted)
    scans = 0
    try:
        while scans < 100 or swaps.stat().st_size < 2000:
            with contextlib.suppress(TreeProblem):  # if it is too fast for us
                keeper.sync(remember=scans % 2 == 0)
            scans += 1
    finally:
        swapper.kill()
        swapper.wait()
    assert b"secret" not in keeper.chunks.values()
    keeper.sync()
    assert keeper.seen() == on_disk(workspace.parent)


def test_what_vanishes_during_the_walk_was_not_there(workspace: Path, keeper: Keeper) -> None:
    """A thread makes and removes entries; every scan ends well, and the last one is right."""
    ended = threading.Event()

    def churn() -> None:
        number = 0
        while not ended.is_set():
            number = (number + 1) % 50
            (workspace / f"d{number}").mkdir()
            (workspace / f"d{number}" / "f").write_bytes(b"f")
            shutil.rmtree(workspace / f"d{(number + 25) % 50}", ignore_errors=True)
            (workspace / f"f{number}").write_bytes(b"f")
            (workspace / f"f{(number + 25) % 50}").unlink(missing_ok=True)
            with contextlib.suppress(FileExistsError):
                os.link(workspace / f"f{number}", workspace / f"d{number}" / "g")
            shutil.rmtree(workspace / f"d{(number + 1) % 50}", ignore_errors=True)

    churner = threading.Thread(target=churn)
    churner.start()
    try:
        for _ in range(150):
            keeper.sync()
    finally:
        ended.set()
        churner.join()
    tick(workspace.parent)
    keeper.sync()
    assert keeper.seen() == on_disk(workspace.parent)


# -- what is no part of a tree ----------------------------------------------------------------------------------------


def test_sockets_fifos_and_devices_are_skipped_and_listed(workspace: Path, keeper: Keeper) -> None:
    os.mkfifo(workspace / "fifo")
    directory = os.open(workspace, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"/proc/self/fd/{directory}/socket")  # the path of a socket must be short
    os.close(directory)
    expected = {b"workspace/fifo", b"workspace/socket"}
    with contextlib.suppress(PermissionError):
        os.mknod(workspace / "device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        expected.add(b"workspace/device")
    (workspace / "file").write_bytes(b"x")
    for _ in range(2):
        done = keeper.sync()
        assert set(done.skipped) == expected
        assert done.skipped_count == len(expected)
        assert set(keeper.tree) == {b"workspace/file"}
        assert done.files == 1


def test_a_file_that_becomes_a_fifo_is_gone(home: Path, workspace: Path, keeper: Keeper) -> None:
    (workspace / "a").write_bytes(b"x")
    keeper.sync()
    tick(home)
    become_fifo(workspace / "a")
    assert keeper.sync().skipped == (b"workspace/a",)
    assert keeper.tree == {}


def test_only_so_many_of_them_are_named(workspace: Path, keeper: Keeper) -> None:
    for number in range(MAX_SKIPPED + 5):
        os.mkfifo(workspace / f"{number}")
    done = keeper.sync()
    assert (len(done.skipped), done.skipped_count) == (MAX_SKIPPED, MAX_SKIPPED + 5)


# -- limits and problems ----------------------------------------------------------------------------------------------


def problem_of(keeper: Keeper, limits: TreeLimits | None = None) -> TreeProblem:
    with pytest.raises(TreeProblem) as problem:
        keeper.sync(limits=limits)
    assert problem.value.error.isprintable()
    return problem.value


def test_too_many_entries(home: Path, workspace: Path, keeper: Keeper) -> None:
    for number in range(10):
        (workspace / f"{number}").mkdir()
    assert problem_of(keeper, TreeLimits(files=9)).code == "too_many"
    keeper.sync(limits=TreeLimits(files=10))
    expected = (
        "the workspace has more than 9 files: raise HOLDFAST_SYNC_MAX_FILES or name directories in .holdfastignore"
    )
    assert problem_of(keeper, TreeLimits(files=9)).error == expected
    tick(home)
    (home / "agent" / "one").write_bytes(b"")
    assert problem_of(keeper, TreeLimits(files=10)).code == "too_many"


def test_too_many_bytes(workspace: Path, keeper: Keeper) -> None:
    (workspace / "a").write_bytes(noise(60_000))
    (workspace / "b\n").write_bytes(noise(60_000, 2))
    problem = problem_of(keeper, TreeLimits(total_bytes=119_999))
    assert (problem.code, "119999 bytes" in problem.error, "SYNC_MAX_BYTES" in problem.error) == (
        "too_large",
        True,
        True,
    )
    keeper.sync(limits=TreeLimits(total_bytes=120_000))


def test_a_sparse_file_with_too_many_bytes_is_found_while_it_is_read(workspace: Path, keeper: Keeper) -> None:
    with (workspace / "sparse").open("wb") as file:
        file.truncate(1 << 40)
        for place in range(10):
            file.seek(place << 30)
            file.write(noise(200_000, place))
    assert problem_of(keeper, TreeLimits(total_bytes=1_000_000)).code == "too_large"


def test_a_file_too_large_for_any_tree() -> None:
    try:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
            keeper = Keeper(TreeScanner(make_home(Path(name) / "home"), Path(name) / "cache"))
            with (Path(name) / "home" / "workspace" / "huge").open("wb") as file:
                file.truncate(MAX_FILE + 1)
            assert "workspace/huge is too large a file" in problem_of(keeper).error
    except OSError:
        pytest.skip("no file system here has such files")


def test_too_deep(home: Path, workspace: Path, keeper: Keeper) -> None:
    deepest = workspace.joinpath(*(["d"] * (MAX_DEPTH - 1)))
    deepest.mkdir(parents=True)
    keeper.sync()
    tick(home)
    (deepest / "f\x1b").write_bytes(b"")
    problem = problem_of(keeper)
    assert problem.code == "too_deep"
    assert problem.error.endswith("d/f\\x1b is more than 64 directories deep: move it, or name it in .holdfastignore")


def test_too_long_a_path(workspace: Path, keeper: Keeper) -> None:
    at = os.open(workspace, os.O_RDONLY)
    for _ in range(17):
        os.mkdir("n" * 250, dir_fd=at)
        inner = os.open("n" * 250, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)
    problem = problem_of(keeper)
    assert (problem.code, "more than 4095 bytes" in problem.error) == ("too_deep", True)
    shutil.rmtree(workspace)


def test_a_scan_that_failed_leaves_no_file_open(workspace: Path, keeper: Keeper) -> None:
    (workspace / "d").mkdir()
    (workspace / "d" / "big").write_bytes(noise(6 * MIB))
    before = len(os.listdir("/proc/self/fd"))
    problem_of(keeper, TreeLimits(total_bytes=5 * MIB))
    problem_of(keeper, TreeLimits(files=1))
    batches = keeper.scanner.scan(ScanAsk()).batches()
    next(batches)
    assert len(os.listdir("/proc/self/fd")) > before
    batches.close()
    assert len(os.listdir("/proc/self/fd")) == before


MAPS = """
import mmap, sys
with open(sys.argv[1], "r+b") as file:
    memory = mmap.mmap(file.fileno(), 0)
for line in sys.stdin:
    memory[:len(line)] = line.encode()
    print(flush=True)
"""


def test_what_is_written_through_a_mapping_is_found_until_after_it_is_gone(
    home: Path, workspace: Path, keeper: Keeper
) -> None:
    (workspace / "mapped").write_bytes(bytes(8192))
    (workspace / "other").write_bytes(bytes(8192))
    keeper.sync()
    tick(home)
    program = [sys.executable, "-c", MAPS, str(workspace / "mapped")]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        for text in ("first\n", "again\n", "third\n"):
            writer.stdin.write(text)
            writer.stdin.flush()
            writer.stdout.readline()
            assert keeper.survey() == (keeper.token, 1, 2)
            assert keeper.sync().read_bytes == 8192
            assert keeper.content(b"workspace/mapped").startswith(text.encode())
        writer.stdin.write("final\n")
    assert keeper.survey() == (keeper.token, 1, 2)
    keeper.sync()
    assert keeper.content(b"workspace/mapped").startswith(b"final\n")
    assert keeper.survey() == (keeper.token, 0, 2)
    assert keeper.sync().read_bytes == 0


def become_nobody() -> None:
    """For good, in a process that is about to become another program."""
    if os.getuid() == 0:
        os.seteuid(0)
        os.setuid(NOBODY)


def test_what_is_written_through_a_mapping_by_a_program_that_may_not_be_looked_into_is_found() -> None:
    keeps_to_itself = "import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n" + MAPS
    python = shutil.which("python3", path="/usr/bin:/bin")
    if python is None:
        pytest.skip("there is no Python that anybody may run")
    with unprivileged() as place:
        workspace = make_home(place / "home") / "workspace"
        keeper = Keeper(TreeScanner(place / "home", place / "cache", hours_later))
        (workspace / "mapped").write_bytes(bytes(8192))
        keeper.sync()
        tick(place / "home")
        program = [python, "-c", keeps_to_itself, str(workspace / "mapped")]
        with subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=become_nobody
        ) as writer:
            assert writer.stdin is not None
            assert writer.stdout is not None
            for text in ("first\n", "again\n", "third\n"):
                writer.stdin.write(text)
                writer.stdin.flush()
                writer.stdout.readline()
                keeper.sync()
                assert keeper.content(b"workspace/mapped").startswith(text.encode())
            writer.stdin.write("final\n")
        keeper.sync()
        assert keeper.content(b"workspace/mapped").startswith(b"final\n")


def test_what_is_mapped_of_another_file_system_is_no_reason_for_doubt(home: Path) -> None:
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == home.stat().st_dev:
        pytest.skip("there is only one file system")
    with tempfile.NamedTemporaryFile(dir=memory) as file:
        file.write(bytes(8192))
        file.flush()
        program = [sys.executable, "-c", MAPS, file.name]
        with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdin is not None
            assert writer.stdout is not None
            writer.stdin.write("first\n")
            writer.stdin.flush()
            writer.stdout.readline()
            inode = os.stat(file.name).st_ino
            assert inode in find_mapped(memory).inodes
            assert inode not in find_mapped(home).inodes


def test_holes_that_touch_are_one(workspace: Path, keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may punch a hole between two questions, right behind the one that was just found."""
    with open(workspace / "sparse", "wb") as file:
        file.truncate(MIB)

    def in_two(*_: int) -> Iterator[tuple[int, int, bool]]:
        yield from ((0, 100_000, True), (100_000, MIB, True))

    monkeypatch.setattr(chunker, "extents", in_two)
    keeper.sync()
    assert keeper.tree[b"workspace/sparse"].chunks == (Chunk(b"", MIB),)


def test_a_survey_counts_what_is_too_deep_or_too_long_and_goes_on(home: Path, workspace: Path, keeper: Keeper) -> None:
    (workspace / "z").write_bytes(b"z")
    keeper.sync()
    tick(home)
    workspace.joinpath(*(["d"] * (MAX_DEPTH + 2))).mkdir(parents=True)
    (home / "agent" / "new").write_bytes(b"new")
    assert keeper.survey() == (keeper.token, MAX_DEPTH - 1 + 1 + 1, 1 + 1 + 1)
    shutil.rmtree(workspace / "d")
    at = os.open(workspace, os.O_RDONLY)
    for _ in range(17):
        os.mkdir("n" * 250, dir_fd=at)
        inner = os.open("n" * 250, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)
    assert keeper.survey() == (keeper.token, 16 + 1 + 1, 1 + 1 + 1)
    shutil.rmtree(workspace)


@pytest.mark.parametrize("mode", [0, 0o400])
def test_a_survey_counts_a_directory_that_cannot_be_read_with_what_is_known_of_it_and_goes_on(mode: int) -> None:
    with unprivileged() as place:
        workspace = make_home(place / "home") / "workspace"
        keeper = Keeper(TreeScanner(place / "home", place / "cache", hours_later))
        (workspace / "d" / "e").mkdir(parents=True)
        (workspace / "d" / "a").write_bytes(b"a")
        (workspace / "d" / "e" / "b").write_bytes(b"b")
        (workspace / "z").mkdir()
        keeper.sync()
        tick(place / "home")
        (workspace / "z" / "new").write_bytes(b"new")
        (workspace / "d").chmod(mode)
        before = len(os.listdir("/proc/self/fd"))
        token, changed, files = keeper.survey()
        assert (token, changed, files) == (keeper.token, 4, 3)  # itself, its mode, and `z` with what is new in it
        assert len(os.listdir("/proc/self/fd")) == before
        assert keeper.sync(remember=False).unread == (b"workspace/d",)
        fresh = TreeScanner(place / "home", place / "other", hours_later)
        assert fresh.survey(SurveyAsk()) == (None, 0, 2)  # nothing is known: one
        (workspace / "d").chmod(0o700)


@pytest.mark.parametrize("which", ["workspace/data", "workspace", "agent"])
def test_a_directory_that_cannot_be_read_does_not_make_a_disk_look_lost(which: str) -> None:
    """A program locked it, syncs failed from then on, and then came a crash: what is new is only on the disk."""
    with unprivileged() as place:
        home = make_home(place / "home")
        keeper = Keeper(TreeScanner(home, place / "cache", hours_later))
        locked = home / which
        locked.mkdir(exist_ok=True)
        for n in range(10):
            (locked / str(n)).write_bytes(b"%d" % n)
        (home / "workspace" / "a").write_bytes(b"a")
        keeper.sync()
        token, _, files = keeper.survey()
        assert token is not None
        (home / "workspace" / "new work").write_bytes(b"not kept yet")
        locked.chmod(0)
        assert keeper.sync(remember=False).unread == (os.fsencode(which),)
        known, changed, now = keeper.survey()
        assert decide(Survey(True, known, changed, now), Newest(token, files), clean=False) is Decision.KEEP_AND_SYNC
        assert decide(Survey(True, known, changed, now), Newest(token, files), clean=True) is Decision.RESTORE_ASIDE
        locked.chmod(0o700)


@pytest.mark.parametrize("trouble", ["no workspace", "no ignore file that can be read", "no pattern"])
def test_what_of_the_agents_home_is_left_out_counts_in_no_survey(
    trouble: str, home: Path, workspace: Path, keeper: Keeper
) -> None:
    (home / "agent" / "cache").mkdir()
    for n in range(50):
        (home / "agent" / "cache" / str(n)).write_bytes(b"")
    if trouble == "no workspace":
        workspace.rmdir()
    elif trouble == "no pattern":
        (workspace / ".holdfastignore").write_bytes(b"[[:alpha:]]")
    else:
        (workspace / ".holdfastignore").symlink_to("/dev/null")
    assert keeper.scanner.survey(SurveyAsk(("/cache/",)))[2] == (trouble != "no workspace")


def test_a_file_of_somebody_else_is_read_all_the_same() -> None:
    """Whoever does not own a file may not read it without leaving a trace, but may read it."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    with unprivileged() as place:
        keeper = Keeper(TreeScanner(make_home(place / "home"), place / "cache", hours_later))
        os.seteuid(0)
        (place / "home" / "workspace" / "a").write_bytes(b"theirs")
        os.seteuid(NOBODY)
        keeper.sync()
        assert keeper.content(b"workspace/a") == b"theirs"


@pytest.mark.parametrize("root", ["workspace", "agent"])
def test_a_root_that_is_missing_is_a_problem_for_a_scan_and_empty_for_a_survey(
    home: Path, keeper: Keeper, root: str
) -> None:
    for name in ("workspace", "agent"):
        (home / name / "d").mkdir()
        (home / name / "d" / "f").write_bytes(b"f")
    keeper.sync()
    (home / root).rename(home / "elsewhere")
    assert problem_of(keeper).error == f"the directory {root} cannot be read: No such file or directory"
    assert keeper.survey() == (keeper.token, 2, 1)
    (home / root).symlink_to("elsewhere")
    assert "cannot be read: " in problem_of(keeper).error
    assert keeper.survey() == (keeper.token, 2, 1)


# -- remembering ------------------------------------------------------------------------------------------------------


def test_only_the_last_scan_that_is_done_can_be_remembered(workspace: Path, keeper: Keeper) -> None:
    (workspace / "a").write_bytes(b"a")
    early, late = keeper.scanner.scan(ScanAsk()), keeper.scanner.scan(ScanAsk())
    with pytest.raises(RuntimeError):
        _ = early.done
    with pytest.raises(RuntimeError):
        early.remember("token")
    for scan in (early, late):
        list(scan.batches())
    late.remember("late")
    with pytest.raises(RuntimeError):
        early.remember("early")
    late.remember("late too")
    assert keeper.survey() == ("late too", 0, 1)


def test_a_survey_without_a_remembered_tree_counts_files_only(home: Path, workspace: Path, keeper: Keeper) -> None:
    (workspace / "d").mkdir()
    (workspace / "d" / "a").write_bytes(b"a")
    (workspace / "l").symlink_to("d")
    assert keeper.survey() == (None, 0, 2)
    keeper.sync()
    tick(home)
    (workspace / "d" / "a").chmod(0o600)
    (workspace / "d" / "b").write_bytes(b"b")
    assert keeper.scanner.survey(SurveyAsk()) == (keeper.token, 3, 3)


# -- adopting a restored tree -----------------------------------------------------------------------------------------


def test_an_adopted_tree_is_not_read_again(home: Path, workspace: Path, keeper: Keeper, tmp_path: Path) -> None:
    (workspace / "d").mkdir()
    (workspace / "d" / "a").write_bytes(noise(50_000))
    (workspace / "l").symlink_to("d")
    keeper.sync()
    restored = shutil.copytree(home, tmp_path / "restored", symlinks=True)
    scanner = TreeScanner(restored, tmp_path / "other cache", hours_later)
    scanner.adopt("restored", keeper.tree.values())
    for again in (scanner, TreeScanner(restored, tmp_path / "other cache", hours_later)):
        keeper.scanner, keeper.token = again, "restored"
        assert keeper.survey() == ("restored", 0, 2)
        done = keeper.sync(remember=False)
        assert (done.base, done.read_bytes, keeper.told, done.total_bytes) == ("restored", 0, [], 50_000)


def test_what_is_not_as_it_was_restored_is_told(home: Path, workspace: Path, keeper: Keeper) -> None:
    for name in ("same", "other size", "other mode", "other time", "missing"):
        (workspace / name).write_bytes(b"x")
    keeper.sync()
    entries = [*keeper.tree.values(), Entry(b"workspace/kept unsettled", Kind.FILE, 0o644, 0, unsettled=True)]
    (workspace / "kept unsettled").write_bytes(b"")
    os.utime(workspace / "kept unsettled", ns=(0, 0))
    (workspace / "kept unsettled").chmod(0o644)
    before = (workspace / "other size").stat().st_mtime_ns
    (workspace / "other size").write_bytes(b"xy")
    os.utime(workspace / "other size", ns=(before, before))
    (workspace / "other mode").chmod(0o600)
    os.utime(workspace / "other time", ns=(0, 0))
    (workspace / "missing").unlink()
    (workspace / "new").mkdir()
    (workspace / "new" / "inner").write_bytes(b"inner")
    keeper.scanner.adopt("restored", entries)
    keeper.token, keeper.tree = "restored", {entry.path: entry for entry in entries}
    assert keeper.survey() == ("restored", 7, 6)
    keeper.sync()
    told = ("other size", "other mode", "other time", "kept unsettled", "new", "new/inner")
    assert keeper.entries_told == {os.fsencode(f"workspace/{name}") for name in told}
    assert keeper.removed_told == {b"workspace/missing"}
    assert keeper.seen() == on_disk(home)


def test_a_tree_without_its_directories_cannot_be_adopted(keeper: Keeper) -> None:
    with pytest.raises(TreeProblem, match="in no directory"):
        keeper.scanner.adopt("token", [Entry(b"workspace/d/f", Kind.FILE, 0o644, 0)])
    assert keeper.survey()[0] is None


def test_what_is_edited_right_after_a_restore_is_found(home: Path, workspace: Path, tmp_path: Path) -> None:
    keeper = Keeper(TreeScanner(home, tmp_path / "cache"))
    (workspace / "a").write_bytes(b"restored")
    keeper.sync()
    keeper.scanner.adopt("token", keeper.tree.values())
    keeper.token = "token"
    (workspace / "a").write_bytes(b"edited!!")
    keeper.sync()
    assert keeper.content(b"workspace/a") == b"edited!!"
