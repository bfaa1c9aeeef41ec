"""The tree over plain HTTP: download it as a tar, upload a tar, read one file or directory.

A failing backup has no end: the connection is cut, so nobody can take it for a whole one. An upload replaces the
roots only when all of it has come and is good.
"""

import asyncio
import base64
import contextlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor
from typing import Any
from urllib.parse import unquote_to_bytes

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Send

from sandbox.bridge.agent.agent import Agent, AgentRuns
from sandbox.bridge.base.config import Config
from sandbox.bridge.base.requests import Refused, gone
from sandbox.bridge.tree.archive import RestoreUpload, backup_stream
from sandbox.bridge.tree.files import Absent, DirectoryListing, FileAt, Item, look
from sandbox.bridge.tree.files import PathRefused as PathRefused
from sandbox.bridge.tree.socket import Trees
from sandbox.protocol.tree import TreeLimits
from sandbox.system.log import log
from sandbox.system.problem import TreeProblem

FEED_BYTES = 1 << 20
READ_BYTES = 256 << 10
LISTING_BYTES = 4 << 20  # of a listing's entries; the gateway accepts twice as much

_RANGE = re.compile(r"bytes=(?:([0-9]{1,18})-([0-9]{0,18})|-([0-9]{1,18}))")


class Transfers:
    """The routes; each sends its own answer."""

    def __init__(
        self,
        config: Config,
        agent: Agent,
        worker: Executor,
        on_swap: Callable[[], None],
        end_terminals: Callable[[], Awaitable[None]],
        trees: Trees | None = None,
    ) -> None:
        """`trees` are the bridge's. A bridge of an earlier version does not pass them."""
        self._config = config
        self.trees = trees or Trees(config, agent, worker, on_swap, end_terminals)

    async def backup(self, request: Request, send: Send) -> None:
        """A tar of both roots, of unknown length. Raises Refused if not even its beginning can be made."""
        async with self.trees.turn:
            stream = self.trees.ahead(backup_stream(self._config.kept))
            async with contextlib.aclosing(stream) as pieces:
                try:
                    first = await anext(pieces)
                except TreeProblem as exc:
                    raise Refused(500, exc.code, exc.error) from exc
                await self._say(send, 200, [(b"content-type", b"application/x-tar")])
                if await _unless_gone(request, self._send_all(send, first, pieces)):
                    await self._say(send, None)

    async def _send_all(self, send: Send, piece: bytes, pieces: AsyncIterator[bytes]) -> bool:
        """Whether all of it was sent."""
        try:
            await self._say(send, None, body=piece)
            async for piece in pieces:
                await self._say(send, None, body=piece)
            return True
        except (TreeProblem, OSError) as exc:
            log("tree.backup_failed", error=str(exc))
            return False

    async def restore(self, request: Request, send: Send) -> None:
        """A tar, gzipped or not, replaces both roots."""
        try:
            async with self.trees.turn:
                with self.trees.swapping():
                    await self._take(request)
        except AgentRuns as exc:
            raise Refused(409, "busy", str(exc)) from exc
        except TreeProblem as exc:
            status = 413 if exc.code.startswith("too_") else 400
            raise Refused(status, exc.code, exc.error) from exc
        except OSError as exc:
            raise Refused(500, "failed", exc.strerror or type(exc).__name__) from exc
        except ClientDisconnect:
            log("tree.upload_failed", error="it was cut short")
            return
        await JSONResponse({"restored": True})(request.scope, request.receive, send)

    async def _take(self, request: Request) -> None:
        work, upload = self.trees.work, RestoreUpload(self._config.kept, TreeLimits())
        try:
            waiting = bytearray()
            async for chunk in request.stream():
                waiting += chunk
                if len(waiting) >= FEED_BYTES:
                    await work(upload.feed, bytes(waiting))
                    waiting.clear()
            await work(upload.feed, bytes(waiting))
            await work(upload.finish)
        except BaseException:
            await work(upload.abort)
            raise

    async def files(self, request: Request, send: Send) -> None:
        """A directory as JSON, or a file, or a range of it."""
        root, _, path = unquote_to_bytes(request.scope["raw_path"].removeprefix(b"/files/")).partition(b"/")
        try:
            found = await self.trees.work(look, self._config.kept, root, path)
        except Absent as exc:
            raise Refused(404, "not_found", "nothing is there") from exc
        except PathRefused as exc:
            raise Refused(403, "bad_path", str(exc)) from exc
        except OSError as exc:
            raise Refused(500, "failed", exc.strerror or "it cannot be read") from exc
        if isinstance(found, DirectoryListing):
            listing = Response(await self.trees.work(_listing, found), media_type="application/json")
            return await listing(request.scope, request.receive, send)
        try:
            await _unless_gone(request, self._send_file(found, request.headers.get("range"), send))
        finally:
            found.close()

    async def _send_file(self, file: FileAt, asked: str | None, send: Send) -> None:
        span = _span(asked, file.size)
        headers = [(b"content-type", b"application/octet-stream"), (b"accept-ranges", b"bytes")]
        if span is None:
            headers.append((b"content-range", b"bytes */%d" % file.size))
            await self._say(send, 416, [*headers, (b"content-length", b"0")])
            return await self._say(send, None)
        start, end = span
        if asked is not None and (start, end) != (0, file.size):
            headers.append((b"content-range", b"bytes %d-%d/%d" % (start, end - 1, file.size)))
        status = 206 if len(headers) == 3 else 200
        await self._say(send, status, [*headers, (b"content-length", b"%d" % (end - start))])
        while start < end:
            piece = await self.trees.work(file.read, start, min(READ_BYTES, end - start))
            if not piece:
                return  # the file shrank: the promised length cannot be sent, so the connection is cut
            await self._say(send, None, body=piece)
            start += len(piece)
        await self._say(send, None)

    async def _say(
        self, send: Send, status: int | None, headers: list[tuple[bytes, bytes]] | None = None, *, body: bytes = b""
    ) -> None:
        """Send the head, a piece of the body, or its end. A client that does not read is not waited for."""
        async with asyncio.timeout(self._config.limits.silence_seconds):
            if status is not None:
                await send({"type": "http.response.start", "status": status, "headers": headers or []})
            else:
                await send({"type": "http.response.body", "body": body, "more_body": bool(body)})


async def _unless_gone(request: Request, answer: Awaitable[Any]) -> Any:
    """The result of `answer`; None if the client goes before that."""
    answering: asyncio.Future[Any] = asyncio.ensure_future(answer)
    leaving: asyncio.Future[Any] = asyncio.ensure_future(gone(request))
    try:
        await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return answering.result() if answering.done() else None
    finally:
        answering.cancel()
        leaving.cancel()
        await asyncio.wait({answering, leaving})


def _span(asked: str | None, size: int) -> tuple[int, int] | None:
    """The requested bytes of a file of `size`: all of them unless it is one range; None if that has none."""
    match = _RANGE.fullmatch(asked.strip()) if asked else None
    if match is None:
        return 0, size
    first, last, final = match.groups()
    if final is not None:
        start, end = max(size - int(final), 0), size
    else:
        start, end = int(first), min(int(last) + 1, size) if last else size
    return (start, end) if start < end else None


def _listing(found: DirectoryListing) -> bytes:
    """As JSON; only the first entries if all would be too long."""
    entries, room = [], LISTING_BYTES
    for item in found.items:
        entry = json.dumps(_described(item), ensure_ascii=False, separators=(",", ":")).encode()
        room -= len(entry) + 1
        if room < 0:
            break
        entries.append(entry)
    truncated = found.truncated or len(entries) < len(found.items)
    return b'{"entries":[%b],"truncated":%b}' % (b",".join(entries), b"true" if truncated else b"false")


def _described(item: Item) -> dict[str, Any]:
    described: dict[str, Any] = {"kind": item.kind, "mode": item.mode, "mtimeNs": item.mtime_ns, "size": item.size}
    described |= _named("name", item.name)
    return described | _named("target", item.target) if item.kind == "symlink" else described


def _named(member: str, raw: bytes) -> dict[str, str]:
    """A name as text. A name that is not UTF-8 also as it is, in base64."""
    try:
        return {member: raw.decode()}
    except UnicodeDecodeError:
        return {member: raw.decode(errors="replace"), f"{member}Base64": base64.b64encode(raw).decode()}
