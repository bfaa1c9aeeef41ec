"""Runs a bridge until the bridge is asked to end; then its programs end first, its connections last.

A bridge runs on uvloop where that can be imported, and on asyncio's own loop where it cannot.
"""

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from sandbox.system.child import kill_descendants, reap_adopted

BACKLOG = 2048


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
    caller: Callable[[], asyncio.Protocol],
    listener: socket.socket,
    end_programs: Callable[[], Awaitable[None]],
    close: Callable[[], Awaitable[None]],
) -> None:
    """Give each connection a `caller` until `ending` is set; then end the programs, then whoever is still connected."""
    server = await asyncio.get_running_loop().create_server(caller, sock=listener, backlog=BACKLOG)
    await ending.wait()
    await end_programs()
    kill_descendants()
    server.close()
    await close()
