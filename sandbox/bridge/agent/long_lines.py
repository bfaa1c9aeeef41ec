"""Bytes in, lines out, for cores that can use a part of a long line. Pure.

A JSON line beyond `WHOLE` bytes is not kept whole: the first `STRING` bytes of each string stay, with a remark how
many are left out. The type and the ids are short, so they stay. In a line with many long strings, the strings after
the first half of the allowed size are cut to `SHORT`. A line that is still too long, or longer than `LONGEST` in all,
is left out and counted, as in lines.py. At most `WHOLE` bytes of a line are in memory, and one read.
"""

import re

from sandbox.protocol.agent import MAX_LINE

LONGEST = 64 << 20
WHOLE = MAX_LINE
STRING = 64 << 10
SHORT = 256

_BODY = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)  # of a string, up to its end or to a backslash that was cut off
# Characters of a string, each whole: an escape, a pair of surrogates, a sequence of UTF-8.
_CHARACTERS = re.compile(
    rb"""(?: [^\\\x80-\xff]++ | \\[^u]
        | \\u[dD][89abAB]..\\u[dD][c-fC-F].. | \\u(?![dD][89abAB]).{4}
        | \\u[dD][89abAB]..(?= [^\\] | \\[^u] | \\u[^dD] | \\u[dD][0-9abAB] )
        | [\xc0-\xdf][\x80-\xbf] | [\xe0-\xef][\x80-\xbf]{2} | [\xf0-\xf7][\x80-\xbf]{3}
    )*+""",
    re.DOTALL | re.VERBOSE,
)


class CuttingSplitter:
    """Like LineSplitter (lines.py), but cuts the strings of a line beyond `WHOLE` bytes."""

    def __init__(self) -> None:
        self._line = CutText()
        self.oversized = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that `chunk` completes, without their newline."""
        *whole, rest = chunk.split(b"\n")
        lines = []
        for part in whole:
            self._line.feed(part)
            lines += self._complete()
        self._line.feed(rest)
        return lines

    def finish(self) -> list[bytes]:
        """The stream ended: return the unfinished last line, if there is one."""
        return [line for line in self._complete() if line]

    def _complete(self) -> list[bytes]:
        line = self._line.finish()
        if line is None:
            self.oversized += 1
            return []
        return [line]


class CutText:
    """One JSON text after the other. The strings of a text beyond `WHOLE` bytes are cut."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._cutter: LineCutter | None = None

    def feed(self, part: bytes) -> None:
        self._size += len(part)
        if self._cutter is None and self._size > WHOLE:
            self._cutter = LineCutter()
            for kept in self._parts:
                self._cutter.feed(kept)
            self._parts.clear()
        if self._cutter is not None:
            self._cutter.feed(part)
        else:
            self._parts.append(part)

    def finish(self) -> bytes | None:
        """The text, after which the next may begin; None if it is still too long."""
        whole = b"".join(self._parts) if self._cutter is None else self._cutter.finish()
        self._parts.clear()
        self._size, self._cutter = 0, None
        return whole


class LineCutter:
    """One line, in pieces: `finish` returns it with its long strings cut, or None if it is still too long."""

    def __init__(self) -> None:
        self._out: list[bytes] = []
        self._size = 0  # of the kept part
        self._fed = 0
        self._in_string = False
        self._escaped = False  # the last byte was a backslash, which gives the next one its meaning
        self._string: list[bytes] = []
        self._string_kept = 0
        self._string_size = 0
        self._too_long = False

    def feed(self, data: bytes) -> None:
        self._fed += len(data)
        self._too_long |= self._fed > LONGEST
        at = 0
        while at < len(data) and not self._too_long:
            at = self._read_string(data, at) if self._in_string else self._read_rest(data, at)

    def _read_rest(self, data: bytes, at: int) -> int:
        end = data.find(b'"', at) + 1
        self._put(data[at : end or len(data)])
        self._in_string = end > 0
        return end or len(data)

    def _read_string(self, data: bytes, at: int) -> int:
        if self._escaped:
            self._escaped = False
            self._take(data[at : at + 1])
            return at + 1
        body = _BODY.match(data, at)
        assert body is not None
        end = body.end()
        self._take(data[at:end])
        if end < len(data):
            if data[end] == 0x22:
                self._close_string()
            else:
                self._escaped = True
                self._take(b"\\")
        return end + 1

    @property
    def _limit(self) -> int:
        return STRING if self._size < WHOLE // 2 else SHORT

    def _take(self, part: bytes) -> None:
        self._string_size += len(part)
        room = self._limit - self._string_kept
        if room > 0:
            self._string.append(part[:room])
            self._string_kept += len(self._string[-1])

    def _close_string(self) -> None:
        kept = b"".join(self._string)
        if self._string_size > len(kept):
            kept = cut_characters(kept)
            self._put(b"%b\\n[%d bytes left out]" % (kept, self._string_size - len(kept)))
        else:
            self._put(kept)
        self._put(b'"')
        self._string.clear()
        self._string_kept = self._string_size = 0
        self._in_string = False

    def _put(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > WHOLE:
            self._too_long = True
            self._out.clear()
        else:
            self._out.append(part)

    def finish(self) -> bytes | None:
        if self._too_long:
            return None
        return b"".join([*self._out, *self._string])


def cut_characters(body: bytes) -> bytes:
    """The whole characters at the beginning of a cut JSON string."""
    whole = _CHARACTERS.match(body)
    assert whole is not None
    return whole[0]
