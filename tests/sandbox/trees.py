"""Trees for tests: drawn in memory, written by the code under test, read back by code of their own."""

import os
import random
import stat
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.protocol.chunk_frames import pack
from sandbox.protocol.entry import Chunk, Entry, Frame, Kind, chunk_id

NOBODY = 65534
CRASHED = 77
Told = dict[bytes, tuple[int, int, int, bytes]]  # path: kind, mode, mtime_ns, content or target


@dataclass
class Drawing:
    """A tree and its content. Parts of a file are its chunks; a number is a hole of so many bytes."""

    entries: list[Entry] = field(default_factory=list)
    contents: dict[bytes, bytes] = field(default_factory=dict)
    told: Told = field(default_factory=dict)

    def file(self, path: bytes, *parts: bytes | int, mode: int = 0o644, mtime_ns: int = 10**18 + 1) -> None:
        chunks = []
        for part in parts:
            if isinstance(part, int):
                chunks.append(Chunk(b"", part))
            else:
                chunks.append(Chunk(chunk_id(part), len(part)))
                self.contents[chunks[-1].id] = part
        whole = b"".join(bytes(part) if isinstance(part, int) else part for part in parts)
        self.entries.append(Entry(path, Kind.FILE, mode, mtime_ns, len(whole), b"", tuple(chunks)))
        self.told[path] = (Kind.FILE, mode, mtime_ns, whole)

    def directory(self, path: bytes, mode: int = 0o755, mtime_ns: int = 10**18 + 2) -> None:
        self.entries.append(Entry(path, Kind.DIRECTORY, mode, mtime_ns))
        self.told[path] = (Kind.DIRECTORY, mode, mtime_ns, b"")

    def symlink(self, path: bytes, target: bytes, mtime_ns: int = 10**18 + 3) -> None:
        self.entries.append(Entry(path, Kind.SYMLINK, 0o777, mtime_ns, 0, target))
        self.told[path] = (Kind.SYMLINK, 0o777, mtime_ns, target)

    def frames(
        self, wanted: set[bytes] | None = None, *, rng: random.Random | None = None, most: int = 5
    ) -> list[Frame]:
        """These chunks, all by default, a few to a frame, in any order."""
        ids = sorted(self.contents if wanted is None else wanted)
        if rng is not None:
            rng.shuffle(ids)
        groups: list[list[tuple[Chunk, bytes]]] = []
        for one in ids:
            content = self.contents[one]
            piece = (Chunk(one, len(content)), content)
            if groups and len(groups[-1]) < most and sum(len(each) for _, each in groups[-1]) + len(content) < 1 << 20:
                groups[-1].append(piece)
            else:
                groups.append([piece])
        return [pack(group) for group in groups]


def tell(home: Path, roots: Sequence[str] = ("workspace", "agent")) -> Told:
    """What is on the disk, whatever its modes are; it is left as it was found."""
    told: Told = {}
    for root in roots:
        _tell(home / root, os.fsencode(root), told)
    return told


def _tell(directory: Path, path: bytes, told: Told) -> None:
    mode = stat.S_IMODE(directory.stat().st_mode)
    directory.chmod(mode | 0o700)
    for name in os.listdir(os.fsencode(directory)):
        inner, shown = directory / os.fsdecode(name), path + b"/" + name
        found = inner.lstat()
        content = b""
        if inner.is_symlink():
            kind, content = Kind.SYMLINK, os.readlink(os.fsencode(inner))
        elif inner.is_dir():
            kind = Kind.DIRECTORY
        else:
            assert stat.S_ISREG(found.st_mode), shown
            kind = Kind.FILE
            inner.chmod(0o600)
            content = inner.read_bytes()
            inner.chmod(stat.S_IMODE(found.st_mode))
        told[shown] = (kind, stat.S_IMODE(found.st_mode), found.st_mtime_ns, content)
        if kind == Kind.DIRECTORY:
            _tell(inner, shown, told)
    directory.chmod(mode)


def make_home(home: Path, *, owner: int | None = None) -> Path:
    for root in ("workspace", "agent"):
        (home / root).mkdir(parents=True)
    if owner is not None:
        for path in (home, home / "workspace", home / "agent"):
            os.chown(path, owner, owner)
    return home


def in_a_child(work: Callable[[], None], *, dies_at: int | None = None, owner: int | None = None) -> bool:
    """Do `work` in a process of its own, which is gone, as if killed, before its `dies_at`-th call for a file; whether
    it came to its end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads are none of the child's business
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            if owner is not None:
                os.setgroups([])
                os.setgid(owner)
                os.setuid(owner)
            if dies_at is not None:
                _die_at(dies_at)
            work()
            status = 0
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, CRASHED), "the child failed; its words are on stderr"
    return status == 0


def _die_at(step: int) -> None:
    left = step

    def count(event: str, _: object) -> None:
        nonlocal left
        if event.startswith("os.") or event == "open":
            left -= 1
            if left < 0:
                os._exit(CRASHED)

    sys.addaudithook(count)


def somebody() -> int | None:
    """A user who may not do everything, if we are one who may."""
    return NOBODY if os.geteuid() == 0 else None


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
