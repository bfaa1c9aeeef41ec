"""The tree as a tar archive, for clients without another way to take it out or bring one in.

Out: both roots, names `workspace/...` and `agent/...`. A file that cannot be read as it was found is an error, never
a shorter archive: the stream then has no proper end, so nobody can take it for a good one.

In: a stranger's archive. It may have files, directories, symlinks, and hard links to files of the same archive;
owners, devices and set-user bits are ignored. Everything is made in a staging directory, symlinks last, and no
symlink is followed. Only when the end has come does it replace the roots. After any error the staging is gone and the
roots are as they were. An archive is taken for a workspace unless all its names begin with a root.
"""

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from sandbox.bridge.tree.gunzip import Gunzip
from sandbox.bridge.tree.tar import BLOCK, END, Form, TarMember, TarReader, encode
from sandbox.bridge.tree.unpack import Unpacker
from sandbox.protocol.entry import MAX_DEPTH, MODE_BITS, ROOTS
from sandbox.protocol.tree import TreeLimits
from sandbox.system.jail import open_beneath
from sandbox.system.problem import TreeProblem, printable, unreadable
from sandbox.tree.builder import DIRECTORY, Builder
from sandbox.tree.chunker import Swapped, Vanished, open_file, read_link
from sandbox.tree.root_swap import NEW, clear_stagings, open_home, staging_name, swap_in

LIMITS = TreeLimits()
_PIECE = 256 << 10
_STAGING = staging_name("archive")
_NEW, _PLAIN = os.fsencode(_STAGING) + b"/" + NEW, os.fsencode(_STAGING) + b"/plain"

# Out


def backup_stream(home: Path, limits: TreeLimits = LIMITS) -> Iterator[bytes]:
    """Both roots as one archive, in pieces. Raises TreeProblem for anything that cannot be read; the pieces so far
    are no backup then."""
    return write_tar(home, roots=ROOTS, limits=limits)


def write_tar(home: Path, *, roots: Iterable[bytes], limits: TreeLimits = LIMITS) -> Iterator[bytes]:
    """The same for some roots. Leaves out sockets, FIFOs and devices. Close it if you do not read it to its end."""
    batch = bytearray()
    for piece in _Backup(limits).roots(home, roots):
        batch += piece
        if len(batch) >= _PIECE:
            yield bytes(batch)
            batch.clear()
    yield bytes(batch) + END


class _Backup:
    def __init__(self, limits: TreeLimits) -> None:
        self._limits = limits
        self._count = 0
        self._bytes = 0

    def roots(self, home: Path, roots: Iterable[bytes]) -> Iterator[bytes]:
        with open_home(home) as at:
            for root in map(os.fsdecode, roots):
                try:
                    yield from self._directory(at, root, root)
                except Vanished:
                    raise TreeProblem("failed", f"there is no {root}") from None

    def _directory(self, parent: int, name: str, path: str) -> Iterator[bytes]:
        try:
            directory = os.open(name, DIRECTORY, dir_fd=parent)
        except FileNotFoundError:
            raise Vanished from None
        except OSError as exc:
            raise unreadable(path, exc) from exc
        try:
            yield self._header(path + "/", Form.DIRECTORY, os.fstat(directory))
            names = sorted(os.listdir(directory))
            if names and path.count("/") + 1 >= MAX_DEPTH:
                raise TreeProblem("too_deep", f"{_shown(path)} has more than {MAX_DEPTH} directories above: move it")
            for inner in names:
                try:
                    yield from self._entry(directory, inner, f"{path}/{inner}")
                except Vanished:
                    continue  # as if the backup had begun a little later
        finally:
            os.close(directory)

    def _entry(self, directory: int, name: str, path: str) -> Iterator[bytes]:
        try:
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode):
                yield from self._directory(directory, name, path)
            elif stat.S_ISLNK(found.st_mode):
                target = read_link(directory, name, path)
                yield self._header(path, Form.SYMLINK, found, target=target)
            elif stat.S_ISREG(found.st_mode):
                yield from self._file(*open_file(directory, name, path), path)
        except FileNotFoundError:
            raise Vanished from None
        except Swapped:
            raise TreeProblem("failed", f"{_shown(path)} was replaced while it was read: try again") from None

    def _file(self, fd: int, found: os.stat_result, path: str) -> Iterator[bytes]:
        try:
            yield self._header(path, Form.FILE, found, size=found.st_size)
            left = found.st_size
            while left:
                piece = os.read(fd, min(left, _PIECE))
                if not piece:
                    raise TreeProblem("failed", f"{_shown(path)} became shorter while it was read: try again")
                left -= len(piece)
                yield piece
            yield bytes(-found.st_size % BLOCK)
        finally:
            os.close(fd)

    def _header(self, path: str, form: Form, found: os.stat_result, *, size: int = 0, target: bytes = b"") -> bytes:
        self._count += 1
        self._bytes += size
        if self._count > self._limits.files:
            raise TreeProblem("too_many", f"the workspace has more than {self._limits.files} files")
        if self._bytes > self._limits.total_bytes:
            raise TreeProblem("too_large", f"the workspace has more than {self._limits.total_bytes} bytes")
        return encode(TarMember(os.fsencode(path), form, found.st_mode & MODE_BITS, found.st_mtime_ns, size, target))


def _shown(path: str) -> str:
    return printable(os.fsencode(path))


# In


def extract_tar(home: Path, pieces: Iterable[bytes], limits: TreeLimits = LIMITS, *, aside: bool = True) -> None:
    """Replace the roots by an archive. Raises as RestoreUpload does."""
    upload = RestoreUpload(home, limits)
    with upload.all_or_nothing():
        for piece in pieces:
            upload.feed(piece)
        upload.finish(aside=aside)


class RestoreUpload:
    """One archive on its way in, plain or gzip. Any exception aborts it. Not for two threads at once; nobody else may
    work in the roots' home meanwhile."""

    def __init__(self, home: Path, limits: TreeLimits = LIMITS) -> None:
        self._home = home
        self._limits = limits
        self._gunzip = Gunzip()
        self._reader = TarReader()
        self._unpacker: Unpacker | None = None  # from the first byte to the end

    def feed(self, piece: bytes) -> None:
        """The next bytes of the archive. Raises TreeProblem and OSError."""
        with self.all_or_nothing():
            if self._unpacker is None:
                self._unpacker = Unpacker(self._begin(), self._limits)
            for plain in self._gunzip.feed(piece):
                for item in self._reader.feed(plain):
                    if isinstance(item, TarMember):
                        self._unpacker.take(item)
                    else:
                        self._unpacker.write(item)

    def finish(self, *, aside: bool = True) -> None:
        """All bytes have come: replace the roots by the tree; durable when this returns. If `aside`, the old roots
        stay beside them. Raises TreeProblem and OSError."""
        with self.all_or_nothing():
            self._gunzip.finish()
            self._reader.finish()
            assert self._unpacker is not None, "an archive that has an end had a beginning"
            if not self._unpacker.finish():
                self._take_for_workspace()
            self._unpacker.close()
            swap_in(self._home, _STAGING, aside=aside)
            self._unpacker = None

    def abort(self) -> None:
        """Remove everything that was made; the roots are as they were. Safe to repeat, and after `finish`. Raises
        OSError."""
        if self._unpacker is not None:
            self._unpacker.close()
            self._unpacker = None
            clear_stagings(self._home)  # a swap that has begun is completed, though

    @contextlib.contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Aborts at any exception."""
        try:
            yield
        except BaseException:
            with contextlib.suppress(OSError):  # the next restore removes the rest
                self.abort()
            raise

    def _begin(self) -> Builder:
        clear_stagings(self._home)
        with open_home(self._home) as home:
            os.mkdir(_STAGING, 0o700, dir_fd=home)
            os.mkdir(_NEW, 0o700, dir_fd=home)
            return Builder(open_beneath(home, _NEW, DIRECTORY))

    def _take_for_workspace(self) -> None:
        workspace, agent = ROOTS
        with open_home(self._home) as home:
            os.rename(_NEW, _PLAIN, src_dir_fd=home, dst_dir_fd=home)
            os.mkdir(_NEW, 0o700, dir_fd=home)
            os.rename(_PLAIN, _NEW + b"/" + workspace, src_dir_fd=home, dst_dir_fd=home)
            os.mkdir(_NEW + b"/" + agent, 0o700, dir_fd=home)
