"""The part of the tar format that we use. Pure.

Written: ustar headers, with a PAX header before those that need one. Read: ustar, GNU long names and PAX, from any
bytes in pieces of any size. The reader holds one header and its extensions, never content. It returns a member once
each number and each length of it is possible. The caller decides whether a path may be written to.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from sandbox.protocol.entry import MAX_FILE, MAX_MTIME_NS, MODE_BITS
from sandbox.system.problem import TreeProblem

BLOCK = 512
END = bytes(2 * BLOCK)
MAX_EXTENSION = 1 << 20  # bytes of one PAX header or long name
MAX_EXTENSIONS = 8  # before one member
_OCTAL_SIZE, _OCTAL_TIME = 8**11, 8**11
_CHECKSUM = slice(148, 156)
_PAX_RECORD = re.compile(rb"([0-9]{1,7}) ([^=\n]{1,255})=", re.DOTALL)
_HEEDED = frozenset({b"path", b"linkpath", b"size", b"mtime"})  # the keys of a PAX header that count
_PAX_TIME = re.compile(rb"(-?)([0-9]{1,11})(?:\.([0-9]*))?")
_NUMBER = re.compile(rb" *([0-7]*)[ \0]*")
_REFUSED = {
    b"3": "a device",
    b"4": "a device",
    b"6": "a FIFO",
    b"S": "a sparse file (make the archive without --sparse)",
    b"M": "a file continued from another volume",
    b"D": "an incremental dump",
    b"V": "a volume label",
}


class Form(Enum):
    FILE = b"0"
    HARD_LINK = b"1"
    SYMLINK = b"2"
    DIRECTORY = b"5"


_FORMS = {b"\0": Form.FILE, b"7": Form.FILE, **{form.value: form for form in Form}}


@dataclass(frozen=True, slots=True)
class TarMember:
    """One header. `name` and `target` are as in the archive. Only a file has a size."""

    name: bytes
    form: Form
    mode: int
    mtime_ns: int
    size: int = 0
    target: bytes = b""


def bad(reason: str) -> TreeProblem:
    return TreeProblem("bad_archive", f"the archive cannot be used: {reason}")


# Writing


def encode(member: TarMember) -> bytes:
    """The header of `member`, and before it an extension for what does not fit."""
    seconds, fraction = divmod(member.mtime_ns, 10**9)
    records = []
    if len(member.name) > 100:
        records.append((b"path", member.name))
    if len(member.target) > 100:
        records.append((b"linkpath", member.target))
    if member.size >= _OCTAL_SIZE:
        records.append((b"size", b"%d" % member.size))
    if fraction or not 0 <= seconds < _OCTAL_TIME:
        sign = b"-" if member.mtime_ns < 0 else b""
        records.append((b"mtime", b"%s%d.%09d" % (sign, *divmod(abs(member.mtime_ns), 10**9))))
    extension = b"".join(_record(key, value) for key, value in records)
    before = _header(b"././@PaxHeader", b"x", 0o644, len(extension), 0, b"") + padded(extension) if extension else b""
    size = member.size if member.size < _OCTAL_SIZE else 0
    seconds = seconds if 0 <= seconds < _OCTAL_TIME else 0
    return before + _header(member.name, member.form.value, member.mode, size, seconds, member.target)


def padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % BLOCK)


def _header(name: bytes, flag: bytes, mode: int, size: int, seconds: int, target: bytes) -> bytes:
    head = name[:100].ljust(100, b"\0") + b"%07o\0%07o\0%07o\0%011o\0%011o\0" % (mode, 0, 0, size, seconds)
    tail = flag + target[:100].ljust(100, b"\0") + b"ustar\x0000"
    block = (head + b" " * 8 + tail).ljust(BLOCK, b"\0")
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def _record(key: bytes, value: bytes) -> bytes:
    """A record begins with its length, which counts itself."""
    rest = b" %s=%s\n" % (key, value)
    length = len(rest) + 1
    while length != len(rest) + len(str(length)):
        length = len(rest) + len(str(length))
    return b"%d%s" % (length, rest)


# Reading


class TarReader:
    """Takes the bytes of an archive in pieces of any size. `ended` when its end has come."""

    def __init__(self) -> None:
        self.ended = False
        self._part = bytearray()  # of a header or an extension
        self._need = BLOCK
        self._extension = b""  # the type of the extension that is being read
        self._extension_size = 0
        self._extensions = 0
        self._said: dict[bytes, bytes] = {}  # from extensions, for the next member
        self._zeros = 0
        self._content = 0
        self._padding = 0

    def feed(self, piece: bytes) -> Iterator[TarMember | memoryview]:
        """The members that begin in `piece`, each file followed by its content in pieces. Read it to its end. Raises
        TreeProblem."""
        view = memoryview(piece)
        while view:
            if self.ended:
                if bytes(view).strip(b"\0"):
                    raise bad("something follows its end")
                return
            if self._content:
                used = min(self._content, len(view))
                self._content -= used
                yield view[:used]
            elif self._padding:
                used = min(self._padding, len(view))
                self._padding -= used
            else:
                used = min(self._need - len(self._part), len(view))
                self._part += view[:used]
                if len(self._part) == self._need:
                    block = bytes(self._part)
                    self._part.clear()
                    member = self._take(block)
                    if member is not None:
                        yield member
            view = view[used:]

    def finish(self) -> None:
        """The input is complete. Raises TreeProblem if it ends in the middle."""
        if not self.ended:
            raise bad("it ends in the middle")

    def _take(self, block: bytes) -> TarMember | None:
        if self._extension:
            self._extend(block[: self._extension_size])
            self._extension, self._need = b"", BLOCK
            return None
        if not block.strip(b"\0"):
            self._zeros += 1
            self.ended = self._zeros == 2
            return None
        if self._zeros:
            raise bad("something follows its end")
        _check_sum(block)
        flag = block[156:157]
        if flag in (b"x", b"g", b"L", b"K"):
            self._begin_extension(flag, _number(block[124:136]))
            return None
        member = self._member(block, flag)
        self._said, self._extensions = {}, 0
        self._content, self._padding = member.size, -member.size % BLOCK
        return member

    def _begin_extension(self, flag: bytes, size: int) -> None:
        self._extensions += 1
        if not 0 < size <= MAX_EXTENSION or self._extensions > MAX_EXTENSIONS:
            raise bad("a header that is too long")
        self._extension, self._extension_size = flag, size
        self._need = size + -size % BLOCK

    def _extend(self, content: bytes) -> None:
        if self._extension in (b"L", b"K"):
            self._said[b"path" if self._extension == b"L" else b"linkpath"] = content.split(b"\0", 1)[0]
            return
        records = dict(_records(content))
        if any(key.startswith(b"GNU.sparse.") for key in records):
            raise bad(_REFUSED[b"S"])
        kept = {key: value for key, value in records.items() if key in _HEEDED}
        if self._extension == b"x":
            self._said.update(kept)
        elif kept.keys() - {b"mtime"}:
            raise bad("one name for all its members")

    def _member(self, block: bytes, flag: bytes) -> TarMember:
        if flag in _REFUSED:
            raise bad(_REFUSED[flag])
        form = _FORMS.get(flag)
        if form is None:
            raise bad("a member of a type that is not known")
        said = self._said
        name = said.get(b"path", _name(block))
        if form is Form.FILE and flag == b"\0" and name.endswith(b"/"):
            form = Form.DIRECTORY  # archives older than the standard mark directories so
        size = _decimal(said[b"size"]) if b"size" in said else _number(block[124:136])
        if not 0 <= size <= MAX_FILE or (size and form is not Form.FILE):
            raise bad("a size that cannot be")
        mtime_ns = _time(said[b"mtime"]) if b"mtime" in said else _number(block[136:148]) * 10**9
        if abs(mtime_ns) > MAX_MTIME_NS:
            raise bad("a time that no file has")
        target = said.get(b"linkpath", _text(block[157:257])) if form in (Form.SYMLINK, Form.HARD_LINK) else b""
        return TarMember(name, form, _number(block[100:108]) & MODE_BITS, mtime_ns, size, target)


def _check_sum(block: bytes) -> None:
    if _number(block[_CHECKSUM]) != sum(block) - sum(block[_CHECKSUM]) + 8 * ord(" "):
        raise bad("a header that is damaged, or it is no tar archive")


def _name(block: bytes) -> bytes:
    prefix = _text(block[345:500]) if block[257:263] == b"ustar\0" else b""
    return prefix + b"/" + _text(block[:100]) if prefix else _text(block[:100])


def _text(part: bytes) -> bytes:
    return part.split(b"\0", 1)[0]


def _number(part: bytes) -> int:
    """Octal digits, or GNU's form: a large or negative number in base 256."""
    if part[0] in (0x80, 0xFF):
        return int.from_bytes(part[1:], "big") - (256 ** (len(part) - 1) if part[0] == 0xFF else 0)
    match = _NUMBER.fullmatch(part)
    if match is None:
        raise bad("a number that is none")
    return int(match[1] or b"0", 8)


def _decimal(value: bytes) -> int:
    if not value.isdigit() or len(value) > 20:
        raise bad("a number that is none")
    return int(value)


def _time(value: bytes) -> int:
    match = _PAX_TIME.fullmatch(value)
    if match is None:
        raise bad("a time that is none")
    size = int(match[2]) * 10**9 + int((match[3] or b"")[:9].ljust(9, b"0"))
    return -size if match[1] else size


def _records(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at < len(content):
        match = _PAX_RECORD.match(content, at)
        end = at + int(match[1]) if match else 0
        if match is None or not match.end() < end <= len(content) or content[end - 1 : end] != b"\n":
            raise bad("a header that cannot be read")
        yield match[2], content[match.end() : end - 1]
        at = end
