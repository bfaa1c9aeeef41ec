"""One declaration per route.

`@route` stands above the method that serves a route and declares all its facts: method, path, access, body, answers,
parameters, one line of docs. `served` makes Starlette's routes from the declarations of an object. Each carries its
policy, which the middleware in front of the app applies, and its `spec`, from which `/openapi.json` and the table in
docs/protocol/routes.md are made.
"""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import getattr_static
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import Receive, Scope, Send

from gateway.auth.policy import RoutePolicy
from gateway.routing.json_types import JsonBody
from gateway.routing.parameters import Parameter

WS = "WS"
SPECS = "__routes__"
NONE: Mapping[Any, Any] = MappingProxyType({})
_NAMES = re.compile(r"(?<=\{)[^}:]+")  # of a path's parameters
Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])


class Declaration(Protocol):
    """Stands above a method, and returns it unchanged."""

    def __call__(self, handler: Handler, /) -> Handler: ...


@dataclass(frozen=True, slots=True)
class LinesOf:
    """Lines of JSON, each of them one of `kinds`; `name` is the name of such a line in OpenAPI."""

    name: str
    kinds: tuple[Any, ...]
    doc: str


@dataclass(frozen=True, slots=True)
class RouteSpec:
    """The facts of one method of one path; `WS` is the method of a WebSocket.

    `answers` has the type of the JSON by status, None where there is none. `media` has the other forms of a 200, by
    media type: words about it, or LinesOf. `refusals` are the statuses of errors beyond those that `policy` causes.
    `loose`: also with or without a slash at the end; a last part `{path:path}` may be any name, also with a line break
    in it.
    """

    method: str
    path: str
    policy: RoutePolicy
    doc: str
    name: str = ""
    body: type[JsonBody] | None = None
    answers: Mapping[int, Any] = field(default_factory=dict)
    media: Mapping[str, str | LinesOf] = field(default_factory=dict)
    parameters: tuple[Parameter, ...] = ()
    refusals: tuple[int, ...] = ()
    loose: bool = False


class ServedRoute(Route):
    """A declared route: the middleware in front of the app finds its policy here."""

    def __init__(self, spec: RouteSpec, endpoint: Callable[..., Awaitable[Any]]) -> None:
        super().__init__(spec.path, endpoint, methods=[spec.method])
        self.spec = spec
        self.policy = spec.policy
        if spec.loose:
            self.path_regex = _loosened(self.path_regex.pattern)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Puts the spec into the request's scope, so that a body can be read as it was declared."""
        scope["spec"] = self.spec
        await super().handle(scope, receive, send)


class ServedSocket(WebSocketRoute):
    """A declared WebSocket route."""

    def __init__(self, spec: RouteSpec, endpoint: Callable[..., Awaitable[None]]) -> None:
        super().__init__(spec.path, endpoint)
        self.spec = spec
        self.policy = spec.policy


def route(
    method: str,
    path: str,
    who: RoutePolicy,
    name: str,
    doc: str,
    *,
    body: type[JsonBody] | None = None,
    answers: Mapping[int, Any] = NONE,
    media: Mapping[str, str | LinesOf] = NONE,
    parameters: tuple[Parameter, ...] = (),
    refusals: tuple[int, ...] = (),
    loose: bool = False,
) -> Declaration:
    """Declare that the method below serves `method` on `path`. `name` is OpenAPI's operationId, which clients use. A
    method may serve several routes, with a declaration for each."""
    return _declaring(RouteSpec(method, path, who, doc, name, body, answers, media, parameters, refusals, loose))


def socket(path: str, who: RoutePolicy, doc: str) -> Declaration:
    """Declare that the method below serves WebSockets on `path`."""
    return _declaring(RouteSpec(WS, path, who, doc))


def served(*parts: object) -> list[BaseRoute]:
    """The declared routes of each object, in the order of their declaration, inherited ones first. Raises ValueError if
    two declare the same: the first would be served, and the second be described."""
    declared = [(spec, getattr(part, name)) for part in parts for name, spec in _declared(type(part))]
    shapes = Counter((spec.method, _NAMES.sub("", spec.path)) for spec, _ in declared)
    repeated = [f"{method} {path}" for (method, path), count in shapes.items() if count > 1]
    if repeated:
        raise ValueError(f"declared more than once: {', '.join(repeated)}")
    return [_served(spec, endpoint) for spec, endpoint in declared]


def specs_of(routes: Sequence[BaseRoute]) -> list[RouteSpec]:
    return [each.spec for each in routes if isinstance(each, ServedRoute | ServedSocket)]


def _declaring(spec: RouteSpec) -> Declaration:
    def declare(handler: Handler) -> Handler:
        setattr(handler, SPECS, (spec, *getattr(handler, SPECS, ())))  # the last decorator to run stands first
        return handler

    return declare


def _declared(kind: type) -> list[tuple[str, RouteSpec]]:
    names = dict.fromkeys(name for base in reversed(kind.__mro__) for name in vars(base))
    return [(name, spec) for name in names for spec in getattr(getattr_static(kind, name), SPECS, ())]


def _served(spec: RouteSpec, endpoint: Callable[..., Awaitable[Any]]) -> BaseRoute:
    return ServedSocket(spec, endpoint) if spec.method == WS else ServedRoute(spec, endpoint)


def _loosened(pattern: str) -> re.Pattern[str]:
    if pattern.endswith("/(?P<path>.*)$"):
        return re.compile(pattern.replace("/(?P<path>.*)$", "/?(?P<path>(?<=/).*|)$"), re.DOTALL)
    return re.compile(pattern.replace("$", "/?$"))
