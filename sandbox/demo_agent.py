"""The built-in agent: `python -m sandbox.demo_agent`. It needs no model and no network, and speaks chat frames.

It repeats each message, streamed a few words at a time, and does a handful of things on request (`/help`). It answers
one turn at a time; messages that come meanwhile wait. It also reads input during a turn, so that `abort` ends it.
"""

import json
import os
import re
import secrets
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

HELP = """I repeat what you say. I can also:
/permission [what]   ask you for a permission
/ask [question]      ask you a question
/write NAME TEXT     write a file into the workspace
/read NAME           show a file of the workspace
/long [seconds]      talk for a while; abort me
/lines N             send N chunks at once
/env NAME            tell whether a variable is set (never its value)
/crash               die in the middle of an answer
/exit                end
I count the messages I have answered in $HOME/.demo-agent, so I still know after a sleep."""

Frame = dict[str, Any]


class Aborted(Exception):
    """The turn was aborted."""


class InputEnded(Exception):
    """There is nothing left to do here: `close`, or the end of input."""


class Lines:
    """JSON frames from a descriptor. `wait` returns the next one, or None when the time is up."""

    def __init__(self, descriptor: int) -> None:
        self._fd = descriptor
        self._rest = b""
        self._ready: deque[bytes] = deque()
        self.ended = False

    def wait(self, seconds: float | None) -> bytes | None:
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._ready and not self.ended:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self._fd], [], [], left)[0]:
                return None
            self._read()
        return self._ready.popleft() if self._ready else None

    def _read(self) -> None:
        chunk = os.read(self._fd, 65536)
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if not chunk:
            self.ended = True
            lines.append(self._rest)
        self._ready += [line for line in lines if line.strip()]


class Counter:
    """The number of answered messages, stored in the agent's home."""

    def __init__(self, home: str) -> None:
        self._path = Path(home, ".demo-agent")
        try:
            self.messages = int(self._path.read_text())
        except (OSError, ValueError):
            self.messages = 0

    def add(self) -> None:
        self.messages += 1
        try:
            self._path.with_suffix(".new").write_text(f"{self.messages}\n")
            self._path.with_suffix(".new").replace(self._path)
        except OSError:
            return  # an unwritable home costs the memory, not the answer


class DemoAgent:
    def __init__(self, lines: Lines, write: Callable[[bytes], None], home: str) -> None:
        self._lines = lines
        self._write = write
        self._counter = Counter(home)
        self._waiting: deque[Frame] = deque()
        self._open: dict[str, Frame] = {}  # requests without an answer
        self._streaming = False
        self._interrupted = False
        self._leaving = False

    def run(self) -> None:
        """Answer until `close` or the end of input. Messages before the end still get answers."""
        try:
            while not self._leaving:
                frame = self._waiting.popleft() if self._waiting else self._next_frame(None)
                if frame is not None:
                    self._take(frame)
                elif self._lines.ended:
                    return
        except InputEnded:
            return

    def interrupt(self) -> None:
        """SIGINT: as good as an abort."""
        self._interrupted = True

    # Frames in

    def _next_frame(self, seconds: float | None) -> Frame | None:
        line = self._lines.wait(seconds)
        if line is None:
            return None
        try:
            frame = json.loads(line)
        except (ValueError, RecursionError):
            frame = None
        if isinstance(frame, dict):
            return frame
        self._say("error", error="I read one JSON object per line", code="bad_frame")
        return None

    def _take(self, frame: Frame) -> None:
        match frame.get("type"):
            case "start":
                self._ask_again(frame.get("pending"))
            case "message":
                self._counter.add()
                self._turn(frame, lambda: self._answer(_text(frame.get("content"))))
            case "permission_response" | "ask_user_answer":
                request = self._open.pop(str(frame.get("requestId")), None)
                if request is None:
                    self._say("error", error="nobody asked that", code="unknown_request")
                else:
                    self._turn(frame, lambda: self._tell(_outcome(request, frame)))
            case "close":
                raise InputEnded
            case "abort":
                pass  # nothing runs
            case _:
                self._say("error", error="I do not know this type of frame", code="unknown_type")

    def _pause(self, seconds: float) -> None:
        """Let time pass inside a turn, but listen."""
        deadline = time.monotonic() + seconds
        while True:
            left = deadline - time.monotonic()
            self._listen(max(0.0, left))
            if left <= 0:
                return

    def _listen(self, seconds: float) -> None:
        frame = self._next_frame(seconds)
        kind = frame.get("type") if frame else None
        if kind == "abort" or self._interrupted:
            raise Aborted
        if kind == "close" or (seconds and frame is None and self._lines.ended):
            raise InputEnded  # at the end of input only slow work is cut short
        if frame is not None:
            self._waiting.append(frame)

    def _await_answer(self, request: Frame) -> Frame:
        """Wait inside a turn for the answer to `request`; other messages wait."""
        self._open[request["requestId"]] = request
        try:
            while True:
                for frame in self._waiting:
                    if frame.get("requestId") == request["requestId"]:
                        self._waiting.remove(frame)
                        return frame
                self._listen(0.2)
        except Aborted:
            self._say("request_gone", requestId=request["requestId"], reason="the turn was aborted")
            raise
        finally:
            del self._open[request["requestId"]]

    # Frames out

    def _say(self, kind: str, **members: Any) -> None:
        self._write(json.dumps({"type": kind, **members}, ensure_ascii=False).encode(errors="replace") + b"\n")

    def _turn(self, frame: Frame, act: Callable[[], None]) -> None:
        metadata: Frame = {name: frame[name] for name in ("seq", "cid") if name in frame}
        self._interrupted = False
        try:
            act()
        except Aborted:
            metadata["aborted"] = True
            if self._streaming:
                self._streaming = False
                self._say("stream_end")
        self._say("done", metadata={**metadata, "messages": self._counter.messages})

    def _tell(self, text: str) -> None:
        self._stream(_few_words(text), 0)

    def _stream(self, chunks: Iterator[str], seconds_between: float) -> None:
        self._streaming = True
        self._say("stream_start")
        told: list[str] = []
        for chunk in chunks:
            if told:
                self._pause(seconds_between)
            told.append(chunk)
            self._say("chunk", text=chunk)
        self._streaming = False
        self._say("stream_end")
        content = [{"type": "text", "text": "".join(told)}]
        self._say("sdk_message", message={"type": "assistant", "message": {"content": content}})

    def _ask_again(self, pending: object) -> None:
        for request in pending if isinstance(pending, list) else []:
            if isinstance(request, dict) and isinstance(request.get("requestId"), str):
                kind = "ask_user_question" if "questions" in request else "tool_permission_request"
                members = {name: value for name, value in request.items() if name != "type"}
                self._open[request["requestId"]] = {"type": kind, **members}
                self._say(kind, **members)

    # Its commands

    def _answer(self, text: str) -> None:
        command, _, rest = text.partition(" ")
        act = {
            "/help": lambda: self._tell(HELP),
            "/permission": lambda: self._permission(rest or "run a command"),
            "/ask": lambda: self._ask(rest or "Which colour?"),
            "/write": lambda: self._tell(_write_file(rest)),
            "/read": lambda: self._tell(_read_file(rest)),
            "/long": lambda: self._long(rest),
            "/lines": lambda: self._many(rest),
            "/env": lambda: self._tell(f"{rest} is {'set' if rest in os.environ else 'not set'}"),
            "/crash": self._crash,
            "/exit": self._exit,
        }.get(command)
        if act is None:
            self._tell(text)
        else:
            act()

    def _permission(self, what: str) -> None:
        request = {"requestId": secrets.token_hex(8), "toolName": "demo", "toolInput": {"what": what}}
        self._say("tool_permission_request", **request)
        self._tell(_outcome(request, self._await_answer(request)))

    def _ask(self, question: str) -> None:
        options = [{"label": label, "description": f"choose {label}"} for label in ("red", "green", "blue")]
        questions = [{"question": question, "header": "Demo", "options": options, "multiSelect": False}]
        request = {"requestId": secrets.token_hex(8), "questions": questions}
        self._say("ask_user_question", **request)
        self._tell(_outcome(request, self._await_answer(request)))

    def _long(self, rest: str) -> None:
        seconds = _number(rest, 10.0)
        self._stream((f"tick {n + 1} " for n in range(int(seconds * 10))), 0.1)

    def _many(self, rest: str) -> None:
        self._stream((f"line {n + 1}\n" for n in range(int(min(_number(rest, 10), 1_000_000)))), 0)

    def _crash(self) -> NoReturn:
        self._say("stream_start")
        self._say("chunk", text="I am about to ")
        os._exit(3)

    def _exit(self) -> None:
        self._tell("bye")
        self._leaving = True


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
    return "".join(text for text in texts if isinstance(text, str))


def _few_words(text: str) -> Iterator[str]:
    """Cut `text` into pieces of up to three words; together they are exactly `text`."""
    words = re.findall(r"\s*\S+\s?|\s+", text)
    for first in range(0, len(words), 3):
        yield "".join(words[first : first + 3])


def _outcome(request: Frame, answer: Frame) -> str:
    if "questions" in request:
        given = answer.get("answers", answer.get("answer"))
        return f"You answered: {given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)}"
    allowed = answer.get("allow") is True or answer.get("behavior") == "allow"
    what = request.get("toolInput")
    named = what.get("what", "it") if isinstance(what, dict) else "it"
    return f"{'Allowed' if allowed else 'Denied'}: {named}"


def _number(text: str, default: float) -> float:
    try:
        return min(max(float(text), 0.0), 1e6) if text.strip() else default
    except ValueError:
        return default


def _beneath_workspace(name: str) -> Path | None:
    root = Path.cwd().resolve()
    path = Path(root, name).resolve()
    return path if name and "\0" not in name and path != root and path.is_relative_to(root) else None


def _write_file(rest: str) -> str:
    name, _, text = rest.partition(" ")
    path = _beneath_workspace(name)
    if path is None:
        return "I only write beneath the workspace."
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as exc:
        return f"I could not write {name}: {exc.strerror}"
    return f"Wrote {len(text.encode())} bytes to {name}."


def _read_file(name: str) -> str:
    path = _beneath_workspace(name)
    if path is None:
        return "I only read beneath the workspace."
    try:
        with path.open("rb") as file:
            return file.read(65536).decode(errors="replace")
    except OSError as exc:
        return f"I could not read {name}: {exc.strerror}"


def main() -> None:
    def write(line: bytes) -> None:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()

    agent = DemoAgent(Lines(sys.stdin.fileno()), write, os.environ.get("HOME", "."))
    signal.signal(signal.SIGINT, lambda number, stack: agent.interrupt())
    try:
        agent.run()
    except BrokenPipeError:
        os._exit(0)  # nobody listens


if __name__ == "__main__":
    main()
