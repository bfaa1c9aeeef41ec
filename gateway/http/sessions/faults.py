"""Faults on demand, for showing what becomes of a session then: sockets cut, processes killed, a store that is late.

Only with `HOLDFAST_DEMO=true`. Each harms the session that it names, and nobody else: what was acknowledged is there
afterwards, and what was not is sent again by its sender.
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from gateway.http.access import owned
from gateway.http.responses import answer, read_object
from gateway.protocol.errors import ApiError
from gateway.session.actor import SessionActor
from gateway.session.registry import SessionRegistry
from persistence.queue.queue import PersistenceQueue
from sandbox.ports.provider import SandboxProvider

FAULTS = ("cut", "kill-agent", "kill-bridge", "pause-store")
LONGEST_SECONDS = 60


class FaultRoutes:
    """`POST /api/sandboxes/{id}/demo/{what}`, for the session's owner; not there at all unless `enabled`."""

    def __init__(
        self, registry: SessionRegistry, provider: SandboxProvider, queue: PersistenceQueue, *, enabled: bool
    ) -> None:
        self._registry = registry
        self._provider = provider
        self._queue = queue
        self._enabled = enabled

    def routes(self) -> list[BaseRoute]:
        return [Route("/api/sandboxes/{id}/demo/{what}", self.cause, methods=["POST"])]

    async def cause(self, request: Request) -> Response:
        if not self._enabled:
            raise ApiError(404, "not_found", "there is nothing here")
        actor = await owned(request, self._registry)
        what = request.path_params["what"]
        if what not in FAULTS:
            raise ApiError(400, "unknown_fault", f"known are {', '.join(FAULTS)}")
        body = await read_object(request, known=frozenset({"seconds"} if what == "pause-store" else ()))
        return answer({"what": what, **await self._cause(actor, what, body)})

    async def _cause(self, actor: SessionActor, what: str, body: dict[str, Any]) -> dict[str, Any]:
        if what == "cut":
            return {"sockets": actor.cut_viewers()}
        if what == "pause-store":
            return {"seconds": self._pause_store(actor, body.get("seconds"))}
        if what == "kill-agent":
            actor.life.kill_agent()
        elif not await self._provider.kill(actor.id):
            raise ApiError(409, "not_running", "the session's sandbox does not run")
        return {}

    def _pause_store(self, actor: SessionActor, seconds: Any) -> int:
        if type(seconds) is not int or not 1 <= seconds <= LONGEST_SECONDS:
            raise ApiError(400, "bad_member", f"seconds must be a whole number from 1 to {LONGEST_SECONDS}")
        if self._registry.draining:
            raise ApiError(503, "draining", "the gateway is shutting down: try again in a few seconds")
        self._queue.hold(actor.id, seconds)
        return seconds
