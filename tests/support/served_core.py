"""The core of a small agent that is a server, and its bridge: `python -m tests.support.served_core <config fd> <listen
fd>` is `python -m sandbox.bridge` with this core besides.

What the gateway says is posted to it at /said, an `abort` to /abort. Its events become frames `chunk`, its answers
frames `answer`.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sandbox.agents.catalogue import CORES
from sandbox.agents.core import Http, HttpServer, Launch, Out, Past, ToGateway
from sandbox.bridge.__main__ import main

NAME = "served"
SERVER = HttpServer("/health", "/events", "ada", "SERVED_PASSWORD")


@dataclass(slots=True)
class ServedCore:
    """Implements sandbox.agents.core.ServerCore."""

    number: int = 0

    @property
    def ready(self) -> bool:
        return True

    @property
    def cuts_lines(self) -> bool:
        return True

    def traces(self, wanted: Launch, notes: Mapping[str, str]) -> Sequence[str]:
        return ()

    def command(self, wanted: Launch, past: Past) -> Launch:
        return Launch(wanted.argv, wanted.env, server=SERVER)

    def begin(self, start: bytes | None) -> Sequence[Out]:
        return [Http("GET", "/begun", "begin")]

    def waits(self, line: bytes) -> bool:
        return False

    def down(self, line: bytes) -> Sequence[Out]:
        self.number += 1
        path = "/abort" if b'"abort"' in line else "/said"
        return [Http("POST", path, f"{path} {self.number}", line)]

    def up(self, lines: Sequence[bytes]) -> Sequence[Out]:
        return [_frame("chunk", text=line.decode(errors="replace")) for line in lines]

    def answered(self, tag: str, status: int, body: bytes) -> Sequence[Out]:
        return [_frame("answer", tag=tag, status=status, size=len(body), body=body[:40].decode(errors="replace"))]

    def woken(self, name: str) -> Sequence[Out]:
        return ()

    def interrupt(self) -> Sequence[Out]:
        return ()

    def over(self) -> Sequence[Out]:
        return [_frame("over")]


def _frame(kind: str, **members: str | int) -> Out:
    return ToGateway([json.dumps({"type": kind, **members}).encode()])


if __name__ == "__main__":
    CORES[NAME] = ServedCore
    sys.exit(main())
