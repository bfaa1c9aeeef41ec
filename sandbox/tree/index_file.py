"""The remembered tree on disk, so that a restarted bridge knows it without reading a file again.

A log: a mark of the format, then records, each with its length and a hash. The first record is a whole tree, the
others are differences, in order. Remembering appends a record and so costs what changed; when the differences are
larger than the whole tree, the file is written anew.

It is a cache. Nothing is flushed to the disk, and a torn or damaged record ends the log there: the tree is then an
older one, or none, and a scan reports more than necessary.
"""

import os
import struct
from pathlib import Path
from typing import Final

import msgspec
from blake3 import blake3

from sandbox.system.problem import TreeProblem
from sandbox.tree.index import Section, TreeIndex

FORMAT: Final = b"holdfast tree 1\n"
SMALL_LOG: Final = 64 << 10  # differences of fewer bytes are not worth a new file
_HEAD: Final = struct.Struct("<I16s")


class _Record(msgspec.Struct, frozen=True, array_like=True):
    token: str
    whole: bool
    rules: dict[str, bytes]
    sections: list[Section]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Record)


class TreeIndexFile:
    """One writer, the bridge that owns `path`. Nothing is opened before `load`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._end: int | None = None  # of the last good record; None: the file must be written anew
        self._whole_bytes = 0

    def load(self) -> TreeIndex:
        """The tree saved last; an empty one without a token if there is none that can be read."""
        try:
            log = self._path.read_bytes()
        except OSError:
            return TreeIndex()
        if not log.startswith(FORMAT):
            return TreeIndex()
        try:
            return self._replay(memoryview(log))
        except (msgspec.DecodeError, KeyError, ValueError):  # written by a program that had other ideas
            self._end = None
            return TreeIndex()

    def _replay(self, log: memoryview) -> TreeIndex:
        tree = TreeIndex()
        at = len(FORMAT)
        while (payload := _payload(log, at)) is not None:
            record = _decoder.decode(payload)
            at += _HEAD.size + len(payload)
            if record.whole:
                tree = TreeIndex()
                self._whole_bytes = at
            tree.apply(record.sections)
            tree.token, tree.rules = record.token, record.rules
            self._end = at
        return tree

    def save(self, tree: TreeIndex, changes: list[Section] | None) -> None:
        """Note that the tree is now `tree`, which has a token: the one saved before and `changes`, or all new if they
        are None. Raises TreeProblem; then the next one to be saved is saved whole."""
        end, self._end = self._end, None
        try:
            if changes is None or end is None or end > 2 * self._whole_bytes + SMALL_LOG:
                end = self._whole_bytes = self._write(tree)
            else:
                end += self._append(end, _record(tree, changes, whole=False))
        except OSError as error:
            raise TreeProblem("failed", f"the cache of the tree cannot be written: {error.strerror}") from error
        self._end = end

    def _write(self, tree: TreeIndex) -> int:
        draft = self._path.with_name(f"{self._path.name}.new")
        content = FORMAT + _record(tree, list(tree.sections()), whole=True)
        draft.unlink(missing_ok=True)
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(content)
        draft.replace(self._path)
        return len(content)

    def _append(self, end: int, record: bytes) -> int:
        with self._path.open("r+b") as file:
            file.truncate(end)
            file.seek(end)
            file.write(record)
        return len(record)


def _record(tree: TreeIndex, sections: list[Section], *, whole: bool) -> bytes:
    payload = _encoder.encode(_Record(tree.token or "", whole, tree.rules, sections))
    return _HEAD.pack(len(payload), _hash(payload)) + payload


def _payload(log: memoryview, at: int) -> memoryview | None:
    """The content of the record at `at`; None if there is no whole record."""
    if len(log) - at < _HEAD.size:
        return None
    length, digest = _HEAD.unpack_from(log, at)
    payload = log[at + _HEAD.size : at + _HEAD.size + length]
    return payload if len(payload) == length and _hash(payload) == digest else None


def _hash(payload: bytes | memoryview) -> bytes:
    return blake3(payload).digest(length=16)
