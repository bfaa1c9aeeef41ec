"""One-time tickets for browsers, which cannot put a header on a WebSocket."""

import time
from typing import Annotated

from starlette.requests import Request
from starlette.responses import Response

from gateway.auth.identity import Accept
from gateway.auth.policy import RoutePolicy, valid_session_id
from gateway.auth.tickets import TICKET_SECONDS, Tickets
from gateway.http.access import principal
from gateway.http.responses import answer, read_body
from gateway.protocol.errors import ApiError
from gateway.routing.json_types import JsonAnswer, JsonBody, SessionId, Whole, must
from gateway.routing.route import route
from gateway.session.catalogue import Catalogue


class TicketWishBody(JsonBody):
    session_id: Annotated[SessionId, must("a session's id", "bad_session_id")]


class TicketJson(JsonAnswer):
    ticket: str
    expires_in: Whole


class TicketRoutes:
    """`any_id` is for gateways that create sessions on attach: there a ticket may name one that does not exist yet."""

    def __init__(self, catalogue: Catalogue, tickets: Tickets, *, any_id: bool) -> None:
        self._catalogue = catalogue
        self._tickets = tickets
        self._any_id = any_id

    @route(
        "POST", "/api/tickets", RoutePolicy(Accept.USER, shared=True), "issueTicket",
        "A one-time ticket for a browser's WebSocket",
        body=TicketWishBody, answers={201: TicketJson}, refusals=(400, 404, 413, 429, 503),
    )  # fmt: skip
    async def issue(self, request: Request) -> Response:
        """Bound to the user, the session and the Origin of this request."""
        who = principal(request)
        session_id = (await read_body(request, TicketWishBody)).session_id
        if not valid_session_id(session_id):
            raise ApiError(400, "bad_session_id", "sessionId must be a session's id")
        if who.session_id not in ("", session_id):
            raise ApiError(404, "unknown_session", "there is no such session")
        owner = await self._catalogue.owner(session_id)
        if owner != who.user_id and not (owner is None and self._any_id):
            raise ApiError(404, "unknown_session", "there is no such session")
        ticket = self._tickets.issue(who, session_id, request.state.origin, now=time.monotonic())
        if ticket is None:
            raise ApiError(429, "too_many_tickets", "too many unused tickets; use one, or wait 30 s")
        return answer(TicketJson(ticket, int(TICKET_SECONDS)), 201)
