"""The web surface of a bridge that a person started: `/health`, and on any path a WebSocket of raw lines.

A frame from the client is a line for the agent's stdin; each line of its stdout is a text frame. The agent starts
when a client comes and no agent runs. One client at a time: the newest takes the place of the one before. A line of
output is forgotten once it is sent. Output waits for the next client if none is connected, up to the backlog's bound;
then the agent is not read. Input that the agent does not read fills its queue; then the client is not read.

There is no token here, so browsers are refused: any page could drive the agent otherwise. Browsers send the page's
site with each WebSocket (`Origin`); programs do not.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from sandbox.bridge.agent.agent import Agent, AgentFailed
from sandbox.protocol.agent_stream import BeginEpoch, Frames
from sandbox.protocol.values import Position
from sandbox.system.log import log

PORTION_BYTES = 256 * 1024
LEAVE_SECONDS = 2.0  # for a client to read the rest at the bridge's end
MAX_REASON = 123  # bytes, in a close frame
ENDED, REPLACED, FAILED = 1000, 4409, 4500


class RawLines:
    """An ASGI application for one agent."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._changed = asyncio.Event()
        self._numbers = count(agent.taken + 1)
        self._client: _Client | None = None
        agent.on_change = self._changed.set
        agent.on_problem = lambda reason: log("bridge.problem", reason=reason)

    async def end(self) -> None:
        """End the agent, and tell its client."""
        await self._agent.end()
        if self._client is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(LEAVE_SECONDS):
                    await self._client.told.wait()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if any(name == b"origin" for name, _ in scope["headers"]):
            await _refusal(403, "no_browsers", "without a token no page of a browser may come in")(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._serve(WebSocket(scope, receive, send))
        elif scope["path"] == "/health" and scope["method"] in ("GET", "HEAD"):
            await JSONResponse({"status": "ok", "agent": self._agent.health})(scope, receive, send)
        else:
            error = "here are only GET /health and, on any path, a WebSocket with the agent's lines"
            await _refusal(404, "not_found", error)(scope, receive, send)

    async def _serve(self, socket: WebSocket) -> None:
        await socket.accept()
        before, client = self._client, _Client(self._agent, self._changed, self._numbers, socket)
        self._client = client
        if before is not None:
            before.replaced.set()
            await before.gone.wait()  # two clients must not read the same output
        try:
            code, reason = await client.run()
        finally:
            client.gone.set()
        with suppress(WebSocketDisconnect, RuntimeError, OSError):  # the other end may be gone
            await socket.close(code, reason.encode()[:MAX_REASON].decode(errors="ignore"))
        client.told.set()


class _Client:
    def __init__(self, agent: Agent, changed: asyncio.Event, numbers: Iterator[int], socket: WebSocket) -> None:
        self._agent = agent
        self._changed = changed
        self._numbers = numbers
        self._socket = socket
        self._open = asyncio.Event()  # the agent's process takes lines
        self.replaced = asyncio.Event()
        self.gone = asyncio.Event()
        self.told = asyncio.Event()  # the client got the reason of the end

    async def run(self) -> tuple[int, str]:
        """Serve until the end; return the close code and its reason."""
        try:
            self._agent.start(None)
        except AgentFailed as exc:
            return FAILED, str(exc)
        self._changed.set()
        tasks = (
            asyncio.create_task(self._replaced(), name="lines.replaced"),
            asyncio.create_task(self._write(), name="lines.write"),
            asyncio.create_task(self._read(), name="lines.read"),
        )
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return next(task for task in tasks if task in done).result()

    async def _replaced(self) -> tuple[int, str]:
        await self.replaced.wait()
        return REPLACED, "another client has come"

    async def _write(self) -> tuple[int, str]:
        """Send the output as it comes, until the newest process has exited."""
        agent, cursor = self._agent, self._agent.backlog.cursor(None)
        with suppress(WebSocketDisconnect, RuntimeError, OSError):
            while True:
                await self._changed.wait()
                self._changed.clear()
                while (step := agent.backlog.step(cursor, PORTION_BYTES)) is not None:
                    match step:
                        case BeginEpoch(epoch):
                            agent.open_gate(epoch)
                            if epoch == agent.epoch:
                                self._open.set()
                        case Frames(first, lines):
                            await self._send(cursor.epoch or "", first, lines)
                        case exit if exit.epoch == agent.epoch:
                            return ENDED, f"agent {exit.reason}"
        return ENDED, ""

    async def _send(self, epoch: str, first: int, lines: Sequence[bytes]) -> None:
        sent = first - 1
        try:
            for line in lines:
                await self._socket.send_text(line.decode(errors="replace"))
                sent += 1
        finally:
            self._agent.confirm(Position(epoch, sent))

    async def _read(self) -> tuple[int, str]:
        await self._open.wait()
        while (message := await self._socket.receive())["type"] == "websocket.receive":
            text = message.get("text")
            line = message["bytes"] if text is None else text.encode(errors="replace")
            await self._agent.room()
            self._agent.deliver([(next(self._numbers), line.removesuffix(b"\n").removesuffix(b"\r"))])
        return ENDED, ""


def _refusal(status: int, code: str, error: str) -> JSONResponse:
    return JSONResponse({"error": error, "code": code}, status_code=status)
