"""Kept trees on plain directories: the port without a bridge, edits at random, and a fingerprint to compare by."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeVar

from sandbox.ports.tree import TreeFailed
from sandbox.protocol.entry import ROOTS, BadEntry, Entry, Frame
from sandbox.protocol.tree import Batch, ScanAsk, ScanDone, Survey, SurveyAsk
from sandbox.system.problem import TreeProblem
from sandbox.tree.batch import PendingBatch
from sandbox.tree.scan import Scan, TreeScanner
from sandbox.tree.staging import Staging, StagingIncomplete

T = TypeVar("T")


# -- the port ---------------------------------------------------------------------------------------------------------


class DirectoryTree:
    """Implements sandbox.ports.tree.Tree for the roots below `home`, as a bridge does and without one: blocking work
    runs in threads, one operation at a time. `state` is a directory for the scanner's memory; a new object with the
    same two is a restarted bridge."""

    def __init__(self, home: Path, state: Path) -> None:
        self.home = home
        self._scanner = TreeScanner(home, state / "tree.cache")
        self._turn = asyncio.Lock()
        for directory in (state, *(home / os.fsdecode(root) for root in ROOTS)):
            directory.mkdir(parents=True, exist_ok=True)

    @asynccontextmanager
    async def scan(self, asked: ScanAsk) -> AsyncIterator["DirectoryScan"]:
        async with self._turn:
            scan = DirectoryScan(await _apart(lambda: self._scanner.scan(asked)))
            try:
                yield scan
            finally:
                await _apart(scan.close)

    @asynccontextmanager
    async def restore(self, token: str, *, aside: bool) -> AsyncIterator["DirectoryRestore"]:
        async with self._turn:
            restore = DirectoryRestore(self._scanner, Staging(self.home, token), token, aside=aside)
            try:
                yield restore
            finally:
                await _apart(restore.close)

    async def survey(self, agent_skip: Sequence[str]) -> Survey:
        async with self._turn:
            known, changed, files = await _apart(lambda: self._scanner.survey(SurveyAsk(tuple(agent_skip))))
            return Survey(held=False, known=known, changed=changed, files=files)

    async def quiet(self) -> None:
        """No program runs in a plain directory."""

    async def release(self) -> None:
        """There is no program to release."""


class DirectoryScan:
    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        self._batches = scan.batches()
        self._batch: PendingBatch | None = None
        self.close = self._batches.close
        self.lived_at = 0.0

    async def next(self) -> Batch | ScanDone:
        assert self._batch is None, "fetch first"
        self._batch = await _apart(lambda: next(self._batches, None))
        return self._scan.done if self._batch is None else self._batch.message

    async def fetch(self, wanted: Sequence[int]) -> AsyncIterator[Frame]:
        assert self._batch is not None, "next first"
        frames = self._batch.frames(wanted)
        while (frame := await _apart(lambda: next(frames, None))) is not None:
            yield frame
        self._batch = None

    async def remember(self, token: str) -> None:
        await _apart(lambda: self._scan.remember(token))


class DirectoryRestore:
    def __init__(self, scanner: TreeScanner, staging: Staging, token: str, *, aside: bool) -> None:
        self._scanner, self._staging, self._token, self._aside = scanner, staging, token, aside
        self._entries: Sequence[Entry] = ()
        self.close = staging.close

    async def plan(self, entries: Sequence[Entry]) -> set[bytes]:
        self._entries = entries
        return await _apart(lambda: self._staging.plan(entries))

    async def put(self, frame: Frame) -> None:
        def put() -> None:
            try:
                self._staging.put(frame)
            except BadEntry as error:
                raise TreeFailed("bad_chunk", str(error)) from error

        await _apart(put)

    def progress(self) -> tuple[int, int]:
        return self._staging.files, self._staging.written_bytes

    async def finish(self) -> None:
        def finish() -> None:
            self._staging.finish()
            self._staging.swap(aside=self._aside)
            self._scanner.adopt(self._token, self._entries)

        await _apart(finish)


async def _apart(work: Callable[[], T]) -> T:
    """In a thread, and to its end also when this is cancelled, as a bridge does it."""
    job = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError:
        await asyncio.wait({job})
        if not job.cancelled():
            job.exception()
        raise
    except TreeProblem as error:
        raise TreeFailed(error.code, error.error) from error
    except (BadEntry, StagingIncomplete, OSError) as error:
        raise TreeFailed("failed", str(error)) from error


# -- comparing --------------------------------------------------------------------------------------------------------


class Print(NamedTuple):
    """The kept facts of one entry. Content is a hash, but for a symlink, where it is the target."""

    kind: str
    mode: int
    mtime_ns: int
    size: int
    content: bytes


def fingerprint(home: Path) -> dict[bytes, Print]:
    """All entries below the roots of `home` that a snapshot must keep, by path; not the roots themselves, and nothing
    but files, directories and symlinks."""
    found: dict[bytes, Print] = {}
    waiting = [root for root in ROOTS if os.path.isdir(os.path.join(os.fsencode(home), root))]
    while waiting:
        above = waiting.pop()
        with os.scandir(os.path.join(os.fsencode(home), above)) as entries:
            for entry in entries:
                path, info = os.path.join(above, entry.name), entry.stat(follow_symlinks=False)
                mode = stat.S_IMODE(info.st_mode) & 0o777
                if stat.S_ISDIR(info.st_mode):
                    found[path] = Print("directory", mode, info.st_mtime_ns, 0, b"")
                    waiting.append(path)
                elif stat.S_ISLNK(info.st_mode):
                    found[path] = Print("symlink", mode, info.st_mtime_ns, 0, os.readlink(entry.path))
                elif stat.S_ISREG(info.st_mode):
                    with open(entry.path, "rb") as file:
                        content = sha256(file.read()).digest()
                    found[path] = Print("file", mode, info.st_mtime_ns, info.st_size, content)
    return found


def differences(one: dict[bytes, Print], other: dict[bytes, Print]) -> list[str]:
    """Where two fingerprints differ, for a test's message: `assert not differences(...)`."""
    paths = sorted(path for path in one.keys() | other.keys() if one.get(path) != other.get(path))
    return [f"{path!r}: {one.get(path)} / {other.get(path)}" for path in paths]


# -- making and changing ----------------------------------------------------------------------------------------------

ODD_NAMES = (
    b"with space",
    b"new\nline",
    b"\xff\xfe not utf-8",
    b"-rf",
    b"--",
    b"...",
    b"back\\slash",
    b"quo'te\"s",
    b"$(id)",
    "e\u0301 \u202e".encode(),
    b"n" * 255,
    b".hidden",
    b"\x1b]0;title\x07",
    b"*?[a-z]",
)
FILE_MODES = (0o644, 0o600, 0o755, 0o444, 0o640, 0o777, 0o400)
DIRECTORY_MODES = (0o755, 0o700, 0o777, 0o750, 0o711)
TARGETS = (
    b"/nonexistent/file",
    b"/",
    b"..",
    b"../../..",
    b"nowhere",
    b"./a/../b",
    b"\xff\n",
    b"t" * 4095,
    b"/proc/self/root",
)
TIMES = (0, 1, -1, -(10**18) + 7, 2**31 * 10**9 + 5, 10**18 + 123_456_789, 1_600_000_000_999_999_999)


def fill(home: Path, rng: Random, files: int, *, smallest: int = 20, largest: int = 2000) -> None:
    """`files` plain files in directories of a hundred below `workspace`, each with its own content."""
    for number in range(files):
        directory = home / "workspace" / f"d{number // 100}"
        if number % 100 == 0:
            directory.mkdir(parents=True, exist_ok=True)
        (directory / f"f{number}").write_bytes(rng.randbytes(rng.randint(smallest, largest)))


class Gardener:
    """Changes a tree as nobody would think of, by a seed: the same seed on the same tree makes the same tree, but for
    times. `largest` bounds the files it makes. Needs no rights that an owner does not have."""

    def __init__(self, home: Path, rng: Random, *, largest: int = 600_000) -> None:
        self._home = os.fsencode(home)
        self._rng = rng
        self._largest = largest
        self._edits: dict[str, Callable[[], None]] = {
            name.removeprefix("_edit_"): getattr(self, name) for name in dir(self) if name.startswith("_edit_")
        }

    def edit(self, times: int = 1) -> list[str]:
        """Make so many edits; returns what they were."""
        made = self._rng.choices(sorted(self._edits), k=times)
        for name in made:
            self._edits[name]()
        return made

    # -- finding ------------------------------------------------------------------------------------------------------

    def _all(self, wanted: Callable[[int], bool]) -> list[bytes]:
        found = []
        for root in ROOTS:
            for above, directories, files in os.walk(os.path.join(self._home, root)):
                paths = [os.path.join(above, name) for name in (*directories, *files)]
                found += [path for path in paths if wanted(os.lstat(path).st_mode)]
        return sorted(found)

    def _file(self) -> bytes:
        return self._one_of(stat.S_ISREG) or self._write(self._new_path(), self._rng.randbytes(50))

    def _one_of(self, wanted: Callable[[int], bool]) -> bytes | None:
        return self._rng.choice(found) if (found := self._all(wanted)) else None

    def _directory(self) -> bytes:
        """A directory for a new entry; now and then a root."""
        shallow = [path for path in self._all(stat.S_ISDIR) if path.count(b"/") < self._home.count(b"/") + 8]
        return self._rng.choice([*shallow, *(os.path.join(self._home, root) for root in ROOTS)])

    def _new_path(self) -> bytes:
        for _ in range(1000):
            name = self._rng.choice((*ODD_NAMES, *(b"%d" % self._rng.randrange(10**9) for _ in ODD_NAMES)))
            path = os.path.join(self._directory(), name)
            if not os.path.lexists(path) and len(path) < 2000:
                return path
        raise AssertionError("there is no room for one more name")

    # -- edits --------------------------------------------------------------------------------------------------------

    def _write(self, path: bytes, content: bytes, at: int | None = None) -> bytes:
        """Write the file with that content, or that content into the file at the offset `at`."""
        is_there = os.path.lexists(path)
        mode = stat.S_IMODE(os.lstat(path).st_mode) if is_there else 0
        if is_there:
            os.chmod(path, mode | 0o600)
        with open(path, "wb" if at is None else "r+b") as file:
            file.seek(at or 0)
            file.write(content)
        if is_there:
            os.chmod(path, mode)
        return path

    def _edit_write_small(self) -> None:
        self._write(self._new_path(), self._rng.randbytes(self._rng.choice((0, 1, 100, 5000, 16_384, 16_385))))

    def _edit_write_text(self) -> None:
        self._write(self._new_path(), b"line of text %d\n" % self._rng.randrange(9) * self._rng.randrange(1, 5000))

    def _edit_write_large(self) -> None:
        self._write(self._new_path(), self._rng.randbytes(self._rng.randint(20_000, self._largest)))

    def _edit_write_sparse(self) -> None:
        path = self._write(self._new_path(), self._rng.randbytes(self._rng.choice((0, 5000))))
        with open(path, "r+b") as file:
            file.seek(self._rng.randint(self._largest, 3 * self._largest))
            file.write(self._rng.randbytes(self._rng.choice((1, 5000))))
            if self._rng.random() < 0.5:
                file.truncate(4 * self._largest)

    def _edit_rewrite_same_size(self) -> None:
        path = self._file()
        self._write(path, self._rng.randbytes(min(os.lstat(path).st_size, self._largest)))

    def _edit_patch(self) -> None:
        path = self._file()
        self._write(path, self._rng.randbytes(1), at=self._rng.randint(0, os.lstat(path).st_size))

    def _edit_append(self) -> None:
        path = self._file()
        self._write(path, self._rng.randbytes(100), at=os.lstat(path).st_size)

    def _edit_truncate(self) -> None:
        path = self._file()
        os.chmod(path, stat.S_IMODE(os.lstat(path).st_mode) | 0o600)
        os.truncate(path, self._rng.randint(0, os.lstat(path).st_size))

    def _edit_copy(self) -> None:
        source = self._file()
        os.chmod(source, stat.S_IMODE(os.lstat(source).st_mode) | 0o600)
        with open(source, "rb") as file:
            self._write(self._new_path(), file.read())

    def _edit_hard_link(self) -> None:
        os.link(self._file(), self._new_path())

    def _edit_delete(self) -> None:
        os.unlink(self._file())

    def _edit_rename(self) -> None:
        os.rename(self._file(), self._new_path())

    def _edit_rename_directory(self) -> None:
        source, target = self._one_of(stat.S_ISDIR), self._new_path()
        if source is not None and not (target + b"/").startswith(source + b"/"):
            os.rename(source, target)

    def _edit_make_directory(self) -> None:
        os.mkdir(self._new_path(), 0o755)

    def _edit_make_deep_directories(self) -> None:
        os.makedirs(os.path.join(self._new_path(), b"a", b"b", b"c"))

    def _edit_remove_directory(self) -> None:
        path = self._one_of(stat.S_ISDIR)
        if path is not None:
            self._clear(path)

    def _clear(self, path: bytes) -> None:
        for above, directories, files in os.walk(path, topdown=False):
            for name in (*directories, *files):
                inner = os.path.join(above, name)
                (os.rmdir if stat.S_ISDIR(os.lstat(inner).st_mode) else os.unlink)(inner)
        os.rmdir(path)

    def _edit_symlink(self) -> None:
        os.symlink(self._rng.choice(TARGETS), self._new_path())

    def _edit_turn_symlink(self) -> None:
        path = self._one_of(stat.S_ISLNK)
        if path is not None:
            os.unlink(path)
            os.symlink(self._rng.choice(TARGETS), path)

    def _edit_chmod(self) -> None:
        os.chmod(self._file(), self._rng.choice(FILE_MODES))

    def _edit_chmod_directory(self) -> None:
        path = self._one_of(stat.S_ISDIR)
        if path is not None:
            os.chmod(path, self._rng.choice(DIRECTORY_MODES))

    def _edit_set_time(self) -> None:
        path = self._one_of(lambda mode: stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))
        if path is not None:
            at = self._rng.choice(TIMES)
            os.utime(path, ns=(at, at), follow_symlinks=False)

    def _edit_file_becomes_directory(self) -> None:
        path = self._file()
        os.unlink(path)
        os.mkdir(path)
        self._write(os.path.join(path, b"inside"), self._rng.randbytes(10))

    def _edit_directory_becomes_file(self) -> None:
        path = self._one_of(stat.S_ISDIR)
        if path is not None:
            self._clear(path)
            self._write(path, self._rng.randbytes(10))

    def _edit_file_becomes_symlink(self) -> None:
        path = self._file()
        os.unlink(path)
        os.symlink(self._rng.choice(TARGETS), path)

    def _edit_fifo(self) -> None:
        os.mkfifo(self._new_path())
