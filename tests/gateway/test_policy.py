"""The policy table: every route is in it, and every credential, origin and id is judged before a route runs."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.routing import BaseRoute, Mount, Route, Router, WebSocketRoute
from starlette.types import Message, Receive, Scope, Send

from gateway.auth import policy as policy_module
from gateway.auth.identity import Accept, Identity
from gateway.auth.origin import Origins, own_origin
from gateway.auth.policy import POLICY, PolicyMiddleware, unprotected, valid_session_id
from gateway.auth.tickets import Tickets
from gateway.auth.tokens import Principal, SharedSecret, TokenVerifier, mint
from gateway.counters import Counters
from gateway.settings import Secrets, SecretStr

JWT_SECRET = SecretStr("jwt-secret-0123456789-0123456789-012345")
ADMIN, INTERNAL, RELAY = "api-token-0123456789", "internal-token-0123456789", "relay-secret-0123456789"
SECRETS = Secrets(
    jwt_secret=JWT_SECRET,
    api_token=SecretStr(ADMIN),
    internal_token=SecretStr(INTERNAL),
    relay_secret=SecretStr(RELAY),
)
TOKEN = mint(JWT_SECRET, "ada", "ada@example.com", 600)
OWN = "https://holdfast.example"


async def _endpoint(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept", "subprotocol": None})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


class _Endpoint:
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await _endpoint(scope, receive, send)


def all_routes() -> list[BaseRoute]:
    made: list[BaseRoute] = []
    for method, path in POLICY:
        if method == "WS":
            made.append(WebSocketRoute(path, _Endpoint()))
        else:
            made.append(Route(path, _Endpoint(), methods=[method]))
    return made


class House:
    """The middleware over every route of the table, driven by ASGI messages."""

    def __init__(self, *, allowed: tuple[str, ...] = (), query_tokens: bool = True, per_user: int = 100) -> None:
        self.tickets = Tickets()
        self.now = 0.0
        self.scope: Scope = {}
        self.refused: list[str] = []
        self.routes = all_routes()
        verifier = TokenVerifier(SharedSecret(JWT_SECRET))
        self.app = PolicyMiddleware(
            self._app,
            routes=self.routes,
            identity=Identity(verifier, SECRETS, self.tickets, monotonic=lambda: self.now),
            origins=Origins(allowed),
            counters=Counters(100, 100, per_user),
            query_tokens=query_tokens,
            refused=self.refused.append,
        )
        self._router = Router(self.routes)

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        await self._router(scope, receive, send)

    async def ask(
        self,
        method: str,
        target: str,
        headers: dict[str, str] | list[tuple[str, str]] | None = None,
        *,
        protocols: tuple[str, ...] = (),
    ) -> tuple[int, Any, dict[str, str]]:
        """Status (101 for an accepted upgrade), JSON body, headers."""
        pairs = list(headers.items()) if isinstance(headers, dict) else headers or []
        path, _, query = target.partition("?")
        names = {name.lower() for name, _ in pairs}
        pairs = pairs if "host" in names else [("host", "holdfast.example"), *pairs]
        scope: Scope = {
            "type": "websocket" if method == "WS" else "http",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in pairs],
            "scheme": "wss" if method == "WS" else "https",
            "client": ("127.0.0.1", 1),
            "root_path": "",
        }
        scope.update({"subprotocols": list(protocols)} if method == "WS" else {"method": method})
        self.scope = {}
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "websocket.connect" if method == "WS" else "http.request"}

        async def send(message: Message) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        if sent[0]["type"] == "websocket.accept":
            return 101, None, {}
        prefix = "websocket." if method == "WS" else ""
        assert [message["type"] for message in sent] == [f"{prefix}http.response.start", f"{prefix}http.response.body"]
        body = orjson.loads(sent[1]["body"]) if sent[1]["body"] else None
        answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], body, answered

    async def status(self, *args: Any, **more: Any) -> int:
        return (await self.ask(*args, **more))[0]


def concrete(path: str) -> str:
    filled = path.replace("{id}", "s1").replace("{sessionId}", "s1").replace("{path:path}", "a/b.txt")
    return "/ws/v2?sessionId=s1" if filled == "/ws/v2" else filled


ROUTES = [(method, concrete(path), policy) for (method, path), policy in POLICY.items()]
NAMES = [f"{method} {path}" for method, path in POLICY]
BEARER = {"authorization": f"Bearer {TOKEN}"}
SHOWN: dict[str, tuple[dict[str, str], Accept]] = {
    "token": (BEARER, Accept.USER),
    "api token": ({"authorization": f"Bearer {ADMIN}"}, Accept.ADMIN),
    "internal bearer": ({"authorization": f"Bearer {INTERNAL}"}, Accept.INTERNAL),
    "internal header": ({"x-service-token": INTERNAL}, Accept.INTERNAL),
    "relay secret": ({"x-relay-secret": RELAY}, Accept.RELAY),
    "relay secret as bearer": ({"authorization": f"Bearer {RELAY}"}, Accept.NOBODY),
    "api token as service token": ({"x-service-token": ADMIN}, Accept.NOBODY),
    "api token as relay secret": ({"x-relay-secret": ADMIN}, Accept.NOBODY),
    "wrong relay secret next to a good token": ({"x-relay-secret": "x", **BEARER}, Accept.NOBODY),
    "expired": ({"authorization": f"Bearer {mint(JWT_SECRET, 'a', 'e', 60, now=1_700_000_000)}"}, Accept.NOBODY),
    "forged": ({"authorization": f"Bearer {TOKEN[:-4]}AAAA"}, Accept.NOBODY),
    "x.y.z": ({"authorization": "Bearer x.y.z"}, Accept.NOBODY),
    "basic": ({"authorization": "Basic YTpi"}, Accept.NOBODY),
    "empty bearer": ({"authorization": "Bearer "}, Accept.NOBODY),
    "nothing": ({}, Accept.NOBODY),
}


@pytest.mark.parametrize(("method", "path", "policy"), ROUTES, ids=NAMES)
async def test_every_route_lets_in_whom_its_policy_names_and_nobody_else(method: str, path: str, policy: Any) -> None:
    house = House()
    served = 101 if method == "WS" else 200
    for what, (headers, kind) in SHOWN.items():
        status, body, answered = await house.ask(method, path, headers)
        welcome = policy.accept is Accept.NOBODY or bool(kind & policy.accept)
        assert status == (served if welcome else 401), what
        assert bool(house.scope) == welcome, what
        if not welcome:
            assert set(body) == {"error", "code"}
            assert answered["www-authenticate"].startswith("Bearer")


def test_every_route_of_the_architecture_is_in_the_table() -> None:
    assert unprotected(all_routes()) == []
    assert POLICY["GET", "/health"].accept is Accept.NOBODY
    public = {path for (_, path), policy in POLICY.items() if policy.accept is Accept.NOBODY}
    assert public == {"/", "/health", "/ready"}


async def test_a_route_without_a_policy_is_found_and_not_served() -> None:
    routes: list[BaseRoute] = [
        Route("/health", _Endpoint(), methods=["GET", "POST"]),
        Route("/debug", _Endpoint(), methods=["GET"]),
        WebSocketRoute("/ws/debug", _Endpoint()),
        Mount("/static", routes=[]),
        Route("/any", _Endpoint()),
    ]
    missing = unprotected(routes)
    assert missing[:3] == ["POST /health", "GET /debug", "WS /ws/debug"]
    assert len(missing) == 5
    house = House()
    house.routes[:] = routes
    for method, path in [("GET", "/debug"), ("WS", "/ws/debug"), ("GET", "/static/x"), ("POST", "/health")]:
        assert await house.status(method, path, BEARER) == 404
        assert not house.scope


async def test_the_decision_rests_on_the_path_not_on_the_host_header() -> None:
    house = House()
    for host in ["x/health?", "x/health#", "holdfast.example/health"]:
        assert await house.status("GET", "/metrics", {"host": host}) == 401


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/ws/v2?sessionId=s1", 426),
        ("POST", "/ws/v2?sessionId=s1", 426),
        ("GET", "/terminal/s1", 426),
        ("WS", "/health", 404),
        ("WS", "/nowhere", 404),
        ("GET", "/nowhere", 404),
        ("GET", "/health/", 404),
        ("GET", "//health", 404),
        ("PUT", "/health", 405),
        ("OPTIONS", "/api/sandboxes", 405),
        ("HEAD", "/health", 200),
        ("GET", "/api/sandboxes/../health", 400),
        ("GET", "/api/sandboxes/a%2f..%2fb", 400),
        ("GET", "/api/sandboxes/a%5Cb", 400),
        ("GET", "/api/sandboxes/a%00", 400),
        ("GET", "/files/s1/%2e%2e/secrets", 400),
    ],
)
async def test_what_is_no_route_is_told_apart(method: str, target: str, status: int) -> None:
    found, body, headers = await House().ask(method, target, BEARER)
    assert found == status
    if status == 426:
        assert headers["upgrade"] == "websocket"
    assert body is None or status == 200 or set(body) == {"error", "code"}


BAD_IDS = [
    "a/../b",
    "-x",
    "_x",
    "%2e%2e",
    "x" * 129,
    "x" * 300,
    "a\0b",
    "\u202ea",
    "😀",
    "",
    " ",
    "a b",
    "a.b",
    "$(id)",
    "a;b",
]


@pytest.mark.parametrize("session_id", BAD_IDS)
async def test_a_bad_session_id_is_a_bad_request(session_id: str) -> None:
    house = House()
    assert not valid_session_id(session_id)
    written = quote(session_id, safe="")
    assert await house.status("WS", f"/ws/v2?sessionId={written}", BEARER) == 400
    if session_id:
        assert await house.status("GET", f"/api/sandboxes/{written}", BEARER) == 400
        assert await house.status("WS", f"/ws/sandboxes/{written}", BEARER) == 400
    assert not house.scope


async def test_one_session_id_is_needed_and_given_on() -> None:
    house = House()
    assert await house.status("WS", "/ws/v2", BEARER) == 400
    assert await house.status("WS", "/ws/v2?sessionId=a&sessionId=b", BEARER) == 400
    assert await house.status("WS", "/ws/v2?sessionId=" + "x" * 128, BEARER) == 101
    assert house.scope["state"]["session_id"] == "x" * 128
    assert await house.status("WS", "/ws/v2?" + "a=1&" * 60 + "sessionId=a", BEARER) == 400


@given(st.text(max_size=140))
def test_session_ids_are_what_the_pattern_says(text: str) -> None:
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    good = 0 < len(text) <= 128 and text[0] in letters and all(char in letters + "_-" for char in text)
    assert valid_session_id(text) == good


# Origins

EVIL = [
    "https://app.example.com.evil.tld",
    "https://evil.tld",
    "null",
    "HTTPS://APP.EXAMPLE.COM",
    "https://app.example.com.",
    "https://app.example.com:8443",
    "https://app.example.com:443",
    "http://app.example.com",
    "https://app.example.com/",
    "https://xapp.example.com",
    "https://app.example.com@evil.tld",
    "",
]
COOKIE = {"cookie": f"theme=dark; session={TOKEN}"}


@pytest.mark.parametrize("origin", EVIL)
@pytest.mark.parametrize("credential", [COOKIE, BEARER], ids=["cookie", "bearer"])
async def test_a_page_of_another_origin_gets_no_socket(origin: str, credential: dict[str, str]) -> None:
    house = House(allowed=("https://app.example.com",))
    assert await house.status("WS", "/ws/v2?sessionId=s", {**credential, "origin": origin}) == 403
    assert not house.scope
    good = {**credential, "origin": "https://app.example.com"}
    assert await house.status("WS", "/ws/v2?sessionId=s", good) == 101


async def test_without_origin_the_cookie_opens_no_socket_and_writes_nothing() -> None:
    house = House()
    assert await house.status("WS", "/ws/v2?sessionId=s", COOKIE) == 403
    assert await house.status("POST", "/api/sandboxes/s", COOKIE) == 403
    assert await house.status("DELETE", "/api/sandboxes/s", COOKIE) == 403
    assert await house.status("GET", "/api/sandboxes/s", COOKIE) == 200
    assert await house.status("POST", "/api/sandboxes/s", {**COOKIE, "origin": OWN}) == 200
    assert await house.status("POST", "/api/sandboxes/s", {**COOKIE, "origin": "https://evil.tld"}) == 403
    assert await house.status("GET", "/api/sandboxes/s", {**COOKIE, "origin": "https://evil.tld"}) == 403
    assert await house.status("WS", "/ws/v2?sessionId=s", BEARER) == 101


@pytest.mark.parametrize(
    ("scheme", "host", "origin"),
    [
        ("https", "a.example", "https://a.example"),
        ("https", "a.example:443", "https://a.example"),
        ("http", "A.Example:80", "http://a.example"),
        ("ws", "localhost:8080", "http://localhost:8080"),
        ("wss", "a.example:8443", "https://a.example:8443"),
        ("http", "[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_the_own_origin_is_written_as_a_browser_writes_it(scheme: str, host: str, origin: str) -> None:
    assert own_origin({"scheme": scheme, "headers": [(b"host", host.encode())]}) == origin


async def test_without_a_list_the_own_origin_is_allowed_and_two_headers_never() -> None:
    house = House()
    path = "/ws/v2?sessionId=s"
    assert await house.status("WS", path, {**COOKIE, "origin": OWN}) == 101
    assert await house.status("WS", path, {**COOKIE, "origin": "https://holdfast.example:8080"}) == 403
    assert await house.status("WS", path, [*COOKIE.items(), ("origin", OWN), ("origin", OWN)]) == 403
    assert own_origin({"scheme": "http", "headers": []}) is None
    two = [(b"host", b"a"), (b"host", b"b")]
    assert own_origin({"scheme": "http", "headers": two}) is None


async def test_cors_answers_allowed_origins_only_and_never_a_star() -> None:
    house = House(allowed=("https://app.example.com",))
    ask = {"origin": "https://app.example.com", "access-control-request-method": "POST"}
    status, _, headers = await house.ask("OPTIONS", "/api/sandboxes/s", ask)
    assert status == 204
    assert headers["access-control-allow-origin"] == "https://app.example.com"
    assert "x-relay-secret" not in headers["access-control-allow-headers"]
    for origin in EVIL:
        status, _, headers = await house.ask("OPTIONS", "/api/sandboxes/s", {**ask, "origin": origin})
        assert status == 403
        assert "access-control-allow-origin" not in headers
        status, _, headers = await house.ask("GET", "/api/sandboxes/s", {**BEARER, "origin": origin})
        assert "access-control-allow-origin" not in headers
        assert headers["vary"] == "Origin"
    status, _, headers = await house.ask("GET", "/api/sandboxes/s", {**BEARER, "origin": "https://app.example.com"})
    assert (status, headers["access-control-allow-credentials"]) == (200, "true")
    refusal = await house.ask("GET", "/api/sandboxes/s", {"origin": "https://app.example.com"})
    assert refusal[0] == 401
    assert refusal[2]["access-control-allow-origin"] == "https://app.example.com"


# Where credentials come from


async def test_a_token_is_taken_from_each_of_its_places() -> None:
    house = House()
    path = "/ws/v2?sessionId=s"
    own = {"origin": OWN}
    assert await house.status("WS", path, BEARER) == 101
    assert house.scope["state"]["principal"].via == "header"
    assert await house.status("WS", path, protocols=("holdfast.chat.v2", f"token.{TOKEN}")) == 101
    assert house.scope["state"]["principal"].via == "protocol"
    assert house.scope["subprotocols"] == ["holdfast.chat.v2"]
    assert await house.status("WS", f"{path}&token={TOKEN}") == 101
    assert house.scope["state"]["principal"].via == "query"
    assert await house.status("WS", path, {**own, **COOKIE}) == 101
    assert house.scope["state"]["principal"].via == "cookie"
    assert await house.status("GET", f"/api/sandboxes?token={TOKEN}") == 200


async def test_query_tokens_can_be_turned_off() -> None:
    house = House(query_tokens=False)
    status, body, _ = await house.ask("WS", f"/ws/v2?sessionId=s&token={TOKEN}")
    assert (status, body["code"]) == (401, "query_token")
    assert TOKEN not in str(body)


def conflicts() -> Iterator[tuple[str, dict[str, str], tuple[str, ...], int]]:
    """A bad credential that decides is not rescued by a good one behind it."""
    path, bad = "/ws/v2?sessionId=s", "Bearer x.y.z"
    yield f"{path}&token={TOKEN}", {"authorization": bad}, (), 401
    yield path, {"authorization": bad, **COOKIE, "origin": OWN}, (), 401
    yield f"{path}&token={TOKEN}", {}, ("token.x.y.z",), 401
    yield f"{path}&ticket=x&token={TOKEN}", {}, (), 401
    yield f"{path}&token=x.y.z", {**COOKIE, "origin": OWN}, (), 401
    yield f"{path}&token=x.y.z", BEARER, (), 101
    yield f"{path}&token={TOKEN}&token={TOKEN}", {}, (), 400
    yield path, {}, (f"token.{TOKEN}", f"token.{TOKEN}"), 400


@pytest.mark.parametrize(("target", "headers", "protocols", "status"), list(conflicts()))
async def test_conflicting_credentials_are_judged_by_the_first(
    target: str, headers: dict[str, str], protocols: tuple[str, ...], status: int
) -> None:
    assert await House().status("WS", target, headers, protocols=protocols) == status


async def test_a_tossed_second_session_cookie_is_refused() -> None:
    house = House()
    for cookies in ([f"session={TOKEN}; session=evil"], [f"session={TOKEN}", f"session={TOKEN}"]):
        headers = [("origin", OWN), *(("cookie", cookie) for cookie in cookies)]
        assert await house.status("WS", "/ws/v2?sessionId=s", headers) == 400
    two = [("authorization", f"Bearer {TOKEN}"), ("authorization", f"Bearer {TOKEN}")]
    assert await house.status("GET", "/api/sandboxes", two) == 400
    assert await house.status("GET", "/api/sandboxes", {"cookie": f"my-session={TOKEN}"}) == 401


async def test_an_oversized_token_is_a_bad_request() -> None:
    status, body, _ = await House().ask("GET", "/api/sandboxes", {"authorization": "Bearer " + "x" * 9000})
    assert (status, body["code"]) == (400, "token_too_long")


async def test_a_ticket_opens_one_socket_of_one_session_from_one_origin() -> None:
    house = House()
    ada = Principal("user", "ada", "ada@example.com", 2e9, "header")

    def ticket(session: str = "s", origin: str | None = OWN) -> str:
        text = house.tickets.issue(ada, session, origin, now=house.now)
        assert text is not None
        return text

    own = {"origin": OWN}
    good = ticket()
    assert await house.status("WS", f"/ws/v2?sessionId=s&ticket={good}", own) == 101
    assert house.scope["state"]["principal"] == Principal("user", "ada", "ada@example.com", 2e9, "ticket")
    assert await house.status("WS", f"/ws/v2?sessionId=s&ticket={good}", own) == 401  # used
    assert await house.status("WS", f"/ws/v2?sessionId=other&ticket={ticket()}", own) == 401
    assert await house.status("WS", f"/ws/v2?sessionId=s&ticket={ticket()}") == 401  # another origin: none
    assert await house.status("WS", f"/ws/v2?sessionId=s&ticket={ticket(origin=None)}") == 101
    assert await house.status("GET", f"/api/sandboxes/s?ticket={ticket()}", own) == 401  # only for sockets
    late = ticket()
    house.now = 30.0
    assert await house.status("WS", f"/ws/v2?sessionId=s&ticket={late}", own) == 401


async def test_a_users_sockets_are_counted_and_given_back() -> None:
    house = House(per_user=0)
    status, body, headers = await house.ask("WS", "/ws/v2?sessionId=s", BEARER)
    assert (status, body["code"]) == (429, "too_many_connections")
    assert headers["retry-after"]
    assert house.refused == ["too_many_of_user"]
    assert await house.status("WS", "/ws/sandboxes/s", {"x-relay-secret": RELAY}) == 101
    assert await house.status("GET", "/api/sandboxes", BEARER) == 200
    one = House(per_user=1)
    assert [await one.status("WS", "/ws/v2?sessionId=s", BEARER) for _ in range(3)] == [101] * 3


async def test_no_refusal_repeats_what_was_shown() -> None:
    house = House()
    secret = "SECRET-canary-0123456789"
    for target, headers in [
        (f"/api/sandboxes?token={secret}", {}),
        ("/api/sandboxes", {"authorization": f"Bearer {secret}"}),
        ("/api/sandboxes", {"x-relay-secret": secret}),
        ("/api/sandboxes", {"cookie": f"session={secret}"}),
        ("/api/sandboxes", {"authorization": f"Basic {secret}"}),
    ]:
        status, body, answered = await house.ask("GET", target, headers)
        assert status == 401
        assert secret not in str(body) + str(answered) + str(house.refused)


def test_no_secret_is_compared_by_its_characters() -> None:
    """`==` ends at the first wrong letter and so tells how far a guess was right."""
    offences = []
    for path in Path(policy_module.__file__).parents[1].rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare) and any(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops):
                sides = [ast.unparse(side) for side in (node.left, *node.comparators)]
                if any(re.search(r"(secret|token|digest|password|_ticket)$", side) for side in sides):
                    offences.append(f"{path.name}:{node.lineno} {ast.unparse(node)}")
    assert offences == []
