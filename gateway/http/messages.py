"""A session's stored conversation, for its owner and for services: pages, a live stream, and a way to write into it."""

import asyncio
from collections.abc import AsyncIterator

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from gateway.errors import ApiError
from gateway.http.ownership import owned
from gateway.http.replies import answer, query_flag, query_integer, read_object
from gateway.http.wishes import POST_MEMBERS, read_post
from gateway.registry import SessionRegistry
from gateway.session.actor import SessionActor
from gateway.wire import record_json
from persistence.ports import MessageStore

DEFAULT_LIMIT = 100
LARGEST_LIMIT = 1000
LARGEST_SEQ = 2**53
# A record may have 1 MiB. Reading this many at a time bounds what one request holds, whatever `limit` it asked for.
AT_ONCE = 16
KEEP_ALIVE_SECONDS = 15
STORE_SECONDS = 30


class MessageRoutes:
    """Readers and writers of records. `leaving` is set when the gateway drains: streams end, their readers return."""

    def __init__(self, registry: SessionRegistry, store: MessageStore, leaving: asyncio.Event) -> None:
        self._registry = registry
        self._store = store
        self._leaving = leaving

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/api/sessions/{id}/messages", self.read, methods=["GET"]),
            Route("/internal/sessions/{id}/messages", self.read_or_follow, methods=["GET"]),
            Route("/internal/sessions/{id}/messages", self.write, methods=["POST"]),
        ]

    async def read(self, request: Request) -> Response:
        """The first `limit` records after `after`, or the last `limit` before `before` if only that is given."""
        actor = await owned(request, self._registry)
        after = query_integer(request, "after", None, low=0, high=LARGEST_SEQ)
        before = query_integer(request, "before", None, low=0, high=LARGEST_SEQ)
        limit = query_integer(request, "limit", DEFAULT_LIMIT, low=1, high=LARGEST_LIMIT)
        last = _last_seq(actor)
        first, end = wanted_range(after, before, limit, last)
        if end - first <= AT_ONCE:
            records = await self._read(actor.id, first, end) if first < end else []
            return answer({"messages": [orjson.Fragment(each) for each in records], "lastSeq": last})
        parts = self._page(actor.id, first, end, last)
        opening = await anext(parts)  # a store that does not answer is still a 503 here, not half an answer
        return StreamingResponse(_chain(opening, parts), headers=_HEADERS, media_type="application/json")

    async def _page(self, session_id: str, first: int, end: int, last: int) -> AsyncIterator[bytes]:
        glue = b'{"messages":['
        for start in range(first, end, AT_ONCE):
            records = await self._read(session_id, start, min(start + AT_ONCE, end))
            if not records:
                break
            yield glue + b",".join(records)
            glue = b","
        yield (b"" if glue == b"," else glue) + b'],"lastSeq":%d}' % last

    async def _read(self, session_id: str, first: int, end: int) -> list[bytes]:
        records = await self._store.messages(session_id, after=first - 1, before=end, limit=end - first)
        return [orjson.dumps(record_json(record)) for record in records]

    async def read_or_follow(self, request: Request) -> Response:
        if not query_flag(request, "follow"):
            return await self.read(request)
        actor = await owned(request, self._registry)
        if "before" in request.query_params:
            raise ApiError(400, "bad_parameter", "follow goes on for ever: leave before out")
        after = query_integer(request, "after", 0, low=0, high=LARGEST_SEQ)
        limit = query_integer(request, "limit", LARGEST_SEQ, low=1, high=LARGEST_SEQ)
        seen = request.headers.get("last-event-id")
        if seen is not None:
            if not (seen.isascii() and seen.isdecimal() and len(seen) < 17):
                raise ApiError(400, "bad_parameter", "Last-Event-ID must be the id of an event of this stream")
            after = int(seen)
        headers = {**_HEADERS, "X-Accel-Buffering": "no"}
        return StreamingResponse(self._follow(actor, after, limit), headers=headers, media_type="text/event-stream")

    async def _follow(self, actor: SessionActor, after: int, limit: int) -> AsyncIterator[bytes]:
        """Events after `after` until `limit` of them were sent, the actor has ended, or the gateway leaves.

        A reader that comes back with its Last-Event-ID finds the session's next actor, or that it is gone.
        """
        yield b": holdfast\n\n"
        while limit > 0 and not actor.ended and not self._leaving.is_set():
            end = min(_last_seq(actor), after + min(limit, AT_ONCE)) + 1
            if end <= after + 1:
                if not await self._grown(actor, after):
                    yield b": still here\n\n"
                continue
            for record in await self._read(actor.id, after + 1, end):
                after += 1
                limit -= 1
                yield b"id: %d\ndata: %s\n\n" % (after, record)

    async def _grown(self, actor: SessionActor, seq: int) -> bool:
        """Wait for a record beyond `seq`, a while at most; whether there is one."""
        beyond = asyncio.ensure_future(actor.wait_beyond(seq))
        leaving = asyncio.ensure_future(self._leaving.wait())
        try:
            done, _ = await asyncio.wait(
                (beyond, leaving), timeout=KEEP_ALIVE_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            return bool(done)
        finally:
            beyond.cancel()
            leaving.cancel()

    async def write(self, request: Request) -> Response:
        """Durable when answered. The same `cid` again answers what it answered first."""
        actor = await owned(request, self._registry)
        post = read_post(await read_object(request, known=POST_MEMBERS))
        try:
            async with asyncio.timeout(STORE_SECONDS):
                message_id, seq = await actor.post_record(
                    role=post.role,
                    type=post.type,
                    content=post.content,
                    metadata=post.metadata,
                    cid=post.cid,
                    deliver=post.deliver,
                )
        except TimeoutError:
            told = "the record may or may not be stored; send it again with the same cid"
            raise ApiError(503, "storage_unavailable", told) from None
        return answer({"messageId": message_id, "seq": seq}, 201)


_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def wanted_range(after: int | None, before: int | None, limit: int, last: int) -> tuple[int, int]:
    """The seqs first <= seq < end to answer with. A conversation has no gaps, so that this is arithmetic."""
    end = last + 1 if before is None else min(before, last + 1)
    first = max(1, end - limit) if after is None and before is not None else (after or 0) + 1
    return first, max(first, min(end, first + limit))


def _last_seq(actor: SessionActor) -> int:
    return int(actor.describe()["lastSeq"])


async def _chain(opening: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield opening
    async for part in rest:
        yield part
