"""How every route reads a body and answers: JSON both ways, refusals as `{error, code}`, never a traceback."""

import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec
import orjson
import structlog
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from gateway.protocol.errors import ApiError
from gateway.protocol.strict_json import BadJson, load_object
from gateway.routing.bodies import Body, read_struct
from gateway.routing.json_types import Nothing
from gateway.session.conversation.replies import sandbox_unavailable
from persistence.errors import StoreUnavailable
from sandbox.ports.sandbox import SandboxUnavailable
from sandbox.ports.tree import TreeFailed
from sync.errors import Damaged, NoSuchSnapshot
from sync.ports import Conflict, ObjectsRefused, ObjectsUnavailable

BODY_BYTES = 1 << 20
PIECE_BYTES = 64 << 10
UNCACHED = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
SNAPSHOTS_FAIL = (NoSuchSnapshot, Conflict, Damaged, ObjectsUnavailable, ObjectsRefused, TreeFailed)
# Errors that can end a long answer in the middle: its source goes away, or is damaged.
CUT_SHORT = (StoreUnavailable, *SNAPSHOTS_FAIL)

log = structlog.get_logger()


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """`value`, a struct or made of plain values, as JSON. Descriptions and histories change by the second, so they must
    not be cached."""
    body = msgspec.json.encode(value) if isinstance(value, msgspec.Struct) else orjson.dumps(value)
    return Response(body, status, {**UNCACHED, **(headers or {})}, "application/json")


class LongResponse(StreamingResponse):
    """A long answer. If its source goes away in the middle, the connection is closed without the answer's end, so that
    half an answer never passes for a whole one. A HEAD request reads nothing. `over` is called when the answer has
    ended, in whatever way."""

    def __init__(
        self, body: AsyncIterator[bytes], status: int = 200, *, over: Callable[[], None] = lambda: None, **told: Any
    ) -> None:
        super().__init__(body, status, **told)
        self._over = over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._answer(scope, receive, send)
        finally:
            self._over()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": b""})
            return
        await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        try:
            await super().stream_response(send)
        except CUT_SHORT as error:
            log.warning("http.cut_short", cause=repr(error))
        except BaseException as error:
            # The reader left. Memory read for it is freed now, not when the garbage collector runs: it runs rarely.
            traceback.clear_frames(error.__traceback__)
            raise
        finally:
            if isinstance(self.body_iterator, AsyncGenerator):  # frees its resources now, not some time later
                await self.body_iterator.aclose()


def long_answer(value: Any, over: Callable[[], None]) -> Response:
    """As `answer`, for a value that takes much memory: `over` is called when nearly all of it is sent."""
    body = orjson.dumps(value)
    headers = {**UNCACHED, "Content-Length": str(len(body))}
    return LongResponse(_in_pieces(body), over=over, headers=headers, media_type="application/json")


async def _in_pieces(body: bytes) -> AsyncGenerator[bytes, None]:
    for start in range(0, len(body), PIECE_BYTES):
        yield body[start : start + PIECE_BYTES]


def refusal(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return answer({"error": message, "code": code}, status, headers)


async def read_body(request: Request, kind: type[Body], *, most: int = BODY_BYTES) -> Body:
    """The body, of at most `most` bytes, as the struct that its route declares, or as Nothing; no body is an empty
    object."""
    declared = request.scope.get("spec")
    assert declared is None or kind in (declared.body, Nothing), "a body is read as what was declared"
    return read_struct(await _read_object(request, most), kind)


async def _read_object(request: Request, most: int) -> dict[str, Any]:
    body = await _read_body(request, most)
    if not body.strip():
        return {}
    try:
        return load_object(body)
    except BadJson as error:
        raise ApiError(400, "bad_json", f"the body cannot be read: {error}") from None


async def _read_body(request: Request, most: int) -> bytes:
    """Counted as it comes: a declared length is a hint, not a promise."""
    declared = request.headers.get("content-length", "0")
    too_large = ApiError(413, "body_too_large", f"the body may have {most} bytes")
    if declared.isdecimal() and int(declared[:20]) > most:
        raise too_large
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise too_large
    return bytes(body)


async def _on_api_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return refusal(error.status, error.code, error.message, error.headers)


async def _on_http_exception(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    code = phrase.lower().replace(" ", "_").replace("-", "_")
    return refusal(error.status_code, code, error.detail or phrase, error.headers)


async def _on_store_away(_: Request, error: Exception) -> Response:
    log.warning("http.store_unavailable", cause=repr(error))
    message = "the message store does not answer; try again"
    told = {"error": message, "code": "storage_unavailable", "stale": True}
    return answer(told, 503, {"Retry-After": "2"})


async def _on_snapshots(request: Request, error: Exception) -> Response:
    status, code, message = snapshot_refusal(error, operator=request.state.principal.kind != "user")
    if status >= 500:
        log.warning("http.snapshots_failed", code=code, cause=repr(error))
    return refusal(status, code, message, {"Retry-After": "5"} if status == 503 else None)


def snapshot_refusal(error: Exception, *, operator: bool) -> tuple[int, str, str]:
    """Status, code and text for each of SNAPSHOTS_FAIL. The object store's own words are for operators."""
    match error:
        case NoSuchSnapshot():
            return 404, "no_snapshot", str(error)
        case Conflict():
            return 409, "conflict", "another request changed these snapshots at the same time: try again"
        case Damaged():
            return 500, "damaged", f"a snapshot is damaged: {error}"
        case ObjectsUnavailable():
            told = f" ({error})" if operator else ""
            return 503, "objects_unavailable", f"the object store does not answer; try again{told}"
        case ObjectsRefused():
            told = str(error) if operator else "the gateway's log says why"
            return 502, "objects_refused", f"the object store refuses: {told}"
    return 502, "sandbox_failed", f"the sandbox did not do it: {error}"


async def _on_provider_away(_: Request, error: Exception) -> Response:
    away = sandbox_unavailable(error)
    return refusal(away.status, away.code, away.message)


async def _on_client_gone(_: Request, __: Exception) -> Response:
    return refusal(400, "disconnected", "the request ended before its body did")


async def _on_crash(request: Request, error: Exception) -> Response:
    """Starlette raises the error again after this answer, so that the server's log has the traceback."""
    return refusal(500, "internal", "the gateway failed on this request; its log says why")


EXCEPTION_HANDLERS: dict[Any, Callable[[Request, Exception], Awaitable[Response]]] = {
    ApiError: _on_api_error,
    HTTPException: _on_http_exception,
    StoreUnavailable: _on_store_away,
    SandboxUnavailable: _on_provider_away,
    **dict.fromkeys(SNAPSHOTS_FAIL, _on_snapshots),
    ClientDisconnect: _on_client_gone,
    Exception: _on_crash,
}
