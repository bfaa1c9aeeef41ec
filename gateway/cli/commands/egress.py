"""`holdfast egress`: the proxy of the sandboxes. The gateway starts it, with the door to listen at as a descriptor."""

import asyncio
import os
import resource
import signal
import socket

import uvloop

from gateway.cli.arguments import EXIT_OK, EXIT_USAGE
from gateway.cli.console.output import complain
from gateway.egress.accept import interrupt_accepts
from gateway.egress.control import Control
from gateway.egress.git_route import GitRoute
from gateway.egress.model_settings import MODELS
from gateway.egress.models import ModelRoute
from gateway.egress.origins import OriginDialer
from gateway.egress.process import DESCRIPTOR, release
from gateway.egress.repositories import ROUTE as GIT
from gateway.egress.routes import Routes


def egress() -> int:
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it holds secrets
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    door = _door()
    if door is None:
        complain("the gateway starts this by itself: `holdfast serve` is what you want")
        return EXIT_USAGE
    interrupt_accepts()
    with door, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(door))
    return EXIT_OK


async def _serve(door: socket.socket) -> None:
    routes = Routes()
    control = Control(door, routes, release())
    dialer = OriginDialer(control.proxy.dialer)
    models = ModelRoute(dialer, lambda note: control.note(MODELS, note))
    routes.add(MODELS, models)
    routes.others = models
    routes.add(GIT, GitRoute(dialer, models.git_token))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, control.end)
    await control.run()


def _door() -> socket.socket | None:
    """The listening socket that the gateway handed down; None if there is none."""
    try:
        door = socket.socket(fileno=DESCRIPTOR)
    except OSError:
        return None
    try:
        fits = door.family == socket.AF_UNIX and door.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError:
        fits = False
    if fits:
        return door
    door.detach()
    return None
