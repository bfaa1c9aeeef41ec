"""The usual relay, as most people write it: a Starlette endpoint, a `websockets` client behind it, two tasks for each
session, no storage, no identity. It runs with uvicorn's fastest settings: uvloop, httptools, the sans-I/O WebSocket
class (the defaults, if these are installed), no compression, no access log.

    python -m bench.peer UPSTREAM_PORT
"""

import asyncio
import socket
import sys

import uvicorn
import websockets
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect

from bench.processes import raise_descriptor_limit


def make_app(upstream: str) -> Starlette:
    async def relay(browser: WebSocket) -> None:
        await browser.accept()
        async with websockets.connect(upstream, compression=None, proxy=None) as agent:

            async def upward() -> None:
                try:
                    while True:
                        await agent.send(_content(await browser.receive()))
                except WebSocketDisconnect:
                    pass

            async def downward() -> None:
                async for message in agent:
                    if isinstance(message, str):
                        await browser.send_text(message)
                    else:
                        await browser.send_bytes(message)

            tasks = [asyncio.create_task(upward()), asyncio.create_task(downward())]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()

    return Starlette(routes=[WebSocketRoute("/ws/v2", relay)])


def _content(message: Message) -> str | bytes:
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect
    text: str | None = message.get("text")
    return message["bytes"] if text is None else text


def main(upstream_port: int) -> None:
    raise_descriptor_limit()
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    print("port", listener.getsockname()[1], flush=True)
    config = uvicorn.Config(
        make_app(f"ws://127.0.0.1:{upstream_port}/"),
        loop="uvloop",
        http="httptools",
        ws="websockets-sansio",
        ws_per_message_deflate=False,
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=1,
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main(int(sys.argv[1]))
