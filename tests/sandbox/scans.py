"""What the tests of reading a tree need: a home with two roots, somebody who keeps what is told, and a second opinion
on what is on the disk."""

import contextlib
import os
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.protocol.chunk_frames import unpack
from sandbox.protocol.entry import MAX_MTIME_NS, Chunk, Entry, Kind, check_entry, check_path, chunk_id
from sandbox.protocol.tree import (
    BATCH_BYTES,
    BATCH_ENTRIES,
    Batch,
    ScanAsk,
    ScanDone,
    SurveyAsk,
    TreeLimits,
    decode_up,
    encode,
)
from sandbox.tree.index import Section, join_names
from sandbox.tree.scan import Scan, TreeScanner
from sandbox.tree.stat_stamp import Stamp

Seen = tuple[int, int, int, bytes]  # kind, mode, mtime, and the content of a file or the target of a symlink
NOBODY = 65534
NEWEST = "the newest generation"


def make_home(path: Path) -> Path:
    for root in ("workspace", "agent"):
        (path / root).mkdir(parents=True)
    return path


@contextlib.contextmanager
def unprivileged() -> Iterator[Path]:
    """A place for files of a user who may not read everything, who is us meanwhile."""
    with tempfile.TemporaryDirectory(prefix="tree") as name:
        place = Path(name)
        if os.geteuid() != 0:
            yield place
            return
        os.chown(place, NOBODY, NOBODY)
        os.seteuid(NOBODY)
        try:
            yield place
        finally:
            os.seteuid(0)


def hours_later() -> int:
    """A clock by which everything on the disk is old. Whoever uses it calls `tick` between a scan and an edit."""
    return time.time_ns() + 3600 * 10**9


def tick(home: Path) -> None:
    """Wait until the file system's clock shows another time."""
    probe = home / "tick"
    probe.write_bytes(b"")
    before = probe.stat().st_ctime_ns
    while probe.stat().st_ctime_ns == before:
        probe.write_bytes(b"")
    probe.unlink()


def on_disk(home: Path) -> dict[bytes, Seen]:
    """The tree, by simple means."""
    seen: dict[bytes, Seen] = {}
    for root in (b"workspace", b"agent"):
        base = os.path.join(os.fsencode(home), root)
        for above, directories, names in os.walk(base):
            for name in (*directories, *names):
                path = os.path.join(above, name)
                status = os.lstat(path)
                kind, content = _content(path, status.st_mode)
                if kind is not None:
                    mtime_ns = min(status.st_mtime_ns, MAX_MTIME_NS)
                    seen[root + path[len(base) :]] = (kind, status.st_mode & 0o777, mtime_ns, content)
    return seen


def _content(path: bytes, mode: int) -> tuple[Kind | None, bytes]:
    if stat.S_ISDIR(mode):
        return Kind.DIRECTORY, b""
    if stat.S_ISLNK(mode):
        return Kind.SYMLINK, os.readlink(path)
    if stat.S_ISREG(mode):
        with open(path, "rb") as file:
            return Kind.FILE, file.read()
    return None, b""


@dataclass
class Keeper:
    """The other end of scans: has chunks by their names and a tree, and wants what it lacks."""

    scanner: TreeScanner
    token: str | None = None
    tree: dict[bytes, Entry] = field(default_factory=dict)
    chunks: dict[bytes, bytes] = field(default_factory=dict)
    generations: int = 0
    told: list[Batch] = field(default_factory=list)  # in the last scan
    sent_bytes: int = 0  # in the last scan

    def sync(
        self,
        *,
        base: str | None = NEWEST,
        remember: bool = True,
        agent_skip: Sequence[str] = (),
        limits: TreeLimits | None = None,
    ) -> ScanDone:
        """One scan; with `remember`, what it told is kept and has a new name."""
        asked = self.token if base == NEWEST else base
        scan = self.scanner.scan(ScanAsk(asked, tuple(agent_skip), limits or TreeLimits()))
        tree = self.take(scan)
        assert scan.done.base in (None, self.token)
        if remember:
            self.keep(scan, tree)
        return scan.done

    def keep(self, scan: Scan, tree: dict[bytes, Entry]) -> None:
        self.tree = tree
        self.generations += 1
        self.token = f"generation {self.generations}"
        scan.remember(self.token)

    def take(self, scan: Scan) -> dict[bytes, Entry]:
        """Read a scan to its end; the tree that it tells of."""
        self.told, self.sent_bytes = [], 0
        entries: dict[bytes, Entry] = {}
        removed: set[bytes] = set()
        for pending in scan.batches():
            batch = decode_up(encode(pending.message))
            assert isinstance(batch, Batch)
            _check(batch)
            lacking = [number for number, offer in enumerate(batch.offers) if offer.id not in self.chunks]
            for frame in pending.frames(lacking):
                for chunk, content in zip(frame.chunks, unpack(frame), strict=True):
                    self.chunks[chunk.id] = bytes(content)
                    self.sent_bytes += chunk.size
            self.told.append(batch)
            entries.update((entry.path, entry) for entry in batch.entries)
            removed.update(batch.removed)
        assert removed.isdisjoint(entries)
        if scan.done.base is None:
            assert not removed
            return entries
        assert removed <= self.tree.keys()
        return {path: entry for path, entry in self.tree.items() if path not in removed} | entries

    def content(self, path: bytes) -> bytes:
        return self._bytes_of(self.tree[path].chunks)

    def _bytes_of(self, chunks: Sequence[Chunk]) -> bytes:
        pieces = [self.chunks[chunk.id] if chunk.id else bytes(chunk.size) for chunk in chunks]
        assert all(not chunk.id or chunk_id(piece) == chunk.id for chunk, piece in zip(chunks, pieces, strict=True))
        return b"".join(pieces)

    def seen(self) -> dict[bytes, Seen]:
        """The kept tree in the form of `on_disk`."""
        return {
            path: (entry.kind, entry.mode, entry.mtime_ns, entry.target or self._bytes_of(entry.chunks))
            for path, entry in self.tree.items()
        }

    def survey(self) -> tuple[str | None, int, int]:
        return self.scanner.survey(SurveyAsk())

    @property
    def entries_told(self) -> set[bytes]:
        return {entry.path for batch in self.told for entry in batch.entries}

    @property
    def removed_told(self) -> set[bytes]:
        return {path for batch in self.told for path in batch.removed}


def _check(batch: Batch) -> None:
    assert batch.entries or batch.removed or batch.offers
    assert len(batch.entries) <= BATCH_ENTRIES
    assert sum(offer.size for offer in batch.offers) <= BATCH_BYTES
    assert len({offer.id for offer in batch.offers}) == len(batch.offers)
    for entry in batch.entries:
        check_entry(entry)
    for path in batch.removed:
        check_path(path)


def section(path: str, *, gone: str = "", **children: tuple[Stamp, bytes | None]) -> Section:
    """A section of the remembered tree, with these children and without those that are `gone`."""
    stamps, contents = [stamp for stamp, _ in children.values()], [content for _, content in children.values()]
    return Section(path.encode(), 0, join_names(children), stamps, contents, gone.encode())
