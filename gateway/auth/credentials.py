"""The credentials of a request. Pure: finds them, checks none.

Where a request shows several, one decides and the others are ignored, so a good one never rescues a bad one: first the
services' own headers, then `Authorization`, then `Sec-WebSocket-Protocol` (`token.<JWT>`), then `ticket` and `token` of
the query, and last the `session` cookie, which a browser adds without its user's intent. The same kind shown twice is
refused: two readers could disagree on which one counts.
"""

from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import parse_qsl

from gateway.auth.cookie import COOKIE
from gateway.protocol.errors import ApiError

TOKEN_PROTOCOL = "token."
Via = Literal["header", "protocol", "ticket", "query", "cookie", "relay", "service"]


@dataclass(frozen=True, slots=True)
class ShownCredential:
    via: Via
    value: str


def find_credential(
    scope: MutableMapping[str, Any], query: list[tuple[str, str]], *, query_tokens: bool
) -> ShownCredential | None:
    """The one credential that decides, or None. Raises ApiError for one that is shown twice or is malformed."""
    headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
    shown: dict[bytes, list[str]] = {}
    for name, value in headers:
        if name in (b"authorization", b"cookie", b"x-relay-secret", b"x-service-token"):
            shown.setdefault(name, []).append(value.decode("latin-1"))
    if relay := _once(shown.get(b"x-relay-secret", []), "X-Relay-Secret"):
        return ShownCredential("relay", relay)
    if service := _once(shown.get(b"x-service-token", []), "X-Service-Token"):
        return ShownCredential("service", service)
    if bearer := _once(shown.get(b"authorization", []), "Authorization"):
        return ShownCredential("header", _bearer(bearer))
    if scope["type"] == "websocket":
        protocols = [p[len(TOKEN_PROTOCOL) :] for p in scope["subprotocols"] if p.startswith(TOKEN_PROTOCOL)]
        if token := _once(protocols, "the token sub-protocol"):
            return ShownCredential("protocol", token)
        if ticket := _once([value for name, value in query if name == "ticket"], "ticket"):
            return ShownCredential("ticket", ticket)
    if token := _once([value for name, value in query if name == "token"], "token"):
        if not query_tokens:
            raise ApiError(401, "query_token", "tokens in the URL are turned off here; use a ticket or a header")
        return ShownCredential("query", token)
    if cookie := _once(list(_session_cookies(shown.get(b"cookie", []))), "the session cookie"):
        return ShownCredential("cookie", cookie)
    return None


def session_cookie(scope: MutableMapping[str, Any]) -> str | None:
    """The `session` cookie, if there is exactly one: for routes that need no credentials but use them if present."""
    shown = [value.decode("latin-1") for name, value in scope["headers"] if name == b"cookie"]
    found = list(_session_cookies(shown))
    return found[0] if len(found) == 1 else None


def read_query(scope: MutableMapping[str, Any]) -> list[tuple[str, str]]:
    try:
        return parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True, max_num_fields=50)
    except ValueError:
        raise ApiError(400, "bad_query", "the query cannot be read") from None


def offered_protocols(scope: MutableMapping[str, Any]) -> list[str]:
    """The sub-protocols that a client offers, without its token: those that the answer may choose from."""
    return [protocol for protocol in scope["subprotocols"] if not protocol.startswith(TOKEN_PROTOCOL)]


def _once(values: list[str], what: str) -> str | None:
    if len(values) > 1:
        raise ApiError(400, "ambiguous_credentials", f"{what} is given more than once")
    return values[0] if values else None


def _bearer(value: str) -> str:
    scheme, _, token = value.strip().partition(" ")
    if scheme.lower() not in ("bearer", "token") or not token.strip():  # Jupyter says token
        raise ApiError(401, "bad_credentials", "Authorization wants: Bearer <token>")
    return token.strip()


def _session_cookies(headers: list[str]) -> Iterable[str]:
    for header in headers:
        for pair in header.split(";"):
            name, equals, value = pair.strip().partition("=")
            if equals and name.strip() == COOKIE:
                yield value.strip().strip('"')
