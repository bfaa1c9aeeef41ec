"""A session's stored conversation, for its owner and for services: pages, a live stream, and a way to write into it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from gateway.auth.policy import OWNER_OR_GUEST, SERVICES_SESSION
from gateway.http.access import looked_at, owned, unknown_session
from gateway.http.concurrency import ConcurrencyLimit
from gateway.http.messages.answers import Page, Written
from gateway.http.messages.live_stream import LiveRecords
from gateway.http.messages.pages import (
    AT_ONCE,
    EVERYTHING,
    RecordFilter,
    SessionGone,
    first_of_newest,
    pages,
    record_bytes,
)
from gateway.http.request_bodies import Post, check_post
from gateway.http.responses import UNCACHED, LongResponse, answer, read_body
from gateway.protocol.errors import ApiError
from gateway.routing.parameters import FlagParameter, IntegerParameter, Parameter, WordParameter
from gateway.routing.route import route
from gateway.session.catalogue import Catalogue
from gateway.session.registry import SessionRegistry
from gateway.session.store_events import StoreEvents
from persistence.ports import MessageStore
from persistence.record import Record, Session

LARGEST_SEQ = 2**53
AFTER = IntegerParameter("after", 0, LARGEST_SEQ, None, "records after this seq")
BEFORE = IntegerParameter("before", 0, LARGEST_SEQ, None, "records before this seq; alone: the last `limit` of them")
LIMIT = IntegerParameter("limit", 1, 1000, 100)
FOLLOWED_LIMIT = IntegerParameter("limit", 1, LARGEST_SEQ, LARGEST_SEQ)
ROLE = WordParameter("role", "records of this role only")
TYPE = WordParameter("type", "records of this type only")
FOLLOW = FlagParameter("follow", "1: go on for ever, as server-sent events; `before` must be left out")
LAST_EVENT = Parameter(
    "Last-Event-ID", {"type": "integer", "minimum": 0},
    "with `follow`: the last id that was seen; counts instead of `after`", where="header",
)  # fmt: skip
PAGE = (AFTER, BEFORE, LIMIT, ROLE, TYPE)
EVENTS = "each event is a Record, its id the record's seq; `event: trimmed` with `{firstSeq}`: what was before is gone"
CONVERSATION = "/internal/sessions/{id}/messages"
STORE_SECONDS = 30
OPENING_BYTES = 256 << 10  # sent in one piece; a longer answer is sent as it is read
PIECE_BYTES = 64 << 10
READERS = 8  # of one user at once


class MessageRoutes:
    """Readers and writers of records. Reading loads no session. `hearing` wakes the followers, also at the drain."""

    def __init__(
        self, registry: SessionRegistry, catalogue: Catalogue, store: MessageStore, hearing: StoreEvents
    ) -> None:
        self._registry = registry
        self._catalogue = catalogue
        self._store = store
        self._hearing = hearing
        self._gates = ConcurrencyLimit(READERS, "reads of history")

    @route(
        "GET", "/api/sessions/{id}/messages", OWNER_OR_GUEST, "readOwnMessages",
        "The stored conversation, for its owner",
        answers={200: Page}, parameters=PAGE, refusals=(400, 404, 503),
    )  # fmt: skip
    async def read(self, request: Request) -> Response:
        """The first `limit` records after `after`, or the last `limit` before `before` if only that is given."""
        asked = read_question(request)
        session = await looked_at(request, self._catalogue)
        leave = await self._gates.enter(request)
        try:
            reply = await self._read(session, asked, leave)
        except BaseException:
            leave()
            raise
        if not isinstance(reply, LongResponse):
            leave()
        return reply

    async def _read(self, session: Session, asked: "PageQuery", leave: Callable[[], None]) -> Response:
        ending: dict[str, Any] = {"lastSeq": session.last_seq, "firstSeq": session.first_seq}
        if self._store.behind(session.id):
            ending["stale"] = True
        found = self._find(session, asked)
        opening: list[bytes] = []
        try:
            async for page in found:  # a store that does not answer is still a 503 here, not half an answer
                opening += map(record_bytes, page)
                if len(opening) > AT_ONCE or sum(map(len, opening)) > OPENING_BYTES:
                    body = _page(opening, found, orjson.dumps(ending))
                    return LongResponse(body, headers=UNCACHED, media_type="application/json", over=leave)
        except SessionGone:
            raise unknown_session() from None
        return answer({"messages": [orjson.Fragment(each) for each in opening], **ending})

    async def _find(self, session: Session, asked: "PageQuery") -> AsyncIterator[list[Record]]:
        first, end = wanted_range(asked, session.first_seq, session.last_seq)
        if asked.only and asked.newest:
            first = await first_of_newest(self._store, session.id, before=end, wanted=asked.limit, only=asked.only)
        look, wanted, only = self._catalogue.look, asked.limit, asked.only
        async for page in pages(self._store, look, session, after=first - 1, before=end, wanted=wanted, only=only):
            yield page

    @route(
        "GET", CONVERSATION, SERVICES_SESSION, "readMessages",
        "The stored conversation: a page of it, or all that comes", answers={200: Page},
        parameters=(*PAGE, FOLLOW, LAST_EVENT), refusals=(400, 404, 503), media={"text/event-stream": EVENTS},
    )  # fmt: skip
    async def read_or_follow(self, request: Request) -> Response:
        if not FOLLOW.read(request):
            return await self.read(request)
        if "before" in request.query_params:
            raise ApiError(400, "bad_parameter", "follow goes on for ever: leave before out")
        after = AFTER.read(request) or 0
        limit = FOLLOWED_LIMIT.read(request)
        only = _only(request)
        seen = request.headers.get("last-event-id")
        if seen is not None:
            if not (seen.isascii() and seen.isdecimal() and len(seen) < 17):
                raise ApiError(400, "bad_parameter", "Last-Event-ID must be the id of an event of this stream")
            after = int(seen)
        session = await looked_at(request, self._catalogue)
        look = self._catalogue.look
        stream = LiveRecords(self._store, self._hearing, look, session, after=after, limit=limit, only=only)
        return LongResponse(
            stream.events(), headers={**UNCACHED, "X-Accel-Buffering": "no"}, media_type="text/event-stream"
        )

    @route(
        "POST", CONVERSATION, SERVICES_SESSION, "writeMessage", "Store a record; durable when answered",
        body=Post, answers={201: Written}, refusals=(400, 404, 409, 413, 422, 429, 503),
    )  # fmt: skip
    async def write(self, request: Request) -> Response:
        """The record is durable when this answers. A repeated `cid` gets the first answer again."""
        actor = await owned(request, self._registry)
        post = await read_body(request, Post)
        check_post(post)
        try:
            async with asyncio.timeout(STORE_SECONDS):
                message_id, seq, stage = await actor.intake.post_record(
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
        return answer(Written(message_id, seq, stage), 201)


@dataclass(frozen=True, slots=True)
class PageQuery:
    """The query of a reader of pages."""

    after: int | None
    before: int | None
    limit: int
    only: RecordFilter = EVERYTHING

    @property
    def newest(self) -> bool:
        return self.after is None and self.before is not None


def read_question(request: Request) -> PageQuery:
    return PageQuery(AFTER.read(request), BEFORE.read(request), LIMIT.read(request), _only(request))


def _only(request: Request) -> RecordFilter:
    return RecordFilter(ROLE.read(request), TYPE.read(request))


def wanted_range(asked: PageQuery, first_seq: int, last_seq: int) -> tuple[int, int]:
    """The range first <= seq < end that holds the answer. Stored records have no gaps: without a filter they are the
    answer.
    """
    end = last_seq + 1 if asked.before is None else min(asked.before, last_seq + 1)
    first = max(first_seq, (asked.after or 0) + 1)
    if not asked.only:
        if asked.newest:
            first = max(first_seq, end - asked.limit)
        end = min(end, first + asked.limit)
    return first, max(first, end)


async def _page(opening: list[bytes], rest: AsyncIterator[list[Record]], ending: bytes) -> AsyncIterator[bytes]:
    """Long records one by one: a record that the reader has not taken yet is held once."""
    yield b'{"messages":[' + opening.pop(0)
    while opening:
        yield b"," + opening.pop(0)
    async for page in rest:
        page.reverse()
        while page:
            short = [record_bytes(page.pop())]
            while page and sum(map(len, short)) < PIECE_BYTES:
                short.append(record_bytes(page.pop()))
            yield b"," + b",".join(short)
    yield b"]," + ending[1:]
