"""Values about an agent and its output that gateway and bridge exchange: both ends and the ports use them."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import force_setattr

from sandbox.protocol.messages import MAX_REASON, EpochName, ExitCode, Message, Number, SignalName, clip

Reason = Annotated[str, Meta(max_length=MAX_REASON)]
SizePolicy = Literal["active", "smallest", "fixed"]  # whose wish a terminal's size is: sandbox/terminal/room.py


class Position(msgspec.Struct, frozen=True, gc=False):
    """A place in the `agent` channel: after frame `offset` of the process `epoch`."""

    epoch: str
    offset: int


class Hello(Message, frozen=True, tag="hello", omit_defaults=True):
    """The bridge's first message on every link.

    `taker` names the memory in which the bridge notes taken records; a new name means that the old notes are gone.
    `taken` is the highest seq in it. `epoch` is the newest agent process, None before the first; `alive` is whether
    it runs. `held`: it may not start before `Tree.release`. `recalls`: this bridge understands `recall` and `drop`.
    """

    taker: EpochName
    taken: Number
    epoch: EpochName | None
    alive: bool
    held: bool
    recalls: bool = False
    configures: bool = False

    def __post_init__(self) -> None:
        if self.epoch is None:
            force_setattr(self, "alive", False)


class AgentExit(Message, frozen=True, tag="exit"):
    """The agent process of `epoch` ended after `offset` frames. It got nothing above `taken`, except answers to its
    requests, which end with it."""

    epoch: EpochName
    offset: Number
    taken: Number
    code: ExitCode | None
    signal: SignalName | None
    reason: Reason  # for people: "exited with code 3"

    def __post_init__(self) -> None:
        force_setattr(self, "reason", clip(self.reason))
