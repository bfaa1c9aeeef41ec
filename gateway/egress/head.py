"""The head of a request to the proxy, read strictly. Pure.

The proxy and the server behind it must read a request in the same way: a head that two programs could understand
differently is refused, and so is one longer than MAX_HEAD. The forwarded head is written again.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

MAX_HEAD: Final = 64 * 1024
MAX_HEADERS: Final = 200

Headers = list[tuple[bytes, bytes]]

_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_TARGET = re.compile(rb"[\x21-\x7e]+")
_LENGTH = re.compile(rb"[0-9]{1,18}")
# Between two ends of one connection, and no further.
HOP_BY_HOP: Final = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"upgrade",
    )
)


class TargetForm(Enum):
    """The form of a request's target."""

    CONNECT = "CONNECT host:port"
    ABSOLUTE = "GET http://host/path"
    ORIGIN = "GET /path"


class NotServed(Exception):
    """A request is not served: the status and the text of the answer."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


@dataclass(frozen=True, slots=True)
class RequestHead:
    """`length` is the body's; None: it comes in chunks."""

    method: str
    form: TargetForm
    target: str  # CONNECT: host:port; ABSOLUTE: all of it; ORIGIN: the path with its query
    headers: Headers = field(repr=False)
    length: int | None = 0
    expects_continue: bool = False

    def values(self, name: bytes) -> list[bytes]:
        """The values of the header of this name, in lower case."""
        return [value for each, value in self.headers if each.lower() == name]


def read(head: bytes) -> RequestHead:
    """`head` ends before its empty line. Raises NotServed."""
    first, *lines = head.split(b"\r\n")
    method, target, version = _first_line(first)
    if len(lines) > MAX_HEADERS:
        raise NotServed(431, f"more than {MAX_HEADERS} headers")
    headers = [_header(line) for line in lines]
    form = _form(method, target)
    length, expects = _body(headers, version)
    if form is TargetForm.CONNECT and length != 0:
        raise NotServed(400, "CONNECT has no body")
    if version == b"HTTP/1.1" and sum(name.lower() == b"host" for name, _ in headers) != 1:
        raise NotServed(400, "a request has one Host header")
    return RequestHead(method.decode(), form, target.decode(), headers, length, expects)


def end_to_end(headers: Iterable[tuple[bytes, bytes]], *without: bytes) -> Headers:
    """The headers that go on: not those of one connection only, nor those that `Connection` names, nor those in
    `without`."""
    known = list(headers)
    named = {
        part.strip().lower() for name, value in known if name.lower() == b"connection" for part in value.split(b",")
    }
    left_out = HOP_BY_HOP | named | set(without)
    return [(name, value) for name, value in known if name.lower() not in left_out]


def request(method: str, target: str, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The head of a request, ready to be sent."""
    lines = [f"{method} {target} HTTP/1.1".encode(), *(name + b": " + value for name, value in headers)]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def answer(status: int, words: str) -> bytes:
    """A whole answer with the reason why a request was not served, in one line; the connection ends after it."""
    body = words.replace("\r", " ").replace("\n", " ").encode() + b"\n"
    return (
        b"HTTP/1.1 %d %b\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n"
        b"X-Holdfast-Egress: refused\r\nConnection: close\r\n\r\n%b"
    ) % (status, _REASONS.get(status, b"Refused"), len(body), body)


_REASONS = {
    400: b"Bad Request",
    403: b"Forbidden",
    404: b"Not Found",
    408: b"Request Timeout",
    431: b"Request Header Fields Too Large",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
}


def _first_line(line: bytes) -> tuple[bytes, bytes, bytes]:
    parts = line.split(b" ")
    if len(parts) != 3 or not _TOKEN.fullmatch(parts[0]) or not _TARGET.fullmatch(parts[1]):
        raise NotServed(400, "this is no HTTP request")
    if parts[2] not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise NotServed(400, "this proxy speaks HTTP/1.1")
    return parts[0], parts[1], parts[2]


def _header(line: bytes) -> tuple[bytes, bytes]:
    name, colon, value = line.partition(b":")
    if not colon or not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
        raise NotServed(400, "a header of the request is malformed")
    return name, value.strip(b" \t")


def _form(method: bytes, target: bytes) -> TargetForm:
    if method == b"CONNECT":
        return TargetForm.CONNECT
    if target.startswith(b"/"):
        return TargetForm.ORIGIN
    if target[:7].lower() == b"http://":
        return TargetForm.ABSOLUTE
    if target[:8].lower() == b"https://":
        raise NotServed(400, "https goes through this proxy by CONNECT")
    raise NotServed(400, "this proxy takes CONNECT host:port, http://host/path, and paths of its own")


def _body(headers: Headers, version: bytes) -> tuple[int | None, bool]:
    lengths = [value for name, value in headers if name.lower() == b"content-length"]
    codings = [value for name, value in headers if name.lower() == b"transfer-encoding"]
    expects = [value.lower() for name, value in headers if name.lower() == b"expect"]
    if expects not in ([], [b"100-continue"]):
        raise NotServed(400, "nothing but 100-continue can be expected")
    if codings:
        if lengths or version == b"HTTP/1.0" or len(codings) > 1 or codings[0].lower() != b"chunked":
            raise NotServed(400, "where a request ends must be said once: a length, or chunked")
        return None, bool(expects)
    if len(lengths) > 1 or (lengths and not _LENGTH.fullmatch(lengths[0])):
        raise NotServed(400, "a request has one Content-Length, a number")
    return (int(lengths[0]) if lengths else 0), bool(expects)
