"""Messages of a terminal's link, between a gateway and a bridge. Pure: both ends import it.

Every viewer has its own link to the bridge, `/terminals/{name}/link`. Binary frames are bytes, unfragmented: upward
the program's output, at most `MAX_BYTES` each; downward somebody's typing. Text frames are control, one JSON object
with a `type`.

The gateway sends `open` first. The bridge answers `hello`; if that says `picture`, exactly one binary frame follows
that is a picture of the screen and not counted. Then come the program's bytes, counted on from the offset in `hello`.
`reset` is like another hello: the viewer clears its screen, a picture follows, and counting goes on from there.

A position is two members of its message, `epoch` and `offset`, and a size is `cols` and `rows`: `of` makes a message
of positions and sizes. Neither end trusts the other: an unreadable message raises WireError.
"""

import re
from typing import Annotated, Literal, Self

import msgspec
from msgspec import Meta
from msgspec.structs import force_setattr

from sandbox.protocol.messages import (
    EPOCH,
    MAX_NUMBER,
    EpochName,
    ExitCode,
    Message,
    Number,
    SignalName,
    WireError,
    clip,
    read,
)
from sandbox.protocol.values import Position

MAX_BYTES = 16 * 1024  # one binary frame of output
MAX_INPUT = 1024 * 1024  # one binary frame of typing
MAX_PICTURE = 1024 * 1024
MAX_CONTROL = 8 * 1024
MAX_SIDE = 1000  # of a screen, in cells

Role = Literal["drive", "view"]
Side = Annotated[int, Meta(ge=1, le=MAX_SIDE)]

NOWHERE = Position("nowhere", MAX_NUMBER)  # no terminal was ever there: a viewer with this position gets a picture

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class Size(msgspec.Struct, frozen=True):
    cols: Side
    rows: Side


class Open(Message, frozen=True, tag="open"):
    """A viewer's first message: it wants the bytes after `after`, its last position, or the present screen. `size` is
    the size that it can show; None: any. A viewer who only watches neither types nor counts for the size. With
    `anew`, an ended program is started once more; without, the viewer gets its end."""

    role: Role
    epoch: EpochName | None = None
    offset: Number | None = None
    anew: bool = False
    cols: Side | None = None
    rows: Side | None = None

    def __post_init__(self) -> None:
        if self.epoch is not None and self.offset is None:
            raise WireError("bad offset", "offset")
        if self.cols is not None and self.rows is None:
            raise WireError("bad rows", "rows")

    @classmethod
    def of(cls, size: Size | None, role: Role, after: Position | None, anew: bool = False) -> Self:
        epoch, offset = (None, 0) if after is None else (after.epoch, after.offset)
        cols, rows = (None, None) if size is None else (size.cols, size.rows)
        return cls(role, epoch, offset, anew, cols, rows)

    @property
    def size(self) -> Size | None:
        return None if self.cols is None or self.rows is None else Size(self.cols, self.rows)

    @property
    def after(self) -> Position | None:
        return None if self.epoch is None or self.offset is None else Position(self.epoch, self.offset)


class Resize(Message, frozen=True, tag="resize"):
    cols: Side
    rows: Side

    @property
    def size(self) -> Size:
        return Size(self.cols, self.rows)


class Greeting(Message, frozen=True, tag="hello"):
    """Output counts from `offset` of the process `epoch`. The first `replayed` bytes after it are old. With `picture`,
    the next binary frame is the screen at `offset`."""

    epoch: EpochName
    offset: Number
    replayed: Number
    picture: bool
    title: str
    cols: Side
    rows: Side

    def __post_init__(self) -> None:
        force_setattr(self, "title", clip(self.title))

    @classmethod
    def of(cls, epoch: str, offset: int, size: Size, replayed: int, picture: bool, title: str = "") -> Self:
        return cls(epoch, offset, replayed, picture, title, size.cols, size.rows)

    @property
    def size(self) -> Size:
        return Size(self.cols, self.rows)


class Reset(Message, frozen=True, tag="reset"):
    """Clear; the next binary frame is the screen at `offset`; count on from there."""

    epoch: EpochName
    offset: Number
    cols: Side
    rows: Side

    @classmethod
    def of(cls, epoch: str, offset: int, size: Size) -> Self:
        return cls(epoch, offset, size.cols, size.rows)

    @property
    def size(self) -> Size:
        return Size(self.cols, self.rows)


class Exit(Message, frozen=True, tag="exit"):
    """The program ended; all its output has been sent. Typing starts it again, and goes into it."""

    code: ExitCode | None = None
    signal: SignalName | None = None


class Resized(Message, frozen=True, tag="resized"):
    """The terminal's size is another now."""

    cols: Side
    rows: Side

    @property
    def size(self) -> Size:
        return Size(self.cols, self.rows)


class TerminalTrouble(Message, frozen=True, tag="trouble"):
    """Something the viewer should know. `code` is a word for programs: `start_failed`, `input_full`, ..."""

    code: Annotated[str, Meta(pattern=r"^[a-z_]{1,32}\Z")]
    reason: str

    def __post_init__(self) -> None:
        force_setattr(self, "reason", clip(self.reason))


Down = Open | Resize
Up = Greeting | Reset | Exit | Resized | TerminalTrouble

_encoder = msgspec.json.Encoder()
_down: msgspec.json.Decoder[Down] = msgspec.json.Decoder(Down)
_up: msgspec.json.Decoder[Up] = msgspec.json.Decoder(Up)


def encode(message: Down | Up) -> bytes:
    """Return the text message that says `message`, as UTF-8."""
    return _encoder.encode(message)


def decode_down(text: bytes) -> Down:
    """Read a gateway's control message. Raises WireError."""
    if len(text) > MAX_CONTROL:
        raise WireError("control message too long")
    return read(_down, text)


def decode_up(text: bytes) -> Up:
    """Read a bridge's control message. Raises WireError."""
    if len(text) > MAX_CONTROL:
        raise WireError("control message too long")
    return read(_up, text)


def can_be_asked_for(position: Position) -> bool:
    """Whether a terminal may have been there, and `Open` can say so."""
    return bool(EPOCH.fullmatch(position.epoch)) and 0 <= position.offset <= MAX_NUMBER
