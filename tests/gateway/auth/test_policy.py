"""The policy of every route lets in whom it names; paths and ids are judged before a route runs."""

import ast
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute

from gateway.auth import policy as policy_module
from gateway.auth.identity import Accept
from gateway.auth.policy import unprotected, valid_session_id
from gateway.auth.shares import ShareKey
from gateway.auth.tokens import Principal, mint
from gateway.limits.rate import Budgets
from tests.support.gatehouse import ADMIN, BEARER, INTERNAL, JWT_SECRET, RELAY, TOKEN, Endpoint, Gatehouse, all_routes
from tests.support.routes import POLICY
from tests.support.routes import ROUTES as SERVED


def concrete(path: str) -> str:
    filled = path.replace("{id}", "s1").replace("{sessionId}", "s1").replace("{path:path}", "a/b.txt")
    return "/ws/v2?sessionId=s1" if filled == "/ws/v2" else filled


ROUTES = [(method, concrete(path), policy) for (method, path), policy in POLICY.items()]
NAMES = [f"{method} {path}" for method, path in POLICY]
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
    house = Gatehouse()
    served = 101 if method == "WS" else 200
    for what, (headers, kind) in SHOWN.items():
        status, body, answered = await house.ask(method, path, headers)
        public = policy.accept is Accept.NOBODY and not policy.from_page
        welcome = public or bool(kind & policy.accept)
        assert status == (served if welcome else 403 if policy.from_page else 401), what
        assert bool(house.scope) == welcome, what
        if not welcome:
            assert set(body) == {"error", "code"}
            assert policy.from_page or answered["www-authenticate"].startswith("Bearer")


def test_every_route_has_a_policy_and_few_are_public() -> None:
    assert unprotected(SERVED) == []
    assert len(SERVED) == len(POLICY) > 50
    assert POLICY["GET", "/health"].accept is Accept.NOBODY
    public = {path for (_, path), policy in POLICY.items() if policy.accept is Accept.NOBODY and not policy.from_page}
    page = {"/", "/assets/{path:path}", "/favicon.svg", "/licences.txt", "/manifest.webmanifest"}
    assert public == {*page, "/signin", "/health", "/ready", "/openapi.json"}
    from_page = {each for each, policy in POLICY.items() if policy.from_page}
    assert from_page == {("POST", "/api/signin"), ("DELETE", "/api/signin")}


async def test_a_route_without_a_policy_is_found_and_not_served() -> None:
    routes: list[BaseRoute] = [
        Route("/health", Endpoint(), methods=["POST"]),
        Route("/debug", Endpoint(), methods=["GET"]),
        WebSocketRoute("/ws/debug", Endpoint()),
        Mount("/static", routes=[]),
        Route("/any", Endpoint()),
    ]
    lent = Route("/lent", Endpoint(), methods=["GET"])
    lent.policy = "public"  # type: ignore[attr-defined]
    routes.append(lent)
    assert unprotected(routes) == [repr(route) for route in routes]
    assert unprotected([*all_routes(), *routes]) == unprotected(routes)
    house = Gatehouse()
    house.routes += routes
    for method, path in [
        ("GET", "/debug"),
        ("WS", "/ws/debug"),
        ("GET", "/static/x"),
        ("POST", "/health"),
        ("GET", "/lent"),
    ]:
        assert await house.status(method, path, BEARER) == 404
        assert not house.scope


async def test_the_decision_rests_on_the_path_not_on_the_host_header() -> None:
    house = Gatehouse()
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
    found, body, headers = await Gatehouse().ask(method, target, BEARER)
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
    house = Gatehouse()
    assert not valid_session_id(session_id)
    written = quote(session_id, safe="")
    assert await house.status("WS", f"/ws/v2?sessionId={written}", BEARER) == 400
    if session_id:
        assert await house.status("GET", f"/api/sandboxes/{written}", BEARER) == 400
        assert await house.status("WS", f"/ws/sandboxes/{written}", BEARER) == 400
    assert not house.scope


async def test_one_session_id_is_needed_and_given_on() -> None:
    house = Gatehouse()
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


async def test_a_user_who_asks_too_often_waits_and_another_is_served() -> None:
    """Plain requests were counted per address only, and behind a proxy not at all."""
    gatehouse = Gatehouse(requests=Budgets(2.0, 3.0))
    bob = {"authorization": f"Bearer {mint(JWT_SECRET, 'bob', 'bob@example.com', 86_400)}"}
    asked = [await gatehouse.status("GET", "/api/me", BEARER) for _ in range(3)]
    assert asked == [200, 200, 200]
    for method, path in [("GET", "/api/me"), ("POST", "/api/sandboxes/s"), ("WS", "/ws/v2?sessionId=s")]:
        status, body, headers = await gatehouse.ask(method, path, BEARER)
        assert (status, body["code"], headers["retry-after"]) == (429, "too_many_requests", "1")
        assert "HOLDFAST_MAX_REQUESTS_PER_USER" in body["error"]
    assert gatehouse.refused == ["too_many_requests"] * 3
    assert await gatehouse.status("GET", "/api/me", bob) == 200
    for _ in range(10):
        assert await gatehouse.status("GET", "/api/sandboxes", {"x-relay-secret": RELAY}) == 200, "services may"
    gatehouse.now = 0.5
    assert await gatehouse.status("GET", "/api/me", BEARER) == 200, "told the truth about when"


async def test_whom_one_user_lets_in_to_many_sessions_has_one_part_of_what_all_share() -> None:
    """Each session's guests had a part of their own: a user with sixty sessions had sixty, by their own shares."""
    gatehouse = Gatehouse(requests=Budgets(2.0, 3.0))
    answers = []
    for number in range(4):
        shared = mint(JWT_SECRET, "ada", "ada@example.com", 60, share=(f"s{number}", ShareKey(1, "stamp")))
        guest = {"authorization": f"Bearer {shared}"}
        _, body, _ = await gatehouse.ask("WS", f"/ws/v2?sessionId=s{number}", guest)
        answers.append(body["code"])
    assert answers == ["share_ended"] * 3 + ["too_many_requests"]
    assert await gatehouse.status("GET", "/api/me", BEARER) == 200, "their host is not locked out"


def guest(share: ShareKey) -> dict[str, str]:
    token = mint(JWT_SECRET, "ada", "ada@example.com", 86_400, share=("s", share))
    return {"authorization": f"Bearer {token}"}


async def test_a_share_that_was_taken_back_spends_no_requests_of_other_guests(monkeypatch: pytest.MonkeyPatch) -> None:
    """All guests of a user had one budget: whoever lost their share locked out those who had one."""
    good, bad, worse = ShareKey(1, "good"), ShareKey(2, "bad"), ShareKey(3, "worse")
    live, asked = {good}, list[ShareKey | None]()

    async def let_in(who: Principal) -> None:
        asked.append(who.share)
        if who.share not in live:
            await policy_module.nobody_is_let_in(who)

    gatehouse = Gatehouse(requests=Budgets(2.0, 4.0), let_in=let_in)

    async def ask(share: ShareKey) -> int:
        return await gatehouse.status("GET", "/api/sandboxes/s/status", guest(share))

    answers = [await ask(share) for _ in range(10) for share in (bad, worse)]
    assert answers == [401] * 6 + [429] * 14, "one each as guests, then both together as ended ones"
    assert len(asked) == 6, "the store is not asked without bound"
    assert [await ask(good) for _ in range(3)] == [200, 200, 429], "as many as guests have, but for the first two"
    live.add(bad)
    gatehouse.now = 60.0
    assert [await ask(bad) for _ in range(6)] == [200] * 5 + [429], "what opens again counts as a guest again"
    monkeypatch.setattr(policy_module, "_ENDED_SHARES", 1)
    gatehouse.now = 120.0
    live.clear()
    assert [await ask(share) for share in (good, bad, good, bad, good)] == [401] * 4 + [429], "forgotten: guests"
