"""Runs a bridge's web server until the bridge is asked to end; then its programs end first, the server last.

A bridge runs on uvloop where that can be imported, and on asyncio's own loop where it cannot.
"""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from sandbox.system.child import kill_descendants, reap_adopted


def run(program: Coroutine[Any, Any, None]) -> None:
    """Run a bridge to its end."""
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(program)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # it is compiled: not everybody can have it
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class _BridgeServer(uvicorn.Server):
    """uvicorn's server, which looks at nothing each tenth of a second: there are as many bridges as sessions."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ended = asyncio.Event()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.ended.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the bridge has its own: the agent goes first


def end_on_signals() -> asyncio.Event:
    """What SIGTERM and SIGINT set from here on. Adopted children are reaped from here on, too."""
    loop = asyncio.get_running_loop()
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)

    def on_child(number: int, frame: object) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(reap_adopted)

    signal.signal(signal.SIGCHLD, on_child)  # uvloop lets nobody use `add_signal_handler` for this one
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
            date_header=False,
            timeout_graceful_shutdown=1,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="bridge.serve")
    waiting = asyncio.create_task(ending.wait(), name="bridge.ending")
    await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    await end_programs()
    kill_descendants()
    server.ended.set()
    await serving
