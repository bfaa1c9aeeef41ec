"""The table of routes in docs/protocol/routes.md, from their declarations. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args, get_origin

import msgspec

from gateway.auth.identity import Accept
from gateway.auth.policy import RoutePolicy
from gateway.routing.openapi import Schemas, component
from gateway.routing.route import RouteSpec

BEGIN = "<!-- routes: written by `make tables` from the declarations -->"
END = "<!-- end of routes -->"
LIFECYCLE = Accept.RELAY | Accept.ADMIN | Accept.USER
_TOKENS = {Accept.ADMIN: "API token", Accept.INTERNAL: "internal token", Accept.RELAY: "relay secret"}


def table(specs: Sequence[RouteSpec]) -> str:
    rows = [
        f"| `{spec.method} {spec.path}` | {who(spec.policy)} | {_takes(spec)} | {_answers(spec)} | {spec.doc} |\n"
        for spec in specs
    ]
    return "| route | who | takes | answers | what |\n|---|---|---|---|---|\n" + "".join(rows) + "\n" + _shapes(specs)


def who(policy: RoutePolicy) -> str:
    """Who may use the route, in the words of *Who you are*."""
    if policy.from_page:
        return "a page of an allowed origin"
    if policy.accept is Accept.NOBODY:
        return "anybody"
    user = ["owner's JWT" if policy.session_in else "JWT"] if Accept.USER in policy.accept else []
    names = [name for kind, name in _TOKENS.items() if policy.accept & kind] + user
    shown = ["lifecycle"] if policy.accept == LIFECYCLE else names
    return " or ".join([*shown, *(["a share"] if policy.shared else [])])


def _takes(spec: RouteSpec) -> str:
    query = "&".join(f"{each.name}=" for each in spec.parameters if each.where == "query")
    body = "" if spec.body is None else _members(spec.body)
    return ", ".join(f"`{each}`" for each in (query and f"?{query}", body) if each)


def _members(kind: type[msgspec.Struct]) -> str:
    names = [each.encode_name + ("" if each.required else "?") for each in msgspec.structs.fields(kind)]
    return f"{{{', '.join(names)}}}" if names else ""


def _answers(spec: RouteSpec) -> str:
    said = [f"{status} {_named(kind)}".strip() for status, kind in spec.answers.items()]
    return ", ".join([*said, *(f"`{media}`" for media in spec.media)])


def _named(kind: Any) -> str:
    if kind is None:
        return ""
    if get_origin(kind) is list:
        return f"an array of {_named(get_args(kind)[0])}"
    return f"`{component(kind.__name__)}`" if issubclass(kind, msgspec.Struct) else "an object"


def _shapes(specs: Sequence[RouteSpec]) -> str:
    """The types of answers, by name."""
    bodies = {component(spec.body.__name__) for spec in specs if spec.body is not None}
    shapes = Schemas(specs).components.items()
    rows = [f"| `{name}` | {_shape(schema)} |\n" for name, schema in sorted(shapes) if name not in bodies]
    return "| answer | members |\n|---|---|\n" + "".join(rows)


def _shape(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return "one of " + ", ".join(f"`{each['$ref'].rpartition('/')[2]}`" for each in schema["anyOf"])
    names = [name + ("" if name in schema["required"] else "?") for name in schema["properties"]]
    return f"`{{{', '.join(names)}}}`"
