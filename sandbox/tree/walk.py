"""A walk through a root, compared with its known state.

Most walks find nothing new, in many thousands of entries, so this is a scan's inner loop: one `stat` and one
comparison for each entry, and nothing at all for an unchanged directory. A visit is made where something differs.

Programs change the tree meanwhile. Directories are opened by name in their parent's descriptor and symlinks are never
followed, so the walk stays below its root, whatever is moved or swapped. A name that vanishes between two looks was
not there. An unreadable directory is reported by name, and keeps its known state. An entry that moves from a
directory still to be listed into one already listed is found in neither: so a walk can say whether any directory has
changed since it began.
"""

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sandbox.protocol.entry import MAX_DEPTH, MAX_PATH
from sandbox.protocol.tree import MAX_SKIPPED, MAX_UNREAD
from sandbox.system.mapped_files import NOTHING, MappedFile
from sandbox.system.problem import TreeProblem, UnreadableFile, printable, unreadable
from sandbox.tree.ignore import Rules
from sandbox.tree.index import KINDS, Directory
from sandbox.tree.stat_stamp import INODE, MODE, Stamp, stamp_of

OPEN_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NO_DIRECTORY: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
VANISHED: Final = -1
UNREAD: Final = -2  # instead of a descriptor: unreadable, and as it is known
CLOCK_TICK_NS: Final = 10_000_000  # the clock that stamps files goes in steps, and may be as far behind


_Level = tuple[int, str, Iterator[tuple[str, Directory]]]  # an open directory, its path, its remaining entries


@dataclass(slots=True)
class Visit:
    """A directory, open until the walk goes on. A caller that finds that a name in `found` has become a directory
    since adds it to `entered`."""

    path: str
    fd: int
    known: Directory
    found: list[tuple[str, Stamp]] = field(default_factory=list)  # entries that differ from the known state
    gone: list[str] = field(default_factory=list)  # known, and not there
    entered: list[str] = field(default_factory=list)  # directories of `found`

    def same(self) -> Iterator[str]:
        """The names of unchanged entries. Right until `found` or `gone` are changed."""
        different = {name for name, _ in self.found}.union(self.gone)
        return (name for name in self.known.stamps if name not in different)

    def onward(self) -> Iterator[tuple[str, Directory]]:
        """The directories to go on with, and their known states."""
        known = self.known.dirs
        if not self.found and not self.gone:
            yield from known.items()
            return
        different = {name for name, _ in self.found}.union(self.gone)
        yield from ((name, directory) for name, directory in known.items() if name not in different)
        yield from ((name, known.get(name) or Directory()) for name in self.entered)


class Walk:
    """One look at the roots. `most` bounds the number of entries. With `every`, each directory is visited. An entry
    with an inode in `mapped.inodes` never counts as unchanged. With `lenient`, an entry that cannot be read, or lies
    too deep, is skipped and counted: as all the files known to be in it, and at least one."""

    def __init__(self, most: int, *, every: bool = False, mapped: MappedFile = NOTHING, lenient: bool = False) -> None:
        self._most = most
        self._every = every
        self.mapped = mapped
        self._lenient = lenient
        self.passed_over = 0
        self.files_passed_over = 0
        self.entries = 0
        self.files = 0  # and symlinks, in directories that were not visited
        self.data_bytes = 0  # in directories that were not visited
        self._directories: list[str] = []  # all that were listed
        self.skipped: list[bytes] = []  # the first MAX_SKIPPED entries that are no file, directory or symlink
        self.skipped_count = 0
        self.unread: list[bytes] = []  # the first MAX_UNREAD unreadable entries
        self.unread_count = 0

    def below(self, top: int, root: str, known: Directory, rules: Rules, *, recheck: bool) -> Iterator[Visit]:
        """Visit the directories of `root`, open as `top`, parents first; the walk closes `top`. With `recheck`, the
        known state was read by other rules. Raises TreeProblem."""
        levels: list[_Level] = []
        fd, path = top, root
        try:
            while True:
                visit = Visit(path, fd, known)
                if fd != UNREAD:
                    self._directories.append(path)
                if fd == VANISHED:
                    visit.gone = list(known.stamps)
                elif fd != UNREAD:
                    deepest = len(levels) + 1 >= MAX_DEPTH
                    try:
                        self._look(visit, rules, len(root) + 1, recheck=recheck, deepest=deepest)
                    except TreeProblem as problem:
                        if self.leave_out(problem, path):
                            os.close(fd)
                            fd = UNREAD
                        else:
                            self.pass_over(problem, known)
                            known = Directory()
                        visit = Visit(path, fd, known)
                if fd == UNREAD:
                    self.entries += len(known.stamps)
                if self._every or visit.found or visit.gone:
                    yield visit
                else:
                    self.files += len(known.contents)
                    self.data_bytes += known.data_bytes
                if fd != VANISHED:
                    levels.append((fd, path, visit.onward()))
                    fd = VANISHED
                onward = self._go_on(levels)
                if onward is None:
                    return
                fd, path, known = onward
        finally:
            for open_fd in (fd, *(level[0] for level in levels)):
                if open_fd >= 0:
                    os.close(open_fd)

    def _go_on(self, levels: list[_Level]) -> tuple[int, str, Directory] | None:
        """Enter the next directory; None when there is none any more, and every level is closed. Raises TreeProblem."""
        while levels:
            parent, above, inner = levels[-1]
            for name, known in inner:
                path = f"{above}/{name}"
                if parent == UNREAD:
                    return UNREAD, path, known
                try:
                    return _enter(parent, name, path), path, known
                except TreeProblem as problem:
                    if self.leave_out(problem, path):
                        return UNREAD, path, known
                    self.pass_over(problem, known)
            levels.pop()
            if parent >= 0:
                os.close(parent)
        return None

    def leave_out(self, problem: TreeProblem, path: str) -> bool:
        """Whether the walk may go on without the entry at `path`; then it is noted."""
        if self._lenient or not isinstance(problem, UnreadableFile):
            return False
        self.unread_count += 1
        if len(self.unread) < MAX_UNREAD:
            self.unread.append(os.fsencode(path))
        return True

    def pass_over(self, problem: TreeProblem, known: Directory | None = None) -> None:
        """An unreadable entry has not vanished, nor has its known content. Raises `problem` unless lenient."""
        if not self._lenient:
            raise problem
        self.passed_over += 1
        self.files_passed_over += max(1, known.all_files if known is not None else 0)

    def _look(self, visit: Visit, rules: Rules, start: int, *, recheck: bool, deepest: bool) -> None:
        """List a directory; `start` is where the path relative to the root begins."""
        stamps, found = visit.known.stamps, visit.found
        nothing: dict[str, Stamp] = {}
        known = (nothing if recheck else stamps).get
        seen: list[str] = []
        note_seen = seen.append
        room, mapped = self._most - self.entries, self.mapped.inodes
        try:
            with os.scandir(visit.fd) as items:
                for item in items:
                    name = item.name
                    try:
                        stamp = stamp_of(item.stat(follow_symlinks=False))
                    except FileNotFoundError:
                        continue
                    if known(name) == stamp and not (mapped and stamp[INODE] in mapped):
                        note_seen(name)
                        continue
                    path = f"{visit.path}/{name}"
                    is_directory = stat.S_ISDIR(stamp[MODE])
                    if rules.ignore(path[start:], is_directory=is_directory):
                        continue
                    if recheck and stamps.get(name) == stamp and stamp[INODE] not in mapped:
                        note_seen(name)
                    elif stat.S_IFMT(stamp[MODE]) in KINDS:
                        try:
                            if len(found) >= room or deepest:
                                self._refuse(path, deepest=deepest)
                            check_length(path)
                        except TreeProblem as problem:
                            self.pass_over(problem)
                            continue
                        found.append((name, stamp))
                        if is_directory:
                            visit.entered.append(name)
                    else:
                        self.skip(path)
        except OSError as error:
            raise unreadable(visit.path, error) from error
        self.entries += len(seen) + len(found)
        if self.entries > self._most:
            self._refuse(visit.path, deepest=False)
        if len(seen) < len(stamps):
            visit.gone = list(stamps.keys() - set(seen) - {name for name, _ in found})

    def _refuse(self, path: str, *, deepest: bool) -> None:
        if deepest:
            raise too_deep(path, f"is more than {MAX_DEPTH} directories deep")
        advice = "raise HOLDFAST_SYNC_MAX_FILES or name directories in .holdfastignore"
        raise TreeProblem("too_many", f"the workspace has more than {self._most} files: {advice}")

    def has_moved(self, home: Path, since_ns: int) -> bool:
        """Whether a directory that was listed, below `home`, is gone or has changed since."""
        try:
            top = os.open(home, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)  # from `/` a path might be too long
        except OSError:
            return True
        try:
            times = (os.stat(path, dir_fd=top, follow_symlinks=False).st_ctime_ns for path in self._directories)
            return any(changed_ns > since_ns - CLOCK_TICK_NS for changed_ns in times)
        except OSError:
            return True
        finally:
            os.close(top)

    def skip(self, path: str) -> None:
        self.skipped_count += 1
        if len(self.skipped) < MAX_SKIPPED:
            self.skipped.append(os.fsencode(path))


def check_length(path: str) -> None:
    """Raises TreeProblem."""
    if 4 * len(path) > MAX_PATH and len(os.fsencode(path)) > MAX_PATH:
        raise too_deep(path, f"is a path of more than {MAX_PATH} bytes")


def too_deep(path: str, what: str) -> TreeProblem:
    return TreeProblem("too_deep", f"{printable(os.fsencode(path))} {what}: move it, or name it in .holdfastignore")


def _enter(parent: int, name: str, path: str) -> int:
    try:
        return os.open(name, OPEN_DIRECTORY, dir_fd=parent)
    except OSError as error:
        if error.errno in NO_DIRECTORY:
            return VANISHED
        raise unreadable(path, error) from error
