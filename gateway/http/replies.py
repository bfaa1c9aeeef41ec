"""How every route reads a body and answers: JSON both ways, refusals as `{error, code}`, never a traceback."""

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, TypeVar

import orjson
import structlog
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from gateway.errors import ApiError
from gateway.strict_json import BadJson, load_object
from persistence.errors import StoreUnavailable

BODY_BYTES = 1 << 20

log = structlog.get_logger()
Default = TypeVar("Default", int, None)


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """`value` as JSON. Descriptions and histories change by the second: nobody may cache them."""
    kept = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", **(headers or {})}
    return Response(orjson.dumps(value), status, kept, "application/json")


def refusal(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return answer({"error": message, "code": code}, status, headers)


async def read_object(request: Request, *, known: frozenset[str] | None = None) -> dict[str, Any]:
    """The body as a JSON object; no body is an empty one. Members outside `known` are refused by name."""
    body = await _read_body(request)
    if not body.strip():
        return {}
    try:
        value = load_object(body)
    except BadJson as error:
        raise ApiError(400, "bad_json", f"the body cannot be read: {error}") from None
    if known is not None and (unknown := sorted(value.keys() - known)):
        told = ", ".join(repr(name[:64]) for name in unknown[:5])
        raise ApiError(400, "unknown_member", f"unknown members: {told}; known are {', '.join(sorted(known))}")
    return value


async def _read_body(request: Request) -> bytes:
    """At most BODY_BYTES, counted as they come: a declared length is a hint, not a promise."""
    declared = request.headers.get("content-length", "0")
    too_large = ApiError(413, "body_too_large", f"the body may have {BODY_BYTES} bytes")
    if declared.isdecimal() and int(declared[:20]) > BODY_BYTES:
        raise too_large
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES:
            raise too_large
    return bytes(body)


def query_integer(request: Request, name: str, default: Default, *, low: int, high: int) -> int | Default:
    """The query parameter as a whole number within bounds; `default` when it is absent."""
    given = request.query_params.getlist(name)
    if not given:
        return default
    text = given[0]
    if len(given) > 1 or not (text.isascii() and text.isdecimal()) or len(text) > 19 or not low <= int(text) <= high:
        raise ApiError(400, "bad_parameter", f"{name} must be given once, a whole number from {low} to {high}")
    return int(text)


def query_flag(request: Request, name: str) -> bool:
    given = request.query_params.get(name, "0")
    if given not in ("0", "1", "true", "false"):
        raise ApiError(400, "bad_parameter", f"{name} must be 0 or 1")
    return given in ("1", "true")


async def _on_api_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return refusal(error.status, error.code, error.message)


async def _on_http_exception(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    code = phrase.lower().replace(" ", "_").replace("-", "_")
    return refusal(error.status_code, code, error.detail or phrase, error.headers)


async def _on_store_away(_: Request, error: Exception) -> Response:
    log.warning("http.store_unavailable", cause=repr(error))
    message = "the message store does not answer; try again"
    return refusal(503, "storage_unavailable", message, {"Retry-After": "2"})


async def _on_client_gone(_: Request, __: Exception) -> Response:
    return refusal(400, "disconnected", "the request ended before its body did")


async def _on_crash(request: Request, error: Exception) -> Response:
    """Starlette raises the error again after this answer, so that the server's log has the traceback."""
    return refusal(500, "internal", "the gateway failed on this request; its log says why")


EXCEPTION_HANDLERS: dict[Any, Callable[[Request, Exception], Awaitable[Response]]] = {
    ApiError: _on_api_error,
    HTTPException: _on_http_exception,
    StoreUnavailable: _on_store_away,
    ClientDisconnect: _on_client_gone,
    Exception: _on_crash,
}
