"""Starts uvicorn with the guarded protocols, and ends it: SIGTERM and SIGINT drain first, then stop.

uvicorn would close every socket the moment a signal comes. Here a signal only calls *stop*: new work is refused while
`/health` still answers, `drain` lets sessions finish their open work within the deadline, and then the listener closes.
"""

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Generator, MutableMapping
from typing import Any

import structlog
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.config.settings import Settings
from gateway.server.front_door import FrontDoor
from gateway.server.http import GuardedHttp
from gateway.server.message_socket import OUTLET, MessageSocket
from gateway.server.spliced_socket import NO_GOODBYE, SplicedSocket
from gateway.server.websocket import GuardedConfig, GuardedSocket

Drain = Callable[[], Awaitable[None]]
OnReady = Callable[[str], None]

EXIT_OK, EXIT_FAILED, EXIT_STARTUP = 0, 1, 3
_GRACE_SECONDS = 5  # for requests under way, after the drain
_log = structlog.get_logger()


class CannotListen(Exception):
    """The gateway cannot listen on the address; the message says which and what to do."""


class _StartupFailed(Exception):
    pass


def bind(host: str, port: int) -> socket.socket:
    """Take the address now, so that the printed address is true and a second gateway fails before it does anything."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:  # `::` takes IPv4, too, whatever the system's default
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            listener.bind(address)
            # Listening from here on: a client that reads the address may connect at once and waits for the first
            # answer.
            listener.listen(2048)
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
    except OSError as exc:
        raise CannotListen(f"cannot listen on {host}:{port}: {exc.strerror}; set HOLDFAST_HOST, HOLDFAST_PORT") from exc
    return listener


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Server(uvicorn.Server):
    """uvicorn's server, with our signal handlers, and with failures that can be caught."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit as exc:
            raise _StartupFailed from exc
        self._on_started()


async def serve(
    app: ASGIApp,
    settings: Settings,
    *,
    door: FrontDoor,
    drain: Drain,
    on_ready: OnReady,
    listener: socket.socket | None = None,
) -> int:
    """Serve until a signal or `door.fatal`; return the exit code.

    `on_ready` is called with the address when requests are answered. `drain` runs once, with all sockets still open,
    for at most `drain_timeout`; connections that are left then are cut.
    """
    listener = listener or bind(settings.host, settings.port)
    address = address_of(listener)
    config = _configure(AccessLog(app), settings, door)
    server = _Server(config, lambda: on_ready(address))
    serving = asyncio.create_task(server.serve([listener]), name="server")
    sweeping = asyncio.create_task(door.sweep(), name="sweep")
    stopping = asyncio.create_task(door.stopped(), name="stop")
    try:
        with _signals(door) as cut_short:
            await asyncio.wait((serving, sweeping, stopping), return_when=asyncio.FIRST_COMPLETED)
            if sweeping.done() and (error := sweeping.exception()):
                door.fatal(error)
            if not serving.done():
                if door.failure is not None:
                    _log.error("server.fatal", cause=repr(door.failure), exc_info=door.failure)
                await _drain(door, drain, settings.drain_timeout, cut_short)
                server.should_exit = True
            return await _finish(serving, door)
    finally:
        for task in (sweeping, stopping, serving):
            task.cancel()
        await asyncio.wait((sweeping, stopping, serving), timeout=_GRACE_SECONDS)
        listener.close()


def _configure(app: ASGIApp, settings: Settings, door: FrontDoor) -> GuardedConfig:
    config = GuardedConfig(
        app,
        loop="none",
        http=GuardedHttp,
        ws=GuardedSocket,
        interface="asgi3",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # the guard reads them, from trusted proxies only
        server_header=False,
        ws_max_size=settings.max_frame_bytes,
        ws_ping_interval=None,  # the front door's sweep does it, without a timer for each connection
        ws_ping_timeout=None,
        ws_per_message_deflate=settings.compression,
        timeout_keep_alive=door.limits.idle_seconds,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        backlog=2048,
    )
    config.door = door
    return config


@contextlib.contextmanager
def _signals(door: FrontDoor) -> Generator[asyncio.Event, None, None]:
    """SIGTERM and SIGINT stop the server; a second SIGINT sets the event that cuts the drain short."""
    loop = asyncio.get_running_loop()
    cut_short = asyncio.Event()

    def on_signal(number: signal.Signals) -> None:
        _log.info("server.signal", signal=number.name, draining=door.draining)
        if door.draining and number is signal.SIGINT:
            cut_short.set()
        door.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield cut_short
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def _drain(door: FrontDoor, drain: Drain, seconds: float, cut_short: asyncio.Event) -> None:
    door.draining = True
    began = time.monotonic()
    _log.info("server.draining", deadline=seconds)
    draining = asyncio.ensure_future(drain())
    impatience = asyncio.create_task(cut_short.wait(), name="impatience")
    try:
        await asyncio.wait((draining, impatience), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        impatience.cancel()
    if not draining.done():
        _log.warning("server.drain_unfinished", after=round(time.monotonic() - began, 3))
        draining.cancel()
        await asyncio.wait((draining,), timeout=1)
    elif draining.cancelled() or draining.exception():
        _log.error("server.drain_failed", exc_info=None if draining.cancelled() else draining.exception())
    else:
        _log.info("server.drained", seconds=round(time.monotonic() - began, 3))


async def _finish(serving: asyncio.Task[None], door: FrontDoor) -> int:
    """Wait for uvicorn's end (requests under way, then the lifespan), but not for ever."""
    await asyncio.wait((serving,), timeout=_GRACE_SECONDS * 3)
    if not serving.done():
        _log.error("server.shutdown_unfinished")
        return EXIT_FAILED
    error = None if serving.cancelled() else serving.exception()
    if isinstance(error, _StartupFailed):
        return EXIT_STARTUP
    if error is not None:
        _log.error("server.crashed", exc_info=error)
    return EXIT_OK if error is None and door.failure is None and door.draining else EXIT_FAILED


class AccessLog:
    """One log line per request, two per socket: the route (never its query), the caller, the outcome. A socket's second
    line comes when its connection ends, with the close code that was sent first; 1006 if neither end sent one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        visit = _Visit(scope)

        async def receiving() -> MutableMapping[str, Any]:
            message = await receive()
            if message["type"] == "websocket.disconnect":
                visit.end(message.get("code", NO_GOODBYE))
            return message

        async def sending(message: MutableMapping[str, Any]) -> None:
            kind = message["type"]
            if kind in ("http.response.start", "websocket.http.response.start"):
                visit.status = message["status"]
            elif kind == "websocket.accept":
                visit.note("socket.opened")
                visit.status = 101
            elif kind == "websocket.close":
                visit.end(message.get("code", 1000))
            await send(message)

        try:
            await self._app(scope, receiving, sending)
        finally:
            outlet: MessageSocket | None = scope.get("extensions", {}).get(OUTLET)
            if visit.status != 101:
                visit.note("http.request" if scope["type"] == "http" else "socket.refused")
            elif outlet is not None and outlet.heir is not None:  # the app is over, the connection is not
                visit.follow(outlet.heir)
            else:
                visit.note("socket.closed")


class _Visit:
    """The log line of one request. It outlives the app's side of a connection that was handed over, so it keeps nothing
    of the scope, which refers to all of that side."""

    __slots__ = ("_address", "_began", "_code", "_heir", "_method", "_path", "status")

    def __init__(self, scope: Scope) -> None:
        client = scope.get("client")
        self._method = scope.get("method", "WS")
        self._path = scope["path"][:512]
        self._address = client[0] if client else None
        self._began = time.perf_counter()
        self._code: int | None = None
        self._heir: MessageSocket | SplicedSocket | None = None
        self.status: int | None = None

    def end(self, code: int) -> None:
        """Note the code with which a socket ended; the first call counts."""
        if self._code is None:
            self._code = code

    def follow(self, heir: MessageSocket | SplicedSocket) -> None:
        """Log the end of a connection when it comes."""
        self._heir = heir
        heir.when_gone(self._gone)

    def _gone(self) -> None:
        assert self._heir is not None
        self._code = self._heir.close_code
        self.note("socket.closed")

    def note(self, event: str) -> None:
        ended = {"status": self.status, "code": self._code}
        fields: dict[str, Any] = {name: value for name, value in ended.items() if value is not None}
        if event != "socket.opened":
            fields["seconds"] = round(time.perf_counter() - self._began, 4)
        write = _log.debug if self._path in ("/health", "/ready", "/metrics") else _log.info
        write(event, method=self._method, path=self._path, address=self._address, **fields)
