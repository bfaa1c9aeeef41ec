"""Bytes that may be compressed with gzip, piece by piece. Pure. Inflated pieces are bounded before they are made."""

import zlib
from collections.abc import Iterator

from sandbox.bridge.tree.tar import bad
from sandbox.system.problem import TreeProblem

MAX_RATIO = 200
_PIECE = 256 << 10
_MAGIC = b"\x1f\x8b"


class Gunzip:
    """Inflates data that begins as gzip does; passes other data on."""

    def __init__(self) -> None:
        self._head = b""
        self._plain: bool | None = None  # None: not known yet
        self._stream = zlib.decompressobj(wbits=31)
        self._begun = False  # some of the present stream has come
        self._taken = 0
        self._given = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The output for `piece`, in pieces of at most 256 KiB if it was compressed. Read it to its end. Raises
        TreeProblem."""
        if self._plain is None:
            piece = self._head + piece
            if len(piece) < len(_MAGIC):
                self._head = piece
                return
            self._plain = not piece.startswith(_MAGIC)
        if self._plain:
            yield piece
        else:
            self._taken += len(piece)
            yield from self._inflate(piece)

    def finish(self) -> None:
        """The input is complete. Raises TreeProblem if it ends in the middle."""
        if self._plain is None or self._begun:
            raise bad("it ends in the middle")

    def _inflate(self, piece: bytes) -> Iterator[bytes]:
        while piece:
            if not self._begun:
                piece = piece.lstrip(b"\0")  # padding between streams, and after the last
                if not piece:
                    return
                self._stream, self._begun = zlib.decompressobj(wbits=31), True
            try:
                grown = self._stream.decompress(piece, _PIECE)
            except zlib.error:
                raise bad("its compression is damaged") from None
            self._given += len(grown)
            if self._given > MAX_RATIO * self._taken + _PIECE:
                raise TreeProblem("too_large", f"the archive grows to more than {MAX_RATIO} times its size")
            yield grown
            piece = self._stream.unconsumed_tail
            if self._stream.eof:
                piece, self._begun = self._stream.unused_data, False
