"""The paths that the proxy answers itself; the first part of a path names a route.

A route is a part of the proxy with a name: it gets the requests below `/name/` of every session whose policy names it,
and notes from its counterpart in the gateway. A path that no route has is a 404 in words.
"""

from dataclasses import dataclass
from typing import Protocol

import msgspec

from gateway.egress.head import NotServed, RequestHead
from gateway.egress.policy import Policy
from gateway.egress.stream import ByteStream
from gateway.egress.turn_share import TurnShare


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request of a sandbox. `path` comes after the route's name, with its query, and begins with a slash. `stream`
    is at the body's first byte; the connection is closed when the handler returns."""

    policy: Policy
    settings: msgspec.Raw  # the policy's, for this route
    head: RequestHead
    path: str
    stream: ByteStream
    share: TurnShare  # take from it before passing bytes on


class Route(Protocol):
    async def serve(self, exchange: Exchange) -> None:
        """Answer the request. An error before the first byte is written becomes the answer: a NotServed as it is, and
        an OSError or a TimeoutError as 502 or 504. The call is cancelled when the session is taken away."""
        ...

    def heard(self, body: msgspec.Raw) -> None:
        """A note from the gateway."""
        ...

    def forget(self, session: str) -> None:
        """The session was taken away."""
        ...


class Routes:
    """Routes by name. `others` serves the names of a policy that no route has: providers of models."""

    def __init__(self, routes: dict[str, Route] | None = None) -> None:
        self._routes = dict(routes or {})
        self.others: Route | None = None

    def add(self, name: str, route: Route) -> None:
        self._routes[name] = route

    def find(self, policy: Policy, target: str) -> tuple[Route, msgspec.Raw, str]:
        """The route, the policy's settings for it, and the path below it. Raises NotServed."""
        name, slash, rest = target[1:].partition("/")
        if not slash:
            name, mark, query = name.partition("?")
            rest = mark + query
        route = self._routes.get(name, self.others)
        if route is None or name not in policy.routes:
            raise NotServed(
                404, f"this session has no way called {name[:60]!r} out of its sandbox; hosts are asked for by proxy"
            )
        return route, policy.routes[name], "/" + rest

    def heard(self, name: str, body: msgspec.Raw) -> None:
        if (route := self._routes.get(name)) is not None:
            route.heard(body)

    def forget(self, session: str) -> None:
        for route in self._routes.values():
            route.forget(session)
