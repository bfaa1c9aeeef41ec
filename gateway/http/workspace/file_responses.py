"""A file's bytes as an answer: all of them or one range, never shown by a browser as a page of ours."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from email.utils import formatdate
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from gateway.http.ranges import Span, Unsatisfiable, read_range
from gateway.http.responses import UNCACHED, LongResponse, refusal
from sync.errors import Damaged

# A program wrote the files of a workspace: a browser gets bytes to save, not a page to run.
INERT = {**UNCACHED, "Content-Security-Policy": "default-src 'none'; sandbox", "Accept-Ranges": "bytes"}
BYTES = "application/octet-stream"
LATEST = 253_402_300_800  # the year 10000: a file may have a date that HTTP cannot express


@dataclass(frozen=True, slots=True)
class FileFound:
    """A file of any source. `read` yields so many bytes from a start on. A file that is not synced has no ETag, because
    its hash is not known."""

    name: bytes
    size: int
    source: str
    read: Callable[[int, int], AsyncGenerator[bytes, None]]
    generation: int | None = None
    mtime_ns: int | None = None
    tag: str | None = None  # its ETag, quotes and all


async def file_answer(request: Request, file: FileFound) -> Response:
    """An error with the first bytes is answered in words; after a later one the connection is closed."""
    headers = {**INERT, **_about(file)}
    if _unchanged(request, file):
        return Response(status_code=304, headers=headers)
    try:
        span = read_range(request.headers.getlist("range"), file.size) if _wants_range(request, file) else None
    except Unsatisfiable as error:
        told = {"Content-Range": f"bytes */{file.size}"}
        return refusal(error.status, error.code, error.message, told)
    chosen = span or Span(0, file.size)
    headers["Content-Length"] = str(chosen.length)
    if span is not None:
        headers["Content-Range"] = f"bytes {span.start}-{span.start + span.length - 1}/{file.size}"
    pieces = _exactly(file.read(chosen.start, chosen.length), chosen.length)
    if request.method != "HEAD":
        pieces = await _begun(pieces)
    return LongResponse(pieces, 206 if span is not None else 200, headers=headers, media_type=BYTES)


def _about(file: FileFound) -> dict[str, str]:
    name = quote(file.name.decode(errors="replace"), safe="")
    about = {"Content-Disposition": f"attachment; filename*=UTF-8''{name}", "X-Holdfast-Source": file.source}
    if file.generation is not None:
        about["X-Holdfast-Generation"] = str(file.generation)
    if file.tag is not None:
        about["ETag"] = file.tag
    if file.mtime_ns is not None and 0 <= file.mtime_ns // 10**9 < LATEST:
        about["Last-Modified"] = formatdate(file.mtime_ns // 10**9, usegmt=True)
    return about


def _unchanged(request: Request, file: FileFound) -> bool:
    """True if the client has this very content already."""
    known = request.headers.get("if-none-match", "").split(",")
    return file.tag is not None and any(each.strip().removeprefix("W/") in (file.tag, "*") for each in known)


def _wants_range(request: Request, file: FileFound) -> bool:
    """A range of another version of the file is of no use: then the whole file is wanted."""
    only_of = request.headers.get("if-range")
    return only_of is None or only_of == file.tag


async def _exactly(pieces: AsyncGenerator[bytes, None], length: int) -> AsyncGenerator[bytes, None]:
    """These pieces, checked to have the length that the head promised. Raises Damaged."""
    left = length
    try:
        async for piece in pieces:
            left -= len(piece)
            if left < 0:
                break
            yield piece
    finally:
        await pieces.aclose()
    if left:
        raise Damaged("a file is not as long as it was said to be")


async def _begun(pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """The same pieces, the first of them read already."""
    first = [await anext(pieces, b"")]  # a list, so that it can be freed once it is sent

    async def rest() -> AsyncGenerator[bytes, None]:
        try:
            yield first.pop()
            async for piece in pieces:
                yield piece
        finally:
            await pieces.aclose()

    return rest()
