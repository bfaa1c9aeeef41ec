"""The core of agents that speak chat frames themselves; the default. Pure.

Everything passes unchanged, byte for byte and in order: also frames of unknown types, and lines that are no frames.
The agent reads its input while it works, so nothing waits. A chunk of output stays one list, so its lines cost
nothing here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sandbox.agents.core import InterruptProcess, Launch, Out, Past, ToAgent, ToGateway


@dataclass(frozen=True, slots=True)
class PlainCore:
    """Implements sandbox.agents.core.Core."""

    @property
    def ready(self) -> bool:
        return True

    @property
    def cuts_lines(self) -> bool:
        return False

    def traces(self, wanted: Launch, notes: Mapping[str, str]) -> Sequence[str]:
        return ()

    def command(self, wanted: Launch, past: Past) -> Launch:
        return wanted

    def begin(self, start: bytes | None) -> Sequence[Out]:
        return () if start is None else (ToAgent(start),)

    def waits(self, line: bytes) -> bool:
        return False

    def down(self, line: bytes) -> Sequence[Out]:
        return (ToAgent(line),)

    def up(self, lines: Sequence[bytes]) -> Sequence[Out]:
        return (ToGateway(lines),)

    def woken(self, name: str) -> Sequence[Out]:
        return ()

    def interrupt(self) -> Sequence[Out]:
        return (InterruptProcess(),)

    def over(self) -> Sequence[Out]:
        return ()
