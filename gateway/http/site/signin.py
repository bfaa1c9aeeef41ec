"""Signing in: a one-time link or a pasted token becomes the `session` cookie. The page asks whose it is, and for short
tokens to give to its sockets.
"""

import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from gateway.auth.cookie import LONGEST, can_be_kept, forgotten, kept
from gateway.auth.credentials import session_cookie
from gateway.auth.links import Person
from gateway.auth.origin import own_origin
from gateway.auth.signin import SIGNED_IN_SECONDS, SignIn
from gateway.auth.tokens import Principal, TokenError, TokenVerifier
from gateway.http.access import principal
from gateway.http.responses import UNCACHED, answer, read_object
from gateway.protocol.errors import ApiError
from persistence.record_json import iso

TOKEN, PERSON, NOTHING = frozenset({"token"}), frozenset({"userId", "email"}), frozenset[str]()
_AHEAD = ("sec-purpose", "purpose", "x-purpose", "x-moz")  # sent with what nobody has asked to see yet, and only then
_UNTOLD = {**UNCACHED, "Referrer-Policy": "no-referrer"}

_PASTED_BYTES = 16 << 10  # anybody may send it


class SigninRoutes:
    """The policy has checked the Origin of what changes the cookie. `address` is where the gateway listens; `about` is
    what `/api/me` tells of the gateway, `limits` what it tells of a user's use of it."""

    def __init__(
        self,
        signin: SignIn,
        verifier: TokenVerifier,
        address: Callable[[], str],
        about: Mapping[str, Any],
        limits: Callable[[str], Awaitable[Mapping[str, Any]]],
        *,
        utcnow: Callable[[], float] = time.time,
    ) -> None:
        self._signin = signin
        self._verifier = verifier
        self._address = address
        self._about = about
        self._limits = limits
        self._utcnow = utcnow

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/signin", self.open, methods=["GET"]),
            Route("/api/signin", self.paste, methods=["POST"]),
            Route("/api/signin", self.leave, methods=["DELETE"]),
            Route("/api/me", self.me, methods=["GET"]),
            Route("/api/token", self.token, methods=["POST"]),
            Route("/api/links", self.link, methods=["POST"]),
        ]

    async def open(self, request: Request) -> Response:
        """On to the page, signed in. With a link that is over, the page says so, unless its visitor is signed in."""
        if request.method == "HEAD" or any(name in request.headers for name in _AHEAD):
            raise ApiError(503, "not_followed", "a link is used up by following it, not by looking ahead")
        codes = request.query_params.getlist("link")
        signed = self._signin.open(codes[0]) if len(codes) == 1 else None
        if signed is not None:
            return _on("/", kept(signed.token, SIGNED_IN_SECONDS, secure=_secure(request)))
        return _on("/" if await self._is_signed_in(request) else "/#signin=over")

    async def paste(self, request: Request) -> Response:
        token = (await read_object(request, known=TOKEN, most=_PASTED_BYTES)).get("token")
        if not isinstance(token, str):
            raise ApiError(400, "bad_member", "token must be a JWT")
        token = token.strip()  # people paste
        if len(token) > LONGEST:
            raise ApiError(400, "token_too_long", f"a browser keeps tokens of at most {LONGEST} bytes")
        try:
            who = await self._verifier.verify(token, via="cookie")
        except TokenError as error:
            raise ApiError(401, error.code, error.message) from None
        if not can_be_kept(token):
            raise ApiError(401, "token_invalid", "this is no token")
        if who.session_id:
            raise ApiError(403, "read_only", "this token is for looking at one session: it signs nobody in")
        seconds = math.floor(who.expires_at - self._utcnow())
        if seconds <= 0:
            raise ApiError(401, "token_expired", "the token has expired")
        return answer(_described(who), headers={"Set-Cookie": kept(token, seconds, secure=_secure(request))})

    async def leave(self, request: Request) -> Response:
        """The browser forgets its token; the token itself is good until its end."""
        return Response(status_code=204, headers={**UNCACHED, "Set-Cookie": forgotten(secure=_secure(request))})

    async def me(self, request: Request) -> Response:
        who = principal(request)
        limits = await self._limits(who.user_id)
        return answer({**_described(who), **self._about, "tokens": self._signin.signs, "limits": limits})

    async def token(self, request: Request) -> Response:
        who = principal(request)
        await read_object(request, known=NOTHING)
        signed = self._signin.short(Person(who.user_id, who.email), who.expires_at)
        return answer({"token": signed.token, "expiresAt": iso(signed.expires_at)}, 201)

    async def link(self, request: Request) -> Response:
        """Below the address by which the gateway was asked: that is one by which it can be reached."""
        wish = await read_object(request, known=PERSON)
        user_id, email = wish.get("userId"), wish.get("email")
        if not isinstance(user_id, str) or not isinstance(email, str):
            raise ApiError(400, "bad_member", "userId and email must be given, as texts")
        url, ends_at = self._signin.link(Person(user_id, email), own_origin(request.scope) or self._address())
        return answer({"url": url, "expiresAt": iso(ends_at)}, 201)

    async def _is_signed_in(self, request: Request) -> bool:
        cookie = session_cookie(request.scope)
        try:
            return cookie is not None and not (await self._verifier.verify(cookie)).session_id
        except TokenError:
            return False


def _described(who: Principal) -> dict[str, Any]:
    return {"userId": who.user_id, "email": who.email, "expiresAt": iso(who.expires_at)}


def _on(location: str, cookie: str | None = None) -> Response:
    """See other: the browser's history, its next Referer and the page's own address hold nothing of the link."""
    told = {"Location": location, **({"Set-Cookie": cookie} if cookie else {})}
    return Response(status_code=303, headers={**_UNTOLD, **told})


def _secure(request: Request) -> bool:
    """Whether the browser came by https, to us or to a proxy that we trust."""
    return bool(request.scope["scheme"] == "https")
