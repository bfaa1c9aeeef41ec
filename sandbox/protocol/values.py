"""What gateway and bridge tell each other of an agent and its output, as values: both ends and the ports use them."""

from dataclasses import dataclass
from typing import Literal

SizePolicy = Literal["active", "smallest", "fixed"]  # whose wish a terminal's size is: sandbox/terminal/room.py


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the `agent` channel: after frame `offset` of the process `epoch`."""

    epoch: str
    offset: int


@dataclass(frozen=True, slots=True)
class Hello:
    """What the bridge says first on every link.

    `taker` names the memory in which the bridge notes what it took; a new name means that the old notes are gone.
    `taken` is the highest seq in it. `epoch` is the newest agent process, None before the first; `alive` is whether
    it runs. `held`: it may not start before `Tree.release`.
    """

    taker: str
    taken: int
    epoch: str | None
    alive: bool
    held: bool = False


@dataclass(frozen=True, slots=True)
class AgentExit:
    """The agent process of `epoch` ended after `offset` frames; nothing above `taken` was handed to it."""

    epoch: str
    offset: int
    taken: int
    code: int | None
    signal: str | None
    reason: str = ""  # for people: "exited with code 3"
