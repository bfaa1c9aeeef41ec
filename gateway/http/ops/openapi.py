"""`/openapi.json`: every HTTP route, as it was declared."""

from collections.abc import Callable, Sequence
from functools import cached_property

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from gateway.auth.policy import PUBLIC
from gateway.routing.openapi import JSON, document
from gateway.routing.route import route, specs_of


class OpenApiRoutes:
    """`routes` gives all that are served. The document is made when it is first asked for, and never changes."""

    def __init__(self, version: str, routes: Callable[[], Sequence[BaseRoute]]) -> None:
        self._version = version
        self._routes = routes

    @route("GET", "/openapi.json", PUBLIC, "openapi", "Every HTTP route, as OpenAPI 3.1", answers={200: dict})
    async def show(self, _: Request) -> Response:
        return Response(self._body, headers={"X-Content-Type-Options": "nosniff"}, media_type=JSON)

    @cached_property
    def _body(self) -> bytes:
        return orjson.dumps(document(self._version, specs_of(self._routes())))
