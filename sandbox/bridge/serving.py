"""Runs a bridge's web server until the bridge is asked to end; then its programs end first, the server last."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator

import uvicorn
from starlette.types import ASGIApp

from sandbox.system.child import kill_descendants, reap_adopted


class _BridgeServer(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the bridge has its own: the agent goes first


def end_on_signals() -> asyncio.Event:
    """What SIGTERM and SIGINT set from here on. Adopted children are reaped from here on, too."""
    loop = asyncio.get_running_loop()
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    loop.add_signal_handler(signal.SIGCHLD, reap_adopted)
    return ending


async def serve_until(
    ending: asyncio.Event,
    app: ASGIApp,
    listener: socket.socket,
    end_programs: Callable[[], Awaitable[None]],
    *,
    sockets: type[asyncio.Protocol],
    max_message: int,
) -> None:
    """Serve `app` until `ending` is set; then end the programs, then everything. `sockets` is uvicorn's WebSocket
    class; a message on one has at most `max_message` bytes."""
    server = _BridgeServer(
        uvicorn.Config(
            app,
            loop="none",
            http="httptools",
            ws=sockets,
            ws_max_size=max_message,
            ws_ping_interval=None,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=1,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="bridge.serve")
    waiting = asyncio.create_task(ending.wait(), name="bridge.ending")
    await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    await end_programs()
    kill_descendants()
    server.should_exit = True
    await serving
