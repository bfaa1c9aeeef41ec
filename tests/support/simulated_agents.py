"""Agents and sandboxes of the simulation: messages tell them what to do, and they write it down."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from sandbox.ports.fleet import SandboxSpec
from sandbox.ports.link import Link, LinkEvents
from sandbox.ports.progress import OnProgress, unheard
from sandbox.protocol.values import Position
from sandbox.providers.memory.fleet import MemoryFleet
from sandbox.providers.memory.scripted import Script, ScriptedProcess


@dataclass
class Truth:
    """The real input and output of one session's agents."""

    written: dict[str, list[bytes]] = field(default_factory=dict)
    received: list[int] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)  # request ids of the answers that it got
    texts: dict[int, str] = field(default_factory=dict)  # its text so far in answer to a message
    started: list[dict[str, Any]] = field(default_factory=list)


class Agent:
    """Answers one message after the other, as each message says: `<name> <chunks> <pause> <deed>`."""

    def __init__(self, process: ScriptedProcess, truth: Truth) -> None:
        self._process = process
        self._truth = truth
        self._todo: list[dict[str, Any]] = []
        self._busy = False
        self._waits: dict[str, Callable[[], None]] = {}
        truth.written[process.epoch] = []

    def write(self, **frame: Any) -> None:
        if self._process.alive:
            line = json.dumps(frame).encode()
            self._truth.written[self._process.epoch].append(line)
            self._process.emit(line)

    def on_line(self, line: bytes) -> None:
        frame = json.loads(line)
        match frame["type"]:
            case "message":
                self._truth.received.append(frame["seq"])
                self._todo.append(frame)
                self._next()
            case "permission_response":
                self._truth.received.append(frame["seq"])
                self._truth.answers.append(frame["requestId"])
                self._waits.pop(frame["requestId"])()
            case "start":
                self._truth.started.append(frame)

    def _next(self) -> None:
        if self._todo and not self._busy:
            self._busy = True
            frame = self._todo.pop(0)
            name, chunks, pause, deed = frame["content"].split()
            self._truth.texts[frame["seq"]] = ""
            self._step(frame["seq"], name, int(chunks), float(pause), deed)

    def _step(self, seq: int, name: str, left: int, pause: float, deed: str) -> None:
        def go_on() -> None:
            if left:
                text = f"{name}-{left} " + ("x" * 90_000 if deed == "big" else "")
                self._truth.texts[seq] += text
                self.write(type="chunk", text=text)
                self._step(seq, name, left - 1, pause, "" if deed == "ask" else deed)
            elif deed == "crash":
                self._process.exit(3)
            else:
                self.write(type="done", metadata={"answers": seq})
                self._busy = False
                self._next()

        if deed == "ask":
            request = f"{self._process.epoch}-{seq}"
            self._waits[request] = go_on
            self.write(type="tool_permission_request", requestId=request, toolName="rm", toolInput={})
        elif deed == "forge":
            self.write(type="ack", cid="none", seq=1)
            self._step(seq, name, left, pause, "")
        elif pause:
            self._process.later(pause, go_on)
        else:
            go_on()


class SlowFleet(MemoryFleet):
    """Sandboxes that take their time, now and then."""

    def __init__(self, script: Script, rng: Random) -> None:
        super().__init__(script)
        self._rng = rng
        self._slow = rng.random() < 0.5

    async def _wait(self) -> None:
        if self._slow:
            await asyncio.sleep(self._rng.choice([0.0, 0.0, 0.002, 0.1, 2.0]) * self._rng.random())

    async def start(self, spec: SandboxSpec, progress: OnProgress = unheard) -> None:
        await self._wait()
        await super().start(spec, progress)
        await self._wait()

    async def connect(self, session_id: str, events: LinkEvents, after: Position | None) -> Link:
        await self._wait()
        link = await super().connect(session_id, events, after)
        await self._wait()
        return link

    async def running(self) -> list[str]:
        await self._wait()
        return await super().running()

    async def stop(self, session_id: str) -> None:
        await self._wait()
        await super().stop(session_id)
