"""The policy over every declared route, driven by ASGI messages: no server, no sockets, no time."""

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

import orjson
from starlette.routing import BaseRoute, Router
from starlette.types import Message, Receive, Scope, Send

from gateway.auth.identity import Identity
from gateway.auth.origin import Origins
from gateway.auth.policy import PolicyMiddleware, nobody_is_let_in
from gateway.auth.tickets import Tickets
from gateway.auth.tokens import Principal, SharedSecret, TokenVerifier, mint
from gateway.config.settings import Secrets, SecretStr
from gateway.limits.rate import Budgets
from gateway.routing.route import WS, ServedRoute, ServedSocket
from gateway.server.admission import Admission
from tests.support.routes import SPECS

JWT_SECRET = SecretStr("jwt-secret-0123456789-0123456789-012345")
ADMIN, INTERNAL, RELAY = "api-token-0123456789", "internal-token-0123456789", "relay-secret-0123456789"
SECRETS = Secrets(
    jwt_secret=JWT_SECRET,
    api_token=SecretStr(ADMIN),
    internal_token=SecretStr(INTERNAL),
    relay_secret=SecretStr(RELAY),
    vault_key=SecretStr("vault-key-0123456789-0123456789-01234567"),
)
TOKEN = mint(JWT_SECRET, "ada", "ada@example.com", 86_400)  # for as long as a run may take
OWN = "https://holdfast.example"
BEARER = {"authorization": f"Bearer {TOKEN}"}
COOKIE = {"cookie": f"theme=dark; session={TOKEN}"}


async def _endpoint(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept", "subprotocol": None})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


class Endpoint:
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await _endpoint(scope, receive, send)


def all_routes() -> list[BaseRoute]:
    """Every route that a gateway serves, with an endpoint that lets everybody in."""
    return [ServedSocket(spec, Endpoint()) if spec.method == WS else ServedRoute(spec, Endpoint()) for spec in SPECS]


class Gatehouse:
    """The middleware over every declared route, driven by ASGI messages."""

    def __init__(
        self,
        *,
        allowed: tuple[str, ...] = (),
        query_tokens: bool = True,
        per_user: int = 100,
        requests: Budgets | None = None,
        let_in: Callable[[Principal], Awaitable[None]] = nobody_is_let_in,
    ) -> None:
        self.tickets = Tickets()
        self.now = 0.0
        self.scope: Scope = {}
        self.refused: list[str] = []
        self.routes = all_routes()
        verifier = TokenVerifier(SharedSecret(JWT_SECRET))
        self.app = PolicyMiddleware(
            self._app,
            routes=self.routes,
            identity=Identity(verifier, SECRETS, self.tickets, monotonic=lambda: self.now),
            origins=Origins(allowed),
            counters=Admission(100, 100, per_user),
            query_tokens=query_tokens,
            refused=self.refused.append,
            requests=requests,
            let_in=let_in,
            now=lambda: self.now,
        )
        self._router = Router(self.routes)

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        await self._router(scope, receive, send)

    async def ask(
        self,
        method: str,
        target: str,
        headers: dict[str, str] | list[tuple[str, str]] | None = None,
        *,
        protocols: tuple[str, ...] = (),
    ) -> tuple[int, Any, dict[str, str]]:
        """Status (101 for an accepted upgrade), JSON body, headers."""
        pairs = list(headers.items()) if isinstance(headers, dict) else headers or []
        path, _, query = target.partition("?")
        names = {name.lower() for name, _ in pairs}
        pairs = pairs if "host" in names else [("host", "holdfast.example"), *pairs]
        scope: Scope = {
            "type": "websocket" if method == "WS" else "http",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in pairs],
            "scheme": "wss" if method == "WS" else "https",
            "client": ("127.0.0.1", 1),
            "root_path": "",
        }
        scope.update({"subprotocols": list(protocols)} if method == "WS" else {"method": method})
        self.scope = {}
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "websocket.connect" if method == "WS" else "http.request"}

        async def send(message: Message) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        if sent[0]["type"] == "websocket.accept":
            return 101, None, {}
        prefix = "websocket." if method == "WS" else ""
        assert [message["type"] for message in sent] == [f"{prefix}http.response.start", f"{prefix}http.response.body"]
        body = orjson.loads(sent[1]["body"]) if sent[1]["body"] else None
        answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], body, answered

    async def status(self, *args: Any, **more: Any) -> int:
        return (await self.ask(*args, **more))[0]
