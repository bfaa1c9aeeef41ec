"""Messages between the gateway and a bridge, and what may follow what. Pure: both ends import it.

Text messages are control, one JSON object with a `type`. Binary messages are payload: upward one or more agent lines
joined by newlines, counted on from the last `epoch`; downward one or more deliveries, each `<seq> <line>`.

Neither end trusts the other: a bridge runs beside code that nobody vouches for, so whatever it sends is checked here,
field by field, and then by `LinkRules` for its place in the conversation. A violation is a `WireError`; its text may be
shown, because it never repeats what was sent.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from sandbox.protocol.values import AgentExit, Hello, Position

MAX_LINE = 1024 * 1024  # one line of agent output
MAX_UP = 2 * 1024 * 1024  # one message of a bridge
MAX_DOWN = 4 * 1024 * 1024  # one message of the gateway: a `start` line is escaped once more, which may double it
MAX_DELIVERY = 2 * 1024 * 1024 - 32  # one delivered line
MAX_CONTROL_UP = 8 * 1024
MAX_NUMBER = 2**53 - 1
MAX_REASON = 1000

EPOCH = re.compile(r"[A-Za-z0-9_-]{1,64}")
SIGNAL = re.compile(r"[A-Z0-9+]{1,16}")
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]+")


class WireError(Exception):
    """The other end broke the protocol; the connection is of no more use."""


@dataclass(frozen=True, slots=True)
class Attach:
    after: Position | None


@dataclass(frozen=True, slots=True)
class Start:
    line: str | None


@dataclass(frozen=True, slots=True)
class Inject:
    line: str


@dataclass(frozen=True, slots=True)
class Interrupt:
    pass


@dataclass(frozen=True, slots=True)
class StopAgent:
    pass


@dataclass(frozen=True, slots=True)
class Kill:
    pass


@dataclass(frozen=True, slots=True)
class Seen:
    position: Position


@dataclass(frozen=True, slots=True)
class Ready:
    """The gateway knows of `epoch`: what it delivers from here on is meant for that process."""

    epoch: str


@dataclass(frozen=True, slots=True)
class Ping:
    n: int


@dataclass(frozen=True, slots=True)
class Epoch:
    epoch: str
    base: int


@dataclass(frozen=True, slots=True)
class Taken:
    seq: int


@dataclass(frozen=True, slots=True)
class Problem:
    reason: str


@dataclass(frozen=True, slots=True)
class Pong:
    n: int


@dataclass(frozen=True, slots=True)
class Changed:
    """Something in the kept roots may have changed. A hint: coalesced, and none may come."""


Down = Attach | Start | Inject | Interrupt | StopAgent | Kill | Seen | Ready | Ping
Up = Hello | Epoch | AgentExit | Taken | Problem | Pong | Changed


def encode(message: Down | Up) -> bytes:
    """Return the text message that says `message`, as UTF-8."""
    match message:
        case Seen(position):  # first, because it is by far the most frequent
            fields: dict[str, Any] = {"type": "seen", "epoch": position.epoch, "offset": position.offset}
        case Attach(after):
            place = (None, 0) if after is None else (after.epoch, after.offset)
            fields = {"type": "attach", "epoch": place[0], "offset": place[1]}
        case Start(line):
            fields = {"type": "start", "line": line}
        case Inject(line):
            fields = {"type": "inject", "line": line}
        case Interrupt():
            fields = {"type": "interrupt"}
        case StopAgent():
            fields = {"type": "stop"}
        case Kill():
            fields = {"type": "kill"}
        case Ready(epoch):
            fields = {"type": "ready", "epoch": epoch}
        case Ping(n):
            fields = {"type": "ping", "n": n}
        case Hello():
            fields = {
                "type": "hello",
                "taker": message.taker,
                "taken": message.taken,
                "epoch": message.epoch,
                "alive": message.alive,
                "held": message.held,
            }
        case Epoch(epoch, base):
            fields = {"type": "epoch", "epoch": epoch, "base": base}
        case AgentExit():
            fields = {
                "type": "exit",
                "epoch": message.epoch,
                "offset": message.offset,
                "taken": message.taken,
                "code": message.code,
                "signal": message.signal,
                "reason": clip(message.reason),
            }
        case Taken(seq):
            fields = {"type": "taken", "seq": seq}
        case Problem(reason):
            fields = {"type": "problem", "reason": clip(reason)}
        case Changed():
            fields = {"type": "changed"}
        case _:  # Pong
            fields = {"type": "pong", "n": message.n}
    return orjson.dumps(fields)


def clip(reason: str) -> str:
    """One line that fits, whatever is in it."""
    clean = reason.encode(errors="replace").decode()  # a lone surrogate (an odd file name) cannot be sent
    return _CONTROL_CHARACTERS.sub(" ", clean)[:MAX_REASON]


def decode_up(text: bytes | str) -> Up:
    """Read a bridge's control message. Raises WireError."""
    if len(text) > MAX_CONTROL_UP:
        raise WireError("control message too long")
    fields = read_object(text)
    match fields.get("type"):
        case "hello":
            epoch = fields.get("epoch")
            return Hello(
                taker=read_epoch(fields, "taker"),
                taken=read_number(fields, "taken"),
                epoch=None if epoch is None else read_epoch(fields, "epoch"),
                alive=read_flag(fields, "alive") and epoch is not None,
                held=read_flag(fields, "held"),
            )
        case "epoch":
            return Epoch(read_epoch(fields, "epoch"), read_number(fields, "base"))
        case "exit":
            return AgentExit(
                epoch=read_epoch(fields, "epoch"),
                offset=read_number(fields, "offset"),
                taken=read_number(fields, "taken"),
                code=None if fields.get("code") is None else read_number(fields, "code", 255),
                signal=None if fields.get("signal") is None else read_match(fields, "signal", SIGNAL),
                reason=_reason(fields),
            )
        case "taken":
            return Taken(read_number(fields, "seq"))
        case "problem":
            return Problem(_reason(fields))
        case "pong":
            return Pong(read_number(fields, "n"))
        case "changed":
            return Changed()
    raise WireError("unknown control message")


def decode_down(text: bytes | str) -> Down:
    """Read a gateway's control message. Raises WireError."""
    if len(text) > MAX_DOWN:
        raise WireError("control message too long")
    fields = read_object(text)
    match fields.get("type"):
        case "attach":
            if fields.get("epoch") is None:
                return Attach(None)
            return Attach(read_position(fields))
        case "start":
            return Start(None if fields.get("line") is None else _line(fields))
        case "inject":
            return Inject(_line(fields))
        case "interrupt":
            return Interrupt()
        case "stop":
            return StopAgent()
        case "kill":
            return Kill()
        case "seen":
            return Seen(read_position(fields))
        case "ready":
            return Ready(read_epoch(fields, "epoch"))
        case "ping":
            return Ping(read_number(fields, "n"))
    raise WireError("unknown control message")


# What is read here raises WireError, and is read by sandbox/protocol/terminal.py, too.


def read_object(text: bytes | str) -> dict[str, Any]:
    try:
        fields = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise WireError("control message is not JSON") from None
    if not isinstance(fields, dict):
        raise WireError("control message is not an object")
    return fields


def read_number(fields: dict[str, Any], name: str, most: int = MAX_NUMBER) -> int:
    value = fields.get(name)
    if type(value) is not int or not 0 <= value <= most:
        raise WireError(f"bad {name}")
    return value


def read_flag(fields: dict[str, Any], name: str) -> bool:
    value = fields.get(name)
    if type(value) is not bool:
        raise WireError(f"bad {name}")
    return value


def read_match(fields: dict[str, Any], name: str, pattern: re.Pattern[str]) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise WireError(f"bad {name}")
    return value


def read_epoch(fields: dict[str, Any], name: str) -> str:
    return read_match(fields, name, EPOCH)


def read_position(fields: dict[str, Any]) -> Position:
    return Position(read_epoch(fields, "epoch"), read_number(fields, "offset"))


def _line(fields: dict[str, Any]) -> str:
    value = fields.get("line")
    if not isinstance(value, str) or "\n" in value:
        raise WireError("bad line")
    return value


def _reason(fields: dict[str, Any]) -> str:
    value = fields.get("reason")
    if not isinstance(value, str) or len(value) > MAX_REASON:
        raise WireError("bad reason")
    return clip(value)


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
    """What may come next from a bridge: hello first and once, frames only of an announced process that has not exited,
    exits that agree with the count, confirmations only of what was delivered. Anything else raises WireError."""

    __slots__ = ("_delivered", "_greeted", "_running", "_taken", "epoch", "offset")

    def __init__(self) -> None:
        self._greeted = False
        self._running = False
        self._taken = 0
        self._delivered = 0
        self.epoch = ""
        self.offset = 0

    @property
    def greeted(self) -> bool:
        return self._greeted

    def hello(self, hello: Hello) -> None:
        if self._greeted:
            raise WireError("a second hello")
        self._greeted = True
        self._taken = hello.taken

    def begin(self, begin: Epoch) -> None:
        self._expect_hello()
        if begin.epoch == self.epoch:
            # The same process again only skips what this gateway had confirmed; it never goes back.
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
        """Note what this end sent."""
        self._delivered = max(self._delivered, seq)

    def taken(self, seq: int) -> None:
        self._expect_hello()
        if not self._taken < seq <= self._delivered:
            raise WireError("a confirmation that does not fit")
        self._taken = seq

    def _expect_hello(self) -> None:
        if not self._greeted:
            raise WireError("no hello")
