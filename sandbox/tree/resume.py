"""The remains of an interrupted restore, and which of them are usable.

Only files that equal the tree's count, known by their bytes. Anything that the tree does not have means that somebody
else changed it: then none of it is used.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sandbox.protocol.entry import Chunk, Entry, Kind, chunk_id
from sandbox.system.jail import open_beneath
from sandbox.tree.builder import DIRECTORY, unlock

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_UNFINISHED = 0o600  # the mode of a file until its last piece came


@dataclass(frozen=True, slots=True)
class RestoreRemainder:
    """Existing paths, each of the kind that the tree has there. Every directory is writable."""

    directories: set[bytes] = field(default_factory=set)
    files: set[bytes] = field(default_factory=set)


def find_remains(top: int, kinds: Mapping[bytes, int]) -> RestoreRemainder | None:
    """Go through the tree below the open directory `top`; None if the restore cannot go on with it. Symlinks, which
    are made last, are removed. Raises OSError."""
    remains = RestoreRemainder()
    waiting = [b"."]
    while waiting:
        directory = waiting.pop()
        fd = open_beneath(top, directory, DIRECTORY)
        try:
            for name in map(os.fsencode, os.listdir(fd)):
                path = name if directory == b"." else directory + b"/" + name
                mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
                kind = kinds.get(path)
                if stat.S_ISDIR(mode) and kind == Kind.DIRECTORY:
                    unlock(name, fd)
                    remains.directories.add(path)
                    waiting.append(path)
                elif stat.S_ISREG(mode) and kind == Kind.FILE:
                    remains.files.add(path)
                elif stat.S_ISLNK(mode) and kind == Kind.SYMLINK:
                    os.unlink(name, dir_fd=fd)
                else:
                    return None
        finally:
            os.close(fd)
    return remains


def lacking_pieces(directory: int, name: bytes, entry: Entry) -> list[tuple[Chunk, int]] | None:
    """The pieces, with their offsets, that the file `name` of `directory` lacks; None if it must be written anew. A
    complete file gets its mode and time. Raises OSError."""
    try:
        fd = os.open(name, _READ, dir_fd=directory)
    except PermissionError:
        return None
    try:
        there = os.fstat(fd)
        # A hole looks like written zeros, and a file with another name is not ours alone.
        if there.st_size > entry.size or there.st_nlink != 1 or not all(chunk.id for chunk in entry.chunks):
            return None
        lacking = [(chunk, at) for chunk, at in pieces(entry) if chunk_id(os.pread(fd, chunk.size, at)) != chunk.id]
        if not lacking:
            os.fchmod(fd, entry.mode)
            os.utime(fd, ns=(entry.mtime_ns, entry.mtime_ns))
        elif len(entry.chunks) == 1 or there.st_mode & _UNFINISHED != _UNFINISHED:
            return None
        return lacking
    finally:
        os.close(fd)


def pieces(entry: Entry) -> Iterator[tuple[Chunk, int]]:
    """The chunks of a file, each with its offset."""
    offset = 0
    for chunk in entry.chunks:
        yield chunk, offset
        offset += chunk.size
