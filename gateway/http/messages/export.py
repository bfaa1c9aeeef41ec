"""Exports of conversations as lines of JSON: one session's, one user's or all, in constant memory.

A line is a record with its `sessionId` and `userId`; a complete file has no other lines. An export that fails must not
look like a complete one: its last line is `{"error","code"}`, and the connection is closed without HTTP's end marker,
so that every client reports it too.

Each session is exported up to the last record it had when its turn came. Records that retention removes meanwhile are
not exported, nor is a session that is purged before its turn; sessions created meanwhile are not, either. A purge of
the session whose turn it is fails the export: half a conversation must not pass for one.
"""

from collections.abc import AsyncIterator

import orjson
from starlette.requests import Request
from starlette.responses import Response

from gateway.auth.policy import SERVICES, SERVICES_SESSION
from gateway.http.access import looked_at
from gateway.http.messages.answers import ExportLine
from gateway.http.messages.pages import SessionGone, pages, unbroken
from gateway.http.responses import UNCACHED, LongResponse
from gateway.protocol.chat_frames import record_json
from gateway.routing.parameters import USER
from gateway.routing.route import LinesOf, route
from gateway.session.catalogue import Catalogue
from gateway.session.store_events import StoreEvents
from persistence.errors import StoreUnavailable
from persistence.paging import seen_again, sessions_after
from persistence.ports import MessageStore
from persistence.record import Record, Session

LINES = "application/x-ndjson"
EXPORTED = LinesOf(
    "ExportLine", (ExportLine,), "a record per line; if the last line is an Error, the export is not complete"
)
SESSIONS_AT_ONCE = 50


class ExportRoutes:
    def __init__(self, catalogue: Catalogue, store: MessageStore, hearing: StoreEvents) -> None:
        self._catalogue = catalogue
        self._store = store
        self._hearing = hearing

    @route(
        "GET", "/internal/sessions/{id}/export", SERVICES_SESSION, "exportSession", "All that is stored of a session",
        refusals=(400, 404, 503), media={LINES: EXPORTED},
    )  # fmt: skip
    async def one(self, request: Request) -> Response:
        session = await looked_at(request, self._catalogue)
        return LongResponse(self._whole_or_error(self._one(session)), headers=UNCACHED, media_type=LINES)

    @route(
        "GET", "/internal/export", SERVICES, "exportAll", "All that is stored, session after session",
        parameters=(USER,), refusals=(400, 503), media={LINES: EXPORTED},
    )  # fmt: skip
    async def all(self, request: Request) -> Response:
        """Session after session, the newest first; with `userId` those of one user."""
        user_id = USER.read(request)
        first = await self._store.sessions(user_id, limit=SESSIONS_AT_ONCE)  # a store that is away is a 503 here
        return LongResponse(self._whole_or_error(self._all(user_id, first)), headers=UNCACHED, media_type=LINES)

    async def _whole_or_error(self, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        try:
            async for some in lines:
                yield some
                if self._hearing.is_leaving():
                    raise StoreUnavailable("the gateway is shutting down")
        except StoreUnavailable:
            code = "draining" if self._hearing.is_leaving() else "storage_unavailable"
            told = "the export is not complete: begin again when the gateway is ready"
            yield orjson.dumps({"error": told, "code": code}, option=orjson.OPT_APPEND_NEWLINE)
            raise

    async def _all(self, user_id: str | None, page: list[Session]) -> AsyncIterator[bytes]:
        while page:
            for listed in page:
                if (session := await seen_again(self._catalogue.look, listed)) is not None:
                    async for some in self._one(session):
                        yield some
            page = await sessions_after(self._store, page, limit=SESSIONS_AT_ONCE, user_id=user_id)

    async def _one(self, session: Session) -> AsyncIterator[bytes]:
        """Every record that the session has now, in order."""
        end, after = session.last_seq + 1, session.first_seq - 1
        while after + 1 < end:
            found = pages(self._store, self._catalogue.look, session, after=after, before=end)
            async for page in unbroken(found, after):
                if page:
                    after = page[-1].seq
                    yield b"".join(_line(session, record) for record in page)
            if after + 1 < end:
                now = await seen_again(self._catalogue.look, session)
                if now is None:
                    raise SessionGone(f"session {session.id} was removed while it was exported")
                if now.first_seq <= after + 1:
                    raise StoreUnavailable(f"record {session.id}.{after + 1} cannot be read")
                after = now.first_seq - 1


def _line(session: Session, record: Record) -> bytes:
    line = {"sessionId": session.id, "userId": session.user_id or None, **record_json(record)}
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
