"""Messages between the gateway and a bridge, and their allowed order. Pure: both ends import it.

Text messages are control, one JSON object with a `type`. Binary messages are payload: upward one or more agent lines
joined by newlines, counted on from the last `epoch`; downward one or more deliveries, each `<seq> <line>`.

Neither end trusts the other. A bridge runs beside untrusted code, so its messages are checked here, member by member
(messages.py), and then by `LinkRules` for their place in the conversation. A violation is a `WireError`.

A position is two members of its message, `epoch` and `offset`: `of` makes a message of a position.
"""

from collections.abc import Sequence
from typing import Annotated, Self

import msgspec
from msgspec import Meta
from msgspec.structs import force_setattr

from sandbox.protocol.messages import MAX_NUMBER, EpochName, Message, Number, WireError, clip, read
from sandbox.protocol.values import AgentExit, Hello, Position, Reason

MAX_LINE = 1024 * 1024  # one line of agent output
MAX_UP = 2 * 1024 * 1024  # one message of a bridge
MAX_DOWN = 4 * 1024 * 1024  # one message of the gateway: a `start` line is escaped once more, which may double it
MAX_DELIVERY = 2 * 1024 * 1024 - 32  # one delivered line
MAX_CONTROL_UP = 8 * 1024
MOST_UNKNOWN = 16  # kinds in one pong
MOST_SETUP_FILES, MAX_SETUP_PATH, MOST_SETUP_ARGUMENTS = 128, 256, 512

Kind = Annotated[str, Meta(pattern=r"^[ -~]{0,80}\Z")]


class Attach(Message, frozen=True, tag="attach"):
    epoch: EpochName | None = None
    offset: Number | None = None

    def __post_init__(self) -> None:
        if self.epoch is not None and self.offset is None:
            raise WireError("bad offset", "offset")

    @classmethod
    def of(cls, after: Position | None) -> Self:
        return cls(None, 0) if after is None else cls(after.epoch, after.offset)

    @property
    def after(self) -> Position | None:
        return None if self.epoch is None or self.offset is None else Position(self.epoch, self.offset)


class Start(Message, frozen=True, tag="start"):
    line: str | None = None

    def __post_init__(self) -> None:
        _check_line(self.line or "")


class SetupFile(msgspec.Struct, frozen=True):
    """A file below the agent's HOME."""

    path: Annotated[str, Meta(max_length=MAX_SETUP_PATH)]
    content: str

    def __post_init__(self) -> None:
        parts = self.path.split("/")
        if "\0" in self.path or any(part in ("", ".", "..") for part in parts):
            raise WireError("bad path", "path")


class AgentSetup(Message, frozen=True, tag="configure"):
    """What the next processes of the agent get from its user's configuration, in place of what was set before: files
    of its HOME, and words behind its command. Sent only to bridges whose hello has `configures`."""

    files: Annotated[tuple[SetupFile, ...], Meta(max_length=MOST_SETUP_FILES)] = ()
    arguments: Annotated[tuple[str, ...], Meta(max_length=MOST_SETUP_ARGUMENTS)] = ()

    def __post_init__(self) -> None:
        if any("\0" in each for each in self.arguments):
            raise WireError("bad argument", "arguments")


NO_SETUP = AgentSetup()


class Inject(Message, frozen=True, tag="inject"):
    line: str

    def __post_init__(self) -> None:
        _check_line(self.line)


class Interrupt(Message, frozen=True, tag="interrupt"):
    pass


class StopAgent(Message, frozen=True, tag="stop"):
    pass


class Kill(Message, frozen=True, tag="kill"):
    pass


class Seen(Message, frozen=True, tag="seen"):
    epoch: EpochName
    offset: Number

    @property
    def position(self) -> Position:
        return Position(self.epoch, self.offset)


class Ready(Message, frozen=True, tag="ready"):
    """The gateway knows of `epoch`: its deliveries from here on are meant for that process."""

    epoch: EpochName


class Recall(Message, frozen=True, tag="recall"):
    """Hold back the record `seq`, and those behind it, unless the agent has it: its sender has cancelled it. Sent
    only to bridges whose hello has `recalls`. The answer is `recalled` if it is held back. Else there is none: it was
    taken, or dropped with its process, and the bridge reports either anyway."""

    seq: Number


class Drop(Message, frozen=True, tag="drop"):
    """The held record `seq` is cancelled: forget it and go on."""

    seq: Number


class Ping(Message, frozen=True, tag="ping"):
    n: Number


class Epoch(Message, frozen=True, tag="epoch"):
    epoch: EpochName
    base: Number


class Taken(Message, frozen=True, tag="taken"):
    seq: Number


class Recalled(Message, frozen=True, tag="recalled"):
    """The record `seq` is held back until `drop`, or until another gateway attaches."""

    seq: Number


class Problem(Message, frozen=True, tag="problem"):
    reason: Reason

    def __post_init__(self) -> None:
        force_setattr(self, "reason", clip(self.reason))


class Pong(Message, frozen=True, tag="pong", omit_defaults=True):
    """`unknown`: the number of the agent's events that its `core` does not know, by kind, since the last report."""

    n: Number
    core: Kind = ""
    unknown: Annotated[dict[Kind, Number], Meta(max_length=MOST_UNKNOWN)] = msgspec.field(default_factory=dict)


class Changed(Message, frozen=True, tag="changed"):
    """Something in the kept roots may have changed. A hint: coalesced, and none may come."""


Down = Attach | Start | AgentSetup | Inject | Interrupt | StopAgent | Kill | Seen | Ready | Recall | Drop | Ping
Up = Hello | Epoch | AgentExit | Taken | Recalled | Problem | Pong | Changed

_encoder = msgspec.json.Encoder()
_down: msgspec.json.Decoder[Down] = msgspec.json.Decoder(Down)
_up: msgspec.json.Decoder[Up] = msgspec.json.Decoder(Up)


def encode(message: Down | Up) -> bytes:
    """Return the text message that says `message`, as UTF-8."""
    return _encoder.encode(message)


def decode_up(text: bytes | str) -> Up:
    """Read a bridge's control message. Raises WireError."""
    if len(text) > MAX_CONTROL_UP:
        raise WireError("control message too long")
    return read(_up, text)


def decode_down(text: bytes | str) -> Down:
    """Read a gateway's control message. Raises WireError."""
    if len(text) > MAX_DOWN:
        raise WireError("control message too long")
    return read(_down, text)


def _check_line(line: str) -> None:
    if "\n" in line:
        raise WireError("bad line", "line")


def join_lines(lines: Sequence[bytes]) -> bytes:
    return b"\n".join(lines)


def split_lines(payload: bytes) -> list[bytes]:
    """Return the agent lines of a binary message; an empty message is one empty line. Raises WireError."""
    lines = payload.split(b"\n")
    if len(payload) > MAX_LINE and max(map(len, lines)) > MAX_LINE:
        raise WireError("line too long")
    return lines


def join_deliveries(deliveries: Sequence[tuple[int, bytes]]) -> bytes:
    return b"\n".join([b"%d %b" % delivery for delivery in deliveries])


def split_deliveries(payload: bytes) -> list[tuple[int, bytes]]:
    """Return the (seq, line) pairs of a binary message. Raises WireError."""
    deliveries = []
    for item in payload.split(b"\n"):
        number, space, line = item.partition(b" ")
        if not space or not number.isdigit() or len(number) > 16 or int(number) > MAX_NUMBER:
            raise WireError("bad delivery")
        deliveries.append((int(number), line))
    return deliveries


class LinkRules:
    """The messages that a bridge may send next: hello first and once, frames only of an announced process that has
    not exited, exits that agree with the count, confirmations only of delivered records, held records only after a
    recall. Any other raises WireError."""

    __slots__ = ("_delivered", "_recalled", "_running", "_taken", "epoch", "greeted", "offset")

    def __init__(self) -> None:
        self.greeted = False
        self._running = False
        self._taken = 0
        self._delivered = 0
        self._recalled: set[int] | None = None  # asked back; few links have any
        self.epoch = ""
        self.offset = 0

    def hello(self, hello: Hello) -> None:
        if self.greeted:
            raise WireError("a second hello")
        self.greeted = True
        self._taken = hello.taken

    def begin(self, begin: Epoch) -> None:
        if not self.greeted:
            raise WireError("no hello")
        if begin.epoch == self.epoch:
            # The same process again only skips frames that this gateway had confirmed; it never goes back.
            if not self._running or begin.base < self.offset:
                raise WireError("an epoch that goes back")
        elif self._running:
            raise WireError("a new process before the last one's exit")
        self.epoch, self.offset, self._running = begin.epoch, begin.base, True

    def frames(self, count: int) -> int:
        """Count frames in and return the first one's offset."""
        if not self._running:
            raise WireError("output of no process")
        first = self.offset + 1
        self.offset += count
        if self.offset > MAX_NUMBER:
            raise WireError("offset too large")
        return first

    def exit(self, exit: AgentExit) -> None:
        if not self._running or exit.epoch != self.epoch or exit.offset != self.offset:
            raise WireError("an exit that does not fit")
        self._running = False

    def delivered(self, seq: int) -> None:
        """Note a delivery of this end."""
        if seq > self._delivered:
            self._delivered = seq

    def taken(self, seq: int) -> None:
        if not self.greeted:
            raise WireError("no hello")
        if not self._taken < seq <= self._delivered:
            raise WireError("a confirmation that does not fit")
        self._taken = seq

    def recall(self, seq: int) -> None:
        """Note a recall of this end."""
        self._recalled = {seq} if self._recalled is None else self._recalled | {seq}

    def recalled(self, seq: int) -> None:
        if self._recalled is None or seq not in self._recalled or seq <= self._taken:
            raise WireError("a recall that does not fit")
        self._recalled.discard(seq)
