"""Hostile answers to an HTTP request, byte by byte: one set for every client."""

_LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n"
_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
BODY = b'{"messageId":1}'

# By name: the bytes, the status and the body that are understood, whether the connection may be used again, and whether
# the end of the connection is the end of the answer.
GOOD_HTTP: dict[str, tuple[bytes, int, bytes, bool, bool]] = {
    "a length": (_LENGTH + BODY, 200, BODY, True, False),
    "chunks": (_CHUNKED + b'5;x=y\r\n{"mes\r\na\r\nsageId":1}\r\n0\r\nx: y\r\n\r\n', 200, BODY, True, False),
    "neither": (b"HTTP/1.1 200 OK\r\n\r\n" + BODY, 200, BODY, False, True),
    "neither, and nothing": (b"HTTP/1.1 500 X\r\n\r\n", 500, b"", False, True),
    "an older version": (b"HTTP/1.0 200 OK\r\nContent-Length: 15\r\n\r\n" + BODY, 200, BODY, False, False),
    "the last one": (_LENGTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + BODY, 200, BODY, False, False),
    "no body": (b"HTTP/1.1 204 X\r\n\r\n", 204, b"", True, False),
    "an early word": (b"HTTP/1.1 103 Early\r\nx: y\r\n\r\n" + _LENGTH + BODY, 200, BODY, True, False),
    "two early words": (b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 102 P\r\n\r\n" + _LENGTH + BODY, 200, BODY, True, False),
    "empty lines before": (b"\r\n\r\n" + _LENGTH + BODY, 200, BODY, True, False),
    "a second answer": (_LENGTH + BODY + _LENGTH + BODY, 200, BODY, False, False),
    "rubbish behind": (_LENGTH + BODY + b"rubbish", 200, BODY, False, False),
    "another protocol": (b"HTTP/1.1 101 X\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nx", 101, b"", False, False),
}

BAD_HTTP: dict[str, bytes] = {
    "nothing": b"",
    "only empty lines": b"\r\n\r\n",
    "half a head": b"HTTP/1.1 200 OK\r\n",
    "less than its length": _LENGTH + BODY[:-1],
    "chunks without end": _CHUNKED + b"5\r\nhello\r\n",
    "half a chunk": _CHUNKED + b"5\r\nhel",
    "only an early word": b"HTTP/1.1 100 Continue\r\n\r\n",
    "another server": b"SSH-2.0-OpenSSH\r\n",
    "a request": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "bytes": b"\xff\0" * 50,
    "a version nobody has": b"HTTP/9.9 200 OK\r\nContent-Length: 0\r\n\r\n",
    "no status": b"HTTP/1.1 OK\r\nContent-Length: 0\r\n\r\n",
    "a short status": b"HTTP/1.1 99 OK\r\nContent-Length: 0\r\n\r\n",
    "a long status": b"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
    "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nx",
    "a length with a sign": b"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\nx",
    "a length that is a word": b"HTTP/1.1 200 OK\r\nContent-Length: one\r\n\r\nx",
    "a length beyond all bounds": b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy",
    "a length and chunks": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and a length": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n",
    "a coding nobody asked for": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nx",
    "a chunk of negative size": _CHUNKED + b"-5\r\nhello\r\n",
    "a chunk beyond all bounds": _CHUNKED + b"f" * 20 + b"\r\n",
    "a chunk longer than it says": _CHUNKED + b"1\r\nhello\r\n0\r\n\r\n",
    "lines without CR": b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
    "a folded header": b"HTTP/1.1 200 OK\r\nx: a\r\n b\r\nContent-Length: 0\r\n\r\n",
    "a header without a name": b"HTTP/1.1 200 OK\r\n: a\r\nContent-Length: 0\r\n\r\n",
    "a name with a space": b"HTTP/1.1 200 OK\r\nx : a\r\nContent-Length: 0\r\n\r\n",
    "a zero byte": b"HTTP/1.1 200 OK\r\nx: a\0b\r\nContent-Length: 0\r\n\r\n",
    "a header without end": b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000,
    "headers without end": b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 50_000,
    "early words without end": b"HTTP/1.1 103 Early\r\nx: y\r\n\r\n" * 5_000,
    "empty lines without end": b"\r\n" * 100_000,
    "a chunk's extension without end": _CHUNKED + b"1;" + b"x" * 100_000,
    "trailers without end": _CHUNKED + b"0\r\n" + b"x: y\r\n" * 50_000,
}
