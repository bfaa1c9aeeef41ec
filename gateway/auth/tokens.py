"""JWTs: verified before any claim in them is believed; one algorithm per key, fixed by the key.

PyJWT checks the signature. `principal_of`, which is pure, checks the claims.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import jwt
import orjson

from gateway.auth.shares import ShareKey
from gateway.config.settings import SecretStr

LEEWAY_SECONDS = 30.0
LONGEST_TOKEN = 8 * 1024
LONGEST_LIFE_SECONDS = 366 * 86400.0
LONGEST_NAME = 256

Kind = Literal["user", "admin", "relay", "internal"]
Role = Literal["drive", "view"]
SCOPE = "holdfast"  # the claim of a token for one session: {"session": id, "role": "view", "share": n, "stamp": text}
SHARE_ENDED = "this share has ended: it was taken back, or its session is gone; ask its owner for another"
SHARE_UNNUMBERED = "this share is an older version's, which could not be taken back: ask its owner for another"


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller of a request. Only a `user` has an id, an email and an end; `via` is the kind of credential. One with
    a `session_id` may use that session only, and one whose `role` is `view` may only read."""

    kind: Kind
    user_id: str = ""
    email: str = ""
    expires_at: float = math.inf  # seconds since 1970; a connection may outlive it by LEEWAY_SECONDS
    via: str = ""
    session_id: str = ""
    role: Role = "drive"
    share: ShareKey | None = None  # the share by which it was admitted

    @property
    def counted_as(self) -> str:
        """The name under which its connections and tickets are counted: a user's guests count separately, so that they
        do not lock the owner out."""
        return f"{self.session_id} of {self.user_id}" if self.session_id else self.user_id

    @property
    def spends_as(self) -> str:
        """The name under which its time, memory and requests are counted: all guests of one user share one budget, in
        however many sessions, beside the user's own."""
        return f"guests of {self.user_id}" if self.session_id else self.user_id


class TokenError(Exception):
    """The token is not accepted. `code` is for programs, the message for people; neither quotes the token."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class VerifyKey:
    """A key and the one algorithm it may be used with."""

    algorithm: str
    key: Any


class KeySource(Protocol):
    async def find(self, key_id: str | None) -> VerifyKey | None:
        """The key of that id, or the only one if the token names none; None if there is no such key."""


class SharedSecret:
    """The one HS256 key of a gateway that signs its own tokens. `kid` is ignored."""

    def __init__(self, secret: SecretStr) -> None:
        key = secret.get_secret_value().encode()
        if len(key) < 32:
            raise ValueError("an HS256 secret has at least 32 bytes")
        self._key = VerifyKey("HS256", key)

    async def find(self, key_id: str | None) -> VerifyKey | None:
        return self._key


class TokenVerifier:
    """Turns a token into a Principal, or raises TokenError."""

    def __init__(
        self,
        keys: KeySource,
        *,
        issuer: str | None = None,
        audience: str | None = None,
        utcnow: Callable[[], float] = time.time,
    ) -> None:
        self._keys = keys
        self._issuer = issuer
        self._audience = audience
        self._utcnow = utcnow
        self._jws = jwt.PyJWS(algorithms=["HS256", "RS256", "ES256", "EdDSA"])

    async def verify(self, token: str, *, via: str = "") -> Principal:
        header = self._header(token)
        key = await self._keys.find(header.get("kid"))
        if key is None:
            raise TokenError("token_key", "the token is signed with an unknown key")
        if header.get("alg") != key.algorithm:
            raise TokenError("token_algorithm", "the token is signed with another algorithm than its key's")
        try:
            payload = self._jws.decode(token, key.key, algorithms=[key.algorithm])
            claims = orjson.loads(payload)
        except (jwt.PyJWTError, ValueError):
            raise TokenError("token_invalid", "the token's signature or form is not valid") from None
        return principal_of(claims, self._utcnow(), issuer=self._issuer, audience=self._audience, via=via)

    def _header(self, token: str) -> dict[str, Any]:
        """Only for finding the key; nothing in it is believed."""
        if len(token) > LONGEST_TOKEN:
            raise TokenError("token_too_long", f"a token has at most {LONGEST_TOKEN} bytes")
        if not token.isascii() or token.count(".") != 2:
            raise TokenError("token_invalid", "this is no token")
        try:
            header = self._jws.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError):
            raise TokenError("token_invalid", "this is no token") from None
        if "crit" in header or "b64" in header:
            raise TokenError("token_invalid", "the token uses an extension that is not spoken here")
        return header


def principal_of(
    claims: Any, now: float, *, issuer: str | None = None, audience: str | None = None, via: str = ""
) -> Principal:
    """The principal of verified claims. Raises TokenError unless they are complete, current and meant for us."""
    if not isinstance(claims, dict):
        raise TokenError("token_invalid", "the token has no claims")
    expires_at = _moment(claims, "exp")
    if expires_at is None:
        raise TokenError("token_claims", "the token has no exp")
    if now >= expires_at + LEEWAY_SECONDS:
        raise TokenError("token_expired", "the token has expired")
    if expires_at > now + LONGEST_LIFE_SECONDS:
        raise TokenError("token_claims", "the token lives too long: exp is more than a year away")
    for name in ("nbf", "iat"):
        moment = _moment(claims, name)
        if moment is not None and moment > now + LEEWAY_SECONDS:
            raise TokenError("token_not_yet_valid", f"the token is not valid yet: {name} is in the future")
    if issuer is not None and claims.get("iss") != issuer:
        raise TokenError("token_claims", "the token comes from another issuer")
    if audience is not None and not _is_for(claims.get("aud"), audience):
        raise TokenError("token_claims", "the token is meant for another audience")
    session_id, role, share = _scope(claims)
    return Principal("user", _name(claims, "userId"), _name(claims, "email"), expires_at, via, session_id, role, share)


def _scope(claims: dict[str, Any]) -> tuple[str, Role, ShareKey | None]:
    """The scope of the token. A malformed scope is refused, never treated as a wider one."""
    scope = claims.get(SCOPE)
    if scope is None:
        return "", "drive", None
    session_id, role = (scope.get("session"), scope.get("role")) if isinstance(scope, dict) else (None, None)
    if not isinstance(session_id, str) or not session_id or role != "view":
        raise TokenError("token_claims", f"the token's {SCOPE} must name a session and the role view")
    number, stamp = scope.get("share"), scope.get("stamp")
    if number is None and stamp is None:
        raise TokenError("share_ended", SHARE_UNNUMBERED)
    if isinstance(number, bool) or not isinstance(number, int) or not isinstance(stamp, str):
        raise TokenError("token_claims", f"the token's {SCOPE} must have the share's number and stamp")
    return session_id, "view", ShareKey(number, stamp)


def _moment(claims: dict[str, Any], name: str) -> float | None:
    if name not in claims:
        return None
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        raise TokenError("token_claims", f"the token's {name} is no time")
    return float(value)


def _is_for(claimed: Any, audience: str) -> bool:
    return claimed == audience if isinstance(claimed, str) else isinstance(claimed, list) and audience in claimed


def _name(claims: dict[str, Any], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not 1 <= len(value) <= LONGEST_NAME or not value.isprintable():
        raise TokenError("token_claims", f"the token's {name} must be a text of 1 to {LONGEST_NAME} characters")
    return value


def mint(
    secret: SecretStr,
    user_id: str,
    email: str,
    ttl: float,
    *,
    now: float | None = None,
    issuer: str | None = None,
    audience: str | None = None,
    share: tuple[str, ShareKey] | None = None,
) -> str:
    """A token for `user_id`, signed with the shared secret, as this gateway accepts it. With `share` it opens only that
    session, read-only, and only while that share is listed. Raises TokenError."""
    begin = math.floor(time.time() if now is None else now)
    claims: dict[str, Any] = {"userId": user_id, "email": email, "iat": begin, "exp": math.ceil(begin + ttl)}
    claims |= {"iss": issuer} if issuer else {}
    claims |= {"aud": audience} if audience else {}
    if share is not None:
        session_id, key = share
        claims[SCOPE] = {"session": session_id, "role": "view", "share": key.number, "stamp": key.stamp}
    principal_of(claims, begin, issuer=issuer, audience=audience)
    return jwt.encode(claims, secret.get_secret_value(), "HS256")
