"""A list of every session, for services: its owner, its stored records, and its last activity."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from gateway.auth.policy import SERVICES, valid_session_id
from gateway.http.responses import answer
from gateway.http.sessions.answers import ListJson
from gateway.protocol.errors import ApiError
from gateway.routing.json_types import SESSION_ID
from gateway.routing.parameters import USER, IntegerParameter, Parameter
from gateway.routing.route import route
from gateway.session.catalogue import Catalogue
from persistence.ports import MessageStore
from persistence.record import Session

LIMIT = IntegerParameter("limit", 1, 1000, 100)
AFTER = Parameter("after", {"type": "string", "pattern": SESSION_ID}, "`next` of the page before")
SHOWN = ("id", "userId", "status", "sandboxStatus", "title", "viewers", "pending", "createdAt", "lastActiveAt")


class SessionRoutes:
    def __init__(self, catalogue: Catalogue, store: MessageStore) -> None:
        self._catalogue = catalogue
        self._store = store

    @route(
        "GET", "/internal/sessions", SERVICES, "listSessions", "Every session, newest first",
        answers={200: ListJson}, parameters=(USER, LIMIT, AFTER), refusals=(400, 404, 503),
    )  # fmt: skip
    async def list(self, request: Request) -> Response:
        """Newest first, in pages: `next` is the `after` of the next one, null at the end."""
        user_id = USER.read(request)
        limit = LIMIT.read(request)
        after = request.query_params.get("after")
        if after is not None and not valid_session_id(after):
            raise ApiError(400, "bad_parameter", "after must be a session's id")
        found = await self._store.sessions(user_id, after=after, limit=limit + 1)
        if after is not None and not found and await self._store.find(after) is None:
            told = "the session that after names is gone, and with it its place in the list: begin again"
            raise ApiError(404, "unknown_session", told)
        page = found[:limit]
        listed = [self._show(session) for session in page]
        return answer({"sessions": listed, "next": page[-1].id if len(found) > limit else None})

    def _show(self, session: Session) -> dict[str, Any]:
        described = self._catalogue.describe(session)
        last = max(session.last_seq, described["lastSeq"])
        shown = {name: described[name] for name in SHOWN}
        return {**shown, "messages": last + 1 - session.first_seq, "firstSeq": session.first_seq, "lastSeq": last}
