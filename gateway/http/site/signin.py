"""Signing in: a one-time link or a pasted token becomes the `session` cookie. The page asks for its user, and for short
tokens for its sockets.
"""

import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

from starlette.requests import Request
from starlette.responses import Response

from gateway.auth.cookie import LONGEST, can_be_kept, forgotten, kept
from gateway.auth.credentials import session_cookie
from gateway.auth.links import Person
from gateway.auth.origin import own_origin
from gateway.auth.policy import ADMINS, OWN_PAGE, PUBLIC, SIGNED_IN
from gateway.auth.signin import SIGNED_IN_SECONDS, SignIn
from gateway.auth.tokens import Principal, TokenError, TokenVerifier
from gateway.egress.budget import Spent
from gateway.egress.spent_json import shown_spent
from gateway.http.access import principal
from gateway.http.responses import UNCACHED, answer, read_body
from gateway.http.sessions.answers import ModelsJson, Network
from gateway.protocol.errors import ApiError
from gateway.routing.json_types import JsonAnswer, JsonBody, Nothing, Time, Whole, meaning, must, schema
from gateway.routing.parameters import Parameter
from gateway.routing.route import route
from persistence.record_json import iso

_AHEAD = ("sec-purpose", "purpose", "x-purpose", "x-moz")  # sent only with requests that a browser makes by itself
_UNTOLD = {**UNCACHED, "Referrer-Policy": "no-referrer"}

_PASTED_BYTES = 16 << 10  # any client may send it
CODE = Parameter("link", {"type": "string", "description": "the code; good once, for ten minutes"})
GIVEN = "given, as a text"


class Pasted(JsonBody):
    token: Annotated[str, schema(maxLength=LONGEST), meaning("a JWT"), must("a JWT")]


class PersonBody(JsonBody):
    user_id: Annotated[str, schema(maxLength=256), must(GIVEN)]
    email: Annotated[str, schema(maxLength=256), must(GIVEN)]


class SignedIn(JsonAnswer):
    user_id: str
    email: str
    expires_at: Time


class Limit(JsonAnswer):
    used: Whole | None
    max: Whole
    setting: str


class LimitsOfUser(JsonAnswer):
    sessions: Limit
    running: Limit
    stored: Limit
    requests: Limit
    agent_records: Limit


class ModelsOfUser(JsonAnswer):
    """Of all sessions of the user at this gateway."""

    today: Annotated[ModelsJson, meaning("since 00:00 UTC")]
    budget_usd: Annotated[float | None, meaning("HOLDFAST_BUDGET_PER_USER; null: no limit")]


class Networks(JsonAnswer):
    default: Network
    max: Network


class Me(SignedIn):
    version: Annotated[str, meaning("of the gateway")]
    demo: Annotated[bool, meaning("whether sessions can be tormented for show")]
    tokens: Annotated[bool, meaning("whether `POST /api/token` signs any here")]
    network: Networks
    limits: LimitsOfUser
    models: ModelsOfUser


class TokenJson(JsonAnswer):
    token: Annotated[str, meaning("a JWT")]
    expires_at: Time


class LinkJson(JsonAnswer):
    url: Annotated[str, schema(format="uri")]
    expires_at: Time


def _no_models(user_id: str) -> dict[str, Any]:
    return {"today": shown_spent(Spent()), "budgetUsd": None}


class SigninRoutes:
    """The policy has checked the Origin of requests that change the cookie. `address` is where the gateway listens;
    `about` are the gateway's members of `/api/me`, `limits` those of a user's limits and use."""

    def __init__(
        self,
        signin: SignIn,
        verifier: TokenVerifier,
        address: Callable[[], str],
        about: Mapping[str, Any],
        limits: Callable[[str], Awaitable[Mapping[str, Any]]],
        *,
        models: Callable[[str], Mapping[str, Any]] = _no_models,
        utcnow: Callable[[], float] = time.time,
    ) -> None:
        self._signin = signin
        self._verifier = verifier
        self._address = address
        self._about = about
        self._limits = limits
        self._models = models
        self._utcnow = utcnow

    @route(
        "GET", "/signin", PUBLIC, "openLink",
        "Sign in by a one-time link: on to the page with the cookie `session`, or to `/#signin=over`",
        answers={303: None}, parameters=(CODE,), refusals=(503,),
    )  # fmt: skip
    async def open(self, request: Request) -> Response:
        """Redirect to the page, signed in. If the link has expired, the page says so, unless its visitor is signed
        in."""
        if request.method == "HEAD" or any(name in request.headers for name in _AHEAD):
            raise ApiError(503, "not_followed", "a link is used up by following it, not by looking ahead")
        codes = request.query_params.getlist("link")
        signed = self._signin.open(codes[0]) if len(codes) == 1 else None
        if signed is not None:
            return _on("/", kept(signed.token, SIGNED_IN_SECONDS, secure=_secure(request)))
        return _on("/" if await self._is_signed_in(request) else "/#signin=over")

    @route(
        "POST", "/api/signin", OWN_PAGE, "signIn", "A pasted JWT becomes the cookie `session`, until its own end",
        body=Pasted, answers={200: SignedIn}, refusals=(400, 401, 403, 413),
    )  # fmt: skip
    async def paste(self, request: Request) -> Response:
        token = (await read_body(request, Pasted, most=_PASTED_BYTES)).token.strip()  # people paste
        if len(token) > LONGEST:
            raise ApiError(400, "token_too_long", f"a browser keeps tokens of at most {LONGEST} bytes")
        try:
            who = await self._verifier.verify(token, via="cookie")
        except TokenError as error:
            raise ApiError(401, error.code, error.message) from None
        if not can_be_kept(token):
            raise ApiError(401, "token_invalid", "this is no token")
        if who.session_id:
            raise ApiError(403, "read_only", "this token is a share, for looking at one session: it cannot sign in")
        seconds = math.floor(who.expires_at - self._utcnow())
        if seconds <= 0:
            raise ApiError(401, "token_expired", "the token has expired")
        return answer(_described(who), headers={"Set-Cookie": kept(token, seconds, secure=_secure(request))})

    @route(
        "DELETE", "/api/signin", OWN_PAGE, "signOut", "Sign out: the cookie goes", answers={204: None}, refusals=(403,)
    )
    async def leave(self, request: Request) -> Response:
        """The browser forgets its token; the token itself stays valid until it expires."""
        return Response(status_code=204, headers={**UNCACHED, "Set-Cookie": forgotten(secure=_secure(request))})

    @route("GET", "/api/me", SIGNED_IN, "me", "Whose credentials these are, and what is on offer", answers={200: Me})
    async def me(self, request: Request) -> Response:
        who = principal(request)
        limits = await self._limits(who.user_id)
        return answer(
            {
                **_described(who),
                **self._about,
                "tokens": self._signin.signs,
                "limits": limits,
                "models": self._models(who.user_id),
            }
        )

    @route(
        "POST", "/api/token", SIGNED_IN, "shortToken",
        "A JWT for ten minutes, and no longer than the credential it was asked with",
        body=Nothing, answers={201: TokenJson}, refusals=(400, 413, 501),
    )  # fmt: skip
    async def token(self, request: Request) -> Response:
        who = principal(request)
        await read_body(request, Nothing)
        signed = self._signin.short(Person(who.user_id, who.email), who.expires_at)
        return answer(TokenJson(signed.token, iso(signed.expires_at)), 201)

    @route(
        "POST", "/api/links", ADMINS, "makeLink", "A one-time link that signs a user in",
        body=PersonBody, answers={201: LinkJson}, refusals=(400, 413, 429, 501),
    )  # fmt: skip
    async def link(self, request: Request) -> Response:
        """The link begins with the address of this request, by which the gateway can certainly be reached."""
        whom = await read_body(request, PersonBody)
        url, ends_at = self._signin.link(Person(whom.user_id, whom.email), own_origin(request.scope) or self._address())
        return answer(LinkJson(url, iso(ends_at)), 201)

    async def _is_signed_in(self, request: Request) -> bool:
        cookie = session_cookie(request.scope)
        try:
            return cookie is not None and not (await self._verifier.verify(cookie)).session_id
        except TokenError:
            return False


def _described(who: Principal) -> dict[str, Any]:
    return {"userId": who.user_id, "email": who.email, "expiresAt": iso(who.expires_at)}


def _on(location: str, cookie: str | None = None) -> Response:
    """303 See Other: so neither the browser's history, nor its next Referer, nor the page's own address contains the
    link."""
    told = {"Location": location, **({"Set-Cookie": cookie} if cookie else {})}
    return Response(status_code=303, headers={**_UNTOLD, **told})


def _secure(request: Request) -> bool:
    """True if the browser came by https, to us or to a trusted proxy."""
    return bool(request.scope["scheme"] == "https")
