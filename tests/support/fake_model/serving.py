"""The fake model on a port of this machine: `python -m tests.support.fake_model.serving` prints its address."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.support.fake_model import gemini
from tests.support.fake_model.answers import Numbers
from tests.support.fake_model.anthropic import Messages
from tests.support.fake_model.responses import Responses
from tests.support.waiting import until

INNER = "127.0.0.2"  # HOLDFAST_NETWORK_INNER has to name it


async def _count(request: Request) -> JSONResponse:
    return JSONResponse({"input_tokens": 10})


async def _models(request: Request) -> JSONResponse:
    return JSONResponse({"object": "list", "data": [{"id": "m1", "object": "model"}], "models": []})


def app() -> Starlette:
    numbers = Numbers()
    return Starlette(
        routes=[
            Route("/v1/messages", Messages(numbers).answer, methods=["POST"]),
            Route("/v1/messages/count_tokens", _count, methods=["POST"]),
            Route("/v1/responses", Responses(numbers).answer, methods=["POST"]),
            Route("/v1/models", _models),
            Route("/v1beta/{method:path}", gemini.answer, methods=["POST"]),
        ]
    )


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # they are the test's


@contextlib.asynccontextmanager
async def fake_model() -> AsyncIterator[str]:
    """Its address: INNER, which a sandbox reaches by the proxy. At 127.0.0.1 it would look on its own loopback."""
    with socket.create_server((INNER, 0)) as listener:
        config = uvicorn.Config(app(), log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
        server = _Server(config)
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(server.serve([listener]), name="fake model")
            await until(lambda: server.started or serving.done())
            try:
                yield f"http://{INNER}:{listener.getsockname()[1]}"
            finally:
                server.should_exit = server.force_exit = True


async def main() -> None:
    async with fake_model() as address:
        print(address, flush=True)  # noqa: T201
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
