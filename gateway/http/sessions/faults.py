"""Faults on demand, to show how a session recovers: sockets cut, processes killed, a store that is late.

Only with `HOLDFAST_DEMO=true`. Each harms only the session that it names: acknowledged messages are there afterwards,
and the senders of others send them again.
"""

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from gateway.auth.policy import OWNER
from gateway.http.access import owned
from gateway.http.responses import answer, read_body
from gateway.protocol.errors import ApiError
from gateway.routing.bodies import bad_member
from gateway.routing.json_types import JsonAnswer, JsonBody, Nothing, Whole, meaning, must, one_of
from gateway.routing.parameters import Parameter
from gateway.routing.route import route
from gateway.session.actor import SessionActor
from gateway.session.drain import SessionDrain
from gateway.session.registry import SessionRegistry
from persistence.queue.queue import PersistenceQueue

FAULTS = ("cut", "kill-agent", "kill-bridge", "pause-store")
LONGEST_SECONDS = 60
A_WHILE = f"a whole number from 1 to {LONGEST_SECONDS}"
WHAT = Parameter("what", {"type": "string", "enum": list(FAULTS)}, where="path")


class FaultWishBody(JsonBody):
    """Of `pause-store` alone."""

    seconds: Annotated[Annotated[int, Meta(ge=1, le=LONGEST_SECONDS)] | UnsetType, must(A_WHILE)] = UNSET


class Fault(JsonAnswer):
    what: Annotated[str, one_of(*FAULTS)]
    sockets: Annotated[Whole | UnsetType, meaning("how many were cut")] = UNSET
    seconds: Whole | UnsetType = UNSET


class FaultRoutes:
    """`POST /api/sandboxes/{id}/demo/{what}`, for the session's owner; the route exists only if `enabled`."""

    def __init__(
        self, registry: SessionRegistry, drain: SessionDrain, queue: PersistenceQueue, *, enabled: bool
    ) -> None:
        self._registry = registry
        self._drain = drain
        self._queue = queue
        self._enabled = enabled

    @route(
        "POST", "/api/sandboxes/{id}/demo/{what}", OWNER, "causeFault",
        "Harm this session, to show how it recovers; 404 unless HOLDFAST_DEMO is on",
        body=FaultWishBody, answers={200: Fault}, parameters=(WHAT,), refusals=(400, 404, 409, 413, 503),
    )  # fmt: skip
    async def cause(self, request: Request) -> Response:
        if not self._enabled:
            raise ApiError(404, "not_found", "there is nothing here")
        actor = await owned(request, self._registry)
        what = request.path_params["what"]
        if what not in FAULTS:
            raise ApiError(400, "unknown_fault", f"known are {', '.join(FAULTS)}")
        if what == "pause-store":
            wish = await read_body(request, FaultWishBody)
            return answer({"what": what, "seconds": self._pause_store(actor, wish.seconds)})
        await read_body(request, Nothing)
        return answer({"what": what, **await self._cause(actor, what)})

    async def _cause(self, actor: SessionActor, what: str) -> dict[str, Any]:
        if what == "cut":
            return {"sockets": actor.viewers.cut()}
        if what == "kill-agent":
            actor.life.kill_agent()
        elif not await actor.sandbox.kill():
            raise ApiError(409, "not_running", "the session's sandbox does not run")
        return {}

    def _pause_store(self, actor: SessionActor, seconds: int | UnsetType) -> int:
        if seconds is UNSET:
            raise bad_member("seconds", A_WHILE)
        self._drain.refuse()
        self._queue.hold(actor.id, seconds)
        return seconds
