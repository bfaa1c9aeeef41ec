"""Shares of a session: numbered tokens that open this one session, read-only, until they expire or are taken back."""

import math
import time
from typing import Annotated, Literal

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from gateway.auth.policy import LIFECYCLE_SESSION
from gateway.auth.shares import LONGEST_LABEL, Share
from gateway.auth.tokens import Principal, TokenError, mint
from gateway.config.settings import SecretStr
from gateway.http.access import looked_at, note_asked, owned, principal
from gateway.http.responses import answer, read_body
from gateway.http.sessions.answers import ListedShare
from gateway.protocol.errors import ApiError
from gateway.routing.bodies import bad_member
from gateway.routing.json_types import JsonAnswer, JsonBody, Number, SessionId, Time, meaning, must
from gateway.routing.route import route
from gateway.session.actor import SessionActor
from gateway.session.catalogue import Catalogue
from gateway.session.registry import SessionRegistry
from persistence.record import NO_USER
from persistence.record_json import iso

SHARES = "/api/sandboxes/{id}/shares"
DEFAULT_SECONDS, LONGEST_SECONDS = 3600, 30 * 86400
A_LABEL = f"a line of at most {LONGEST_LABEL} characters"


class ShareWishBody(JsonBody):
    ttl: Annotated[
        int, Meta(ge=1, le=LONGEST_SECONDS), must(f"a whole number of seconds from 1 to {LONGEST_SECONDS}")
    ] = DEFAULT_SECONDS
    label: Annotated[str, Meta(max_length=LONGEST_LABEL), meaning("a name for the list"), must(A_LABEL)] = ""


class ShareJson(JsonAnswer):
    token: Annotated[str, meaning("a JWT")]
    session_id: SessionId
    role: Literal["view"]
    number: Annotated[Number, meaning("of the session's own; never given twice")]
    label: str
    created_at: Time
    expires_at: Time


class SharesJson(JsonAnswer):
    shares: list[ListedShare]


class ShareRoutes:
    def __init__(
        self,
        registry: SessionRegistry,
        catalogue: Catalogue,
        secret: SecretStr | None,
        *,
        issuer: str | None,
        audience: str | None,
    ) -> None:
        """Without a `secret` of its own (tokens come from another issuer) the gateway cannot create shares."""
        self._registry = registry
        self._catalogue = catalogue
        self._secret = secret
        self._issuer, self._audience = issuer, audience

    @route(
        "POST", SHARES, LIFECYCLE_SESSION, "shareSession", "A token to look at this one session",
        body=ShareWishBody, answers={201: ShareJson}, refusals=(400, 404, 409, 413, 501, 503),
    )  # fmt: skip
    async def create(self, request: Request) -> Response:
        """`{ttl, label}`: in seconds, an hour by default; and a name for the list."""
        actor = await owned(request, self._registry)
        wish = await read_body(request, ShareWishBody)
        if not wish.label.isprintable():
            raise bad_member("label", A_LABEL)
        if actor.user_id == NO_USER:
            told = "this session belongs to the services, and no token opens it: create one with a userId to share it"
            raise ApiError(409, "no_owner", told)
        if self._secret is None:
            raise ApiError(501, "no_shares", "this gateway signs no tokens (HOLDFAST_JWT_JWKS_URL is set)")
        note_asked(request, self._catalogue, actor.user_id, "share", ttl=wish.ttl)
        share, token = await self._share(actor, self._secret, principal(request), wish)
        begins, ends = iso(share.created_at), iso(share.expires_at)
        return answer(ShareJson(token, actor.id, "view", share.number, share.label, begins, ends), 201)

    async def _share(
        self, actor: SessionActor, secret: SecretStr, who: Principal, wish: ShareWishBody
    ) -> tuple[Share, str]:
        now = time.time()
        email = who.email if who.kind == "user" else "shared@localhost"
        share = await actor.sharing.add(wish.label, now=now, expires_at=math.floor(now) + wish.ttl)
        try:
            return share, mint(
                secret, actor.user_id, email, wish.ttl,
                now=now, issuer=self._issuer, audience=self._audience, share=(actor.id, share.key),
            )  # fmt: skip
        except TokenError as error:
            await actor.sharing.take_back(share.number)
            raise ApiError(400, error.code, error.message) from error

    @route(
        "GET", SHARES, LIFECYCLE_SESSION, "listShares", "The session's live shares, without their tokens",
        answers={200: SharesJson}, refusals=(404, 503),
    )  # fmt: skip
    async def list(self, request: Request) -> Response:
        """The live shares. Their tokens were shown once, and are not stored."""
        session = await looked_at(request, self._catalogue)
        spec = await self._catalogue.spec(session.id)
        return answer(SharesJson([listed(share) for share in spec.shares.live(time.time())] if spec else []))

    @route(
        "DELETE", SHARES + "/{number}", LIFECYCLE_SESSION, "takeShareBack",
        "Revoke a share, and close the sockets that came by it", answers={200: ListedShare}, refusals=(404, 503),
    )  # fmt: skip
    async def take_back(self, request: Request) -> Response:
        """The share opens nothing from now on, and guests who came by it are disconnected."""
        actor = await owned(request, self._registry)
        number = request.path_params["number"]
        known = number.isascii() and number.isdecimal() and len(number) < 10
        note_asked(request, self._catalogue, actor.user_id, "unshare", number=int(number) if known else None)
        share = await actor.sharing.take_back(int(number)) if known else None
        if share is None:
            raise ApiError(404, "unknown_share", "there is no such share: it was revoked, or has expired")
        return answer(listed(share))


def listed(share: Share) -> ListedShare:
    return ListedShare(share.number, share.label, iso(share.created_at), iso(share.expires_at))
