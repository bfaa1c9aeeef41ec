"""Checks which pages may talk to the gateway: those whose Origin is on the list, letter for letter. Pure."""

from collections.abc import MutableMapping
from typing import Any

from gateway.protocol.errors import ApiError

_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
_SECURE = {"http": "http", "ws": "http", "https": "https", "wss": "https"}


class Origins:
    """The allow-list; without one, the origin under which the client itself addressed the gateway."""

    def __init__(self, allowed: tuple[str, ...]) -> None:
        self._allowed = frozenset(allowed)

    def allows(self, origin: str, scope: MutableMapping[str, Any]) -> bool:
        return origin in self._allowed if self._allowed else origin == own_origin(scope)


def own_origin(scope: MutableMapping[str, Any]) -> str | None:
    """As a browser would write it: lower case, without the default port. None without exactly one Host."""
    hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
    if len(hosts) != 1 or not hosts[0]:
        return None
    scheme = _SECURE[scope["scheme"]]
    return f"{scheme}://{hosts[0].lower().removesuffix(_DEFAULT_PORTS[scheme])}"


def origin_of(scope: MutableMapping[str, Any]) -> str | None:
    """The Origin header, None if there is none. Two of them are refused."""
    found = [value.decode("latin-1") for name, value in scope["headers"] if name == b"origin"]
    if len(found) > 1:
        raise ApiError(403, "bad_origin", "Origin is given more than once")
    return found[0] if found else None


def check_origin(origins: Origins, origin: str | None, scope: MutableMapping[str, Any], *, cookie: bool) -> None:
    """Raise ApiError unless this page may make this request.

    Every upgrade of a page needs an allowed Origin. Programs send none, which is fine with any credential but the
    cookie: a browser attaches that one by itself, so with it upgrades and writes need an Origin that names the page.
    """
    upgrade = scope["type"] == "websocket"
    writes = not upgrade and scope["method"] not in ("GET", "HEAD", "OPTIONS")
    if origin is None:
        if cookie and (upgrade or writes):
            raise ApiError(403, "bad_origin", "with the session cookie an Origin is needed")
    elif (upgrade or cookie) and not origins.allows(origin, scope):
        raise ApiError(403, "bad_origin", "this origin is not allowed; see HOLDFAST_ALLOWED_ORIGINS")
