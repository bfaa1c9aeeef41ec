"""Messages of a terminal's link, between a gateway and a bridge. Pure: both ends import it.

Every viewer has a link of its own to the bridge, `/terminals/{name}/link`. Binary frames are bytes, unfragmented: of
the program's output up, at most `MAX_BYTES` each; of somebody's typing down. Text frames are control, one JSON object
with a `type`.

The gateway says `open` first. The bridge answers `hello`; if that says `picture`, exactly one binary frame follows that
is a picture of the screen and not counted. Then come the program's bytes, counted on from the offset that was said.
`reset` is like another hello: whatever the viewer has is to be cleared, a picture follows, and it is counted on from
there.

Neither end trusts the other: whatever cannot be read raises WireError, whose text never repeats what was sent.
"""

import re
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from sandbox.protocol.agent import (
    EPOCH,
    MAX_NUMBER,
    SIGNAL,
    WireError,
    clip,
    read_epoch,
    read_number,
    read_object,
    read_position,
)
from sandbox.protocol.values import Position

MAX_BYTES = 16 * 1024  # one binary frame of output
MAX_INPUT = 1024 * 1024  # one binary frame of typing
MAX_PICTURE = 1024 * 1024
MAX_CONTROL = 8 * 1024
MAX_SIDE = 1000  # of a screen, in cells

Role = Literal["drive", "view"]

NOWHERE = Position("nowhere", MAX_NUMBER)  # no terminal was ever there: whoever comes from it gets a picture

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_WORD = re.compile(r"[a-z_]{1,32}")


@dataclass(frozen=True, slots=True)
class Size:
    cols: int
    rows: int


@dataclass(frozen=True, slots=True)
class Open:
    """What a viewer wants: bytes after `after`, where it was, or the screen as it is. `size` is what it can show; None:
    whatever there is. One who only views neither types nor has a say in the size. With `anew`, a program that has ended
    is started once more; without, the viewer is told of its end."""

    size: Size | None
    role: Role
    after: Position | None
    anew: bool = False


@dataclass(frozen=True, slots=True)
class Resize:
    size: Size


@dataclass(frozen=True, slots=True)
class Greeting:
    """Output counts from `offset` of the process `epoch`. The first `replayed` bytes after it are old. With `picture`,
    the next binary frame is the screen at `offset`."""

    epoch: str
    offset: int
    size: Size
    replayed: int
    picture: bool
    title: str = ""


@dataclass(frozen=True, slots=True)
class Reset:
    """Clear; the next binary frame is the screen at `offset`; count on from there."""

    epoch: str
    offset: int
    size: Size


@dataclass(frozen=True, slots=True)
class Exit:
    """The program ended; all it wrote has been sent. Typing starts it anew."""

    code: int | None
    signal: str | None


@dataclass(frozen=True, slots=True)
class Resized:
    """The terminal's size is another now."""

    size: Size


@dataclass(frozen=True, slots=True)
class TerminalTrouble:
    """Something the viewer should know. `code` is a word for programs: `start_failed`, `input_full`, ..."""

    code: str
    reason: str


Down = Open | Resize
Up = Greeting | Reset | Exit | Resized | TerminalTrouble


def encode(message: Down | Up) -> bytes:
    """Return the text message that says `message`, as UTF-8."""
    fields: dict[str, Any]
    match message:
        case Open(size, role, after, anew):
            place = (None, 0) if after is None else (after.epoch, after.offset)
            fields = {"type": "open", "role": role, "epoch": place[0], "offset": place[1], "anew": anew, **_sides(size)}
        case Resize(size):
            fields = {"type": "resize", **_sides(size)}
        case Greeting():
            fields = {
                "type": "hello",
                "epoch": message.epoch,
                "offset": message.offset,
                "replayed": message.replayed,
                "picture": message.picture,
                "title": clip(message.title),
                **_sides(message.size),
            }
        case Reset(epoch, offset, size):
            fields = {"type": "reset", "epoch": epoch, "offset": offset, **_sides(size)}
        case Exit(code, signal):
            fields = {"type": "exit", "code": code, "signal": signal}
        case Resized(size):
            fields = {"type": "resized", **_sides(size)}
        case _:
            fields = {"type": "trouble", "code": message.code, "reason": clip(message.reason)}
    return orjson.dumps(fields)


def _sides(size: Size | None) -> dict[str, int | None]:
    return {"cols": None, "rows": None} if size is None else {"cols": size.cols, "rows": size.rows}


def can_be_asked_for(position: Position) -> bool:
    """Whether a terminal may have been there, and `Open` can say so."""
    return bool(EPOCH.fullmatch(position.epoch)) and 0 <= position.offset <= MAX_NUMBER


def decode_down(text: bytes) -> Down:
    """Read a gateway's control message. Raises WireError."""
    fields = _read(text)
    match fields.get("type"):
        case "open":
            role, anew = fields.get("role"), fields.get("anew", False)
            if role not in ("drive", "view") or not isinstance(anew, bool):
                raise WireError("bad open")
            after = None if fields.get("epoch") is None else read_position(fields)
            return Open(None if fields.get("cols") is None else _size(fields), role, after, anew)
        case "resize":
            return Resize(_size(fields))
    raise WireError("unknown control message")


def decode_up(text: bytes) -> Up:
    """Read a bridge's control message. Raises WireError."""
    fields = _read(text)
    match fields.get("type"):
        case "hello":
            picture, title = fields.get("picture"), fields.get("title")
            if not isinstance(picture, bool) or not isinstance(title, str):
                raise WireError("bad hello")
            offset, replayed = read_number(fields, "offset"), read_number(fields, "replayed")
            return Greeting(read_epoch(fields, "epoch"), offset, _size(fields), replayed, picture, clip(title))
        case "reset":
            return Reset(read_epoch(fields, "epoch"), read_number(fields, "offset"), _size(fields))
        case "exit":
            return _exit(fields)
        case "resized":
            return Resized(_size(fields))
        case "trouble":
            word, reason = fields.get("code"), fields.get("reason")
            if not isinstance(word, str) or not _WORD.fullmatch(word) or not isinstance(reason, str):
                raise WireError("bad trouble")
            return TerminalTrouble(word, clip(reason))
    raise WireError("unknown control message")


def decode_terminal(fields: Any) -> dict[str, Any]:
    """Read one terminal of a bridge's list: the members that are known, and those whole. Raises WireError."""
    if not isinstance(fields, dict):
        raise WireError("a terminal is not an object")
    name, title, command = fields.get("name"), fields.get("title"), fields.get("command")
    idle, alive, exit = fields.get("idleSeconds"), fields.get("alive"), fields.get("exit")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise WireError("bad name")
    if not isinstance(title, str) or not isinstance(alive, bool):
        raise WireError("bad terminal")
    if isinstance(idle, bool) or not isinstance(idle, int | float) or not 0 <= idle <= MAX_NUMBER:
        raise WireError("bad idleSeconds")
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        raise WireError("bad command")
    if exit is not None and not isinstance(exit, dict):
        raise WireError("bad exit")
    ended = None if exit is None else _exit(exit)
    size = _size(fields)
    return {
        "name": name,
        "epoch": read_epoch(fields, "epoch"),
        "base": read_number(fields, "base"),
        "offset": read_number(fields, "offset"),
        "cols": size.cols,
        "rows": size.rows,
        "viewers": read_number(fields, "viewers"),
        "idleSeconds": idle,
        "alive": alive,
        "exit": None if ended is None else {"code": ended.code, "signal": ended.signal},
        "title": clip(title),
        "command": [word.encode(errors="replace").decode() for word in command],
    }


def _exit(fields: dict[str, Any]) -> Exit:
    signal = fields.get("signal")
    if signal is not None and (not isinstance(signal, str) or not SIGNAL.fullmatch(signal)):
        raise WireError("bad signal")
    return Exit(None if fields.get("code") is None else read_number(fields, "code", 255), signal)


def _read(text: bytes) -> dict[str, Any]:
    if len(text) > MAX_CONTROL:
        raise WireError("control message too long")
    return read_object(text)


def _size(fields: dict[str, Any]) -> Size:
    cols, rows = read_number(fields, "cols", MAX_SIDE), read_number(fields, "rows", MAX_SIDE)
    if not cols or not rows:
        raise WireError("bad size")
    return Size(cols, rows)
