"""Makes a tree of a stranger's archive, and decides which members it refuses.

Whatever the names are, nothing is written through a symlink: symlinks are noted, and made when everything else is
there. A name that was used once is not used again.
"""

import time

from sandbox.bridge.tree.tar import Form, TarMember, bad
from sandbox.protocol.entry import MAX_DEPTH, MAX_NAME, MAX_PATH, ROOTS, Kind
from sandbox.protocol.tree import TreeLimits
from sandbox.system.problem import TreeProblem, printable
from sandbox.tree.builder import Builder, write_all

MAX_MEMBERS = 200_000
_PARENT_MODE = 0o755  # of directories that the archive does not name


class Unpacker:
    """Makes members below the builder's empty directory. Every method may raise TreeProblem and OSError."""

    def __init__(self, builder: Builder, limits: TreeLimits) -> None:
        self._builder = builder
        self._most_members = min(limits.files, MAX_MEMBERS)
        self._most_bytes = limits.total_bytes
        self._kinds: dict[bytes, Kind] = {}
        self._directories: dict[bytes, tuple[int, int]] = {}  # mode and mtime_ns
        self._symlinks: list[tuple[bytes, bytes, int]] = []
        self._file: TarMember | None = None  # its content follows
        self._path = b""
        self._offset = 0
        self._members = 0
        self._bytes = 0

    def take(self, member: TarMember) -> None:
        """A member begins; if it is a file, its content follows."""
        self._count(1, member.size)
        path = clean_path(member.name)
        if not path and member.form is not Form.DIRECTORY:
            raise bad("a member without a name")
        match member.form:
            case Form.DIRECTORY:
                if path:  # else it is the directory of the archive itself
                    self._make_directory(path, member.mode, member.mtime_ns)
            case Form.SYMLINK:
                self._note_symlink(path, member)
            case Form.HARD_LINK:
                self._make_link(path, member)
            case Form.FILE:
                self._begin_file(path, member)

    def write(self, content: memoryview) -> None:
        """The next bytes of the file that began last."""
        write_all(self._builder.file(self._path), content, self._offset)
        self._offset += len(content)
        self._finish_file()

    def finish(self) -> bool:
        """All members have come: complete the tree, so that it is durable. True if it is two roots, of which one may
        be empty; False if it is the content of one."""
        if not self._members:
            raise bad("nothing is in it")
        tops = [(path, kind) for path, kind in self._kinds.items() if b"/" not in path]
        is_roots = all(path in ROOTS and kind == Kind.DIRECTORY for path, kind in tops)
        self._check_depth(0 if is_roots else len(ROOTS[0]) + 1)
        for path, target, mtime_ns in self._symlinks:
            self._builder.make_symlink(path, target, mtime_ns)
        if is_roots:
            for root in ROOTS:
                self._directories.pop(root, None)  # the root's own mode is not kept
                if root not in self._kinds:
                    self._builder.make_directory(root)
        self._builder.finish_directories((path, *stamp) for path, stamp in self._directories.items())
        self._builder.sync()
        return is_roots

    def close(self) -> None:
        self._builder.close()

    def _make_directory(self, path: bytes, mode: int, mtime_ns: int) -> None:
        if self._kinds.get(path) != Kind.DIRECTORY:
            self._claim(path, Kind.DIRECTORY)
            self._builder.make_directory(path)
        self._directories[path] = (mode, mtime_ns)

    def _note_symlink(self, path: bytes, member: TarMember) -> None:
        if not 0 < len(member.target) <= MAX_PATH or b"\0" in member.target:
            raise bad(f"{printable(path)} is a symlink to what cannot be")
        self._claim(path, Kind.SYMLINK)
        self._symlinks.append((path, member.target, member.mtime_ns))

    def _make_link(self, path: bytes, member: TarMember) -> None:
        target = clean_path(member.target)
        if self._kinds.get(target) != Kind.FILE:
            raise bad(f"{printable(path)} is a hard link to something that is no file before it")
        self._claim(path, Kind.FILE)
        self._count(0, self._builder.link_file(target, path))

    def _begin_file(self, path: bytes, member: TarMember) -> None:
        if member.name.endswith(b"/"):
            raise bad(f"{printable(path)} is a file with the name of a directory")
        self._claim(path, Kind.FILE)
        self._builder.make_file(path)
        self._file, self._path, self._offset = member, path, 0
        self._finish_file()

    def _finish_file(self) -> None:
        if self._file is not None and self._offset == self._file.size:
            self._builder.finish_file(self._path, self._file.mode, self._file.mtime_ns)
            self._file = None

    def _claim(self, path: bytes, kind: Kind) -> None:
        """`path` is new, and becomes a `kind`. The directories above it are made if the archive has not named them."""
        if path in self._kinds:
            raise bad(f"{printable(path)} comes twice")
        missing = []
        parent = path.rpartition(b"/")[0]
        while parent and parent not in self._kinds:
            missing.append(parent)
            parent = parent.rpartition(b"/")[0]
        if parent and self._kinds[parent] != Kind.DIRECTORY:
            raise bad(f"{printable(path)} lies in something that is no directory")
        for directory in reversed(missing):
            self._count(1, 0)
            self._builder.make_directory(directory)
            self._kinds[directory] = Kind.DIRECTORY
            self._directories[directory] = (_PARENT_MODE, time.time_ns())
        self._kinds[path] = kind

    def _count(self, members: int, size: int) -> None:
        self._members += members
        self._bytes += size
        if self._members > self._most_members:
            raise TreeProblem("too_many", f"the archive has more than {self._most_members} members")
        if self._bytes > self._most_bytes:
            raise TreeProblem("too_large", f"the archive has more than {self._most_bytes} bytes")

    def _check_depth(self, above: int) -> None:
        """With `above` bytes before every path, each is still short enough to keep."""
        for path in self._kinds:
            if path.count(b"/") + 1 + bool(above) > MAX_DEPTH or len(path) + above > MAX_PATH:
                raise too_deep()


def clean_path(name: bytes) -> bytes:
    """A member's name as a path below the top of its archive; empty for the top itself. Raises TreeProblem if it
    leads elsewhere, or is longer than a path may be."""
    parts = [part for part in name.split(b"/") if part not in (b"", b".")]
    if name.startswith(b"/") or b".." in parts or b"\0" in name:
        raise bad("a name that leads out of it")
    path = b"/".join(parts)
    if len(parts) > MAX_DEPTH or len(path) > MAX_PATH or any(len(part) > MAX_NAME for part in parts):
        raise too_deep()
    return path


def too_deep() -> TreeProblem:
    limits = f"{MAX_DEPTH} directories, {MAX_NAME} bytes of one name, {MAX_PATH} of a path"
    return TreeProblem("too_deep", f"the archive has a path of more than {limits}")
