"""Sign-in: makes and opens links, and signs the tokens for people and for the page."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from gateway.auth.cookie import LONGEST
from gateway.auth.links import LINK_SECONDS, Links, Person
from gateway.auth.tokens import TokenError, mint
from gateway.config.settings import SecretStr
from gateway.protocol.errors import ApiError

SIGNED_IN_SECONDS = 7 * 86_400
TOKEN_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Signed:
    token: str
    expires_at: float  # seconds since 1970


class SignIn:
    """Without a `secret` (tokens come from another issuer, by JWKS) it makes no link and signs nothing."""

    def __init__(
        self,
        secret: SecretStr | None,
        *,
        issuer: str | None = None,
        audience: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        utcnow: Callable[[], float] = time.time,
    ) -> None:
        self._secret = secret
        self._issuer, self._audience = issuer, audience
        self._monotonic, self._utcnow = monotonic, utcnow
        self.links = Links()

    @property
    def signs(self) -> bool:
        return self._secret is not None

    def link(self, person: Person, origin: str) -> tuple[str, float]:
        """An address below `origin` that signs this person in, once, and the time when it expires. Raises ApiError."""
        self._for_browser(person)  # refuses now a person whose token could not be signed later
        code = self.links.issue(person, now=self._monotonic())
        if code is None:
            raise ApiError(429, "too_many_links", "too many unused links; use one, or wait until one is over")
        return f"{origin}/signin?link={code}", self._utcnow() + LINK_SECONDS

    def open(self, code: str) -> Signed | None:
        """The token for the link's person; None if the link is unknown, used or expired."""
        person = self.links.redeem(code, now=self._monotonic())
        return None if person is None else self._for_browser(person)

    def short(self, person: Person, until: float) -> Signed:
        """A token for ten minutes, and never longer than `until`: a token made with another one ends no later than that
        one, so a stolen token cannot be renewed for ever. Raises ApiError."""
        now = math.floor(self._utcnow())
        seconds = min(TOKEN_SECONDS, math.floor(min(until, now + TOKEN_SECONDS)) - now)
        if seconds <= 0:
            raise ApiError(401, "token_expired", "this token has just expired")
        return self._sign(person, seconds)

    def _for_browser(self, person: Person) -> Signed:
        signed = self._sign(person, SIGNED_IN_SECONDS)
        if len(signed.token) > LONGEST:
            raise ApiError(400, "token_too_long", "userId and email are too long for a browser's cookie")
        return signed

    def _sign(self, person: Person, seconds: int) -> Signed:
        if self._secret is None:
            raise ApiError(501, "no_tokens", "this gateway signs no tokens (HOLDFAST_JWT_JWKS_URL is set)")
        now = math.floor(self._utcnow())
        try:
            token = mint(
                self._secret, person.user_id, person.email, seconds,
                now=now, issuer=self._issuer, audience=self._audience,
            )  # fmt: skip
        except TokenError as error:
            raise ApiError(400, error.code, error.message) from error
        return Signed(token, now + seconds)
