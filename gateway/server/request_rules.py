"""Refuses requests by their head alone, and has the texts of refusals. Pure.

A head that two readers could understand differently, such as a proxy and the gateway behind it, is refused.
"""

from collections.abc import Sequence

from gateway.server.admission import Refusal

BAD_REQUEST = Refusal(400, "bad_request", "this is no HTTP request")
BAD_VERSION = Refusal(400, "bad_request", "HTTP/1.1 and HTTP/1.0 are spoken here")
BAD_HOST = Refusal(400, "bad_host", "a request has one Host header")
BAD_CODING = Refusal(400, "bad_framing", "the only Transfer-Encoding that is taken is chunked, in HTTP/1.1")
TRAILERS = Refusal(400, "trailers", "fields after the body are not taken: send them as headers")
UPGRADE_WITH_BODY = Refusal(400, "bad_handshake", "a request to upgrade has no body")
HEAD_TIMEOUT = Refusal(408, "head_timeout", "the request did not arrive in time")
BODY_TOO_LARGE = Refusal(413, "body_too_large", "the request's body is too large")
TOO_MANY_CHUNKS = Refusal(413, "body_too_large", "the body is framed by too many bytes: send larger chunks")
HEAD_TOO_LARGE = Refusal(431, "head_too_large", "the request's head is too large")
PIPELINED = Refusal(429, "too_many_pipelined", "too many requests before the first answer")
DRAINING = Refusal(503, "draining", "the gateway restarts; come back in a moment")
BUSY = Refusal(503, "busy", "too many large requests at once; try again later")
BAD_HANDSHAKE = Refusal(400, "bad_handshake", "the WebSocket handshake is incomplete")
WEBSOCKET_VERSION = Refusal(426, "upgrade_required", "WebSocket version 13 is spoken here")


class RequestRefused(Exception):
    """The request was refused."""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal


def announces_body(headers: Sequence[tuple[bytes, bytes]], *, version: str, upgrades: bool, body_bytes: int) -> bool:
    """True if a body follows this head, whose names are in small letters. Raises RequestRefused. The parser has checked
    that lengths are numbers, and that there is no length beside a coding."""
    if version not in ("1.0", "1.1"):
        raise RequestRefused(BAD_VERSION)
    hosts, has_body = 0, False
    for name, value in headers:
        if name == b"host":
            hosts += 1
        elif name == b"content-length":
            if int(value) > body_bytes:
                raise RequestRefused(BODY_TOO_LARGE)
            has_body = int(value) > 0
        elif name == b"transfer-encoding":
            if has_body or version == "1.0" or value.strip().lower() != b"chunked":
                raise RequestRefused(BAD_CODING)
            has_body = True
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        raise RequestRefused(BAD_HOST)
    if has_body and upgrades:
        raise RequestRefused(UPGRADE_WITH_BODY)
    return has_body
