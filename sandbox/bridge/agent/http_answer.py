"""Bytes in, answers of an HTTP/1.1 server out: the head, and the body piece by piece. Pure.

For agents' servers on the sandbox's loopback. They are not trusted: everything that is kept has a bound.
"""

import base64
import re
from dataclasses import dataclass
from enum import Enum, auto

MAX_HEAD = 64 << 10
MAX_SIZE_LINE = 256
_ADDRESS = re.compile(rb"http://127\.0\.0\.1:([0-9]{1,5})\b")
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?: [^\r\n]*)?")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?")
_PATH = re.compile(r"/[!-~]*")
_METHOD = re.compile(r"[A-Z]+")
_BODILESS = (204, 304)


class BadHttp(Exception):
    """The answer is not readable HTTP. The text says why."""


def port_in(line: bytes) -> int | None:
    """The port that a server announces in a line of its output."""
    found = _ADDRESS.search(line)
    return int(found[1]) if found and 0 < int(found[1]) < 1 << 16 else None


def request(method: str, path: str, body: bytes, *, port: int, user: str, password: str, accept: str) -> bytes:
    """A whole request; its connection serves this one alone. Raises ValueError if HTTP cannot express it."""
    if not (_PATH.fullmatch(path) and _METHOD.fullmatch(method)):
        raise ValueError("no such method, or no such path")
    known = base64.b64encode(f"{user}:{password}".encode()).decode()
    head = [
        f"{method} {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        f"Authorization: Basic {known}",
        f"Accept: {accept}",
        "Connection: close",
    ]
    if body or method != "GET":
        head += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*head, "", ""]).encode() + body


class _AnswerPart(Enum):
    HEAD = auto()
    LENGTH = auto()
    SIZE = auto()
    CHUNK = auto()
    CHUNK_END = auto()
    TRAILER = auto()
    TO_THE_END = auto()
    OVER = auto()


@dataclass(slots=True)
class AnswerReader:
    """One answer. `status` is 0 until its head has come."""

    status: int = 0
    _part: _AnswerPart = _AnswerPart.HEAD
    _data: bytes = b""
    _left: int = 0

    @property
    def over(self) -> bool:
        return self._part is _AnswerPart.OVER

    def feed(self, data: bytes) -> bytes:
        """The body bytes in it. Raises BadHttp."""
        self._data += data
        body: list[bytes] = []
        while (piece := self._next()) is not None:
            body.append(piece)
        return b"".join(body)

    def end(self) -> None:
        """The connection ended. Raises BadHttp if the answer is incomplete."""
        if self._part is _AnswerPart.TO_THE_END:
            self._part = _AnswerPart.OVER
        if not self.over:
            raise BadHttp("the connection broke")

    def _next(self) -> bytes | None:
        """A piece of the body, perhaps an empty one; None if more bytes are needed."""
        match self._part:
            case _AnswerPart.HEAD:
                return self._read_head()
            case _AnswerPart.LENGTH | _AnswerPart.CHUNK:
                return self._read_counted()
            case _AnswerPart.TO_THE_END if self._data:
                return self._take(len(self._data))
            case _AnswerPart.SIZE | _AnswerPart.CHUNK_END | _AnswerPart.TRAILER:
                return self._read_line()
        return None

    def _take(self, size: int) -> bytes:
        taken, self._data = self._data[:size], self._data[size:]
        return taken

    def _read_head(self) -> bytes | None:
        end = self._data.find(b"\r\n\r\n")
        if end < 0 or end > MAX_HEAD:
            if len(self._data) > MAX_HEAD:
                raise BadHttp("its head is too long")
            return None
        first, *fields = self._take(end + 4)[:-4].split(b"\r\n")
        found = _STATUS.fullmatch(first)
        if found is None:
            raise BadHttp("its head is no HTTP")
        status = int(found[1])
        if status < 200:
            return b""  # another head follows
        self.status = status
        named = {name.strip().lower(): value.strip() for name, _, value in (each.partition(b":") for each in fields)}
        if status in _BODILESS:
            self._part = _AnswerPart.OVER
        elif named.get(b"transfer-encoding", b"").lower() == b"chunked":
            self._part = _AnswerPart.SIZE
        elif (length := named.get(b"content-length")) is not None:
            if not _LENGTH.fullmatch(length):
                raise BadHttp("its length is no number")
            self._left = int(length)
            self._part = _AnswerPart.LENGTH if self._left else _AnswerPart.OVER
        else:
            self._part = _AnswerPart.TO_THE_END
        return b""

    def _read_counted(self) -> bytes | None:
        piece = self._take(self._left)
        self._left -= len(piece)
        if not self._left:
            self._part = _AnswerPart.OVER if self._part is _AnswerPart.LENGTH else _AnswerPart.CHUNK_END
        return piece or None

    def _read_line(self) -> bytes | None:
        end = self._data.find(b"\r\n")
        if end < 0 or end > MAX_SIZE_LINE:
            if len(self._data) > MAX_SIZE_LINE:
                raise BadHttp("a line between its chunks is too long")
            return None
        line = self._take(end + 2)[:-2]
        if self._part is _AnswerPart.TRAILER:
            self._part = _AnswerPart.TRAILER if line else _AnswerPart.OVER
        elif self._part is _AnswerPart.CHUNK_END:
            if line:
                raise BadHttp("a chunk is longer than it said")
            self._part = _AnswerPart.SIZE
        else:
            found = _SIZE.fullmatch(line)
            if found is None:
                raise BadHttp("the size of a chunk is no number")
            self._left = int(found[1], 16)
            self._part = _AnswerPart.CHUNK if self._left else _AnswerPart.TRAILER
        return b""
