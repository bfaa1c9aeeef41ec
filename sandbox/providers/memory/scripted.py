"""Agents of a few lines of Python, for the memory provider.

A script is called once for each agent process, with that process. It returns the function that gets each line the
process reads. A script acts only through its process and waits only with `process.later`, so it runs on virtual time.
"""

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import Any, Protocol

from sandbox.ports.fleet import SandboxSpec

OnLine = Callable[[bytes], None]
STOP_SECONDS = 7.0


class ScriptHost(Protocol):
    """What a scripted process may do to the sandbox it runs in."""

    def agent_wrote(self, process: "ScriptedProcess", line: bytes) -> None: ...
    def agent_exited(self, process: "ScriptedProcess", code: int | None, signal: str | None) -> None: ...
    def agent_reads(self) -> None: ...
    def write(self, path: bytes, content: bytes) -> None: ...
    def lose_link(self, reason: str = "cut by the script") -> None: ...


class ScriptedProcess:
    """One run of a script. A script may replace `on_interrupt` and `on_stop`; by default both end the process."""

    def __init__(self, epoch: str, spec: SandboxSpec, script: "Script", host: ScriptHost) -> None:
        self.epoch = epoch
        self.spec = spec
        self.alive = True
        self.reading = True
        self.stopping = False
        self.lines: list[bytes] = []  # every line it was handed, including the start line and injected lines
        self.on_interrupt: Callable[[], None] = lambda: self.exit(None, "SIGINT")
        self.on_stop: Callable[[], None] = lambda: self.exit(0)
        self._host = host
        self._timers: set[asyncio.TimerHandle] = set()
        self._on_line = script(self)

    def hand(self, line: bytes) -> None:
        """Write one line to its standard input."""
        if self.alive:
            self.lines.append(line)
            self._on_line(line)

    def emit(self, frame: bytes | dict[str, Any]) -> None:
        """Write one line to standard output. A dead process writes nothing."""
        if self.alive:
            line = frame if isinstance(frame, bytes) else json.dumps(frame, separators=(",", ":")).encode()
            assert b"\n" not in line, "one call is one line"
            self._host.agent_wrote(self, line)

    def write_file(self, path: bytes, content: bytes) -> None:
        """Write a file in the kept roots. `path` begins with `workspace/` or `agent/`."""
        if self.alive:
            self._host.write(path, content)

    def exit(self, code: int | None = 0, signal: str | None = None) -> None:
        if self.alive:
            self.alive = False
            self._cancel_timers()
            self._host.agent_exited(self, code, signal)

    def _cancel_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def stop(self) -> None:
        """End its input. It is killed if it has not exited after STOP_SECONDS."""
        self.stopping = True
        self.later(STOP_SECONDS, lambda: self.exit(None, "SIGKILL"))
        self.on_stop()

    def hang(self) -> None:
        """Stop reading. The bridge keeps later deliveries and does not take them."""
        self.reading = False

    def read_on(self) -> None:
        self.reading = True
        self._host.agent_reads()

    def lose_link(self, reason: str = "cut by the script") -> None:
        self._host.lose_link(reason)

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Run `action` after `seconds` of loop time, if the process is still alive then."""

        def fire() -> None:
            self._timers.discard(timer)
            action()

        timer = asyncio.get_running_loop().call_later(seconds, fire)
        self._timers.add(timer)


Script = Callable[[ScriptedProcess], OnLine]


def silent(process: ScriptedProcess) -> OnLine:
    """Reads every line and writes nothing."""
    return lambda line: None


def echo(process: ScriptedProcess) -> OnLine:
    """Answers each `message` of the chat dialect with the message's own text. `close` ends it."""
    answers = itertools.count(1)

    def on_line(line: bytes) -> None:
        frame = json.loads(line)
        match frame.get("type"):
            case "message":
                answer(process, said(frame), number=next(answers), seq=frame.get("seq"))
            case "close":
                process.exit(0)

    return on_line


def said(frame: dict[str, Any]) -> str:
    """The text of a message: its `content`, or the joined text parts of its `content`."""
    content = frame.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


def answer(process: ScriptedProcess, text: str, *, number: int = 1, seq: int | None = None) -> None:
    """Emit one whole turn: stream_start, a chunk for each word, stream_end, sdk_message, done."""
    process.emit({"type": "stream_start"})
    words = text.split(" ")
    for index, word in enumerate(words):
        process.emit({"type": "chunk", "text": word if index == len(words) - 1 else word + " "})
    process.emit({"type": "stream_end"})
    content = [{"type": "text", "text": text}]
    process.emit({"type": "sdk_message", "message": {"type": "assistant", "message": {"content": content}}})
    process.emit({"type": "done", "metadata": {"seq": seq, "answer": number}})
