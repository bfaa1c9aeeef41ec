"""The bridge's end of a link: one gateway at a time, the newest wins.

What goes up needs no queue of its own: the backlog is the queue, and a cursor says how far this gateway has been told.
Everything else that goes up is either cumulative (taken, pong, changed: only the newest counts) or bounded (problems).
What comes down is read one message at a time, and not at all while the agent's queue is full.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from starlette.websockets import WebSocket, WebSocketDisconnect

from sandbox.bridge.agent.agent import Agent, AgentFailed
from sandbox.bridge.base.config import Limits
from sandbox.protocol import agent as wire
from sandbox.protocol.agent_stream import BeginEpoch, Frames
from sandbox.protocol.messages import WireError
from sandbox.system.log import log

PORTION_BYTES = 256 * 1024
PROBLEMS_KEPT = 16

BAD_FRAME, REPLACED, SILENT = 4400, 4409, 4408


class AgentLinkServer:
    """Lets gateways in, and the one before out. `attached` is whether one is there."""

    def __init__(self, agent: Agent, limits: Limits) -> None:
        self._agent = agent
        self._limits = limits
        self._current: _Attachment | None = None
        self._unheard = False  # a change that happened while nobody was there
        self.on_attach: Callable[[], None] = lambda: None
        agent.on_change = self._wake
        agent.on_problem = self._tell_problem

    @property
    def attached(self) -> bool:
        return self._current is not None

    def tell_changed(self) -> None:
        """Something in the roots may have changed; whoever comes next is told too."""
        self._unheard = self._current is None
        if self._current is not None:
            self._current.tell_changed()

    def _wake(self) -> None:
        if self._current is not None:
            self._current.wake.set()

    def _tell_problem(self, reason: str) -> None:
        log("bridge.problem", reason=reason)
        if self._current is not None:
            self._current.tell_problem(reason)

    async def serve(self, socket: WebSocket) -> None:
        """Speak with one gateway until it goes, is replaced, or breaks the rules."""
        await socket.accept()
        try:
            async with asyncio.timeout(self._limits.attach_seconds):
                message = await _receive(socket)
            attach = wire.decode_down(message) if isinstance(message, str) else None
            if not isinstance(attach, wire.Attach):
                raise WireError("attach first")
        except (WireError, TimeoutError):
            return await socket.close(BAD_FRAME)
        except WebSocketDisconnect:
            return None
        if self._current is not None:
            self._current.replaced.set()
        attachment = self._current = _Attachment(self._agent, self._limits, socket, attach)
        if self._unheard:
            self.tell_changed()
        self.on_attach()
        try:
            code = await attachment.run()
        finally:
            if self._current is attachment:
                self._current = None
        if code is not None:
            await socket.close(code)


class _Attachment:
    def __init__(self, agent: Agent, limits: Limits, socket: WebSocket, attach: wire.Attach) -> None:
        self._agent = agent
        self._limits = limits
        self._socket = socket
        self._hello = agent.attach()
        self._cursor = agent.backlog.cursor(attach.after)
        self._taken_told = self._hello.taken
        self._pong: int | None = None
        self._changed = False
        self._problems: deque[str] = deque(maxlen=PROBLEMS_KEPT)  # full: the oldest is only in the log
        self.wake = asyncio.Event()
        self.wake.set()
        self.replaced = asyncio.Event()

    def tell_problem(self, reason: str) -> None:
        self._problems.append(reason)
        self.wake.set()

    def tell_changed(self) -> None:
        self._changed = True
        self.wake.set()

    async def run(self) -> int | None:
        """Serve until the end; return the close code to send, None if the other end is gone."""
        tasks = {
            asyncio.create_task(self._pump(), name="attachment.pump"),
            asyncio.create_task(self._read(), name="attachment.read"),
            asyncio.create_task(self._wait_replaced(), name="attachment.replaced"),
        }
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return max(task.result() or 0 for task in done) or None

    async def _wait_replaced(self) -> int:
        await self.replaced.wait()
        return REPLACED

    async def _pump(self) -> int | None:
        try:
            await self._say(self._hello)
            while True:
                await self.wake.wait()
                self.wake.clear()
                await self._tell_everything()
        except (WebSocketDisconnect, RuntimeError, OSError):
            return None

    async def _tell_everything(self) -> None:
        while True:
            if self._pong is not None:
                n, self._pong = self._pong, None
                await self._say(wire.Pong(n))
            if self._changed:
                self._changed = False
                await self._say(wire.Changed())
            while self._problems:
                await self._say(wire.Problem(self._problems.popleft()))
            match self._agent.backlog.step(self._cursor, PORTION_BYTES):
                case None:
                    return await self._tell_taken()
                case BeginEpoch(epoch, base):
                    await self._say(wire.Epoch(epoch, base))
                case Frames(_, lines):
                    await self._socket.send_bytes(wire.join_lines(lines))
                    await self._tell_taken()
                case exit:
                    await self._tell_taken()
                    await self._say(exit)

    async def _tell_taken(self) -> None:
        if self._agent.taken > self._taken_told:
            self._taken_told = self._agent.taken
            await self._say(wire.Taken(self._taken_told))

    async def _say(self, message: wire.Up) -> None:
        await self._socket.send_text(wire.encode(message).decode())

    async def _read(self) -> int | None:
        try:
            while True:
                async with asyncio.timeout(self._limits.silence_seconds):
                    message = await _receive(self._socket)
                if self.replaced.is_set():
                    return REPLACED
                if isinstance(message, str):
                    self._obey(wire.decode_down(message))
                else:
                    await self._deliver(message)
        except WireError as exc:
            log("bridge.bad_frame", reason=str(exc))
            return BAD_FRAME
        except TimeoutError:
            return SILENT
        except WebSocketDisconnect:
            return None

    async def _deliver(self, payload: bytes) -> None:
        for seq, line in wire.split_deliveries(payload):
            await self._agent.room()
            if self.replaced.is_set():
                return
            self._agent.deliver(seq, line)

    def _obey(self, message: wire.Down) -> None:
        match message:
            case wire.Start(line):
                try:
                    if self._agent.start(None if line is None else line.encode()):
                        self._agent.open_gate(self._agent.epoch)
                except AgentFailed as exc:
                    self.tell_problem(str(exc))
            case wire.Inject(line):
                self._agent.inject(line.encode())
            case wire.Interrupt():
                self._agent.interrupt()
            case wire.StopAgent():
                self._agent.stop()
            case wire.Kill():
                self._agent.kill()
            case wire.Seen():
                self._agent.confirm(message.position)
            case wire.Ready(epoch):
                self._agent.open_gate(epoch)
            case wire.Ping(n):
                self._pong = n
                self.wake.set()
            case wire.Attach():
                raise WireError("a second attach")


async def _receive(socket: WebSocket) -> str | bytes:
    message = await socket.receive()
    if message["type"] != "websocket.receive":
        raise WebSocketDisconnect(message.get("code", 1006))
    text: str | None = message.get("text")
    if text is None and len(message["bytes"]) > wire.MAX_DOWN:
        raise WireError("message too long")
    return text if text is not None else bytes(message["bytes"])
