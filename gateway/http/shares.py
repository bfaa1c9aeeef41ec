"""A session shown to somebody else: a token that opens this one session, for looking only."""

import time

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from gateway.auth.tokens import TokenError, mint
from gateway.errors import ApiError
from gateway.http.ownership import owned, principal
from gateway.http.replies import answer, read_object
from gateway.registry import SessionRegistry
from gateway.settings import SecretStr
from persistence.reading import iso

MEMBERS = frozenset({"ttl"})
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
        return [Route("/api/sandboxes/{id}/shares", self.create, methods=["POST"])]

    async def create(self, request: Request) -> Response:
        """`{ttl}` in seconds, an hour unless given. There is no way to take a share back but to wait for its end."""
        actor = await owned(request, self._registry)
        ttl = (await read_object(request, known=MEMBERS)).get("ttl", DEFAULT_SECONDS)
        if isinstance(ttl, bool) or not isinstance(ttl, int) or not 1 <= ttl <= LONGEST_SECONDS:
            raise ApiError(400, "bad_member", f"ttl must be a whole number of seconds from 1 to {LONGEST_SECONDS}")
        if self._secret is None:
            raise ApiError(501, "no_shares", "this gateway signs no tokens (HOLDFAST_JWT_JWKS_URL is set)")
        who = principal(request)
        email = who.email if who.kind == "user" else "shared@localhost"
        try:
            token = mint(
                self._secret, actor.user_id, email, ttl, issuer=self._issuer, audience=self._audience, share=actor.id
            )
        except TokenError as error:
            raise ApiError(400, error.code, error.message) from error
        shared = {"token": token, "sessionId": actor.id, "role": "view", "expiresAt": iso(time.time() + ttl)}
        return answer(shared, 201)
