"""The bridge's HTTP surface on Starlette. `/health` is open; everything else needs this sandbox's own token.

It is loaded with the first request beyond those of every start (reception.py). The code for trees and terminals is
loaded with the first request for one.
"""

import re
from collections.abc import Awaitable, Callable

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from sandbox.bridge.agent.agent import AgentFailed, AgentHeld
from sandbox.bridge.base.bodies import read_body
from sandbox.bridge.base.handover import hand_over
from sandbox.bridge.base.request_head import Token
from sandbox.bridge.base.requests import Refused, gone
from sandbox.bridge.exec import BODY, WORDS, BadCommand, parse_command, run_command
from sandbox.bridge.server import Bridge
from sandbox.protocol.agent import MAX_DELIVERY


class StartBody(msgspec.Struct, frozen=True):
    """`POST /start`: the agent's first line."""

    line: str | None = None


_START = msgspec.json.Decoder(StartBody)
_LINE_WORDS = "line must be a string without line breaks"


class TokenGuard:
    """Lets a request pass with the right bearer token; any other gets 401, before a WebSocket is accepted."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = Token(token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope["path"] == "/health" or self._knows_token(scope):
            return await self._app(scope, receive, send)
        await _error(401, "unauthorized", "this bridge needs its own token")(scope, receive, send)

    def _knows_token(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(given) == 1 and self._token.is_in(given[0])


class StreamedRoute:
    """A route that sends its answer itself, in pieces."""

    def __init__(self, serve: Callable[[Request, Send], Awaitable[None]]) -> None:
        self._serve = serve

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._serve(Request(scope, receive), send)


class AnyName(Route):
    """A route whose last part may be any name, even one with a line break in it."""

    def __init__(self, path: str, answer: StreamedRoute, *, methods: list[str]) -> None:
        super().__init__(path, answer, methods=methods)
        self.path_regex = re.compile(self.path_regex.pattern, re.DOTALL)


class Web:
    """The routes of a bridge."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._commands = 0

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
        return TokenGuard(app, self._bridge.config.token)

    async def _health(self, request: Request) -> JSONResponse:
        return JSONResponse(self._bridge.health)

    async def _attach(self, socket: WebSocket) -> None:
        async with self._bridge.present():
            taken = self._bridge.door.expect()
            try:
                await socket.accept()
                hand_over(socket.scope, taken.take)
            except (ConnectionError, WebSocketDisconnect):
                return
            await taken.gone

    async def _tree(self, socket: WebSocket) -> None:
        await self._bridge.serve_tree(socket)

    async def _backup(self, request: Request, send: Send) -> None:
        async with self._bridge.present():
            await (await self._bridge.load_transfers()).backup(request, send)

    async def _restore(self, request: Request, send: Send) -> None:
        async with self._bridge.present():
            await (await self._bridge.load_transfers()).restore(request, send)

    async def _files(self, request: Request, send: Send) -> None:
        async with self._bridge.present():
            await (await self._bridge.load_transfers()).files(request, send)

    async def _list_terminals(self, request: Request) -> Response:
        async with self._bridge.present():
            return await self._bridge.load_terminals().list(request)

    async def _create_terminal(self, request: Request) -> Response:
        async with self._bridge.present():
            return await self._bridge.load_terminals().create(request)

    async def _remove_terminal(self, request: Request) -> Response:
        async with self._bridge.present():
            return await self._bridge.load_terminals().remove(request)

    async def _resize_terminal(self, request: Request) -> Response:
        async with self._bridge.present():
            return await self._bridge.load_terminals().resize(request)

    async def _view_terminal(self, socket: WebSocket) -> None:
        async with self._bridge.present():
            await self._bridge.load_terminals().link(socket)

    async def _start(self, request: Request) -> JSONResponse:
        async with self._bridge.present():
            line = (await read_body(request, _START, {"": _LINE_WORDS}, StartBody())).line
            if line is not None and ("\n" in line or len(line) > MAX_DELIVERY):
                raise Refused(400, "bad_request", _LINE_WORDS)
            try:
                started = self._bridge.agent.start(None if line is None else line.encode())
            except AgentHeld as exc:
                raise Refused(409, "held", str(exc)) from exc
            except AgentFailed as exc:
                raise Refused(500, "agent_failed", str(exc)) from exc
            return JSONResponse({"epoch": self._bridge.agent.epoch, "started": started})

    async def _exec(self, request: Request) -> JSONResponse:
        async with self._bridge.present():
            if self._commands >= self._bridge.config.limits.exec_at_once:
                raise Refused(429, "busy", f"{self._commands} commands run already")
            self._commands += 1
            try:
                command = parse_command(await read_body(request, BODY, WORDS), self._bridge.config)
                if self._bridge.agent.barred:
                    raise Refused(409, "held", "no program may start now: the workspace is being kept, or put in place")
                return JSONResponse(await run_command(command, self._bridge.config, gone(request)))
            except BadCommand as exc:
                raise Refused(400, "bad_request", str(exc)) from exc
            finally:
                self._commands -= 1


def _error(status: int, code: str, error: str) -> JSONResponse:
    return JSONResponse({"error": error, "code": code}, status_code=status)


async def _refuse(request: Request, exc: Exception) -> JSONResponse:
    assert isinstance(exc, Refused)
    return _error(exc.status, exc.code, exc.error)


async def _absent(request: Request, exc: Exception) -> JSONResponse:
    status: int = getattr(exc, "status_code", 404)
    return _error(status, "not_found" if status == 404 else "method_not_allowed", "no such route")
