"""Recognizes the requests that every start of a sandbox needs: health, the tree, the agent's link, the listener of its
programs' way out. Pure.

A request is recognized if it is exactly what a gateway writes, with the right token. The web server gets everything
else, well made or not: it knows all of HTTP, and how to refuse. So this module refuses nothing, and trusts nothing
that it does not recognize.
"""

import hmac
import re
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256

MAX_HEAD = 16 * 1024

_END = b"\r\n\r\n"
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(rb"[\t\x20-\x7e]*")
_KEY = re.compile(rb"[A-Za-z0-9+/]{21}[AQgw]==")  # sixteen bytes
_NOT_OURS = (b"sec-websocket-protocol", b"transfer-encoding", b"expect")


class KnownPath(Enum):
    HEALTH = b"/health"
    TREE = b"/tree"
    AGENT = b"/agent"
    EGRESS = b"/egress"


class Unknown(Enum):
    YET = "more of it must come"
    FOR_GOOD = "the web server's"


@dataclass(frozen=True, slots=True)
class KnownRequest:
    """`key` is the WebSocket's; `rest` came behind the head."""

    path: KnownPath
    key: bytes = b""
    rest: bytes = b""


_LINES = {b"GET " + path.value + b" HTTP/1.1\r\n": path for path in KnownPath}


class Token:
    """This sandbox's own token, in the form of a request."""

    def __init__(self, token: str) -> None:
        self._digest = sha256(token.encode()).digest()

    def is_in(self, authorization: bytes) -> bool:
        """Whether a header's value has it."""
        scheme, _, token = authorization.partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(sha256(token).digest(), self._digest)


def read_head(data: bytes, token: Token) -> KnownRequest | Unknown:
    """The request in the first bytes of a connection."""
    line = next((line for line in _LINES if line.startswith(data[: len(line)])), None)
    if line is None:
        return Unknown.FOR_GOOD
    head, end, rest = data.partition(_END)
    if not end:
        return Unknown.YET if len(data) <= MAX_HEAD else Unknown.FOR_GOOD
    headers = _headers(head[len(line) :])
    if headers is None or b"host" not in headers or any(name in headers for name in _NOT_OURS):
        return Unknown.FOR_GOOD
    if headers.get(b"content-length", b"0") != b"0":
        return Unknown.FOR_GOOD
    path = _LINES[line]
    if path is KnownPath.HEALTH:
        return Unknown.FOR_GOOD if rest or b"upgrade" in headers else KnownRequest(path)
    if path is KnownPath.EGRESS:
        plain = not rest and b"upgrade" not in headers and token.is_in(headers.get(b"authorization", b""))
        return KnownRequest(path) if plain else Unknown.FOR_GOOD
    return _websocket(path, headers, rest, token)


def _websocket(path: KnownPath, headers: dict[bytes, bytes], rest: bytes, token: Token) -> KnownRequest | Unknown:
    key = headers.get(b"sec-websocket-key", b"")
    if (
        headers.get(b"upgrade", b"").lower() == b"websocket"
        and headers.get(b"connection", b"").lower() == b"upgrade"
        and headers.get(b"sec-websocket-version") == b"13"
        and _KEY.fullmatch(key)
        and token.is_in(headers.get(b"authorization", b""))
    ):
        return KnownRequest(path, key, rest)
    return Unknown.FOR_GOOD


def _headers(lines: bytes) -> dict[bytes, bytes] | None:
    """By their names in lower case; None unless each is well made and present once."""
    headers: dict[bytes, bytes] = {}
    for line in lines.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        name = name.lower()
        if not (colon and _NAME.fullmatch(name) and _VALUE.fullmatch(value)) or name in headers:
            return None
        headers[name] = value.strip(b" \t")
    return headers
