"""What a session's agent and bridge wrote to their logs."""

import re

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from gateway.http.access import owned
from gateway.http.responses import query_integer
from gateway.protocol.text import visible
from gateway.session.registry import SessionRegistry
from sandbox.ports.provider import SandboxProvider

DEFAULT_TAIL = 64 * 1024
LARGEST_TAIL = 1 << 20


class LogRoutes:
    def __init__(self, registry: SessionRegistry, provider: SandboxProvider) -> None:
        self._registry = registry
        self._provider = provider

    def routes(self) -> list[BaseRoute]:
        route = Route("/logs/{id}", self.tail, methods=["GET"])
        route.path_regex = re.compile(route.path_regex.pattern.replace("$", "/?$"))
        return [route]

    async def tail(self, request: Request) -> Response:
        """The last `tail` bytes. Control characters are spelled out: whoever reads this has a terminal to lose."""
        actor = await owned(request, self._registry)
        size = query_integer(request, "tail", DEFAULT_TAIL, low=1, high=LARGEST_TAIL)
        written = await self._provider.logs(actor.id, limit=size)
        headers = {
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": "default-src 'none'; sandbox",
        }
        return Response(visible(written.decode(errors="replace")), 200, headers, "text/plain; charset=utf-8")
