"""A small app behind the real front door, in its own process: a target for hostile clients.

`python -m tests.support.front_door` reads HOLDFAST_* like the gateway, and HOLDFAST_TEST_LIMITS (JSON) for the
guard's finer bounds. `Door.open()` starts it and knows its address, its log and its memory.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import jwt
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

SECRETS = {
    "HOLDFAST_JWT_SECRET": "jwt-secret-of-the-tests-0123456789abcdef",
    "HOLDFAST_API_TOKEN": "api-token-of-the-tests-0123456789",
    "HOLDFAST_INTERNAL_TOKEN": "internal-token-of-the-tests-01234",
    "HOLDFAST_RELAY_SECRET": "relay-secret-of-the-tests-0123456",
}


def token(user: str = "ada", *, ttl: float = 3600, **claims: Any) -> str:
    claims = {"userId": user, "email": f"{user}@example.com", "exp": int(time.time() + ttl), **claims}
    return jwt.encode(claims, SECRETS["HOLDFAST_JWT_SECRET"], "HS256")


class Door:
    """The running process."""

    def __init__(self, process: "subprocess.Popen[str]", address: str, log: Path) -> None:
        self.process = process
        self.address = address
        self.host, _, port = address.removeprefix("http://").rpartition(":")
        self.port = int(port)
        self._log = log

    @classmethod
    @contextmanager
    def open(cls, *, limits: dict[str, float] | None = None, **settings: str) -> Iterator["Door"]:
        with tempfile.TemporaryDirectory() as home:
            log = Path(home, "log")
            names = {f"HOLDFAST_{name.upper()}": value for name, value in settings.items()}
            given = {"HOLDFAST_PORT": "0", "HOLDFAST_DATA_DIR": home, **SECRETS, **names}
            environ = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
            environ |= given | {"HOLDFAST_TEST_LIMITS": json.dumps(limits or {})}
            with log.open("wb") as errors:
                process = subprocess.Popen(
                    [sys.executable, "-m", "tests.support.front_door"],
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env=environ,
                    text=True,
                )
            assert process.stdout is not None
            try:
                address = process.stdout.readline().strip()
                assert address, log.read_text()
                yield cls(process, address, log)
            finally:
                process.kill()
                process.wait()
                process.stdout.close()

    @property
    def connections(self) -> int:
        """Established connections, as the kernel sees them at the server's end."""
        with open(f"/proc/{self.process.pid}/net/tcp") as table:
            rows = [line.split() for line in table.readlines()[1:]]
        return sum(1 for row in rows if row[1].endswith(f":{self.port:04X}") and row[3] == "01")

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def rss(self) -> int:
        """Resident bytes now."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def _say(stream: TextIO, text: str) -> None:
    stream.write(f"{text}\n")
    stream.flush()


async def _health(_: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _echo_body(request: Request) -> Response:
    return JSONResponse({"bytes": len(await request.body())})


async def _who(request: Request) -> Response:
    principal = request.state.principal
    forwarded = [name for name in request.headers if name.startswith("x-forwarded")]
    client = request.scope["client"][0]
    return JSONResponse({"kind": principal.kind, "user": principal.user_id, "client": client, "forwarded": forwarded})


async def _big(_: Request) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(1024):
            yield b"x" * 65536

    return StreamingResponse(pieces())


async def _echo(websocket: WebSocket) -> None:
    """Echo the ASGI way."""
    await websocket.accept(websocket.scope["subprotocols"][0] if websocket.scope["subprotocols"] else None)
    try:
        while True:
            message = await websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
            if message.get("text") is not None:
                await websocket.send_text(message["text"])
            else:
                await websocket.send_bytes(message["bytes"])
    except WebSocketDisconnect:
        return


async def _flood(websocket: WebSocket) -> None:
    """Send 64 KiB texts for as long as the other side is there, the ASGI way."""
    await websocket.accept()
    piece = "x" * 65536
    while True:
        await websocket.send_text(piece)


async def _outlet(websocket: WebSocket) -> None:
    """Echo by the outlet. `flood`, `crash`, `close`, `pause` are commands. The sessions `silent` and
    `raise` end before an answer; with ?hang there is never one."""
    if websocket.path_params["sessionId"] == "silent":
        return
    if websocket.path_params["sessionId"] == "raise":
        raise RuntimeError("asked to")
    if "hang" in websocket.query_params:
        await asyncio.Event().wait()
    await websocket.accept()
    outlet = websocket.scope["extensions"]["holdfast.outlet"]
    pieces = outlet.limit // 65536 * 32  # far more than both kernels' buffers take

    def on_text(payload: bytes) -> None:
        if payload == b"flood":
            sent = sum(outlet.send_text(b"x" * 65536) for _ in range(pieces))
            _say(sys.stderr, f"accepted {sent} of {pieces}, buffered {outlet.buffered}")
        elif payload == b"crash":
            raise RuntimeError("asked to")
        elif payload == b"close":
            outlet.close(4404, "as you wish")
        elif payload == b"pause":
            outlet.pause_reading()
            asyncio.get_running_loop().call_later(0.2, outlet.resume_reading)
        else:
            outlet.send_text(payload)

    outlet.on_text = on_text
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass
    _say(sys.stderr, "the app saw the disconnect")


def routes() -> list[BaseRoute]:
    from gateway.auth.identity import Accept
    from gateway.auth.policy import (
        ADMINS,
        ADMINS_OR_OWNER,
        LIFECYCLE,
        LIFECYCLE_SESSION,
        PUBLIC,
        RELAY_OR_OWNER,
        SERVICES_SESSION,
        RoutePolicy,
    )
    from gateway.routing.route import WS, RouteSpec, ServedRoute, ServedSocket

    by_query = RoutePolicy(Accept.USER, "sessionId", shared=True)
    http = [
        ("GET", "/health", PUBLIC, _health),
        ("GET", "/ready", PUBLIC, _health),
        ("GET", "/api/sandboxes", LIFECYCLE, _who),
        ("POST", "/api/sandboxes/{id}", LIFECYCLE_SESSION, _echo_body),
        ("GET", "/internal/sessions/{id}/messages", SERVICES_SESSION, _who),
        ("GET", "/logs/{id}", ADMINS_OR_OWNER, _who),
        ("GET", "/metrics", ADMINS, _who),
        ("GET", "/files/{id}/{path:path}", ADMINS_OR_OWNER, _big),
    ]
    sockets = [
        ("/ws/v2", by_query, _echo),
        ("/terminal/{sessionId}", by_query, _outlet),
        ("/ws/sandboxes/{id}", RELAY_OR_OWNER, _flood),
    ]
    return [
        *(ServedRoute(RouteSpec(method, path, policy, "for tests"), served) for method, path, policy, served in http),
        *(ServedSocket(RouteSpec(WS, path, policy, "for tests"), served) for path, policy, served in sockets),
    ]


def main() -> int:
    import uvloop

    from gateway.auth.identity import Identity
    from gateway.auth.origin import Origins
    from gateway.auth.policy import PolicyMiddleware
    from gateway.auth.tickets import Tickets
    from gateway.auth.tokens import SharedSecret, TokenVerifier
    from gateway.config.loading import load_settings
    from gateway.config.settings import resolve_secrets
    from gateway.server.front_door import FrontDoor, GuardLimits
    from gateway.server.server import serve
    from gateway.telemetry.telemetry import configure_logging

    settings = load_settings(os.environ)
    secrets = resolve_secrets(settings)
    configure_logging(settings.log_level)
    finer = {**GuardLimits.of(settings).__dict__, **json.loads(os.environ["HOLDFAST_TEST_LIMITS"])}

    async def run() -> int:
        drained = asyncio.Event()  # set by SIGUSR1; SIGUSR2 is a part of the house that dies
        door = FrontDoor(settings, limits=GuardLimits(**finer), refused=lambda code: _say(sys.stderr, code))
        assert secrets.jwt_secret is not None
        identity = Identity(TokenVerifier(SharedSecret(secrets.jwt_secret)), secrets, Tickets())
        guard = Middleware(
            PolicyMiddleware,
            routes=routes(),
            identity=identity,
            origins=Origins(settings.allowed_origins),
            counters=door.counters,
            query_tokens=settings.query_tokens,
        )

        async def drain() -> None:
            _say(sys.stdout, "draining")
            await drained.wait()

        app = Starlette(routes=routes(), middleware=[guard])
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, drained.set)
        loop.add_signal_handler(signal.SIGUSR2, door.fatal, RuntimeError("the queue died"))
        return await serve(app, settings, door=door, drain=drain, on_ready=lambda address: _say(sys.stdout, address))

    return uvloop.run(run())


if __name__ == "__main__":
    sys.exit(main())
