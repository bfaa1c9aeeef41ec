"""The port of an agent's core: how the bridge speaks with one kind of agent.

Every agent has words of its own. A gateway knows chat frames only. A core stands between them: it makes lines for the
agent of what the gateway says, and chat frames of the agent's lines. It decides and does nothing else. The bridge's
shell (sandbox/bridge/agent/agent.py) owns the process, its pipes, signals and the notes of what was taken; it asks the
core, and performs what the core returns.

A core is pure and its state is data: no clock, no I/O, no randomness, and a copy of it goes on like the original. There
is one for each process of the agent. What it is given may be cut short, garbled, or of a kind it does not know: it
never raises, and goes on with the next line.

A record is *taken* when it goes to the agent, not before: what no process has had goes to the next one after a crash.
So a core that works on one message at a time says that further ones *wait*, and when it is *ready* for the next. They
stay in the bridge's queue until then. An answer to what the agent asks must not wait: the turn it belongs to would
never end. It goes past the messages that wait.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Launch:
    """The program to run, and its environment."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ToAgent:
    """Write `line` to the agent's input; it has no newline. Lines are written in order, before any further record."""

    line: bytes


@dataclass(frozen=True, slots=True)
class ToGateway:
    """Number each of `frames` and keep it until the gateway has confirmed it. A frame is one line of at most
    sandbox.protocol.agent.MAX_LINE bytes: a chat frame, or text that is shown as it is."""

    frames: Sequence[bytes]


Out = ToAgent | ToGateway


class Core(Protocol):
    """One process of an agent, from before its start."""

    def command(self, wanted: Launch) -> Launch:
        """What to run where `wanted` was configured."""
        ...

    def begin(self, start: bytes | None) -> Sequence[Out]:
        """The process runs. `start` is the session's `start` frame, with `resume` and `pending` for all but the first
        process; None if there is none. Called once, before `down` and `up`."""
        ...

    @property
    def ready(self) -> bool:
        """Whether the next record that waits may be taken now. Changes only with `begin`, `down` and `up`."""
        ...

    def waits(self, line: bytes) -> bool:
        """Whether this record waits until the core is ready. True only for what begins a turn; depends on the line
        alone, and changes nothing."""
        ...

    def down(self, line: bytes) -> Sequence[Out]:
        """The gateway says `line`: a record that was just taken, or an `abort`, which is no record."""
        ...

    def up(self, lines: Sequence[bytes]) -> Sequence[Out]:
        """The agent wrote these lines. Several at once mean the same as one after the other."""
        ...
