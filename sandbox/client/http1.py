"""HTTP/1.1 for a client: a request as bytes, and an answer piece by piece. Pure. httptools knows the grammar.

The server is not trusted. Everything that is not body (the head, informational answers before it, the framing of
chunks, trailers) may have HEAD_BYTES and a quarter of the body. The reader bounds the body.
"""

from collections.abc import Mapping

import httptools

HEAD_BYTES = 64 << 10
INFORMATIONAL = (100, 102, 103)
_LENGTHS = (b"content-length", b"transfer-encoding")


class HttpFailed(ConnectionError):
    """There is no usable answer. The text is ours: nothing in it came from the other end."""


def request(method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """Raises ValueError if it would not be exactly one request."""
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    lines.append(f"Content-Length: {len(body)}")
    if " " in method or " " in target or not all(line.isascii() and line.isprintable() for line in lines):
        raise ValueError("a request is made of printable ASCII characters")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class HttpResponse:
    """One answer. `status` and `headers` (names in lower case) count when `has_head`, `is_over` is whether all of it
    came, `is_reusable` whether another request may follow on the connection.

    The names of the `on_` methods are the parser's."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.has_head = False
        self.is_over = False
        self.is_reusable = False
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._fed_bytes = 0
        self._body_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Take some bytes in; return the pieces of the body. Raises HttpFailed, also for bytes after a failure."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.is_reusable = False
        except httptools.HttpParserError as exc:
            self.is_reusable = False
            if not self.is_over:  # else it came after a good answer
                raise HttpFailed(f"this is no HTTP answer: {exc}") from None
        self._fed_bytes += len(data)
        if not self.is_over and self._fed_bytes - self._body_bytes > HEAD_BYTES + self._body_bytes // 4:
            raise HttpFailed("the answer's head has no end" if not self.has_head else "the answer is mostly framing")
        pieces, self._pieces = self._pieces, []
        return pieces

    def end(self) -> None:
        """The other end closed the connection: an answer that names no length ends here. Raises HttpFailed."""
        self.is_reusable = False
        if not self.has_head or (not self.is_over and any(name in self.headers for name in _LENGTHS)):
            raise HttpFailed("the connection was closed before the answer was complete")
        self.is_over = True

    def let_go(self) -> None:
        """Nothing more will come. The parser refers back to this answer: neither would be freed at once."""
        del self._parser

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.has_head:
            self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        if not self.has_head:
            self.status = self._parser.get_status_code()
            self.has_head = self.status not in INFORMATIONAL

    def on_body(self, data: bytes) -> None:
        if not self.is_over:
            self._body_bytes += len(data)
            self._pieces.append(data)

    def on_message_complete(self) -> None:
        if self.is_over:
            self.is_reusable = False
        elif self.has_head:
            self.is_over = True
            self.is_reusable = self._parser.should_keep_alive()
        else:  # informational: the answer itself is still to come
            self.headers = {}
