"""The identity corpus, origins and credentials: which page may speak, and what of the things it shows decides."""

from collections.abc import Iterator

import pytest

from gateway.auth.origin import own_origin
from gateway.auth.tokens import Principal
from tests.support.gatehouse import BEARER, COOKIE, OWN, RELAY, TOKEN, Gatehouse

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


@pytest.mark.parametrize("origin", EVIL)
@pytest.mark.parametrize("credential", [COOKIE, BEARER], ids=["cookie", "bearer"])
async def test_a_page_of_another_origin_gets_no_socket(origin: str, credential: dict[str, str]) -> None:
    house = Gatehouse(allowed=("https://app.example.com",))
    assert await house.status("WS", "/ws/v2?sessionId=s", {**credential, "origin": origin}) == 403
    assert not house.scope
    good = {**credential, "origin": "https://app.example.com"}
    assert await house.status("WS", "/ws/v2?sessionId=s", good) == 101


async def test_without_origin_the_cookie_opens_no_socket_and_writes_nothing() -> None:
    house = Gatehouse()
    assert await house.status("WS", "/ws/v2?sessionId=s", COOKIE) == 403
    assert await house.status("POST", "/api/sandboxes/s", COOKIE) == 403
    assert await house.status("DELETE", "/api/sandboxes/s", COOKIE) == 403
    assert await house.status("GET", "/api/sandboxes/s", COOKIE) == 200
    assert await house.status("POST", "/api/sandboxes/s", {**COOKIE, "origin": OWN}) == 200
    assert await house.status("POST", "/api/sandboxes/s", {**COOKIE, "origin": "https://evil.tld"}) == 403
    assert await house.status("GET", "/api/sandboxes/s", {**COOKIE, "origin": "https://evil.tld"}) == 403
    assert await house.status("WS", "/ws/v2?sessionId=s", BEARER) == 101


@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_what_is_for_pages_alone_wants_an_origin_that_is_allowed_whatever_else_is_shown(method: str) -> None:
    house = Gatehouse()
    for shown in ({}, COOKIE, BEARER):
        assert await house.status(method, "/api/signin", shown) == 403
        assert await house.status(method, "/api/signin", {**shown, "origin": OWN}) == 200
        assert await house.status(method, "/api/signin", {**shown, "origin": "https://evil.tld"}) == 403
    listed = Gatehouse(allowed=("https://app.example.com",))
    for origin in (*EVIL, OWN):
        assert await listed.status(method, "/api/signin", {"origin": origin}) == 403
    assert await listed.status(method, "/api/signin", {"origin": "https://app.example.com"}) == 200


async def test_without_a_list_the_own_origin_is_allowed_and_two_headers_never() -> None:
    house = Gatehouse()
    path = "/ws/v2?sessionId=s"
    assert await house.status("WS", path, {**COOKIE, "origin": OWN}) == 101
    assert await house.status("WS", path, {**COOKIE, "origin": "https://holdfast.example:8080"}) == 403
    assert await house.status("WS", path, [*COOKIE.items(), ("origin", OWN), ("origin", OWN)]) == 403
    assert own_origin({"scheme": "http", "headers": []}) is None
    two = [(b"host", b"a"), (b"host", b"b")]
    assert own_origin({"scheme": "http", "headers": two}) is None


async def test_cors_answers_allowed_origins_only_and_never_a_star() -> None:
    house = Gatehouse(allowed=("https://app.example.com",))
    ask = {"origin": "https://app.example.com", "access-control-request-method": "POST"}
    status, _, headers = await house.ask("OPTIONS", "/api/sandboxes/s", ask)
    assert status == 204
    assert headers["access-control-allow-origin"] == "https://app.example.com"
    assert "x-relay-secret" not in headers["access-control-allow-headers"]
    assert headers["access-control-allow-methods"] == "GET, POST, PUT, PATCH, DELETE"
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
    house = Gatehouse()
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
    house = Gatehouse(query_tokens=False)
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
    assert await Gatehouse().status("WS", target, headers, protocols=protocols) == status


async def test_a_tossed_second_session_cookie_is_refused() -> None:
    house = Gatehouse()
    for cookies in ([f"session={TOKEN}; session=evil"], [f"session={TOKEN}", f"session={TOKEN}"]):
        headers = [("origin", OWN), *(("cookie", cookie) for cookie in cookies)]
        assert await house.status("WS", "/ws/v2?sessionId=s", headers) == 400
    two = [("authorization", f"Bearer {TOKEN}"), ("authorization", f"Bearer {TOKEN}")]
    assert await house.status("GET", "/api/sandboxes", two) == 400
    assert await house.status("GET", "/api/sandboxes", {"cookie": f"my-session={TOKEN}"}) == 401


async def test_an_oversized_token_is_a_bad_request() -> None:
    status, body, _ = await Gatehouse().ask("GET", "/api/sandboxes", {"authorization": "Bearer " + "x" * 9000})
    assert (status, body["code"]) == (400, "token_too_long")


async def test_a_ticket_opens_one_socket_of_one_session_from_one_origin() -> None:
    house = Gatehouse()
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
    house = Gatehouse(per_user=0)
    status, body, headers = await house.ask("WS", "/ws/v2?sessionId=s", BEARER)
    assert (status, body["code"]) == (429, "too_many_connections")
    assert headers["retry-after"]
    assert house.refused == ["too_many_of_user"]
    assert await house.status("WS", "/ws/sandboxes/s", {"x-relay-secret": RELAY}) == 101
    assert await house.status("GET", "/api/sandboxes", BEARER) == 200
    one = Gatehouse(per_user=1)
    assert [await one.status("WS", "/ws/v2?sessionId=s", BEARER) for _ in range(3)] == [101] * 3


async def test_no_refusal_repeats_what_was_shown() -> None:
    house = Gatehouse()
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
