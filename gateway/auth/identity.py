"""From a credential to a Principal: the one place where secrets, tokens and tickets are checked."""

import hashlib
import hmac
import time
from collections.abc import Callable
from enum import Flag, auto

from gateway.auth.credentials import ShownCredential
from gateway.auth.tickets import Tickets
from gateway.auth.tokens import Principal, TokenError, TokenVerifier
from gateway.config.settings import Secrets, SecretStr
from gateway.protocol.errors import ApiError

_STATUS = {"token_too_long": 400}


class Accept(Flag):
    """The kinds of credentials that a route accepts. NOBODY is for routes that need none."""

    NOBODY = 0
    USER = auto()
    ADMIN = auto()
    RELAY = auto()
    INTERNAL = auto()


class Identity:
    """Knows every secret of the gateway, as digests: a comparison takes the same time for every input."""

    def __init__(
        self,
        verifier: TokenVerifier,
        secrets: Secrets,
        tickets: Tickets,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._verifier = verifier
        self._tickets = tickets
        self._monotonic = monotonic
        self._admin = _digest_of(secrets.api_token)
        self._relay = _digest_of(secrets.relay_secret)
        self._internal = _digest_of(secrets.internal_token)

    async def identify(
        self, shown: ShownCredential | None, accept: Accept, *, session_id: str | None, origin: str | None
    ) -> Principal:
        """The principal of these credentials. Raises ApiError 401 (400 for a malformed credential) unless `accept`
        admits it."""
        if shown is None:
            raise ApiError(401, "no_credentials", "credentials are needed here")
        digest = _digest(shown.value)
        if shown.via == "relay":
            if Accept.RELAY in accept and hmac.compare_digest(digest, self._relay):
                return Principal("relay", via="relay")
        elif shown.via == "service":
            if Accept.INTERNAL in accept and hmac.compare_digest(digest, self._internal):
                return Principal("internal", via="service")
        elif shown.via == "ticket":
            if Accept.USER in accept and session_id is not None:
                who = self._tickets.redeem(shown.value, session_id, origin, now=self._monotonic())
                if who is not None:
                    return who
        else:
            if shown.via == "header":
                if Accept.ADMIN in accept and hmac.compare_digest(digest, self._admin):
                    return Principal("admin", via="header")
                if Accept.INTERNAL in accept and hmac.compare_digest(digest, self._internal):
                    return Principal("internal", via="header")
            if Accept.USER in accept:
                return await self._user(shown)
        raise ApiError(401, "bad_credentials", "these credentials are not accepted here")

    async def _user(self, shown: ShownCredential) -> Principal:
        try:
            return await self._verifier.verify(shown.value, via=shown.via)
        except TokenError as exc:
            raise ApiError(_STATUS.get(exc.code, 401), exc.code, exc.message) from None


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="replace")).digest()


def _digest_of(secret: SecretStr) -> bytes:
    return _digest(secret.get_secret_value())
