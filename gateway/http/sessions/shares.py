"""A session shown to somebody else: numbered tokens that open this one session, for looking only, until they end or are
taken back."""

import math
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from gateway.auth.shares import LONGEST_LABEL, Share
from gateway.auth.tokens import Principal, TokenError, mint
from gateway.config.settings import SecretStr
from gateway.http.access import looked_at, note_asked, owned, principal
from gateway.http.responses import answer, read_object
from gateway.protocol.errors import ApiError
from gateway.session.actor import SessionActor
from gateway.session.registry import SessionRegistry
from persistence.record import NO_USER
from persistence.record_json import iso

MEMBERS = frozenset({"ttl", "label"})
DEFAULT_SECONDS, LONGEST_SECONDS = 3600, 30 * 86400


class ShareRoutes:
    def __init__(
        self, registry: SessionRegistry, secret: SecretStr | None, *, issuer: str | None, audience: str | None
    ) -> None:
        """Without a `secret` of its own, where tokens are others' to sign, the gateway can share nothing."""
        self._registry = registry
        self._secret = secret
        self._issuer, self._audience = issuer, audience

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/api/sandboxes/{id}/shares", self.create, methods=["POST"]),
            Route("/api/sandboxes/{id}/shares", self.list, methods=["GET"]),
            Route("/api/sandboxes/{id}/shares/{number}", self.take_back, methods=["DELETE"]),
        ]

    async def create(self, request: Request) -> Response:
        """`{ttl, label}`: in seconds, an hour unless given; and a name for the list."""
        actor = await owned(request, self._registry)
        body = await read_object(request, known=MEMBERS)
        ttl, label = body.get("ttl", DEFAULT_SECONDS), body.get("label", "")
        if isinstance(ttl, bool) or not isinstance(ttl, int) or not 1 <= ttl <= LONGEST_SECONDS:
            raise ApiError(400, "bad_member", f"ttl must be a whole number of seconds from 1 to {LONGEST_SECONDS}")
        if not isinstance(label, str) or len(label) > LONGEST_LABEL or not label.isprintable():
            raise ApiError(400, "bad_member", f"label must be a line of at most {LONGEST_LABEL} characters")
        if actor.user_id == NO_USER:
            told = "this session belongs to the services, and no token opens it: create one with a userId to share it"
            raise ApiError(409, "no_owner", told)
        if self._secret is None:
            raise ApiError(501, "no_shares", "this gateway signs no tokens (HOLDFAST_JWT_JWKS_URL is set)")
        note_asked(request, self._registry, actor.user_id, "share", ttl=ttl)
        share, token = await self._share(actor, self._secret, principal(request), ttl, label)
        return answer({"token": token, "sessionId": actor.id, "role": "view", **describe(share)}, 201)

    async def _share(
        self, actor: SessionActor, secret: SecretStr, who: Principal, ttl: int, label: str
    ) -> tuple[Share, str]:
        now = time.time()
        email = who.email if who.kind == "user" else "shared@localhost"
        share = await actor.share(label, now=now, expires_at=math.floor(now) + ttl)
        try:
            return share, mint(
                secret, actor.user_id, email, ttl,
                now=now, issuer=self._issuer, audience=self._audience, share=(actor.id, share.key),
            )  # fmt: skip
        except TokenError as error:
            await actor.guests.take_back(share.number)
            raise ApiError(400, error.code, error.message) from error

    async def list(self, request: Request) -> Response:
        """Those that are live. Their tokens were shown once, and are not kept."""
        session = await looked_at(request, self._registry)
        spec = await self._registry.spec(session.id)
        return answer({"shares": [describe(share) for share in spec.shares.live(time.time())] if spec else []})

    async def take_back(self, request: Request) -> Response:
        """It opens nothing from now on, and whoever is in by it is shown out."""
        actor = await owned(request, self._registry)
        number = request.path_params["number"]
        known = number.isascii() and number.isdecimal() and len(number) < 10
        note_asked(request, self._registry, actor.user_id, "unshare", number=int(number) if known else None)
        share = await actor.guests.take_back(int(number)) if known else None
        if share is None:
            raise ApiError(404, "unknown_share", "there is no such share: it was taken back, or has expired")
        return answer(describe(share))


def describe(share: Share) -> dict[str, Any]:
    return {
        "number": share.number,
        "label": share.label,
        "createdAt": iso(share.created_at),
        "expiresAt": iso(share.expires_at),
    }
