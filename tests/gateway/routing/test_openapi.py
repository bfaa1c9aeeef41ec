"""OpenAPI is made from declarations alone. What the gateway's own routes say in it is compared with what they answer in
tests/gateway/http/ops/test_openapi.py."""

from typing import Annotated, Any, Literal

import jsonschema
from msgspec import UNSET, Meta, UnsetType

from gateway.auth.policy import LIFECYCLE, PUBLIC, SERVICES_SESSION, SIGNED_IN
from gateway.routing.json_types import Error, JsonAnswer, JsonBody, Nothing, Yes, meaning, must
from gateway.routing.openapi import document
from gateway.routing.parameters import PATH, Parameter
from gateway.routing.route import WS, LinesOf, RouteSpec


class InnerJson(JsonAnswer):
    """A part."""

    title: str | None
    default: Annotated[Literal["a", "b"], meaning("one of two")]


class OuterJson(JsonAnswer):
    inner: InnerJson | None
    parts: list[InnerJson]
    properties: Annotated[dict[str, Any] | None, meaning("whatever it is")]
    size: Annotated[Annotated[int, Meta(ge=1)] | None, meaning("of it")] = None
    stale: Yes | UnsetType = UNSET


class AskBody(JsonBody):
    name: Annotated[str, must("given")]
    often: Annotated[int, must("a number")] = 1


PROGRESS = LinesOf("AskLine", (OuterJson, Error), "lines")
SPECS = [
    RouteSpec("GET", "/all", LIFECYCLE, "All", "all", answers={200: list[OuterJson]}, refusals=(503,)),
    RouteSpec("POST", "/one/{id}", SERVICES_SESSION, "One", "one", body=AskBody, answers={201: OuterJson, 204: None}),
    RouteSpec("POST", "/none", SIGNED_IN, "None", "none", body=Nothing, media={"application/x-ndjson": PROGRESS}),
    RouteSpec(
        "GET", "/files/{path:path}", PUBLIC, "File", "file", answers={200: InnerJson},
        media={"application/octet-stream": "", "text/plain": "as it is"},
        parameters=(PATH, Parameter("Range", {"type": "string"}, "of bytes", where="header")),
    ),
    RouteSpec("GET", "/x/{other}", PUBLIC, "Other", "other", answers={200: dict}, media={"text/html": ""}),
    RouteSpec(WS, "/ws/{id}", SIGNED_IN, "a socket"),
]  # fmt: skip
DOCUMENT = document("1.2.3", SPECS)
SCHEMAS = DOCUMENT["components"]["schemas"]


def operation(method: str, path: str) -> dict[str, Any]:
    found: dict[str, Any] = DOCUMENT["paths"][path][method]
    return found


def test_paths_are_those_of_the_declarations() -> None:
    assert set(DOCUMENT["paths"]) == {"/all", "/one/{id}", "/none", "/files/{path}", "/x/{other}"}
    assert DOCUMENT["x-websockets"] == {"/ws/{id}": {"description": "a socket", "security": [{"user": []}]}}
    assert (DOCUMENT["openapi"], DOCUMENT["info"]["version"]) == ("3.1.0", "1.2.3")


def test_who_may_and_what_they_hear_follow_from_the_policy() -> None:
    assert operation("get", "/all")["security"] == [{"user": []}, {"admin": []}, {"relay": []}]
    assert set(operation("get", "/all")["responses"]) == {"200", "401", "403", "429", "503", "default"}
    assert operation("post", "/one/{id}")["security"] == [{"service": []}]
    assert set(operation("post", "/one/{id}")["responses"]) == {"201", "204", "401", "403", "default"}
    assert operation("get", "/files/{path}")["security"] == []
    assert set(operation("get", "/files/{path}")["responses"]) == {"200", "default"}


def test_answers_have_their_forms() -> None:
    array = operation("get", "/all")["responses"]["200"]["content"]["application/json"]["schema"]
    assert array == {"type": "array", "items": {"$ref": "#/components/schemas/Outer"}}
    assert operation("post", "/one/{id}")["responses"]["204"] == {"description": "done, without content"}
    forms = operation("get", "/files/{path}")["responses"]["200"]["content"]
    assert forms["application/json"]["schema"] == {"$ref": "#/components/schemas/Inner"}
    assert forms["application/octet-stream"]["schema"] == {"type": "string", "format": "binary"}
    assert forms["text/plain"]["schema"] == {"type": "string", "description": "as it is"}
    lines = operation("post", "/none")["responses"]["200"]["content"]["application/x-ndjson"]["schema"]
    assert lines == {"type": "string", "description": "lines (AskLine)"}
    either = [{"$ref": "#/components/schemas/Outer"}, {"$ref": "#/components/schemas/Error"}]
    assert SCHEMAS["AskLine"] == {"anyOf": either}


def test_a_body_is_required_if_one_of_its_members_is() -> None:
    assert operation("post", "/one/{id}")["requestBody"]["required"] is True
    assert operation("post", "/none")["requestBody"]["required"] is False
    assert "requestBody" not in operation("get", "/all")
    assert SCHEMAS["Ask"]["additionalProperties"] is False
    assert SCHEMAS["Ask"]["properties"]["often"]["default"] == 1


def test_schemas_are_written_as_a_person_would() -> None:
    outer, inner = SCHEMAS["Outer"]["properties"], SCHEMAS["Inner"]
    assert set(SCHEMAS) == {"Error", "Outer", "Inner", "Ask", "Nothing", "AskLine"}
    assert outer["size"] == {"type": ["integer", "null"], "minimum": 1, "description": "of it"}
    assert outer["inner"] == {"anyOf": [{"$ref": "#/components/schemas/Inner"}, {"type": "null"}]}
    assert outer["properties"] == {"type": ["object", "null"], "description": "whatever it is"}
    assert SCHEMAS["Outer"]["required"] == ["inner", "parts", "properties"]
    assert inner["properties"]["title"] == {"type": ["string", "null"]}
    assert inner["properties"]["default"] == {"type": "string", "enum": ["a", "b"], "description": "one of two"}
    assert inner["description"] == "A part."
    for schema in SCHEMAS.values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_parameters_of_the_path_are_found_there() -> None:
    session, *_ = operation("post", "/one/{id}")["parameters"]
    assert (session["name"], session["in"], session["required"]) == ("id", "path", True)
    assert session["schema"]["pattern"] == "^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$"
    assert [each["in"] for each in operation("get", "/files/{path}")["parameters"]] == ["path", "header"]
    assert operation("get", "/files/{path}")["parameters"][1]["description"] == "of bytes"
    other = {"name": "other", "in": "path", "required": True, "schema": {"type": "string"}}
    assert operation("get", "/x/{other}")["parameters"] == [other]
