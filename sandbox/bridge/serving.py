"""Runs a bridge until it should end. Then its programs end first, its connections last.

A bridge runs on uvloop if that can be imported, else on asyncio's own loop.
"""

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

from sandbox.bridge.handed import HandedIn
from sandbox.system.child import kill_descendants, reap_adopted

BACKLOG = 2048
Caller = Callable[[], asyncio.Protocol]


def run(program: Coroutine[Any, Any, None]) -> None:
    """Run a bridge to its end."""
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(program)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # it is compiled, and not available everywhere
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def end_on_signals() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set from here on. Adopted children are reaped from here on, too."""
    loop = asyncio.get_running_loop()
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)

    def on_child(number: int, frame: object) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(reap_adopted)

    signal.signal(signal.SIGCHLD, on_child)  # uvloop does not allow `add_signal_handler` for this signal
    return ending


async def serve_until(
    ending: asyncio.Event,
    caller: Caller,
    listener: "socket.socket | HandedIn",
    end_programs: Callable[[], Awaitable[None]],
    close: Callable[[], Awaitable[None]],
) -> None:
    """Give each connection a `caller` until `ending` is set. Then end the programs, then the connections."""
    async with _served(caller, listener):
        await ending.wait()
        await end_programs()
        kill_descendants()
    await close()


@contextlib.asynccontextmanager
async def _served(caller: Caller, listener: "socket.socket | HandedIn") -> AsyncIterator[None]:
    if isinstance(listener, socket.socket):
        server = await asyncio.get_running_loop().create_server(caller, sock=listener, backlog=BACKLOG)
        try:
            yield
        finally:
            server.close()
        return
    taking = asyncio.create_task(listener.take(caller), name="connections.taken")
    try:
        yield
    finally:
        taking.cancel()
        await asyncio.wait({taking})
