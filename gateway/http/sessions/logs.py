"""The logs of a session's agent and bridge."""

from starlette.requests import Request
from starlette.responses import Response

from gateway.auth.policy import ADMINS_OR_OWNER
from gateway.http.access import owned
from gateway.protocol.text import visible
from gateway.routing.parameters import IntegerParameter
from gateway.routing.route import route
from gateway.session.registry import SessionRegistry

TAIL = IntegerParameter("tail", 1, 1 << 20, 64 << 10, "bytes")


class LogRoutes:
    def __init__(self, registry: SessionRegistry) -> None:
        self._registry = registry

    @route(
        "GET", "/logs/{id}", ADMINS_OR_OWNER, "logs", "The end of what agent and bridge logged",
        parameters=(TAIL,), refusals=(400, 404, 503), media={"text/plain": ""}, loose=True,
    )  # fmt: skip
    async def tail(self, request: Request) -> Response:
        """The last `tail` bytes. Control characters are escaped: they could act on the reader's terminal."""
        actor = await owned(request, self._registry)
        size = TAIL.read(request)
        written = await actor.sandbox.logs(limit=size)
        headers = {
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": "default-src 'none'; sandbox",
        }
        return Response(visible(written.decode(errors="replace")), 200, headers, "text/plain; charset=utf-8")
