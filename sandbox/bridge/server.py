"""The bridge's HTTP surface. `/health` is open; everything else needs this sandbox's own token.

What trees and terminals need is loaded when somebody asks for one: a bridge starts often, and most are small.
"""

import asyncio
import contextlib
import hmac
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from sandbox.bridge.agent.agent import Agent, AgentFailed, AgentHeld
from sandbox.bridge.agent.link import AgentLinkServer
from sandbox.bridge.base.bodies import read_body
from sandbox.bridge.base.config import Config
from sandbox.bridge.base.requests import Refused, gone
from sandbox.bridge.exec import BODY, WORDS, BadCommand, parse_command, run_command
from sandbox.bridge.watch import Watch
from sandbox.protocol.agent import MAX_DELIVERY
from sandbox.system.child import kill_descendants

if TYPE_CHECKING:
    from sandbox.bridge.terminal.routes import Terminals
    from sandbox.bridge.tree.routes import Transfers


class StartBody(msgspec.Struct, frozen=True):
    """`POST /start`: the agent's first line."""

    line: str | None = None


END_SECONDS = 1.0  # for the last output of an agent that has ended

_START = msgspec.json.Decoder(StartBody)
_LINE_WORDS = "line must be a string without line breaks"


class TokenGuard:
    """Lets a request pass with the right bearer token; any other gets 401, before a WebSocket is accepted."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._digest = sha256(token.encode()).digest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope["path"] == "/health" or self._knows_token(scope):
            return await self._app(scope, receive, send)
        await _error(401, "unauthorized", "this bridge needs its own token")(scope, receive, send)

    def _knows_token(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, token = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        return scheme.lower() == b"bearer" and hmac.compare_digest(sha256(token).digest(), self._digest)


class StreamedRoute:
    """A route that sends its answer itself, in pieces."""

    def __init__(self, serve: Callable[[Request, Send], Awaitable[None]]) -> None:
        self._serve = serve

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._serve(Request(scope, receive), send)


class AnyName(Route):
    """A route whose last part may be any name, also one with a line break in it."""

    def __init__(self, path: str, answer: StreamedRoute, *, methods: list[str]) -> None:
        super().__init__(path, answer, methods=methods)
        self.path_regex = re.compile(self.path_regex.pattern, re.DOTALL)


class Bridge:
    """Everything a sandbox offers. `busy` is whether a gateway is attached or waits for an answer."""

    def __init__(self, config: Config, agent: Agent) -> None:
        self._config = config
        self._agent = agent
        self._door = AgentLinkServer(agent, config.limits)
        self._worker = ThreadPoolExecutor(1, "tree")
        self._watch = Watch(config.kept, config.limits, self._worker, lambda: agent.alive, self._door.tell_changed)
        self._door.on_attach = self._watch.begin
        self._transfers: Transfers | None = None
        self._terminals: Terminals | None = None
        self._requests = 0
        self._commands = 0
        self.on_idle: Callable[[], None] = lambda: None

    @property
    def busy(self) -> bool:
        return self._door.attached or self._requests > 0

    async def end_programs(self) -> None:
        """End the agent and the terminals, each in its own order; then the gateway is told, and let go."""
        if self._terminals is not None:
            await asyncio.gather(self._agent.end(), self._terminals.close())
        else:
            await self._agent.end()
        kill_descendants()  # what left its group may hold the agent's output open
        await self._agent.finished(END_SECONDS)
        await self._door.close()

    def close(self) -> None:
        self._watch.end()

    def _load_terminals(self) -> "Terminals":
        if self._terminals is None:
            from sandbox.bridge.terminal.routes import Terminals

            self._terminals = Terminals(self._config, self._agent)
        return self._terminals

    async def _end_terminals(self) -> None:
        if self._terminals is not None:
            await self._terminals.end_programs()

    async def _load(self) -> "Transfers":
        if self._transfers is None:
            kind = await asyncio.get_running_loop().run_in_executor(self._worker, _transfers)
            if self._transfers is None:  # somebody may have come meanwhile
                self._transfers = kind(
                    self._config, self._agent, self._worker, self._watch.begin_anew, self._end_terminals
                )
        return self._transfers

    @contextlib.asynccontextmanager
    async def _present(self) -> AsyncIterator[None]:
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1
            if not self.busy:
                self.on_idle()

    def app(self) -> ASGIApp:
        routes = [
            Route("/health", self._health),
            Route("/exec", self._exec, methods=["POST"]),
            Route("/start", self._start, methods=["POST"]),
            Route("/start-pi", self._start, methods=["POST"]),
            Route("/backup", StreamedRoute(self._backup), methods=["POST"]),
            Route("/restore", StreamedRoute(self._restore), methods=["POST"]),
            AnyName("/files/{path:path}", StreamedRoute(self._files), methods=["GET"]),
            WebSocketRoute("/agent", self._attach),
            WebSocketRoute("/tree", self._tree),
            Route("/terminals", self._list_terminals),
            Route("/terminals/{name}", self._create_terminal, methods=["POST"]),
            Route("/terminals/{name}", self._remove_terminal, methods=["DELETE"]),
            Route("/terminals/{name}/size", self._resize_terminal, methods=["POST"]),
            WebSocketRoute("/terminals/{name}/link", self._view_terminal),
        ]
        app = Starlette(routes=routes, exception_handlers={Refused: _refuse, 404: _absent, 405: _absent})
        return TokenGuard(app, self._config.token)

    async def _health(self, request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok", "incarnation": self._config.incarnation, "agent": self._agent.health})

    async def _attach(self, socket: Any) -> None:
        async with self._present():
            await self._door.serve(socket)

    async def _tree(self, socket: Any) -> None:
        async with self._present():
            await (await self._load()).trees.serve(socket)

    async def _backup(self, request: Request, send: Send) -> None:
        async with self._present():
            await (await self._load()).backup(request, send)

    async def _restore(self, request: Request, send: Send) -> None:
        async with self._present():
            await (await self._load()).restore(request, send)

    async def _files(self, request: Request, send: Send) -> None:
        async with self._present():
            await (await self._load()).files(request, send)

    async def _list_terminals(self, request: Request) -> Response:
        async with self._present():
            return await self._load_terminals().list(request)

    async def _create_terminal(self, request: Request) -> Response:
        async with self._present():
            return await self._load_terminals().create(request)

    async def _remove_terminal(self, request: Request) -> Response:
        async with self._present():
            return await self._load_terminals().remove(request)

    async def _resize_terminal(self, request: Request) -> Response:
        async with self._present():
            return await self._load_terminals().resize(request)

    async def _view_terminal(self, socket: WebSocket) -> None:
        async with self._present():
            await self._load_terminals().link(socket)

    async def _start(self, request: Request) -> JSONResponse:
        async with self._present():
            line = (await read_body(request, _START, {"": _LINE_WORDS}, StartBody())).line
            if line is not None and ("\n" in line or len(line) > MAX_DELIVERY):
                raise Refused(400, "bad_request", _LINE_WORDS)
            try:
                started = self._agent.start(None if line is None else line.encode())
            except AgentHeld as exc:
                raise Refused(409, "held", str(exc)) from exc
            except AgentFailed as exc:
                raise Refused(500, "agent_failed", str(exc)) from exc
            return JSONResponse({"epoch": self._agent.epoch, "started": started})

    async def _exec(self, request: Request) -> JSONResponse:
        async with self._present():
            if self._commands >= self._config.limits.exec_at_once:
                raise Refused(429, "busy", f"{self._commands} commands run already")
            self._commands += 1
            try:
                command = parse_command(await read_body(request, BODY, WORDS), self._config)
                if self._agent.barred:
                    raise Refused(409, "held", "no program may start now: the workspace is being kept, or put in place")
                return JSONResponse(await run_command(command, self._config, gone(request)))
            except BadCommand as exc:
                raise Refused(400, "bad_request", str(exc)) from exc
            finally:
                self._commands -= 1


def _transfers() -> "type[Transfers]":
    from sandbox.bridge.tree.routes import Transfers

    return Transfers


def _error(status: int, code: str, error: str) -> JSONResponse:
    return JSONResponse({"error": error, "code": code}, status_code=status)


async def _refuse(request: Request, exc: Exception) -> JSONResponse:
    assert isinstance(exc, Refused)
    return _error(exc.status, exc.code, exc.error)


async def _absent(request: Request, exc: Exception) -> JSONResponse:
    status: int = getattr(exc, "status_code", 404)
    return _error(status, "not_found" if status == 404 else "method_not_allowed", "no such route")
