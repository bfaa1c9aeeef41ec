"""One declaration is a served route, a policy, an operation of OpenAPI and a row of the docs."""

import re
from collections.abc import AsyncIterator
from typing import Annotated, Any

import httpx
import pytest
from msgspec import Meta
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from gateway.auth.identity import Identity
from gateway.auth.origin import Origins
from gateway.auth.policy import LIFECYCLE_SESSION, OWNER, PolicyMiddleware, unprotected
from gateway.auth.tickets import Tickets
from gateway.auth.tokens import SharedSecret, TokenVerifier, mint
from gateway.http.access import owned
from gateway.http.responses import EXCEPTION_HANDLERS, answer, read_body
from gateway.routing.docs_table import table
from gateway.routing.json_types import JsonAnswer, JsonBody, must
from gateway.routing.openapi import document
from gateway.routing.parameters import FlagParameter
from gateway.routing.route import ServedRoute, ServedSocket, route, served, socket, specs_of
from gateway.server.admission import Admission
from gateway.session.registry import SessionRegistry
from tests.support.gatehouse import JWT_SECRET, RELAY, SECRETS
from tests.support.sessions import World

LOUD = FlagParameter("loud", "1: in capitals")


class Whisper(JsonBody):
    text: Annotated[str, Meta(max_length=5), must("a string of at most 5 characters")]


class Echo(JsonAnswer):
    echo_text: str


class EchoRoutes:
    def __init__(self, registry: SessionRegistry) -> None:
        self._registry = registry

    @route(
        "POST", "/api/sandboxes/{id}/echo", LIFECYCLE_SESSION, "echo", "Say it again",
        body=Whisper, answers={201: Echo}, parameters=(LOUD,), refusals=(400, 404),
    )  # fmt: skip
    async def echo(self, request: Request) -> Response:
        await owned(request, self._registry)
        text = (await read_body(request, Whisper)).text
        return answer(Echo(text.upper() if LOUD.read(request) else text), 201)


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with World() as world:
        await world.create("s", user="ada")
        routes = served(EchoRoutes(world.registry))
        guard = Middleware(
            PolicyMiddleware,
            routes=routes,
            identity=Identity(TokenVerifier(SharedSecret(JWT_SECRET)), SECRETS, Tickets()),
            origins=Origins(()),
            counters=Admission(100, 100, 100),
        )
        app = Starlette(routes=routes, middleware=[guard], exception_handlers=EXCEPTION_HANDLERS)
        door = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=door, base_url="http://gateway", trust_env=False, verify=False) as asked:
            yield asked


def of(user: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {mint(JWT_SECRET, user, f'{user}@example.com', 600)}"}


HERS = "/api/sandboxes/s/echo"


async def test_a_declared_route_is_served(client: httpx.AsyncClient) -> None:
    for headers in (of("ada"), {"X-Relay-Secret": RELAY}):
        made = await client.post(HERS, headers=headers, params={"loud": "1"}, json={"text": "hi"})
        assert (made.status_code, made.json()) == (201, {"echoText": "HI"})
    assert (await client.get(HERS, headers=of("ada"))).status_code == 405


async def test_a_declared_route_is_refused_to_strangers(client: httpx.AsyncClient) -> None:
    assert (await client.post(HERS, json={"text": "hi"})).status_code == 401
    for path, user in ((HERS, "eva"), ("/api/sandboxes/nobodys/echo", "ada")):
        refused = await client.post(path, headers=of(user), content=b"not even JSON")
        assert (refused.status_code, refused.json()["code"]) == (404, "unknown_session")
    assert (await client.post("/api/sandboxes/%20/echo", headers=of("ada"))).json()["code"] == "bad_session_id"


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (b"{", "bad_json", "the body cannot be read"),
        (b'{"text":"a","text":"b"}', "bad_json", "the body cannot be read"),
        (b"[]", "bad_json", "the body cannot be read"),
        (b"", "bad_member", "text must be a string of at most 5 characters"),
        (b'{"text":"secret"}', "bad_member", "text must be a string of at most 5 characters"),
        (b'{"text":1}', "bad_member", "text must be a string of at most 5 characters"),
        (b'{"text":"a","more":1}', "unknown_member", "unknown members: 'more'; known are text"),
    ],
)
async def test_a_body_is_read_as_declared(client: httpx.AsyncClient, content: bytes, code: str, words: str) -> None:
    refused = await client.post(HERS, headers=of("ada"), content=content)
    assert (refused.status_code, refused.json()["code"]) == (400, code)
    assert refused.json()["error"].startswith(words)
    assert "secret" not in refused.text


async def test_a_declared_route_is_in_openapi_and_in_the_docs() -> None:
    async with World() as world:
        specs = specs_of(served(EchoRoutes(world.registry)))
    described = document("1", specs)
    operation = described["paths"]["/api/sandboxes/{id}/echo"]["post"]
    assert (operation["operationId"], operation["summary"]) == ("echo", "Say it again")
    assert [each["name"] for each in operation["parameters"]] == ["id", "loud"]
    assert set(operation["responses"]) == {"201", "400", "401", "403", "404", "429", "default"}
    assert operation["security"] == [{"user": []}, {"admin": []}, {"relay": []}]
    assert operation["requestBody"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Whisper"}
    assert described["components"]["schemas"]["Echo"]["required"] == ["echoText"]
    row = "| `POST /api/sandboxes/{id}/echo` | lifecycle | `?loud=`, `{text}` | 201 `Echo` | Say it again |\n"
    assert row in table(specs)


class Several:
    """Routes of each kind."""

    @route("GET", "/b", OWNER, "second", "Declared first")
    @route("GET", "/a", OWNER, "first", "Declared next")
    async def both(self, _: Request) -> Response:
        return Response()

    @socket("/ws/c", OWNER, "a socket")
    async def listen(self, _: WebSocket) -> None: ...

    async def undeclared(self, _: Request) -> Response:
        return Response()

    @route("GET", "/logs/{id}", OWNER, "logs", "With or without a slash", loose=True)
    async def logs(self, _: Request) -> Response:
        return Response()

    @route("GET", "/files/{path:path}", OWNER, "files", "Any name", loose=True)
    async def files(self, _: Request) -> Response:
        return Response()


class More:
    @route("GET", "/d", OWNER, "fourth", "In another object")
    async def more(self, _: Request) -> Response:
        return Response()


class Inherits(More):
    @route("GET", "/e", OWNER, "fifth", "Beside what is inherited")
    async def own(self, _: Request) -> Response:
        return Response()


class Overrides(More):
    async def more(self, _: Request) -> Response:
        return Response()


class Again:
    @route("GET", "/logs/{session}", OWNER, "again", "What another serves already")
    async def again(self, _: Request) -> Response:
        return Response()

    @route("POST", "/logs/{id}", OWNER, "other", "Another method, another route")
    async def other(self, _: Request) -> Response:
        return Response()

    @socket("/d", OWNER, "A socket, not what GET is")
    async def listen(self, _: WebSocket) -> None: ...


def test_a_route_that_is_declared_twice_is_refused() -> None:
    """Routing took the first declaration, and OpenAPI described the second."""
    with pytest.raises(ValueError, match=re.escape("declared more than once: GET /logs/{}")):
        served(Several(), Again())
    with pytest.raises(ValueError, match="more than once: GET /d"):
        served(More(), More())
    assert len(served(More(), Again())) == 4


def test_an_inherited_declaration_is_served_unless_its_method_is_another() -> None:
    assert [spec.path for spec in specs_of(served(Inherits()))] == ["/d", "/e"]
    assert served(Overrides()) == []


def test_routes_come_in_the_order_of_their_declaration() -> None:
    routes = served(Several(), More())
    paths = ["/b", "/a", "/ws/c", "/logs/{id}", "/files/{path:path}", "/d"]
    assert [spec.path for spec in specs_of(routes)] == paths
    assert [type(each) for each in routes[:3]] == [ServedRoute, ServedRoute, ServedSocket]
    assert unprotected(routes) == []
    assert all(getattr(each, "policy", None) is OWNER for each in routes)
    assert served(object()) == []


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/logs/s", {"id": "s"}),
        ("/logs/s/", {"id": "s"}),
        ("/logs/s//", None),
        ("/files", {"path": ""}),
        ("/files/", {"path": ""}),
        ("/files/a/b\nc/", {"path": "a/b\nc/"}),
        ("/filesystem", None),
        ("/b/", None),
    ],
)
def test_a_loose_route_takes_a_slash_and_any_name(path: str, found: dict[str, Any] | None) -> None:
    routes = [each for each in served(Several()) if isinstance(each, ServedRoute)]
    matched = [match.groupdict() for each in routes if (match := each.path_regex.match(path))]
    assert matched == ([] if found is None else [found])


async def test_a_body_that_was_not_declared_is_not_read() -> None:
    spec = specs_of(served(Several()))[0]
    request = Request({"type": "http", "headers": [], "spec": spec})
    with pytest.raises(AssertionError, match="as what was declared"):
        await read_body(request, Whisper)
