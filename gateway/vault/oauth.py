"""Refreshing the tokens of an OAuth grant: builds the request, and reads the answer. Pure.

RFC 6749, section 6. Only the error code of a token endpoint's answer is quoted.
"""

import math
import re
from dataclasses import dataclass
from urllib.parse import urlencode

import orjson

from gateway.vault.credential import LONGEST_KEY, BadCredential, OAuthTokens, read_value

USUAL_SECONDS = 3600  # of a token without a stated end
LONGEST_SECONDS = 366 * 86400
_CODE = re.compile(r"[a-z_]{1,64}", re.ASCII)
_AGAIN = (408, 425, 429)


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """The endpoint where a provider's tokens are refreshed, and the client's identity there. `as_json`: it takes JSON,
    and not a form."""

    token_url: str
    client_id: str
    client_secret: str = ""
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class GrantRefused:
    """The grant is over: only a person can give another one."""

    why: str


@dataclass(frozen=True, slots=True)
class EndpointAway:
    """The endpoint may answer later."""

    why: str


# The public clients of the agents that people sign in with.
CLIENTS = {
    "anthropic": OAuthClient(
        "https://console.anthropic.com/v1/oauth/token", "9d1c250a-e61b-44d9-88ed-5944d1962f5e", as_json=True
    ),
    "openai": OAuthClient("https://auth.openai.com/oauth/token", "app_EMoamEEZ73f0CkXaXp7hrann"),
}


def request_of(client: OAuthClient, refresh: str) -> tuple[str, bytes]:
    """The content type and the body."""
    members = {"grant_type": "refresh_token", "refresh_token": refresh, "client_id": client.client_id}
    if client.client_secret:
        members["client_secret"] = client.client_secret
    if client.as_json:
        return "application/json", orjson.dumps(members)
    return "application/x-www-form-urlencoded", urlencode(members).encode()


def read_answer(status: int, body: bytes, before: OAuthTokens, now: float) -> OAuthTokens | GrantRefused | EndpointAway:
    """Read the endpoint's answer about the tokens `before`. An answer without a new refresh token leaves the old one
    valid."""
    members = _members(body)
    if status in _AGAIN or not 200 <= status < 500 or 300 <= status < 400:
        return EndpointAway(f"it answers {status}")
    if status >= 400:
        code = members.get("error")
        told = f" {code}" if isinstance(code, str) and _CODE.fullmatch(code) else ""
        return GrantRefused(f"it answers {status}{told}")
    access, refresh = members.get("access_token"), members.get("refresh_token")
    if not isinstance(access, str) or not (refresh is None or isinstance(refresh, str)):
        return EndpointAway("its answer has no access token")
    expires = int((now + _lifetime(members.get("expires_in"))) * 1000)
    try:
        read_value("oauth", access=access, refresh=refresh)
    except BadCredential:
        return EndpointAway(f"its tokens are not printable ASCII of at most {LONGEST_KEY} characters")
    return OAuthTokens(access, refresh or before.refresh, expires)


def _members(body: bytes) -> dict[str, object]:
    try:
        members = orjson.loads(body)
    except ValueError:
        return {}
    return members if isinstance(members, dict) else {}


def _lifetime(told: object) -> float:
    try:
        seconds = float(told)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return USUAL_SECONDS
    return USUAL_SECONDS if math.isnan(seconds) else min(max(seconds, 0.0), LONGEST_SECONDS)
