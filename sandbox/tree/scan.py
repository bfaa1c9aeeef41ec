"""Reads the tree of a sandbox: scans and surveys of its two roots.

    the walk finds      entries whose stamp differs from the remembered tree's
    they are read       and reported in batches, see scan_report.py; each difference is noted
    `remember`          makes the differences part of the remembered tree

Nothing is remembered before the other end confirms it: it may have failed to store the report, and then needs it
again. There is one exception. A scan without differences has still found out that entries which were too young to be
trusted are unchanged, and remembers that at once.

All of it waits for the disk: it belongs into a thread, one operation at a time.
"""

import contextlib
import stat
import sys
import time
from collections.abc import Callable, Generator, Iterable
from pathlib import Path

from sandbox.protocol.entry import Entry
from sandbox.protocol.tree import ScanAsk, ScanDone, SurveyAsk
from sandbox.system.mapped_files import NOTHING, MappedFile
from sandbox.system.problem import TreeProblem
from sandbox.tree.batch import PendingBatch
from sandbox.tree.chunker import Chunker
from sandbox.tree.index import Directory, TreeIndex, tree_of
from sandbox.tree.index_store import TreeIndexStore
from sandbox.tree.roots import NO_RULES, Roots
from sandbox.tree.scan_report import ScanReport
from sandbox.tree.stat_stamp import INODE, MODE, as_kept
from sandbox.tree.walk import Visit, Walk


class TreeScanner:
    """For the roots below `home`, as long as the bridge lives. `cache_path` is a file of the scanner's own.
    `new_inodes`: each start gives files new inode numbers. Every method may raise TreeProblem."""

    def __init__(
        self, home: Path, cache_path: Path, clock_ns: Callable[[], int] = time.time_ns, *, new_inodes: bool = False
    ) -> None:
        self._roots = Roots(home)
        self._memory = TreeIndexStore(cache_path, new_inodes=new_inodes)
        self._cutter = Chunker()
        self._clock_ns = clock_ns

    def scan(self, ask: ScanAsk) -> "Scan":
        """Begin a scan. If `ask.base` is the last remembered tree, the scan reports differences. If it is another, it
        reports the whole tree, and reads only entries that differ from the remembered ones. Without a base nothing
        was ever stored: everything is read and offered."""
        return Scan(self._roots, self._memory, self._cutter, ask, self._clock_ns())

    def survey(self, ask: SurveyAsk) -> tuple[str | None, int, int]:
        """The token of the last remembered tree, the number of entries that differ from it as far as a walk can tell
        (0 if there is none), and the number of files and symlinks. A missing root is empty; an unreadable ignore file
        leaves nothing out. Anything else that cannot be read, or kept, differs and counts as the files known to be in
        it, at least one: it has not vanished."""
        rules = self._roots.rules(ask.agent_skip, lenient=True)
        tree = self._memory.tree
        # To look at all programs takes long, and where nothing is remembered nothing can differ.
        mapped = NOTHING if tree.token is None else self._roots.mapped()
        walk = Walk(sys.maxsize, mapped=mapped, lenient=True)
        changed = files = 0
        for visit in self._roots.visits(walk, tree, rules, may_be_missing=True):
            changed += _changed(visit, walk.mapped)
            files += _files(visit)
        changed += walk.passed_over
        files += walk.files + walk.files_passed_over
        return tree.token, changed if tree.token is not None else 0, files

    def adopt(self, token: str, entries: Iterable[Entry]) -> None:
        """The tree on disk is `entries`, because it was just put there, and is called `token`."""
        now_ns = self._clock_ns()
        try:
            tree = tree_of(entries)
        except KeyError:
            raise TreeProblem("failed", "a tree with an entry that is in no directory") from None
        for visit in self._roots.visits(Walk(sys.maxsize), TreeIndex(), NO_RULES, may_be_missing=True):
            tree.believe(visit.path, visit.found, now_ns)
        tree.token = token
        self._memory.replace(tree)


class Scan:
    """One scan. Read `batches` to its end; then there is `done`, and it may be remembered."""

    def __init__(self, roots: Roots, memory: TreeIndexStore, cutter: Chunker, ask: ScanAsk, now_ns: int) -> None:
        self._roots = roots
        self._memory = memory
        self._ask = ask
        self._edition = memory.edition
        self._known = memory.tree if ask.base is not None else TreeIndex()
        is_whole = ask.base is None or ask.base != self._known.token
        self._base = None if is_whole else ask.base
        self._walk = Walk(ask.limits.files, every=is_whole, mapped=roots.mapped())
        most = ask.limits.total_bytes
        self._telling = ScanReport(self._walk, cutter, whole=is_whole, most_bytes=most, began_ns=now_ns)
        self._began_ns = now_ns
        self._rules: dict[str, bytes] = {}
        self._done: ScanDone | None = None

    @property
    def done(self) -> ScanDone:
        if self._done is None:
            raise RuntimeError("the scan is not done")
        return self._done

    def batches(self) -> Generator[PendingBatch, None, None]:
        """Read it once. A batch stays valid for as long as somebody holds it. Raises TreeProblem; then the scan is
        over. Closing it closes all its open files."""
        rules, telling = self._roots.rules(self._ask.agent_skip), self._telling
        for visit in self._roots.visits(self._walk, self._known, rules):
            yield from telling.visit(visit)
        yield from telling.rest()
        self._rules = {root: its.fingerprint for root, its in rules.items()}
        if self._base is not None and not telling.differs:
            with contextlib.suppress(TreeProblem):  # a file that is behind costs time, some day
                self._memory.change(self._base, self._rules, telling.sections)
            telling.sections.clear()
            self._edition = self._memory.edition
        walk = self._walk
        self._done = ScanDone(
            self._base,
            telling.files,
            telling.data_bytes,
            telling.read_bytes,
            tuple(walk.skipped),
            walk.skipped_count,
            self._roots.have_moved(walk, self._began_ns),
            tuple(walk.unread),
            walk.unread_count,
        )

    def remember(self, token: str) -> None:
        """The report of this scan is stored, and called `token`. Impossible once another tree was remembered."""
        if self._done is None or self._edition != self._memory.edition:
            raise RuntimeError("a scan that is not done, or not the last one")
        if self._known is self._memory.tree:
            self._memory.change(token, self._rules, self._telling.sections)
        else:
            self._known.apply(self._telling.sections)
            self._known.token, self._known.rules = token, self._rules
            self._memory.replace(self._known)
        self._telling.sections.clear()
        self._edition = self._memory.edition


def _changed(visit: Visit, mapped: MappedFile) -> int:
    """The number of entries that differ from the kept ones, or may."""
    known, changed = visit.known, len(visit.gone)
    for name, stamp in visit.found:
        before = known.stamps.get(name)
        changed += before is None or not as_kept(before, stamp) or stamp[INODE] in mapped.inodes
    no_directories = [name for name, stamp in visit.found if not stat.S_ISDIR(stamp[MODE])]
    return changed + sum(_entries(known.dirs[name]) for name in (*visit.gone, *no_directories) if name in known.dirs)


def _files(visit: Visit) -> int:
    """How many files and symlinks there are now."""
    known = visit.known.contents
    found = sum((not stat.S_ISDIR(stamp[MODE])) - (name in known) for name, stamp in visit.found)
    return len(known) + found - sum(name in known for name in visit.gone)


def _entries(directory: Directory) -> int:
    return sum(len(inner.stamps) for _, inner in directory.below(""))
