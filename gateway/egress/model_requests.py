"""Reads a request to a model, builds the forwarded one, and builds our own answers in the API's format. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.egress.providers import Api

MAX_BODY = 32 << 20
UNSAID_OUTPUT = 128_000  # where a request sets no maximum
MOST_OUTPUT = 10_000_000
# Headers of a sandbox's request that are not forwarded: credentials, the sender's identity, those of one connection,
# and those by which some servers read another method or path, or leave out the counts of tokens.
_LEFT_OUT = frozenset(
    (
        *(b"authorization", b"x-api-key", b"x-goog-api-key", b"api-key", b"cookie", b"x-goog-user-project"),
        *(b"openai-organization", b"openai-project", b"host", b"content-length", b"transfer-encoding"),
        *(b"accept-encoding", b"expect", b"forwarded", b"via", b"origin", b"referer"),
        *(b"x-http-method-override", b"x-http-method", b"x-method-override", b"x-original-url", b"x-rewrite-url"),
        b"x-goog-fieldmask",
    )
)
# Headers of an answer that are not passed back.
_NOT_BACK = frozenset(
    (
        *("connection", "keep-alive", "proxy-authenticate", "proxy-connection", "te", "trailer", "upgrade"),
        *("transfer-encoding", "content-length", "set-cookie", "alt-svc", "strict-transport-security", "location"),
    )
)


@dataclass(frozen=True, slots=True)
class AskedModel:
    """`output` is the most tokens that it asks for, in all its answers together. `streamed`: the answer comes while it
    is made. `later`: it is fetched later, and its tokens would not be counted."""

    model: str
    output: int
    streamed: bool = False
    later: bool = False


class _AskedBody(msgspec.Struct):
    """Any value may be in it: the sandbox writes it."""

    model: Any = None
    max_tokens: Any = None
    max_completion_tokens: Any = None
    max_output_tokens: Any = None
    n: Any = None
    stream: Any = None
    background: Any = None
    config: Any = msgspec.field(name="generationConfig", default=None)


_BODY = msgspec.json.Decoder(_AskedBody)


def read_asked(body: bytes, model: str = "") -> AskedModel:
    """`model` is the model in the path. An unreadable body asks for no model."""
    try:
        asked = _BODY.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return AskedModel(model, UNSAID_OUTPUT)
    config = asked.config if isinstance(asked.config, dict) else {}
    limits = (asked.max_tokens, asked.max_completion_tokens, asked.max_output_tokens, config.get("maxOutputTokens"))
    said = [count for each in limits if (count := _count(each)) is not None]
    times = max(1, _count(asked.n) or _count(config.get("candidateCount")) or 1)
    named = asked.model if isinstance(asked.model, str) else ""
    output = min(MOST_OUTPUT, (max(said) if said else UNSAID_OUTPUT) * times)
    return AskedModel(model or named[:200], output, asked.stream is True, asked.background not in (None, False))


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 10**12 else None


def headers_to_origin(
    came: list[tuple[bytes, bytes]], authority: str, key: Mapping[str, str], length: int
) -> list[tuple[bytes, bytes]]:
    """`came` has no headers of one connection. If the request has a header of ours, too, it gets both values, as
    `anthropic-beta` needs."""
    ours = {name.encode(): value.encode() for name, value in key.items()}
    going = [(b"Host", authority.encode())]
    for name, value in came:
        small = name.lower()
        if small in _LEFT_OUT or small.startswith((b"x-forwarded-", b"sec-", b"cf-")):
            continue
        if small in ours:
            if small == b"anthropic-beta" and ours[small] not in value:
                ours[small] += b"," + value
            continue
        going.append((name, value))
    going += [*ours.items(), (b"Accept-Encoding", b"identity")]
    return [*going, (b"Content-Length", b"%d" % length)] if length else going


def head_back(status: int, headers: Mapping[bytes, bytes], *, length: int | None) -> bytes:
    """The head of the answer; without a length the answer comes in chunks."""
    kept = [
        name + b": " + value
        for name, value in headers.items()
        if name.decode("latin-1") not in _NOT_BACK and b"\r" not in value and b"\n" not in value
    ]
    framing = b"Transfer-Encoding: chunked" if length is None else b"Content-Length: %d" % length
    return b"\r\n".join([b"HTTP/1.1 %d Answer" % status, *kept, framing, b"Connection: close"]) + b"\r\n\r\n"


_KINDS = {
    400: ("invalid_request_error", "INVALID_ARGUMENT"),
    401: ("authentication_error", "UNAUTHENTICATED"),
    402: ("billing_error", "RESOURCE_EXHAUSTED"),
    404: ("not_found_error", "NOT_FOUND"),
    413: ("request_too_large", "INVALID_ARGUMENT"),
}


def error_answer(api: Api, status: int, words: str, code: str) -> bytes:
    """A whole answer in the API's own format, so that an agent shows the text. Agents do not retry a 4xx."""
    kind, google = _KINDS.get(status, ("api_error", "UNAVAILABLE"))
    said: dict[str, Any]
    match api:
        case Api.ANTHROPIC:
            said = {"type": "error", "error": {"type": kind, "message": words}}
        case Api.GOOGLE:
            said = {"error": {"code": status, "message": words, "status": google}}
        case _:
            said = {"error": {"message": words, "type": kind, "param": None, "code": code}}
    body = msgspec.json.encode(said)
    again = b"" if status >= 500 else b"x-should-retry: false\r\n"
    return (
        b"HTTP/1.1 %d Refused\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
        b"X-Holdfast-Egress: refused\r\n%bConnection: close\r\n\r\n%b"
    ) % (status, len(body), again, body)
