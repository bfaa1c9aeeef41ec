"""A tree in the making, beside the roots it will replace.

    plan     the whole tree is checked, its directories are made, and the missing chunks are named
    put      content comes in any order; it goes to every place that wants it once its hash is right
    finish   symlinks, then the modes and times of directories, inner ones first; then all of it is on the disk
    swap     it takes the place of the roots in one step (sandbox/tree/root_swap.py)

The next run of the same token continues an interrupted one. No note says how far that came: the files there are hashed
and compared. A file that differs from the tree is written again; a staging that does not fit is thrown away.
"""

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from sandbox.protocol.chunk_frames import unpack
from sandbox.protocol.entry import ROOTS, BadEntry, Chunk, Entry, Frame, Kind, check_entry
from sandbox.system.jail import Escape, open_beneath
from sandbox.tree.builder import DIRECTORY, Builder, write_all
from sandbox.tree.resume import RestoreRemainder, find_remains, lacking_pieces, pieces
from sandbox.tree.root_swap import (
    NEW,
    begin_empty,
    clear_stagings,
    discard,
    open_home,
    recover_swap,
    staging_name,
    swap_in,
)

__all__ = ["Staging", "StagingIncomplete", "begin_empty", "check_tree", "recover_swap"]


class StagingIncomplete(Exception):
    """Content that the tree names has not come. The text says how much."""


@dataclass(slots=True, eq=False)
class _File:
    """An unfinished file: `left` pieces of it are missing; `made` if a part of it is on the disk."""

    entry: Entry
    left: int
    made: bool = False


class Staging:
    """Nothing it does touches the roots before `swap`. Every method may raise OSError; after any exception only
    `close` may be called, and a new one with the same token goes on. Not for two threads at once.

    `files` and `written_bytes` count finished files, with those that an interrupted run had finished.
    """

    def __init__(self, home: Path, token: str) -> None:
        """`home` holds the roots; the same `token` is the same tree."""
        self._home = home
        self._name = staging_name(token)
        self._entries: Sequence[Entry] = ()
        self._lacking: dict[bytes, list[tuple[_File, int, int]]] = {}  # file, offset, size
        self._builder = Builder(-1)
        self._finished = False
        self.files = 0
        self.written_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every descriptor; written files stay for the next run. Safe to repeat."""
        self._builder.close()

    def plan(self, entries: Sequence[Entry]) -> set[bytes]:
        """Take the whole tree; return the ids of the missing chunks. Stagings of other tokens are removed. Raises
        BadEntry if it is no tree, before anything is touched."""
        kinds = check_tree(entries)
        clear_stagings(self._home, keep=self._name)
        remains = self._open(kinds)
        self._entries = entries
        for path in sorted(path for path, kind in kinds.items() if kind == Kind.DIRECTORY):
            if path not in remains.directories:
                self._builder.make_directory(path)
        for entry in entries:
            if entry.kind == Kind.FILE:
                self._plan_file(entry, is_there=entry.path in remains.files)
        return set(self._lacking)

    def put(self, frame: Frame) -> None:
        """Take content; chunks that are not missing are ignored. Raises BadEntry if any of it does not match its id."""
        for chunk, content in zip(frame.chunks, unpack(frame), strict=True):
            for file, offset, size in self._lacking.pop(chunk.id, ()):
                if size != chunk.size:
                    raise BadEntry("a chunk of another size than the tree has it")
                self._write(file, content, offset)

    def finish(self) -> None:
        """Complete the tree; it is durable when this returns. Raises StagingIncomplete."""
        if self._lacking:
            raise StagingIncomplete(f"{len(self._lacking)} chunks have not come")
        directories = []
        for entry in self._entries:
            if entry.kind == Kind.SYMLINK:
                self._builder.make_symlink(entry.path, entry.target, entry.mtime_ns)
            elif entry.kind == Kind.DIRECTORY:
                directories.append((entry.path, entry.mode, entry.mtime_ns))
        self._builder.finish_directories(directories)
        self._builder.sync()
        self._builder.close()
        self._finished = True

    def swap(self, *, aside: bool, tidy: bool = True) -> None:
        """After `finish`: replace the roots by the tree. The old tree is kept beside them, if `aside` and if it is
        not empty, and only the newest two of such trees; else it is removed, unless `tidy` by `emptying_trash`,
        later."""
        assert self._finished, "finish first"
        swap_in(self._home, self._name, aside=aside, tidy=tidy)

    # -- files --------------------------------------------------------------------------------------------------------

    def _open(self, kinds: Mapping[bytes, int]) -> RestoreRemainder:
        """Go on in the staging of an interrupted run of this tree, or in a new one."""
        place = os.fsencode(self._name) + b"/" + NEW
        with open_home(self._home) as home:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError, Escape):
                self._builder = Builder(open_beneath(home, place, DIRECTORY))
                remains = find_remains(self._builder.top, kinds)
                if remains is not None:
                    return remains
            self._builder.close()
            discard(self._home, self._name)
            os.mkdir(self._name, 0o700, dir_fd=home)
            os.mkdir(place, 0o700, dir_fd=home)
            self._builder = Builder(open_beneath(home, place, DIRECTORY))
            return RestoreRemainder()

    def _plan_file(self, entry: Entry, *, is_there: bool) -> None:
        lacking = self._take_up(entry) if is_there else None
        made = lacking is not None
        if lacking is None:
            lacking = [(chunk, offset) for chunk, offset in pieces(entry) if chunk.id]
        self.written_bytes += entry.size - sum(chunk.size for chunk, _ in lacking)
        file = _File(entry, len(lacking), made)
        for chunk, offset in lacking:
            self._lacking.setdefault(chunk.id, []).append((file, offset, chunk.size))
        if not lacking:
            self.files += 1
            if not made:  # empty, or nothing but holes
                self._make(entry)
                self._builder.finish_file(entry.path, entry.mode, entry.mtime_ns)

    def _take_up(self, entry: Entry) -> list[tuple[Chunk, int]] | None:
        """The missing pieces of an existing file; None, and the file is removed, if it is of no use."""
        parent, name = self._builder.parent(entry.path)
        lacking = lacking_pieces(parent, name, entry)
        if lacking is None:
            os.unlink(name, dir_fd=parent)
        return lacking

    def _make(self, entry: Entry) -> int:
        fd = self._builder.make_file(entry.path)
        if not all(chunk.id for chunk in entry.chunks):
            os.ftruncate(fd, entry.size)
        return fd

    def _write(self, file: _File, content: memoryview, offset: int) -> None:
        entry, builder = file.entry, self._builder
        if len(content) == entry.size:
            builder.write_file(entry.path, content, entry.mode, entry.mtime_ns)
            self.files += 1
        else:
            write_all(builder.file(entry.path) if file.made else self._make(entry), content, offset)
            file.made = True
            file.left -= 1
            if not file.left:
                builder.finish_file(entry.path, entry.mode, entry.mtime_ns)
                self.files += 1
        builder.write_behind(len(content))
        self.written_bytes += len(content)


def check_tree(entries: Sequence[Entry]) -> dict[bytes, int]:
    """The kind of each path, the roots with them. Raises BadEntry unless the entries are one whole tree: each one could
    be, none comes twice, and each lies in a directory that is one of them or a root."""
    kinds: dict[bytes, int] = dict.fromkeys(ROOTS, Kind.DIRECTORY)
    for entry in entries:
        check_entry(entry)
        if entry.path in kinds:
            raise BadEntry("a path that comes twice, or a root as an entry")
        kinds[entry.path] = entry.kind
    for entry in entries:
        if kinds.get(entry.path[: entry.path.rindex(b"/")]) != Kind.DIRECTORY:
            raise BadEntry("an entry that lies in no directory of the tree")
    return kinds
