"""The model that is built in, on a port of this machine."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.agents.trial.answers import answer


class TrialModel:
    """`asked` counts the questions that it has answered."""

    def __init__(self) -> None:
        self.address = ""
        self.asked = 0

    @contextlib.asynccontextmanager
    async def serve(self, host: str = "127.0.0.1") -> AsyncIterator[None]:
        """On an address of the loopback alone, until the end of the block."""
        server = _Quiet(uvicorn.Config(self._app(), log_config=None, access_log=False, lifespan="off"))
        with socket.create_server((host, 0)) as listener:
            self.address = f"http://{host}:{listener.getsockname()[1]}"
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(server.serve([listener]), name="trial model")
                try:
                    yield
                finally:
                    server.should_exit = server.force_exit = True

    @contextlib.asynccontextmanager
    async def serve_at(self, listener: socket.socket) -> AsyncIterator[None]:
        """There as well."""
        server = _Quiet(uvicorn.Config(self._app(), log_config=None, access_log=False, lifespan="off"))
        serving = asyncio.create_task(server.serve([listener]), name="trial model in the sandbox")
        try:
            yield
        finally:
            server.should_exit = server.force_exit = True
            await asyncio.wait({serving})

    def _app(self) -> Starlette:
        return Starlette(routes=[Route("/{path:path}", self._answer, methods=["GET", "POST", "HEAD"])])

    async def _answer(self, request: Request) -> Response:
        try:
            body = json.loads(await request.body() or b"{}")
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            return JSONResponse({"error": {"message": "the body is no JSON object"}}, 400)
        said = answer(request.url.path, body)
        if said is None:
            return JSONResponse({"error": {"message": "no such path"}}, 404)
        if isinstance(said, bytes):
            self.asked += 1
            return Response(said, media_type="text/event-stream")
        return JSONResponse(said)


class _Quiet(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # they are the command's
