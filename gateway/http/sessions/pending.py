"""Messages that the agent does not have yet: listed, cancelled while that is possible, given more time."""

from typing import Annotated, Any

from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from gateway.auth.policy import LIFECYCLE_OR_GUEST, LIFECYCLE_SESSION
from gateway.http.access import note_asked, owned
from gateway.http.request_bodies import ExtendBody
from gateway.http.responses import answer, read_body
from gateway.protocol.errors import ApiError
from gateway.routing.json_types import JsonAnswer, Number, Time, Yes, meaning, one_of
from gateway.routing.parameters import Parameter
from gateway.routing.route import route
from gateway.session.catalogue import Catalogue
from gateway.session.registry import SessionRegistry

PENDING = "/api/sandboxes/{id}/pending"
SEQ = Parameter("seq", {"type": "integer", "minimum": 1}, where="path")


class PendingMessage(JsonAnswer):
    seq: Number
    cid: str
    type: str
    content: Annotated[Any, meaning("as it was sent")]
    metadata: dict[str, Any]
    created_at: Time
    status: Annotated[str, one_of("stored", "cancelled")]
    in_sandbox: Annotated[bool, meaning("the sandbox has it, and the agent does not yet")]
    expires_at: Annotated[Time | None, meaning("null: it does not age while its agent can be reached")]
    omitted: Annotated[Yes | UnsetType, meaning("the list is too long for its content: history has it")] = UNSET


class PendingList(JsonAnswer):
    messages: list[PendingMessage]


class PendingRoutes:
    def __init__(self, registry: SessionRegistry, catalogue: Catalogue) -> None:
        self._registry = registry
        self._catalogue = catalogue

    @route(
        "GET", PENDING, LIFECYCLE_OR_GUEST, "listPending", "The messages that the agent does not have yet, in order",
        answers={200: PendingList}, refusals=(404, 503),
    )  # fmt: skip
    async def list(self, request: Request) -> Response:
        actor = await owned(request, self._registry)
        return answer({"messages": actor.pending.listed()})

    @route(
        "DELETE", PENDING + "/{seq}", LIFECYCLE_SESSION, "cancelPending",
        "Cancel a message that the agent does not have yet", answers={200: PendingMessage}, parameters=(SEQ,),
        refusals=(404, 409, 503),
    )  # fmt: skip
    async def cancel(self, request: Request) -> Response:
        """Answers when it is durable that the agent will never get the message."""
        actor = await owned(request, self._registry)
        seq = _seq(request)
        note_asked(request, self._catalogue, actor.user_id, "cancel", seq=seq)
        return answer(await actor.pending.cancel(seq))

    @route(
        "POST", PENDING + "/{seq}/extend", LIFECYCLE_SESSION, "extendPending",
        "Let a message wait longer for its sandbox", body=ExtendBody, answers={200: PendingMessage}, parameters=(SEQ,),
        refusals=(400, 404, 409, 413, 503),
    )  # fmt: skip
    async def extend(self, request: Request) -> Response:
        """The message waits at least so long from now on, and never less than it would have."""
        actor = await owned(request, self._registry)
        body = await read_body(request, ExtendBody)
        return answer(await actor.pending.extend(_seq(request), body.seconds))


def _seq(request: Request) -> int:
    text = request.path_params["seq"]
    if not (text.isascii() and text.isdecimal() and len(text) < 17):
        raise ApiError(404, "unknown_message", "there is no such message in this session")
    return int(text)
