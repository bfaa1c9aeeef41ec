"""A small gateway that speaks the native dialect of `/terminal/{id}`, with real programs on real PTYs behind it.

For tests of clients: it sleeps, forgets and closes on command. It has one session, `s1`, and terminals by name, whose
ring is all their output from `base` on. The picture of a screen is the output itself.
"""

import asyncio
import fcntl
import os
import pty
import signal
import socket
import struct
import termios
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from tests.support.proxy import CuttingProxy

SHELL = ("bash", "--norc", "--noprofile", "-i")
FRAME = 16 << 10


class Viewer:
    """One connection; frames to it wait in order."""

    def __init__(self, role: str) -> None:
        self.drives = role != "view"
        self.frames: asyncio.Queue[str | bytes | int] = asyncio.Queue()  # a number closes with it

    def say(self, kind: str, **members: Any) -> None:
        self.frames.put_nowait(orjson.dumps({"type": kind, **members}).decode())

    def send(self, payload: bytes) -> None:
        self.frames.put_nowait(payload)


class Terminal:
    """A program on a PTY. Typing starts it again when it has ended."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.command = command
        self.viewers: list[Viewer] = []
        self.number = 0
        self.size = (80, 24)
        self.written = b""
        self.base = 0
        self.exit: dict[str, Any] | None = None
        self.typed = b""  # by the driver
        self._descriptor = -1
        self._process: asyncio.subprocess.Process | None = None
        self._waiting: asyncio.Task[None] | None = None

    @property
    def epoch(self) -> str:
        return f"e{self.number}" if self.number else ""

    async def start(self) -> None:
        self.number += 1
        self.written, self.base, self.exit = b"", 0, None
        self._descriptor, theirs = pty.openpty()
        self.resize(*self.size)
        environment = {"PATH": os.environ["PATH"], "PS1": "$ ", "TERM": "xterm-256color"}
        self._process = await asyncio.create_subprocess_exec(
            "setsid", "--ctty", *self.command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
        )
        os.close(theirs)
        drained = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._descriptor, self._read, drained)
        self._waiting = asyncio.create_task(self._wait(self._process, drained), name=f"terminal.{self.name}")

    def _read(self, drained: asyncio.Event) -> None:
        try:
            data = os.read(self._descriptor, FRAME)
        except OSError:  # the last one on the other side has gone
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            drained.set()
            return
        self.written += data
        for viewer in self.viewers:
            viewer.send(data)

    async def _wait(self, process: asyncio.subprocess.Process, drained: asyncio.Event) -> None:
        code = await process.wait()
        await drained.wait()
        os.close(self._descriptor)
        name = signal.Signals(-code).name if code < 0 else None
        self.exit = {"code": None if code < 0 else code, "signal": name}
        for viewer in self.viewers:
            viewer.say("exit", **self.exit)

    async def stop(self) -> None:
        if self._process is not None and self._waiting is not None:
            if self._process.returncode is None:
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._waiting

    def resize(self, cols: int, rows: int) -> None:
        changed, self.size = self.size != (cols, rows), (cols, rows)
        if self.exit is None and self._descriptor >= 0:
            fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        if changed:
            for viewer in self.viewers:
                viewer.say("resize", cols=cols, rows=rows)

    async def type(self, keys: bytes) -> None:
        self.typed += keys
        if self.exit is None:
            os.write(self._descriptor, keys)
            return
        await self.start()
        for viewer in self.viewers:
            self.paint(viewer)

    def paint(self, viewer: Viewer) -> None:
        cols, rows = self.size
        viewer.say("reset", epoch=self.epoch, offset=self.base + len(self.written), cols=cols, rows=rows)
        viewer.send(self.written)

    def greet(self, viewer: Viewer, epoch: str | None, offset: int) -> None:
        end = self.base + len(self.written)
        meets = epoch == self.epoch and self.base <= offset <= end
        begin = offset if meets else end
        cols, rows = self.size
        viewer.say("ready", epoch=self.epoch, offset=begin, replayed=end - begin, cols=cols, rows=rows)
        if meets and begin < end:
            viewer.send(self.written[begin - self.base :])
        elif not meets and self.written:
            self.paint(viewer)
        if self.exit is not None:
            viewer.say("exit", **self.exit)
        self.viewers.append(viewer)

    def wrote(self, words: bytes) -> bool:
        return words in self.written

    def forget(self, count: int) -> None:
        """The ring has moved on by so many bytes."""
        self.written, self.base = self.written[count:], self.base + count

    def describe(self) -> dict[str, Any]:
        cols, rows = self.size
        return {
            "name": self.name, "epoch": self.epoch, "base": self.base, "offset": self.base + len(self.written),
            "cols": cols, "rows": rows, "viewers": len(self.viewers), "idleSeconds": 90.0, "alive": self.exit is None,
            "exit": self.exit, "title": "", "command": list(self.command),
        }  # fmt: skip


class NativeGateway:
    """Listens on a port of its own. `status` is the session's; while it is `sleeping`, typing wakes."""

    def __init__(self, command: Sequence[str] = SHELL) -> None:
        self.command = command
        self.terminals: dict[str, Terminal] = {}
        self.status = "running"
        self.asked: list[dict[str, str]] = []  # the query of each connection
        self.renewed: list[str] = []  # tokens that came in-band
        self.waiting: list[Viewer] = []  # viewers that came while it slept
        app = Starlette(
            routes=[
                Route("/api/sandboxes/{id}", self._session),
                Route("/api/sandboxes/{id}/terminals", self._list),
                Route("/api/sandboxes/{id}/wake", self._wake, methods=["POST"]),
                WebSocketRoute("/terminal/{id}", self._serve),
            ]
        )
        config = uvicorn.Config(
            app, log_config=None, lifespan="off", ws="websockets-sansio", timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._serving: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._serving = asyncio.create_task(self._server._serve([self._socket]), name="native.gateway")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._serving is not None
        self.close(1001)
        self._server.should_exit = True
        await self._serving
        for terminal in self.terminals.values():
            await terminal.stop()

    @property
    def port(self) -> int:
        port: int = self._socket.getsockname()[1]
        return port

    @property
    def viewers(self) -> list[Viewer]:
        return [*self.waiting, *(viewer for each in self.terminals.values() for viewer in each.viewers)]

    @property
    def main(self) -> Terminal:
        return self.terminals["main"]

    def close(self, code: int) -> None:
        for viewer in self.viewers:
            viewer.frames.put_nowait(code)

    async def wake(self) -> None:
        self.status = "running"
        waiting, self.waiting = self.waiting, []
        for viewer in waiting:
            viewer.say("status", status="starting")
            terminal = await self._terminal("main")
            terminal.paint(viewer)
            terminal.viewers.append(viewer)

    async def _terminal(self, name: str) -> Terminal:
        if name not in self.terminals:
            self.terminals[name] = Terminal(name, self.command)
            await self.terminals[name].start()
        return self.terminals[name]

    async def _session(self, request: Request) -> JSONResponse:
        if request.path_params["id"] != "s1":
            return JSONResponse({"error": "there is no such session", "code": "unknown_session"}, 404)
        return JSONResponse({"id": "s1", "status": self.status, "reason": ""})

    async def _list(self, request: Request) -> JSONResponse:
        return JSONResponse({"terminals": [each.describe() for each in self.terminals.values()]})

    async def _wake(self, request: Request) -> JSONResponse:
        await self.wake()
        return JSONResponse({})

    async def _serve(self, websocket: WebSocket) -> None:
        query = dict(websocket.query_params)
        self.asked.append(query)
        assert websocket.headers["authorization"].startswith("Bearer ")
        await websocket.accept(subprotocol="holdfast.terminal.v1")
        viewer = Viewer(query["role"])
        name = query["name"]
        if self.status == "sleeping":
            viewer.say("ready", epoch="", offset=0, replayed=0, cols=80, rows=24, absent=True)
            viewer.say("status", status="sleeping")
            self.waiting.append(viewer)
        else:
            terminal = await self._terminal(name)
            if viewer.drives and "cols" in query:
                terminal.resize(int(query["cols"]), int(query["rows"]))
            terminal.greet(viewer, query.get("epoch"), int(query.get("offset", 0)))
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(self._send(websocket, viewer))
            try:
                while True:
                    await self._hear(await websocket.receive(), name, viewer)
            except WebSocketDisconnect:
                sending.cancel()
        for viewers in (self.waiting, *(each.viewers for each in self.terminals.values())):
            if viewer in viewers:
                viewers.remove(viewer)

    async def _send(self, websocket: WebSocket, viewer: Viewer) -> None:
        while not isinstance(frame := await viewer.frames.get(), int):
            if isinstance(frame, bytes):
                await websocket.send_bytes(frame)
            else:
                await websocket.send_text(frame)
        await websocket.close(frame)

    async def _hear(self, message: Any, name: str, viewer: Viewer) -> None:
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message["code"])
        if (keys := message.get("bytes")) is not None:
            if not viewer.drives:
                return
            if self.status == "sleeping":
                await self.wake()
            await self.terminals[name].type(keys)
            return
        control = orjson.loads(message["text"])
        if control["type"] == "auth":
            self.renewed.append(control["token"])
        elif control["type"] == "resize" and name in self.terminals:
            self.terminals[name].resize(control["cols"], control["rows"])


class Road(CuttingProxy):
    """The way to the gateway: cut, closed for a while, open again."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._closed = False

    def cut(self) -> None:
        for passage in self.passages:
            passage.cut()

    def stall(self) -> None:
        for passage in self.passages:
            passage.stall()

    def close(self) -> None:
        self._closed = True
        self.cut()

    def open(self) -> None:
        self._closed = False

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._closed:
            await super()._connect(reader, writer)
