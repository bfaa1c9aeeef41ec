"""What a scan reports of the directories it visits: entries and content in batches, and a list of differences.

A file may change while it is read. Then it is read again, ATTEMPTS times in all; after that it is kept as last read and
marked as unsettled. The report always matches what was hashed. An unreadable entry is reported as it was last known, if
it was a thing of the same kind; else it is left out. A name may become something else between the walk and the reading:
then the report has what it has become.
"""

import os
import stat
from collections.abc import Generator, Iterable
from typing import Final

from sandbox.protocol.entry import MAX_FILE, MOST_CHUNKS, Chunk
from sandbox.system.problem import TreeProblem, UnreadableFile, printable, unreadable
from sandbox.tree.batch import BatchBuilder, PendingBatch
from sandbox.tree.chunker import BLOCK, Chunker, Swapped, Vanished, open_file, read_link
from sandbox.tree.index import Section, entry_of, is_same_entry, join_names, pack_chunks, size_of
from sandbox.tree.stat_stamp import CTIME, INODE, MAPPED, MODE, UNSETTLED, Stamp, doubted, possible, read_at, stamp_of
from sandbox.tree.walk import Visit, Walk

ATTEMPTS: Final = 3
SWAPS: Final = 100  # changes of one name after which the scan gives up

Told = Generator[PendingBatch, None, None]


class ScanReport:
    """One scan's account. `whole`: of all there is, else of the differences only. `began_ns`: when the scan began."""

    def __init__(self, walk: Walk, cutter: Chunker, *, whole: bool, most_bytes: int, began_ns: int) -> None:
        self._walk = walk
        self._cutter = cutter
        self._whole = whole
        self._most_bytes = most_bytes
        self._began_ns = began_ns
        self._batch = BatchBuilder()
        self.sections: list[Section] = []  # changes to the known tree
        self.differs = False  # whether any entry differs
        self.read_bytes = 0
        self._files = 0  # in the directories visited
        self._data_bytes = 0

    @property
    def files(self) -> int:
        return self._walk.files + self._files

    @property
    def data_bytes(self) -> int:
        return self._walk.data_bytes + self._data_bytes

    def rest(self) -> Told:
        """After the last visit. Raises TreeProblem."""
        self._check_weight()
        if not self._batch.is_empty:
            yield self._batch.take()

    def visit(self, visit: Visit) -> Told:
        """Raises TreeProblem."""
        known, data_before = visit.known, self._data_bytes
        for name in (*(name for name, _ in visit.found), *visit.gone):
            self._data_bytes -= known.data_bytes_of(name)
            self._files -= name in known.contents
        self._data_bytes += known.data_bytes
        self._files += len(known.contents)
        if self._whole:
            yield from self._tell_same(visit)
        changed: dict[str, tuple[Stamp, bytes | None]] = {}
        for name, stamp in visit.found:
            mark, weight = self._batch.mark(), self._data_bytes
            try:
                kept, content = yield from self._content(visit, name, stamp)
            except UnreadableFile as problem:
                self._walk.leave_out(problem, f"{visit.path}/{name}")
                self._batch.take_back(mark)
                self._data_bytes = weight
                yield from self._leave(visit, name, stamp)
                continue
            except Vanished:
                if name in known.stamps:
                    visit.gone.append(name)
                continue
            changed[name] = kept, content
            self._files += content is not None
            if self._is_as_known(visit, name, kept, content):
                self._batch.take_back(mark)
            else:
                yield from self._tell_found(visit, name, kept, content)
        for name in visit.gone:
            self.differs = True
            yield from self._tell_removed([f"{visit.path}/{name}"])
            yield from self._tell_below(visit, name)
        if changed or visit.gone:
            self._note(visit, changed, self._data_bytes - data_before)

    def _leave(self, visit: Visit, name: str, stamp: Stamp) -> Told:
        """`name` may not be read: its known state stays, and is doubted."""
        known = visit.known
        before = known.stamps.get(name)
        if before is None:
            return
        if stat.S_IFMT(before[MODE]) != stat.S_IFMT(stamp[MODE]):
            visit.gone.append(name)
            return
        self._data_bytes += known.data_bytes_of(name)
        self._files += 1
        if self._whole:
            self._batch.tell(entry_of(os.fsencode(f"{visit.path}/{name}"), before, known.contents[name]))
            if self._batch.is_full:
                yield self._batch.take()

    def _note(self, visit: Visit, changed: dict[str, tuple[Stamp, bytes | None]], data_bytes: int) -> None:
        stamps = [stamp for stamp, _ in changed.values()]
        contents = [content for _, content in changed.values()]
        path, names, gone = os.fsencode(visit.path), join_names(changed), join_names(visit.gone)
        self.sections.append(Section(path, data_bytes, names, stamps, contents, gone))

    # -- reporting
    # --------------------------------------------------------------------------------------------------------

    def _tell_same(self, visit: Visit) -> Told:
        known, above = visit.known, os.fsencode(visit.path)
        for name in visit.same():
            self._batch.tell(entry_of(above + b"/" + os.fsencode(name), known.stamps[name], known.contents.get(name)))
            if self._batch.is_full:
                yield self._batch.take()

    def _is_as_known(self, visit: Visit, name: str, stamp: Stamp, content: bytes | None) -> bool:
        """Whether `name` is unchanged, although it had to be looked at."""
        known = visit.known
        before = known.stamps.get(name)
        is_same = before is not None and is_same_entry(before, stamp) and known.contents.get(name) == content
        self.differs |= not is_same
        return is_same and not self._whole

    def _tell_found(self, visit: Visit, name: str, stamp: Stamp, content: bytes | None) -> Told:
        self._batch.tell(entry_of(os.fsencode(f"{visit.path}/{name}"), stamp, content))
        if self._batch.is_full:
            yield self._batch.take()
        if content is not None:
            yield from self._tell_below(visit, name)

    def _tell_below(self, visit: Visit, name: str) -> Told:
        """The directory known as `name` is gone; report everything that was in it."""
        directory = visit.known.dirs.get(name)
        if directory is not None:
            for above, inner in directory.below(f"{visit.path}/{name}"):
                yield from self._tell_removed(f"{above}/{below}" for below in inner.stamps)

    def _tell_removed(self, paths: Iterable[str]) -> Told:
        if self._whole:
            return
        for path in paths:
            self._batch.tell_removed(os.fsencode(path))
            if self._batch.is_full:
                yield self._batch.take()

    # -- reading ------------------------------------------------------------------------------------------------------

    def _content(
        self, visit: Visit, name: str, stamp: Stamp
    ) -> Generator[PendingBatch, None, tuple[Stamp, bytes | None]]:
        """The stamp and content to keep of the entry at `name`. Raises Vanished if there is nothing to keep."""
        for _ in range(SWAPS):
            try:
                return (yield from self._content_as(visit, name, stamp))
            except Swapped:
                try:
                    stamp = stamp_of(os.stat(name, dir_fd=visit.fd, follow_symlinks=False))
                except FileNotFoundError:
                    raise Vanished from None
        path = printable(os.fsencode(f"{visit.path}/{name}"))
        raise TreeProblem("failed", f"{path} cannot be read: it changes its kind all the time")

    def _content_as(
        self, visit: Visit, name: str, stamp: Stamp
    ) -> Generator[PendingBatch, None, tuple[Stamp, bytes | None]]:
        path = f"{visit.path}/{name}"
        if stat.S_ISDIR(stamp[MODE]):
            if name not in visit.entered:
                visit.entered.append(name)
            return possible(stamp), None
        if stat.S_ISLNK(stamp[MODE]):
            return read_at(stamp, self._began_ns), read_link(visit.fd, name, path)
        if not stat.S_ISREG(stamp[MODE]):
            self._walk.skip(path)
            raise Vanished
        return (yield from self._read(visit, name, path))

    def _read(self, visit: Visit, name: str, path: str) -> Generator[PendingBatch, None, tuple[Stamp, bytes]]:
        for attempt in range(1, ATTEMPTS + 1):
            mark, weight = self._batch.mark(), self._data_bytes
            stamp, is_settled, chunks = yield from self._read_once(visit, name, path)
            if is_settled and self._may_be_mapped(stamp):
                return doubted(stamp, MAPPED), pack_chunks(chunks)
            if is_settled:
                return read_at(stamp, self._began_ns), pack_chunks(chunks)
            if attempt < ATTEMPTS:
                self._data_bytes = weight
                self._batch.take_back(mark)
        return doubted(stamp, UNSETTLED), pack_chunks(chunks)

    def _may_be_mapped(self, stamp: Stamp) -> bool:
        mapped = self._walk.mapped
        return stamp[INODE] in mapped.inodes or stamp[CTIME] >= mapped.doubt_since_ns

    def _read_once(
        self, visit: Visit, name: str, path: str
    ) -> Generator[PendingBatch, None, tuple[Stamp, bool, list[Chunk]]]:
        """Offer the content of a file; whether it stayed as it was meanwhile. Raises Vanished, Swapped, TreeProblem."""
        chunks: list[Chunk] = []
        fd, before = open_file(visit.fd, name, path)
        try:
            self._check_weight(min(before.st_size, before.st_blocks * BLOCK))
            for chunk, content in self._cutter.pieces(fd, before.st_size, before.st_blocks):
                if not chunk.id and chunks and not chunks[-1].id:  # a hole that grew meanwhile
                    chunk = Chunk(b"", chunks.pop().size + chunk.size)
                chunks.append(chunk)
                if chunk.id:
                    if not self._batch.has_room(chunk):
                        yield self._batch.take()
                    self._batch.offer(chunk, content)
                    self.read_bytes += chunk.size
                    self._data_bytes += chunk.size
                    self._check_weight()
                if len(chunks) > MOST_CHUNKS or before.st_size > MAX_FILE:
                    raise TreeProblem("too_large", f"{printable(os.fsencode(path))} is too large a file to be kept")
            after = os.fstat(fd)
        except OSError as error:
            raise unreadable(path, error) from error
        finally:
            os.close(fd)
        stamp = stamp_of(before)
        return stamp, stamp == stamp_of(after) and size_of(chunks) == before.st_size, chunks

    def _check_weight(self, more: int = 0) -> None:
        if self.data_bytes + more > self._most_bytes:
            advice = "raise HOLDFAST_SYNC_MAX_BYTES or name directories in .holdfastignore"
            raise TreeProblem("too_large", f"the workspace has more than {self._most_bytes} bytes: {advice}")
