"""The state of one viewer of a terminal, in the native dialect of `/terminal/{id}`. Pure.

Frames of the gateway go in, in order, and events for a screen come out; a person's keys go in, and frames for the
gateway come out. A connection may end at any byte. Three rules make coming back exact:

- The position is counted here: `ready` says where it begins, and every byte of output is one further. A picture of the
  screen is not output and is not counted.
- The position is only worth something together with the present screen. It is given up at a `reset` until the
  picture has come, and at a `ready` that does not go on from here until the output after it has come: a connection that
  ends in between would otherwise resume at a position whose screen was never painted.
- Unsent keys are for the process they were typed for. They wait while there is no connection, up to MOST_TYPED bytes,
  and are dropped when another process is found, or none (`absent`). Keys that are typed after that are for the next
  process: the gateway keeps them until it is up.

Without a position the gateway sends the screen as it is.
"""

from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote, urlencode

import orjson

from gateway.protocol.text import visible_line
from sandbox.protocol.terminal import MAX_SIDE, Exit, Resized, Role, Size, TerminalTrouble
from sandbox.protocol.values import Position

PROTOCOL = "holdfast.terminal.v1"
MOST_TYPED = 64 << 10  # unsent keys, in bytes, without a connection; above, `type` takes nothing
MOST_AT_ONCE = 8 << 20  # the same with a connection: they are on their way
FRAME_BYTES = 16 << 10  # of keys, in one frame


class UnreadableGateway(Exception):
    """This client cannot understand a frame of the gateway; the text repeats nothing of it."""


@dataclass(frozen=True, slots=True)
class Greeted:
    """A connection is there. `goes_on`: the present screen is right, and output goes on from it; otherwise it is void:
    clear. `absent`: there is no terminal, and `Told` has the status; when there is one, it comes as Painted."""

    size: Size
    goes_on: bool
    absent: bool


@dataclass(frozen=True, slots=True)
class Output:
    """Bytes of the program, each once: `old` ones, whose questions are answered already, then new ones."""

    old: bytes
    new: bytes


@dataclass(frozen=True, slots=True)
class Painted:
    """The present screen is void: clear, write this, go on."""

    picture: bytes
    size: Size


@dataclass(frozen=True, slots=True)
class Told:
    """The session's status has changed."""

    status: str


@dataclass(frozen=True, slots=True)
class Expiring:
    """The token ends soon: renew it."""


Event = Greeted | Output | Painted | Exit | Resized | Told | TerminalTrouble | Expiring
Stage = Literal["away", "here", "painting"]  # no greeting yet; counting; the next binary frame is a picture


class TerminalView:
    """`size` is the size that this viewer can show, None to take the terminal's. `lively`: the program has written
    since this viewer first came. `after` is where to begin, if not with the screen."""

    def __init__(self, name: str, role: Role, size: Size | None, after: Position | None = None) -> None:
        self._name = name
        self._role: Role = role
        self._wanted = size
        self._epoch = after.epoch if after else ""
        self._offset = after.offset if after else 0
        self._known = after is not None  # the position belongs to the present screen
        self._spoiled = False  # but the screen must be painted again
        self._asked: Position | None = None  # the position asked for on this connection
        self._stage: Stage = "away"
        self._replay = 0  # bytes still to come that are old
        self._size = size or Size(80, 24)
        self._typed = bytearray()
        self._said: dict[str, bytes] = {}  # control frames to send, the newest of each kind
        self.lively = False

    # the connection

    @property
    def position(self) -> Position | None:
        """The position at which the program's output goes on after the present screen; None: the whole screen is
        needed."""
        return Position(self._epoch, self._offset) if self._known and not self._spoiled else None

    @property
    def epoch(self) -> str:
        """The terminal's process; "" if there is none, or it is not known yet."""
        return self._epoch

    @property
    def unsent(self) -> int:
        """Unsent keys, in bytes."""
        return len(self._typed)

    def connecting(self) -> str:
        """The query of the next connection."""
        self._stage, self._replay = "away", 0
        self._said.clear()
        self._asked = position = self.position
        self._known, self._spoiled = position is not None, False
        asked: dict[str, str | int] = {"name": self._name, "role": self._role}
        if self._wanted is not None:
            asked |= {"cols": self._wanted.cols, "rows": self._wanted.rows}
        if position is not None:
            asked |= {"epoch": position.epoch, "offset": position.offset}
        return urlencode(asked, quote_via=quote)

    def start_over(self) -> None:
        """The screen was drawn over: have the next connection send it whole."""
        self._spoiled = True

    # input of the person

    def type(self, keys: bytes, *, live: bool) -> bool:
        """Take keys; False if too many wait, and then none is taken. `live`: there is a connection, and they are sent
        at once."""
        if self._role != "drive" or len(self._typed) + len(keys) > (MOST_AT_ONCE if live else MOST_TYPED):
            return False
        self._typed += keys
        return True

    def resize(self, size: Size) -> None:
        self._wanted = size
        if self._stage != "away" and self._role == "drive":
            self._say_size(size)

    def renew(self, token: str) -> None:
        self._said["auth"] = orjson.dumps({"type": "auth", "token": token})

    def next_frame(self) -> str | bytes | None:
        """The next frame to send: text for control, bytes for keys. None: there is none, or no connection."""
        if self._stage == "away":
            return None
        if self._said:
            return self._said.pop(next(iter(self._said))).decode()
        if self._typed:
            piece = bytes(self._typed[:FRAME_BYTES])
            del self._typed[:FRAME_BYTES]
            return piece
        return None

    def _say_size(self, size: Size) -> None:
        self._said["resize"] = orjson.dumps({"type": "resize", "cols": size.cols, "rows": size.rows})

    # frames of the gateway

    def hear(self, frame: str | bytes) -> Event | None:
        """The event of a frame; None for an unknown kind. Raises UnreadableGateway."""
        return self._hear_bytes(frame) if isinstance(frame, bytes) else self._hear_text(frame)

    def _hear_bytes(self, payload: bytes) -> Event:
        match self._stage:
            case "away":
                raise UnreadableGateway("output before the greeting")
            case "painting":
                self._stage, self._known, self._spoiled = "here", True, False
                return Painted(payload, self._size)
        self._known = True
        self._offset += len(payload)
        old = min(self._replay, len(payload))
        self._replay -= old
        self.lively = self.lively or old < len(payload)
        return Output(payload[:old], payload[old:])

    def _hear_text(self, text: str) -> Event | None:
        fields = _object(text)
        kind = fields.get("type")
        if self._stage == "away" and kind in ("reset", "exit", "resize"):
            raise UnreadableGateway(f"{kind} before the greeting")
        match kind:
            case "ready":
                return self._greeted(fields)
            case "reset":
                self._moved(_epoch(fields), _number(fields, "offset"))
                self._stage, self._known, self._replay = "painting", False, 0
                if fields.get("cols") is not None:
                    self._size = _size(fields)
            case "exit":
                code, signal = fields.get("code"), fields.get("signal")
                return Exit(code if isinstance(code, int) else None, signal if isinstance(signal, str) else None)
            case "resize":
                self._size = _size(fields)
                return Resized(self._size.cols, self._size.rows)
            case "status":
                return Told(_words(fields, "status"))
            case "error":
                return TerminalTrouble(_words(fields, "code"), _words(fields, "error"))
            case "auth_expiring":
                return Expiring()
        return None

    def _greeted(self, fields: dict[str, Any]) -> Greeted:
        epoch, offset, self._replay = _epoch(fields), _number(fields, "offset"), _number(fields, "replayed")
        self._size = _size(fields)
        self._stage = "here"
        goes_on = self._asked == Position(epoch, offset)
        self._known, self._spoiled = goes_on, goes_on and self._spoiled  # a screen that does not go on is cleared
        if fields.get("absent") is True and self._epoch:
            self._typed.clear()
        self._moved(epoch, offset)
        if self._wanted is not None and self._role == "drive":
            self._say_size(self._wanted)
        return Greeted(self._size, goes_on, absent=not epoch)

    def _moved(self, epoch: str, offset: int) -> None:
        if self._epoch not in ("", epoch):
            self._typed.clear()
        self._epoch, self._offset = epoch, offset


def _object(text: str) -> dict[str, Any]:
    try:
        fields = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise UnreadableGateway("a text frame is not JSON") from None
    if not isinstance(fields, dict):
        raise UnreadableGateway("a text frame is no object")
    return fields


def _number(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name)
    if type(value) is not int or value < 0:
        raise UnreadableGateway(f"bad {name}")
    return value


def _size(fields: dict[str, Any]) -> Size:
    cols, rows = _number(fields, "cols"), _number(fields, "rows")
    if not 0 < cols <= MAX_SIDE or not 0 < rows <= MAX_SIDE:
        raise UnreadableGateway("bad size")
    return Size(cols, rows)


def _epoch(fields: dict[str, Any]) -> str:
    value = fields.get("epoch")
    if not isinstance(value, str):
        raise UnreadableGateway("bad epoch")
    return value


def _words(fields: dict[str, Any], name: str) -> str:
    """Text for people, or for comparing; control characters are made visible."""
    value = fields.get(name)
    return visible_line(value, longest=300) if isinstance(value, str) else ""
