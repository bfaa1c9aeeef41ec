"""The access policy of routes: each HTTP and WebSocket route carries its policy, which is applied before the route
runs.

A route without a policy is not served, and a test fails for it. The decision rests on `scope["path"]` matched against
the app's own routes, never on a URL put together from headers of a client. The route itself checks whether a session
belongs to the caller; the policy only decides that a user may ask.
"""

import re
import time
from collections.abc import Awaitable, Callable, Sequence
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
from gateway.server.message_socket import OUTLET
from persistence.errors import StoreUnavailable

_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}", re.ASCII)
_HIDDEN_SEPARATOR = re.compile(rb"%2f|%5c|%00|\\", re.IGNORECASE)
_ENDED_SHARES = 10_000  # remembered; above, the one found first is forgotten, and found again by its next request
_PREFLIGHT_HEADERS = b"authorization, content-type, last-event-id"


@dataclass(frozen=True, slots=True)
class RoutePolicy:
    """The access that a route allows. `session_in` names the path or query parameter that holds a session id. `shared`:
    a share of that session is enough. `from_page`: only pages of an allowed Origin, and without credentials; for routes
    that change a browser's cookie."""

    accept: Accept
    session_in: str | None = None
    shared: bool = False
    from_page: bool = False


PUBLIC = RoutePolicy(Accept.NOBODY)
OWN_PAGE = RoutePolicy(Accept.NOBODY, from_page=True)
SIGNED_IN = RoutePolicy(Accept.USER)
ADMINS = RoutePolicy(Accept.ADMIN)
SERVICES = RoutePolicy(Accept.INTERNAL)
SERVICES_SESSION = RoutePolicy(Accept.INTERNAL, "id")
OWNER = RoutePolicy(Accept.USER, "id")
OWNER_OR_GUEST = RoutePolicy(Accept.USER, "id", shared=True)
LIFECYCLE = RoutePolicy(Accept.RELAY | Accept.ADMIN | Accept.USER)
LIFECYCLE_SESSION = RoutePolicy(LIFECYCLE.accept, "id")
LIFECYCLE_OR_GUEST = RoutePolicy(LIFECYCLE.accept, "id", shared=True)
ADMINS_OR_OWNER = RoutePolicy(Accept.ADMIN | Accept.USER, "id")
RELAY_OR_OWNER = RoutePolicy(Accept.RELAY | Accept.USER, "id")


def valid_session_id(text: str) -> bool:
    return _SESSION_ID.fullmatch(text) is not None


def unprotected(routes: Sequence[BaseRoute]) -> list[str]:
    """Every route that has no policy of its own."""
    return [repr(route) for route in routes if policy_of(route) is None]


def policy_of(route: BaseRoute) -> RoutePolicy | None:
    """The policy of a declared route. Any other route has none, and is not served."""
    found = getattr(route, "policy", None)
    return found if isinstance(found, RoutePolicy) else None


def _methods(route: Route) -> set[str]:
    return (route.methods or {"?"}) - {"HEAD"}


async def nobody_is_let_in(_: Principal) -> None:
    """The check of shares where none exist: refuses all. Raises ApiError."""
    raise ApiError(401, "share_ended", SHARE_ENDED)


class PolicyMiddleware:
    """Stands in front of the app: matches, authenticates, checks Origin, counts; then `state.principal` is the caller.

    A refused upgrade is answered as plain HTTP; nothing is upgraded. `state.session_id` is the checked session id of
    routes that have one, `state.origin` the request's Origin (None for programs). `let_in` raises ApiError for a caller
    whose share has ended.
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
        """The policy of the route that will serve this request. Raises ApiError 404, 405 or 426."""
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
                    return _policy(route), match.groupdict()
                allowed.add("WS")
            elif not upgrade:
                method = "GET" if scope["method"] == "HEAD" else scope["method"]
                if method in _methods(route):
                    return _policy(route), match.groupdict()
                allowed |= _methods(route)
        if allowed == {"WS"}:
            raise ApiError(426, "upgrade_required", "this is a WebSocket route")
        if allowed:
            raise ApiError(405, "method_not_allowed", "this route does not take that method")
        raise _nothing_here()

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
        """Applied on every route and socket, to tokens and tickets: a share that was taken back opens nothing."""
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
        """Every request of a user, upgrades included, counts against a rate per second. Services' are not counted. All
        shares of a user that were found to have ended have one budget together, so that they take nothing from other
        guests.
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
            (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE"),
            (b"access-control-allow-headers", _PREFLIGHT_HEADERS),
            (b"access-control-max-age", b"600"),
        ]
        await send({"type": "http.response.start", "status": 204, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


def _policy(route: BaseRoute) -> RoutePolicy:
    policy = policy_of(route)
    if policy is None:
        raise _nothing_here()
    return policy


def _nothing_here() -> ApiError:
    return ApiError(404, "not_found", "there is nothing here")


def _check_scope(principal: Principal, policy: RoutePolicy, session_id: str | None) -> None:
    """A caller admitted to one session may not use any other, and may only read."""
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
