"""Signing in behind the real policy, on a clock of the test's own."""

import json
from datetime import datetime
from http.cookies import SimpleCookie
from typing import Any

import httpx
import jwt
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware

from gateway.auth.identity import Identity
from gateway.auth.links import Person
from gateway.auth.origin import Origins
from gateway.auth.policy import PolicyMiddleware
from gateway.auth.shares import ShareKey
from gateway.auth.signin import SIGNED_IN_SECONDS, TOKEN_SECONDS, SignIn
from gateway.auth.tickets import Tickets
from gateway.auth.tokens import SharedSecret, TokenVerifier, mint
from gateway.egress.budget import Spent
from gateway.egress.spent_json import shown_spent
from gateway.http.responses import EXCEPTION_HANDLERS
from gateway.http.site.signin import SigninRoutes
from gateway.routing.route import served
from gateway.server.admission import Admission
from tests.support.gatehouse import ADMIN, JWT_SECRET, OWN, RELAY, SECRETS, TOKEN

START = 1_800_000_000.0
ADMINS = {"authorization": f"Bearer {ADMIN}"}
FROM_PAGE = {"origin": OWN}
TIMELESS: Any = {"verify_iat": False, "verify_exp": False}  # the test has a clock of its own
ADA = {"userId": "ada", "email": "ada@example.com"}


async def _limits(user_id: str) -> dict[str, Any]:
    return {"sessions": {"used": 1, "max": 2, "setting": user_id}}


class Desk:
    """The routes of signing in, at a time that the test decides."""

    def __init__(self, *, signs: bool = True, allowed: tuple[str, ...] = ()) -> None:
        self.now = START
        verifier = TokenVerifier(SharedSecret(JWT_SECRET), utcnow=lambda: self.now)
        self.signin = SignIn(JWT_SECRET if signs else None, monotonic=lambda: self.now, utcnow=lambda: self.now)
        about = {"version": "1.2.3", "demo": False}
        part = SigninRoutes(
            self.signin, verifier, lambda: "http://127.0.0.1:1", about, _limits, utcnow=lambda: self.now
        )
        routes = served(part)
        guard = Middleware(
            PolicyMiddleware,
            routes=routes,
            identity=Identity(verifier, SECRETS, Tickets()),
            origins=Origins(allowed),
            counters=Admission(100, 100, 100),
        )
        self._app = Starlette(routes=routes, middleware=[guard], exception_handlers=EXCEPTION_HANDLERS)

    async def ask(self, method: str, target: str, at: str = OWN, **request: Any) -> httpx.Response:
        door = httpx.ASGITransport(self._app)
        async with httpx.AsyncClient(transport=door, base_url=at, trust_env=False, verify=False) as client:
            return await client.request(method, target, **request)

    async def link(self, person: dict[str, str] | None = None) -> str:
        made = await self.ask("POST", "/api/links", headers=ADMINS, json=person or ADA)
        assert made.status_code == 201, made.text
        return str(made.json()["url"]).removeprefix(OWN)

    async def cookie(self) -> dict[str, str]:
        """What a browser sends that has signed in by a link."""
        opened = await self.ask("GET", await self.link())
        return {"cookie": f"session={kept(opened)['session']}"}


@pytest.fixture
def desk() -> Desk:
    return Desk()


def kept(answer: httpx.Response) -> dict[str, str]:
    """The cookie that is set: its value as `session`, and its attributes."""
    (written,) = answer.headers.get_list("set-cookie")
    ((name, morsel),) = SimpleCookie(written).items()
    return {name: morsel.value} | {key: value for key, value in morsel.items() if value}


def seconds(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def refused(answer: httpx.Response, status: int, code: str) -> None:
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert set(answer.json()) == {"error", "code"}
    assert "set-cookie" not in answer.headers


# Links


async def test_a_link_signs_its_user_in_for_a_week_and_leads_to_the_page(desk: Desk) -> None:
    opened = await desk.ask("GET", await desk.link())
    assert (opened.status_code, opened.headers["location"], opened.content) == (303, "/", b"")
    assert opened.headers["cache-control"] == "no-store"
    assert opened.headers["referrer-policy"] == "no-referrer"
    cookie = kept(opened)
    token = cookie.pop("session")
    assert cookie == {"httponly": True, "samesite": "Strict", "path": "/", "max-age": "604800", "secure": True}
    claims = jwt.decode(token, JWT_SECRET.get_secret_value(), ["HS256"], options=TIMELESS)
    assert (claims["userId"], claims["email"]) == ("ada", "ada@example.com")
    assert claims["exp"] == START + SIGNED_IN_SECONDS
    me = await desk.ask("GET", "/api/me", headers={"cookie": f"session={token}"})
    assert me.json()["userId"] == "ada"


async def test_a_link_is_good_once(desk: Desk) -> None:
    link = await desk.link()
    assert "set-cookie" in (await desk.ask("GET", link)).headers
    again = await desk.ask("GET", link)
    assert (again.status_code, again.headers["location"]) == (303, "/#signin=over")
    assert "set-cookie" not in again.headers
    assert again.headers["cache-control"] == "no-store"
    assert again.headers["referrer-policy"] == "no-referrer"


async def test_a_link_is_good_for_ten_minutes(desk: Desk) -> None:
    made = (await desk.ask("POST", "/api/links", headers=ADMINS, json=ADA)).json()
    late = await desk.link()
    assert seconds(made["expiresAt"]) == START + 600
    desk.now += 599.9
    assert (await desk.ask("GET", made["url"])).headers["location"] == "/"
    desk.now += 0.1
    assert (await desk.ask("GET", late)).headers["location"] == "/#signin=over"


@pytest.mark.parametrize("query", ["", "?link=", "?link=nobodys", "?link=%00", "?other=1", "?" + "a=1&" * 100])
async def test_what_is_no_link_signs_nobody_in(desk: Desk, query: str) -> None:
    opened = await desk.ask("GET", f"/signin{query}")
    assert (opened.status_code, opened.headers["location"]) == (303, "/#signin=over")
    assert "set-cookie" not in opened.headers


async def test_two_codes_in_one_link_use_up_neither(desk: Desk) -> None:
    link = await desk.link()
    code = link.partition("=")[2]
    assert (await desk.ask("GET", f"{link}&link={code}")).headers["location"] == "/#signin=over"
    assert (await desk.ask("GET", link)).headers["location"] == "/"


async def test_who_has_signed_in_and_opens_the_link_again_lands_on_the_page(desk: Desk) -> None:
    link = await desk.link()
    opened = await desk.ask("GET", link)
    cookie = {"cookie": f"session={kept(opened)['session']}"}
    again = await desk.ask("GET", link, headers=cookie)
    assert (again.status_code, again.headers["location"]) == (303, "/")
    assert "set-cookie" not in again.headers
    desk.now += SIGNED_IN_SECONDS + 31
    assert (await desk.ask("GET", link, headers=cookie)).headers["location"] == "/#signin=over"


@pytest.mark.parametrize("cookie", ["session=x.y.z", f"session={TOKEN}; session={TOKEN}", "session=", "other=1"])
async def test_a_bad_cookie_neither_helps_nor_hinders(desk: Desk, cookie: str) -> None:
    assert (await desk.ask("GET", "/signin?link=x", headers={"cookie": cookie})).headers["location"] == "/#signin=over"
    assert (await desk.ask("GET", await desk.link(), headers={"cookie": cookie})).headers["location"] == "/"


async def test_a_share_in_the_cookie_counts_as_nobody(desk: Desk) -> None:
    share = mint(JWT_SECRET, "ada", "ada@example.com", 3600, now=START, share=("s", ShareKey(1, "x")))
    opened = await desk.ask("GET", "/signin?link=x", headers={"cookie": f"session={share}"})
    assert opened.headers["location"] == "/#signin=over"


async def test_looking_ahead_uses_nothing_up(desk: Desk) -> None:
    link = await desk.link()
    for name, value in (("Sec-Purpose", "prefetch;prerender"), ("X-Purpose", "preview"), ("X-Moz", "prefetch")):
        refused(await desk.ask("GET", link, headers={name: value}), 503, "not_followed")
    assert (await desk.ask("HEAD", link)).status_code == 503
    assert (await desk.ask("GET", link)).headers["location"] == "/"


async def test_on_a_plain_line_the_cookie_is_not_bound_to_https(desk: Desk) -> None:
    opened = await desk.ask("GET", await desk.link(), at="http://holdfast.example")
    assert "secure" not in kept(opened)
    left = await desk.ask("DELETE", "/api/signin", at="http://127.0.0.1", headers={"origin": "http://127.0.0.1"})
    assert "secure" not in kept(left)


async def test_a_link_leads_to_where_the_gateway_was_asked(desk: Desk) -> None:
    made = await desk.ask("POST", "/api/links", at="http://127.0.0.1:8080", headers=ADMINS, json=ADA)
    assert made.json()["url"].startswith("http://127.0.0.1:8080/signin?link=")
    odd = await desk.ask("POST", "/api/links", headers={**ADMINS, "host": ""}, json=ADA)
    assert odd.json()["url"].startswith("http://127.0.0.1:1/signin?link=")


@pytest.mark.parametrize(
    "person",
    [
        {}, {"userId": "ada"}, {"email": "e"}, {"userId": 1, "email": "e"}, {"userId": "", "email": "e"},
        {"userId": "a\n", "email": "e"}, {"userId": "a" * 257, "email": "e"}, {**ADA, "ttl": 1},
        {"userId": "\U0001f600" * 256, "email": "\U0001f600" * 256},
    ],
)  # fmt: skip
async def test_a_link_is_for_somebody_who_can_be_signed_in(desk: Desk, person: Any) -> None:
    answer = await desk.ask("POST", "/api/links", headers=ADMINS, json=person)
    assert answer.status_code == 400, answer.text
    assert len(desk.signin.links) == 0


async def test_only_the_api_token_makes_links_and_not_without_end(desk: Desk) -> None:
    for headers in ({}, await desk.cookie() | FROM_PAGE, {"x-relay-secret": RELAY}):
        assert (await desk.ask("POST", "/api/links", headers=headers, json=ADA)).status_code == 401
    for _ in range(100):
        await desk.link()
    refused(await desk.ask("POST", "/api/links", headers=ADMINS, json=ADA), 429, "too_many_links")
    assert await desk.link({"userId": "bob", "email": "b"})


# A pasted token


async def test_a_pasted_token_becomes_the_cookie_until_its_own_end(desk: Desk) -> None:
    token = mint(JWT_SECRET, "ada", "ada@example.com", 3600, now=START)
    desk.now += 0.5
    answer = await desk.ask("POST", "/api/signin", headers=FROM_PAGE, json={"token": f" {token}\n"})
    assert answer.status_code == 200
    assert answer.json() == {**ADA, "expiresAt": "2027-01-15T09:00:00.000Z"}
    cookie = kept(answer)
    assert cookie.pop("session") == token
    assert cookie == {"httponly": True, "samesite": "Strict", "path": "/", "max-age": "3599", "secure": True}


@pytest.mark.parametrize("method", ["POST", "DELETE"])
@pytest.mark.parametrize("origin", [None, "null", "https://evil.example", "http://holdfast.example"])
async def test_no_other_page_signs_a_browser_in_or_out(desk: Desk, method: str, origin: str | None) -> None:
    """Signed in as somebody else, a person would tell that somebody what is their own."""
    headers = {} if origin is None else {"origin": origin}
    body = {"token": mint(JWT_SECRET, "eva", "e", 3600, now=START)} if method == "POST" else None
    refused(await desk.ask(method, "/api/signin", headers=headers, json=body), 403, "bad_origin")
    refused(await desk.ask(method, "/api/signin", headers={**headers, **ADMINS}, json=body), 403, "bad_origin")


async def test_with_a_list_of_origins_the_list_decides() -> None:
    desk = Desk(allowed=("https://app.example",))
    token = {"token": mint(JWT_SECRET, "ada", "e", 3600, now=START)}
    refused(await desk.ask("POST", "/api/signin", headers=FROM_PAGE, json=token), 403, "bad_origin")
    answer = await desk.ask("POST", "/api/signin", headers={"origin": "https://app.example"}, json=token)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "https://app.example")


async def test_a_share_signs_nobody_in(desk: Desk) -> None:
    share = mint(JWT_SECRET, "ada", "ada@example.com", 3600, now=START, share=("s", ShareKey(1, "x")))
    answer = await desk.ask("POST", "/api/signin", headers=FROM_PAGE, json={"token": share})
    refused(answer, 403, "read_only")
    assert "it cannot sign in" in answer.json()["error"]


def altered(**claims: Any) -> str:
    whole = {"userId": "ada", "email": "e", "exp": START + 60, **claims}
    return jwt.encode(whole, JWT_SECRET.get_secret_value(), "HS256")


@pytest.mark.parametrize(
    ("token", "code"),
    [
        ("", "token_invalid"),
        ("x.y.z", "token_invalid"),
        (ADMIN, "token_invalid"),
        (altered()[:-4] + "AAAA", "token_invalid"),
        (altered(exp=START - 31), "token_expired"),
        (altered(exp=START - 1), "token_expired"),
        (altered(exp=START + 0.5), "token_expired"),
        (altered(email=7), "token_claims"),
        (altered(nbf=START + 100), "token_not_yet_valid"),
        # A verified signature is no proof of what a header may hold: the last of these is one.
        (altered() + "; Path=/elsewhere", "token_invalid"),
        (altered() + "\r\nSet-Cookie: a=b", "token_invalid"),
        (altered() + "=", "token_invalid"),
    ],
)
async def test_a_token_that_is_not_good_signs_nobody_in_and_is_not_repeated(desk: Desk, token: str, code: str) -> None:
    answer = await desk.ask("POST", "/api/signin", headers=FROM_PAGE, json={"token": token})
    refused(answer, 401, code)
    assert not token or token not in answer.text


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"token":1}', b'{"token":"a","token":"b"}', b'{"jwt":"x.y.z"}'])
async def test_a_body_that_cannot_be_read_is_refused(desk: Desk, body: bytes) -> None:
    answer = await desk.ask("POST", "/api/signin", headers=FROM_PAGE, content=body)
    assert answer.status_code == 400
    assert "set-cookie" not in answer.headers


async def test_a_token_that_no_browser_would_keep_is_refused(desk: Desk) -> None:
    token = altered(more="x" * 4000)
    answer = await desk.ask("POST", "/api/signin", headers=FROM_PAGE, json={"token": token})
    refused(answer, 400, "token_too_long")
    assert "4000" in answer.json()["error"]
    longest = altered(more="x" * 2850)
    assert len(longest) < 4000
    assert (await desk.ask("POST", "/api/signin", headers=FROM_PAGE, json={"token": longest})).status_code == 200


# Once signed in


async def test_signing_out_takes_the_cookie_away(desk: Desk) -> None:
    answer = await desk.ask("DELETE", "/api/signin", headers={**FROM_PAGE, **await desk.cookie()})
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["set-cookie"] == "session=; Max-Age=0; Path=/; HttpOnly; SameSite=Strict; Secure"


async def test_me_is_whose_credentials_these_are(desk: Desk) -> None:
    answer = await desk.ask("GET", "/api/me", headers=await desk.cookie())
    ends = "2027-01-22T08:00:00.000Z"
    limits = {"sessions": {"used": 1, "max": 2, "setting": "ada"}}
    about = {"version": "1.2.3", "demo": False, "tokens": True, "limits": limits}
    about["models"] = {"today": shown_spent(Spent()), "budgetUsd": None}
    assert answer.json() == {**ADA, "expiresAt": ends, **about}
    assert answer.headers["cache-control"] == "no-store"


async def test_the_page_gets_a_short_token_for_its_cookie(desk: Desk) -> None:
    cookie = await desk.cookie()
    desk.now += 0.7
    answer = await desk.ask("POST", "/api/token", headers={**cookie, **FROM_PAGE})
    assert answer.status_code == 201
    assert seconds(answer.json()["expiresAt"]) == START + TOKEN_SECONDS
    bearer = {"authorization": f"Bearer {answer.json()['token']}"}
    assert (await desk.ask("GET", "/api/me", headers=bearer)).json()["userId"] == "ada"
    desk.now = START + TOKEN_SECONDS + 30
    assert (await desk.ask("GET", "/api/me", headers=bearer)).json()["code"] == "token_expired"


async def test_no_other_page_gets_a_token(desk: Desk) -> None:
    cookie = await desk.cookie()
    for headers in (cookie, {**cookie, "origin": "https://evil.example"}, {**cookie, "origin": "null"}):
        refused(await desk.ask("POST", "/api/token", headers=headers), 403, "bad_origin")
    refused(
        await desk.ask("POST", "/api/token", headers={**cookie, **FROM_PAGE}, json={"ttl": 9}), 400, "unknown_member"
    )


async def test_a_short_token_cannot_be_renewed_by_itself(desk: Desk) -> None:
    """Whoever finds one would have it for ever."""
    first = (await desk.ask("POST", "/api/token", headers={**await desk.cookie(), **FROM_PAGE})).json()
    bearer = {"authorization": f"Bearer {first['token']}"}
    desk.now += 300
    second = (await desk.ask("POST", "/api/token", headers=bearer)).json()
    assert second["expiresAt"] == first["expiresAt"]
    desk.now += 310  # past its end, within the leeway
    assert (await desk.ask("GET", "/api/me", headers=bearer)).status_code == 200
    refused(await desk.ask("POST", "/api/token", headers=bearer), 401, "token_expired")


async def test_a_guest_is_nobody_here(desk: Desk) -> None:
    share = {"authorization": f"Bearer {mint(JWT_SECRET, 'ada', 'e', 3600, now=START, share=('s', ShareKey(1, 'x')))}"}
    refused(await desk.ask("GET", "/api/me", headers=share), 403, "read_only")
    refused(await desk.ask("POST", "/api/token", headers=share), 403, "read_only")


async def test_a_gateway_that_signs_nothing_says_so() -> None:
    desk = Desk(signs=False)
    token = mint(JWT_SECRET, "ada", "ada@example.com", 3600, now=START)
    signed = await desk.ask("POST", "/api/signin", headers=FROM_PAGE, json={"token": token})
    cookie = {"cookie": f"session={kept(signed)['session']}", **FROM_PAGE}
    assert (await desk.ask("GET", "/api/me", headers=cookie)).json()["tokens"] is False
    refused(await desk.ask("POST", "/api/token", headers=cookie), 501, "no_tokens")
    refused(await desk.ask("POST", "/api/links", headers=ADMINS, json=ADA), 501, "no_tokens")
    assert (await desk.ask("GET", "/signin?link=x")).headers["location"] == "/#signin=over"


async def test_issuer_and_audience_are_in_what_is_signed() -> None:
    signin = SignIn(JWT_SECRET, issuer="me", audience="us", utcnow=lambda: START)
    url, _ = signin.link(Person("ada", "e"), "http://h")
    signed = signin.open(url.partition("=")[2])
    assert signed is not None
    claims = json.loads(json.dumps(jwt.decode(signed.token, options={"verify_signature": False})))
    assert (claims["iss"], claims["aud"]) == ("me", "us")
