"""The core of a small agent with its own protocol, which works on one message at a time, and its bridge:
`python -m tests.support.turn_core <config fd> <listen fd>` is `python -m sandbox.bridge` with this core added.

The agent reads `hi` at its start, `do TEXT`, `answer ID`, `stop` and `pong TEXT`. It writes `hello` when it can take
the first message, `say TEXT`, `ask ID`, `over` at the end of a turn, and `ping TEXT` to get `pong TEXT`.

Its other lines make the core use everything that a core may do. `note TEXT` stores a note, so that the next process
reads `hi TEXT`; `forget` removes the note. `wake TEXT` makes the core say TEXT a little later; `sleep` cancels that.
`end TEXT` ends the process. `what TEXT` is an unknown line. The arguments contain `--noted` if there was a note, and
`--here` if `here*` is in the agent's home. The core writes `file` there and renames `old*`.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sandbox.agents.catalogue import CORES
from sandbox.agents.core import (
    EndProcess,
    HomeFile,
    HomeMove,
    Launch,
    Note,
    Out,
    Past,
    ToAgent,
    ToGateway,
    UnknownFrame,
    WakeAfter,
)
from sandbox.bridge.__main__ import main

NAME = "turns"
LONGEST = 10_000  # characters of a text that are passed on
HERE = "marks/*/here*"


@dataclass(slots=True)
class TurnCore:
    """Implements sandbox.agents.core.Core."""

    greeted: bool = False
    busy: bool = False
    asked: list[str] = field(default_factory=list)
    noted: str = ""
    to_say: str = ""

    @property
    def ready(self) -> bool:
        return self.greeted and not self.busy

    @property
    def cuts_lines(self) -> bool:
        return True

    def traces(self, wanted: Launch, notes: Mapping[str, str]) -> Sequence[str]:
        return (HERE, "nowhere/file")

    def command(self, wanted: Launch, past: Past) -> Launch:
        self.noted = past.notes.get("text", "")
        flags = [*(["--noted"] if self.noted else []), *(["--here"] if HERE in past.found else [])]
        files = (HomeFile("made/file", b"of the core"),)
        moves = (HomeMove("marks/*/old*", "renamed"),)
        env = {**wanted.env, "TURNS": "one"}
        return Launch((*wanted.argv, "--turns", *flags), env, files, wanted.directory, moves)

    def begin(self, start: bytes | None) -> Sequence[Out]:
        again = "hi again" if _frame(start or b"").get("resume") is True else "hi"
        return [_to_agent(again, self.noted) if self.noted else ToAgent(again.encode())]

    def waits(self, line: bytes) -> bool:
        return _frame(line).get("type") == "message"

    def down(self, line: bytes) -> Sequence[Out]:
        match _frame(line):
            case {"type": "message", **rest}:
                self.busy = True
                return [_to_agent("do", str(rest.get("content")))]
            case {"type": "permission_response", "requestId": str(asked)} if asked in self.asked:
                self.asked.remove(asked)
                return [_to_agent("answer", asked)]
            case {"type": "permission_response"}:
                return [_to_gateway("error", code="unknown_request")]
            case {"type": "abort"} if self.busy:
                return [ToAgent(b"stop")]
        return []

    def up(self, lines: Sequence[bytes]) -> Sequence[Out]:
        return [out for line in lines for out in self._up(line)]

    def _up(self, line: bytes) -> Iterator[Out]:
        word, _, rest = line.partition(b" ")
        text = rest.decode(errors="replace")[:LONGEST]
        match word:
            case b"hello":
                self.greeted = True
            case b"say":
                yield _to_gateway("chunk", text=text)
            case b"ask":
                self.asked.append(text)
                yield _to_gateway("tool_permission_request", requestId=text)
            case b"over" if self.busy:
                self.busy = False
                yield _to_gateway("stream_end")
                yield _to_gateway("done")
            case b"ping":
                yield ToAgent(b"pong " + rest)
            case b"note":
                yield Note({"text": text.encode(errors="replace").decode()[:100]})
            case b"forget":
                yield Note({"text": None})
            case b"wake":
                self.to_say = text
                yield WakeAfter("say", 0.01)
            case b"sleep":
                yield WakeAfter("say", None)
            case b"end":
                yield EndProcess(text)
            case b"what":
                yield UnknownFrame(text)

    def woken(self, name: str) -> Sequence[Out]:
        return [_to_gateway("chunk", text=self.to_say)]

    def interrupt(self) -> Sequence[Out]:
        return [EndProcess("the agent did not stop")]

    def over(self) -> Sequence[Out]:
        return [_to_gateway("stream_end")] if self.busy else []


def _to_agent(word: str, text: str) -> Out:
    return ToAgent(f"{word} {' '.join(text.split())}"[:LONGEST].encode(errors="replace"))


def _to_gateway(kind: str, **members: str) -> Out:
    return ToGateway([json.dumps({"type": kind, **members}).encode()])


def _frame(line: bytes) -> dict[str, Any]:
    try:
        frame = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return frame if isinstance(frame, dict) else {}


if __name__ == "__main__":
    CORES[NAME] = TurnCore
    sys.exit(main())
