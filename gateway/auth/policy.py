"""Who may use which route: one table over all HTTP and WebSocket routes, applied before any of them runs.

A route that is not in the table is not served, and a test fails for it. The decision rests on `scope["path"]` matched
against the app's own routes, never on a URL put together from headers a client wrote. Whether a session belongs to
whoever asks is the route's question; here a user only gets so far as to be one.
"""

import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.auth.credentials import find_credential, offered_protocols, read_query
from gateway.auth.identity import Accept, Identity
from gateway.auth.origin import Origins, check_origin, origin_of
from gateway.auth.shares import ShareKey
from gateway.auth.tokens import SHARE_ENDED, Principal
from gateway.limits.inbound_bytes import UsersInboundBytes
from gateway.limits.rate import Budgets
from gateway.protocol.errors import ApiError
from gateway.server.admission import Admission, void
from gateway.server.outlet import OUTLET
from persistence.errors import StoreUnavailable

_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}", re.ASCII)
_HIDDEN_SEPARATOR = re.compile(rb"%2f|%5c|%00|\\", re.IGNORECASE)
_ENDED_SHARES = 10_000  # remembered; beyond, the one found first is forgotten, and found again by its next request
_PREFLIGHT_HEADERS = b"authorization, content-type, last-event-id"


@dataclass(frozen=True, slots=True)
class RoutePolicy:
    """What a route asks for. `session_in` names the path or query parameter that holds a session id. `shared`: who was
    let in to that session to look may come, too. `from_page`: nothing but a page comes, and one whose Origin is
    allowed; for routes that change a browser's cookie without asking for it."""

    accept: Accept
    session_in: str | None = None
    shared: bool = False
    from_page: bool = False


PUBLIC = RoutePolicy(Accept.NOBODY)
OWN_PAGE = RoutePolicy(Accept.NOBODY, from_page=True)
USER = Accept.USER
LIFECYCLE = Accept.RELAY | Accept.ADMIN | Accept.USER
RELAY_OR_USER = Accept.RELAY | Accept.USER
INTERNAL = Accept.INTERNAL
ADMIN = Accept.ADMIN
ADMIN_OR_USER = Accept.ADMIN | Accept.USER

POLICY: dict[tuple[str, str], RoutePolicy] = {
    ("GET", "/"): PUBLIC,
    ("GET", "/assets/{path:path}"): PUBLIC,
    ("GET", "/favicon.svg"): PUBLIC,
    ("GET", "/licences.txt"): PUBLIC,
    ("GET", "/manifest.webmanifest"): PUBLIC,
    ("GET", "/signin"): PUBLIC,
    ("POST", "/api/signin"): OWN_PAGE,
    ("DELETE", "/api/signin"): OWN_PAGE,
    ("GET", "/api/me"): RoutePolicy(USER),
    ("POST", "/api/token"): RoutePolicy(USER),
    ("POST", "/api/links"): RoutePolicy(ADMIN),
    ("GET", "/health"): PUBLIC,
    ("GET", "/ready"): PUBLIC,
    ("GET", "/openapi.json"): PUBLIC,
    ("GET", "/metrics"): RoutePolicy(ADMIN),
    ("WS", "/ws/v2"): RoutePolicy(USER, "sessionId", shared=True),
    ("WS", "/ws/events"): RoutePolicy(USER),
    ("WS", "/terminal/{sessionId}"): RoutePolicy(USER, "sessionId", shared=True),
    ("WS", "/v1/sandbox/{id}/pty"): RoutePolicy(USER, "id", shared=True),
    ("WS", "/jupyter/{id}/terminals/websocket/{name}"): RoutePolicy(USER, "id", shared=True),
    ("WS", "/tty/{id}/ws"): RoutePolicy(USER, "id", shared=True),
    ("GET", "/tty/{id}/token"): RoutePolicy(USER, "id", shared=True),
    ("GET", "/jupyter/{id}/api/terminals"): RoutePolicy(USER, "id", shared=True),
    ("POST", "/jupyter/{id}/api/terminals"): RoutePolicy(USER, "id"),
    ("GET", "/jupyter/{id}/api/terminals/{name}"): RoutePolicy(USER, "id", shared=True),
    ("DELETE", "/jupyter/{id}/api/terminals/{name}"): RoutePolicy(USER, "id"),
    ("WS", "/ws/sandboxes/{id}"): RoutePolicy(RELAY_OR_USER, "id"),
    ("GET", "/api/sandboxes"): RoutePolicy(LIFECYCLE),
    ("GET", "/api/sandboxes/{id}"): RoutePolicy(LIFECYCLE, "id"),
    ("POST", "/api/sandboxes/{id}"): RoutePolicy(LIFECYCLE, "id"),
    ("PATCH", "/api/sandboxes/{id}"): RoutePolicy(LIFECYCLE, "id"),
    ("DELETE", "/api/sandboxes/{id}"): RoutePolicy(LIFECYCLE, "id"),
    ("GET", "/api/sandboxes/{id}/status"): RoutePolicy(LIFECYCLE, "id", shared=True),
    ("POST", "/api/sandboxes/{id}/pause"): RoutePolicy(LIFECYCLE, "id"),
    ("POST", "/api/sandboxes/{id}/resume"): RoutePolicy(LIFECYCLE, "id"),
    ("POST", "/api/sandboxes/{id}/sleep"): RoutePolicy(LIFECYCLE, "id"),
    ("POST", "/api/sandboxes/{id}/wake"): RoutePolicy(LIFECYCLE, "id"),
    ("POST", "/api/sandboxes/{id}/sync"): RoutePolicy(LIFECYCLE, "id"),
    ("POST", "/api/sandboxes/{id}/abort"): RoutePolicy(LIFECYCLE, "id"),
    ("GET", "/api/sandboxes/{id}/terminals"): RoutePolicy(LIFECYCLE, "id", shared=True),
    ("POST", "/api/sandboxes/{id}/terminals/{name}"): RoutePolicy(LIFECYCLE, "id"),
    ("DELETE", "/api/sandboxes/{id}/terminals/{name}"): RoutePolicy(LIFECYCLE, "id"),
    ("POST", "/api/sandboxes/{id}/terminals/{name}/size"): RoutePolicy(LIFECYCLE, "id"),
    ("POST", "/api/sandboxes/{id}/shares"): RoutePolicy(LIFECYCLE, "id"),
    ("GET", "/api/sandboxes/{id}/shares"): RoutePolicy(LIFECYCLE, "id"),
    ("DELETE", "/api/sandboxes/{id}/shares/{number}"): RoutePolicy(LIFECYCLE, "id"),
    ("POST", "/api/sandboxes/{id}/demo/{what}"): RoutePolicy(USER, "id"),
    ("GET", "/api/sandboxes/{id}/snapshots"): RoutePolicy(LIFECYCLE, "id"),
    ("POST", "/api/sandboxes/{id}/snapshots/verify"): RoutePolicy(LIFECYCLE, "id"),
    ("GET", "/api/sandboxes/{id}/snapshots/{generation}"): RoutePolicy(LIFECYCLE, "id"),
    ("GET", "/api/sandboxes/{id}/snapshots/{generation}/diff"): RoutePolicy(LIFECYCLE, "id"),
    ("GET", "/api/sandboxes/{id}/snapshots/{generation}/export"): RoutePolicy(LIFECYCLE, "id"),
    ("POST", "/api/sandboxes/{id}/snapshots/{generation}/branch"): RoutePolicy(LIFECYCLE, "id"),
    ("POST", "/api/sandboxes/{id}/snapshots/{generation}/restore"): RoutePolicy(LIFECYCLE, "id"),
    ("POST", "/api/sandboxes/{id}/snapshots/{generation}/release"): RoutePolicy(LIFECYCLE, "id"),
    ("POST", "/internal/snapshots/gc"): RoutePolicy(ADMIN),
    ("GET", "/api/sessions/{id}/messages"): RoutePolicy(USER, "id", shared=True),
    ("GET", "/internal/sessions/{id}/messages"): RoutePolicy(INTERNAL, "id"),
    ("POST", "/internal/sessions/{id}/messages"): RoutePolicy(INTERNAL, "id"),
    ("GET", "/internal/sessions"): RoutePolicy(INTERNAL),
    ("GET", "/internal/sessions/{id}/export"): RoutePolicy(INTERNAL, "id"),
    ("GET", "/internal/export"): RoutePolicy(INTERNAL),
    ("GET", "/internal/dead-letters"): RoutePolicy(INTERNAL),
    ("GET", "/internal/dead-letters/{number}"): RoutePolicy(INTERNAL),
    ("DELETE", "/internal/dead-letters/{number}"): RoutePolicy(INTERNAL),
    ("POST", "/internal/dead-letters/{number}/retry"): RoutePolicy(INTERNAL),
    ("GET", "/files/{id}/{path:path}"): RoutePolicy(ADMIN_OR_USER, "id"),
    ("GET", "/logs/{id}"): RoutePolicy(ADMIN_OR_USER, "id"),
    ("POST", "/api/tickets"): RoutePolicy(USER, shared=True),
}


def valid_session_id(text: str) -> bool:
    return _SESSION_ID.fullmatch(text) is not None


def unprotected(routes: Sequence[BaseRoute], policy: Mapping[tuple[str, str], RoutePolicy] = POLICY) -> list[str]:
    """Every route, by method, for which the table has no entry. Anything but a plain route counts as unprotected."""
    missing = []
    for route in routes:
        if isinstance(route, WebSocketRoute):
            wanted = [("WS", route.path)]
        elif isinstance(route, Route):
            wanted = [(method, route.path) for method in sorted(_methods(route))]
        else:
            wanted = [("?", repr(route))]
        missing += [f"{method} {path}" for method, path in wanted if (method, path) not in policy]
    return missing


def _methods(route: Route) -> set[str]:
    return (route.methods or {"?"}) - {"HEAD"}


async def nobody_is_let_in(_: Principal) -> None:
    """What shares open where nobody knows of any. Raises ApiError."""
    raise ApiError(401, "share_ended", SHARE_ENDED)


class PolicyMiddleware:
    """Stands in front of the app: matches, authenticates, checks Origin, counts; then `state.principal` is who asks.

    A refused upgrade is answered as plain HTTP; nothing is upgraded. `state.session_id` is the checked session id of
    routes that have one, `state.origin` the request's Origin (None for programs). `let_in` raises ApiError for whoever
    comes by a share that has ended.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        routes: Sequence[BaseRoute],
        identity: Identity,
        origins: Origins,
        counters: Admission,
        rooms: UsersInboundBytes | None = None,
        query_tokens: bool = True,
        refused: Callable[[str], None] = void,
        let_in: Callable[[Principal], Awaitable[None]] = nobody_is_let_in,
        requests: Budgets | None = None,
        now: Callable[[], float] = time.monotonic,
        policy: Mapping[tuple[str, str], RoutePolicy] = POLICY,
    ) -> None:
        self._app = app
        self._routes = routes
        self._identity = identity
        self._origins = origins
        self._counters = counters
        self._rooms = rooms or UsersInboundBytes()
        self._let_in = let_in
        self._query_tokens = query_tokens
        self._refused = refused
        self._requests = requests
        self._now = now
        self._policy = policy
        self._ended_shares: dict[tuple[str, ShareKey | None], None] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        try:
            origin = origin_of(scope)
            if scope["type"] == "http" and origin is not None:
                send = self._with_cors(send, scope, origin)
                if scope["method"] == "OPTIONS":
                    await self._preflight(scope, send, origin)
                    return
            policy, params = self._find(scope)
            principal = await self._admit(scope, policy, params, origin)
        except ApiError as exc:
            self._refused(exc.code)
            await refuse(scope, receive, send, exc)
            return
        if scope["type"] == "websocket":
            await self._run_socket(scope, receive, send, principal)
        else:
            await self._app(scope, receive, send)

    def _find(self, scope: Scope) -> tuple[RoutePolicy, dict[str, str]]:
        """The policy of the route that will serve this. Raises ApiError 404, 405 or 426."""
        path: str = scope["path"]
        if _HIDDEN_SEPARATOR.search(scope["raw_path"]) or any(part in (".", "..") for part in path.split("/")):
            raise ApiError(400, "bad_path", "the path cannot be read")
        upgrade = scope["type"] == "websocket"
        allowed: set[str] = set()
        for route in self._routes:
            if not isinstance(route, Route | WebSocketRoute) or not (match := route.path_regex.match(path)):
                continue
            if isinstance(route, WebSocketRoute):
                if upgrade:
                    return self._entry("WS", route.path), match.groupdict()
                allowed.add("WS")
            elif not upgrade:
                method = "GET" if scope["method"] == "HEAD" else scope["method"]
                if method in _methods(route):
                    return self._entry(method, route.path), match.groupdict()
                allowed |= _methods(route)
        if allowed == {"WS"}:
            raise ApiError(426, "upgrade_required", "this is a WebSocket route")
        if allowed:
            raise ApiError(405, "method_not_allowed", "this route does not take that method")
        raise ApiError(404, "not_found", "there is nothing here")

    def _entry(self, method: str, path: str) -> RoutePolicy:
        try:
            return self._policy[method, path]
        except KeyError:
            raise ApiError(404, "not_found", "there is nothing here") from None

    async def _admit(
        self, scope: Scope, policy: RoutePolicy, params: dict[str, str], origin: str | None
    ) -> Principal | None:
        state = scope.setdefault("state", {})
        state["principal"], state["session_id"], state["origin"] = None, None, origin
        if policy.from_page and (origin is None or not self._origins.allows(origin, scope)):
            raise ApiError(403, "bad_origin", "this is for pages of an allowed origin; see HOLDFAST_ALLOWED_ORIGINS")
        if policy.accept is Accept.NOBODY:
            return None
        query = read_query(scope)
        shown = find_credential(scope, query, query_tokens=self._query_tokens)
        session_id = _session_id(policy, params, query)
        check_origin(self._origins, origin, scope, cookie=shown is not None and shown.via == "cookie")
        principal = await self._identity.identify(shown, policy.accept, session_id=session_id, origin=origin)
        _check_scope(principal, policy, session_id)
        self._count(principal)  # before the store is asked for anything
        if principal.session_id:
            await self._check_share(principal)
        state["principal"], state["session_id"] = principal, session_id
        return principal

    async def _check_share(self, principal: Principal) -> None:
        """On every route and socket, by token or ticket: a share that was taken back opens nothing."""
        share = (principal.session_id, principal.share)
        try:
            await self._let_in(principal)
        except StoreUnavailable:
            raise ApiError(503, "storage_unavailable", "the store does not answer: try again later") from None
        except ApiError:
            self._ended_shares[share] = None
            if len(self._ended_shares) > _ENDED_SHARES:
                del self._ended_shares[next(iter(self._ended_shares))]
            raise
        self._ended_shares.pop(share, None)

    def _count(self, principal: Principal) -> None:
        """Every request of a user, upgrades included, is one of so many a second. Services' are not counted. All shares
        of a user that were found to have ended have one budget together, so that they take nothing from other guests.
        """
        if self._requests is None or principal.kind != "user":
            return
        now, spender = self._now(), principal.spends_as
        if (principal.session_id, principal.share) in self._ended_shares:
            spender = f"ended shares of {principal.user_id}"
        if wait := self._requests.of(spender, now).ask(1.0, now):
            told = "too many requests of this user: wait as Retry-After says, or raise HOLDFAST_MAX_REQUESTS_PER_USER"
            raise ApiError(429, "too_many_requests", told, retry_after=wait)

    async def _run_socket(self, scope: Scope, receive: Receive, send: Send, principal: Principal | None) -> None:
        scope["subprotocols"] = offered_protocols(scope)
        outlet = scope["extensions"].get(OUTLET) if scope.get("extensions") else None
        if outlet is not None and principal is not None and principal.kind == "user":
            outlet.charge_to(principal.spends_as)
        release: Callable[[], None] | None = None
        if principal is not None and principal.kind == "user":
            release = self._counters.admit_user(principal.counted_as)
            if release is None:
                self._refused("too_many_of_user")
                refusal = ApiError(429, "too_many_connections", "this user has too many connections")
                await refuse(scope, receive, send, refusal)
                return
        if outlet is not None and principal is not None and principal.kind == "user":
            outlet.room = self._rooms.of(principal.spends_as)
        try:
            await self._app(scope, receive, send)
        finally:
            if release is not None and outlet is not None and outlet.heir is not None:
                outlet.heir.when_gone(release)  # the endpoint is over, the connection is not
            elif release is not None:
                release()

    # CORS

    def _with_cors(self, send: Send, scope: Scope, origin: str) -> Send:
        allowed = self._origins.allows(origin, scope)

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ()), (b"vary", b"Origin")]
                if allowed:
                    headers.append((b"access-control-allow-origin", origin.encode("latin-1")))
                    headers.append((b"access-control-allow-credentials", b"true"))
                message = {**message, "headers": headers}
            await send(message)

        return sending

    async def _preflight(self, scope: Scope, send: Send, origin: str) -> None:
        if not self._origins.allows(origin, scope):
            raise ApiError(403, "bad_origin", "this origin is not allowed; see HOLDFAST_ALLOWED_ORIGINS")
        headers = [
            (b"access-control-allow-methods", b"GET, POST, PATCH, DELETE"),
            (b"access-control-allow-headers", _PREFLIGHT_HEADERS),
            (b"access-control-max-age", b"600"),
        ]
        await send({"type": "http.response.start", "status": 204, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


def _check_scope(principal: Principal, policy: RoutePolicy, session_id: str | None) -> None:
    """Who was let in to one session knows of no other, and does nothing there but look."""
    if principal.session_id and not policy.shared:
        raise ApiError(403, "read_only", "this token is for looking at one session")
    if principal.session_id and session_id not in (None, principal.session_id):
        raise ApiError(404, "unknown_session", "there is no such session")


def _session_id(policy: RoutePolicy, params: dict[str, str], query: list[tuple[str, str]]) -> str | None:
    if policy.session_in is None:
        return None
    given = [value for name, value in query if name == policy.session_in]
    found = [params[policy.session_in]] if policy.session_in in params else given
    if len(found) != 1 or not valid_session_id(found[0]):
        raise ApiError(400, "bad_session_id", "a session id is needed: letters, digits, - and _, at most 128")
    return found[0]


async def refuse(scope: Scope, receive: Receive, send: Send, error: ApiError) -> None:
    """Answer `{error, code}`, also to an upgrade, which then does not happen."""
    body = orjson.dumps({"error": error.message, "code": error.code})
    headers: list[tuple[bytes, bytes]] = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
    ]
    if error.status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="holdfast"'))
    elif error.status == 426:
        headers += [(b"upgrade", b"websocket"), (b"connection", b"upgrade")]
    elif error.status in (429, 503):
        headers.append((b"retry-after", error.headers.get("Retry-After", "5").encode()))
    prefix = ""
    if scope["type"] == "websocket":
        await receive()
        prefix = "websocket."
    start: dict[str, Any] = {"type": f"{prefix}http.response.start", "status": error.status, "headers": headers}
    await send(start)
    await send({"type": f"{prefix}http.response.body", "body": body})
