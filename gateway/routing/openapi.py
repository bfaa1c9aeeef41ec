"""Builds OpenAPI from the declarations of routes: paths, parameters, bodies, answers, access. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gateway.auth.identity import Accept
from gateway.routing.json_types import SESSION_ID, Error
from gateway.routing.parameters import Parameter
from gateway.routing.route import WS, LinesOf, RouteSpec

JSON = "application/json"
Schema = dict[str, Any]

SECURITY: dict[Accept, tuple[str, Schema]] = {
    Accept.USER: ("user", {"type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": "a user's JWT"}),
    Accept.ADMIN: ("admin", {"type": "http", "scheme": "bearer", "description": "HOLDFAST_API_TOKEN"}),
    Accept.RELAY: ("relay", {"type": "apiKey", "in": "header", "name": "X-Relay-Secret"}),
    Accept.INTERNAL: ("service", {"type": "apiKey", "in": "header", "name": "X-Service-Token"}),
}
REFUSALS = {
    400: "the request cannot be read, or makes no sense",
    401: "no credentials, or none that are accepted here",
    403: "not for this user, or not from this origin",
    404: "it does not exist, or belongs to another user",
    409: "not possible in its present state",
    413: "the body is too large",
    416: "the file has no such range",
    422: "the store will never take this record",
    429: "too much at once: try again later",
    500: "stored data is damaged; the text says which",
    501: "not possible with these settings; the text names them",
    502: "the sandbox or the object store did not do it",
    503: "a store does not answer, or the gateway restarts: try again",
}
_BYTES = {
    "application/octet-stream": {"format": "binary"},
    "application/x-tar": {"contentMediaType": "application/x-tar"},
}
_IN_PATH = re.compile(r"{([A-Za-z]+)(?::path)?}")
_USUAL: dict[str, Schema] = {
    "id": {"type": "string", "pattern": SESSION_ID},
    "sessionId": {"type": "string", "pattern": SESSION_ID},
    "number": {"type": "integer", "minimum": 0},
}


def document(version: str, specs: Sequence[RouteSpec]) -> dict[str, Any]:
    """The whole document, as OpenAPI 3.1."""
    schemas = Schemas(specs)
    paths: dict[str, dict[str, Any]] = {}
    for spec in specs:
        if spec.method != WS:
            written = spec.path.replace(":path}", "}")  # the slashes in it are the route's business
            paths.setdefault(written, {})[spec.method.lower()] = _operation(spec, schemas)
    sockets = {
        spec.path: {"description": spec.doc, "security": _security(spec.policy.accept)}
        for spec in specs
        if spec.method == WS
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": version,
            "description": "A WebSocket session gateway. Every refusal is an Error.",
        },
        "paths": paths,
        "components": {"schemas": schemas.components, "securitySchemes": dict(SECURITY.values())},
        "x-websockets": sockets,
    }


def component(name: str) -> str:
    """The name of a struct in the document."""
    return name.removesuffix("Json").removesuffix("Body")


class Schemas:
    """JSON Schema of every type that the routes name. `components` are those of structs, by name."""

    def __init__(self, specs: Sequence[RouteSpec]) -> None:
        lines = [each for spec in specs for each in spec.media.values() if isinstance(each, LinesOf)]
        named = [kind for spec in specs for kind in (spec.body, *spec.answers.values()) if kind is not None]
        types = [Error, *named, *(kind for each in lines for kind in each.kinds)]
        found, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
        self._found = [(kind, _simplified(schema)) for kind, schema in zip(types, found, strict=True)]
        self.components = {component(name): _simplified(schema) for name, schema in components.items()}
        for each in lines:
            self.components.setdefault(each.name, {"anyOf": [self.of(kind) for kind in each.kinds]})

    def of(self, kind: Any) -> Schema:
        return next(schema for known, schema in self._found if known == kind)


def _simplified(schema: Any) -> Any:
    """As a person would write it: no titles, `null` as a type among types, a reference by the component's name."""
    if isinstance(schema, list):
        return [_simplified(each) for each in schema]
    if not isinstance(schema, Mapping):
        return component(schema) if isinstance(schema, str) and schema.startswith("#/components/") else schema
    written = {
        name: _members(value) if name == "properties" else _simplified(value)
        for name, value in schema.items()
        if name != "title" and not (name == "default" and value is None)
    }
    if "enum" in written:
        written.setdefault("type", "string")
    match written.get("anyOf"):
        case [{"type": str(kind)} as first, {"type": "null"}]:
            del written["anyOf"]
            return {**first, **written, "type": [kind, "null"]}
    return written


def _members(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _simplified(schema) for name, schema in properties.items()}


def _operation(spec: RouteSpec, schemas: Schemas) -> dict[str, Any]:
    accept = spec.policy.accept
    refusals = {*spec.refusals, *(() if accept is Accept.NOBODY else (401, 403))}
    refusals |= {429} if Accept.USER in accept else set()
    answers = {str(status): _answer(_form(kind, schemas)) for status, kind in spec.answers.items()}
    if spec.media:
        others = {media: {"schema": _other(media, told)} for media, told in spec.media.items()}
        answers["200"] = _answer({**_form(spec.answers.get(200), schemas), **others})
    error = _form(Error, schemas)
    for status in sorted(refusals):
        answers[str(status)] = {"description": REFUSALS[status], "content": error}
    described: dict[str, Any] = {
        "operationId": spec.name,
        "summary": spec.doc,
        "security": _security(accept),
        "parameters": [*_in_path(spec), *(_parameter(each) for each in spec.parameters if each.where != "path")],
        "responses": {**answers, "default": {"description": "any other refusal", "content": error}},
    }
    if spec.body is not None:
        required = any(each.required for each in msgspec.structs.fields(spec.body))
        described["requestBody"] = {"required": required, "content": _form(spec.body, schemas)}
    return described


def _form(kind: Any, schemas: Schemas) -> dict[str, Any]:
    return {} if kind is None else {JSON: {"schema": schemas.of(kind)}}


def _answer(content: dict[str, Any]) -> dict[str, Any]:
    return {"description": "done", "content": content} if content else {"description": "done, without content"}


def _other(media: str, told: str | LinesOf) -> Schema:
    words = f"{told.doc} ({told.name})" if isinstance(told, LinesOf) else told
    return {"type": "string", **({"description": words} if words else {}), **_BYTES.get(media, {})}


def _in_path(spec: RouteSpec) -> Iterator[Schema]:
    declared = {each.name: each for each in spec.parameters if each.where == "path"}
    for name in _IN_PATH.findall(spec.path):
        usual = Parameter(name, _USUAL.get(name, {"type": "string"}), where="path")
        yield _parameter(declared.get(name, usual))


def _parameter(parameter: Parameter) -> Schema:
    said = {"description": parameter.doc} if parameter.doc else {}
    required = parameter.where == "path"
    return {"name": parameter.name, "in": parameter.where, "required": required, **said, "schema": parameter.schema}


def _security(accept: Accept) -> list[dict[str, list[str]]]:
    return [{name: []} for kind, (name, _) in SECURITY.items() if kind in accept and kind]
