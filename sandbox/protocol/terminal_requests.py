"""HTTP requests about a bridge's terminals: bodies, and how a terminal is described. Pure: both ends import it."""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import force_setattr

from sandbox.protocol.messages import (
    MAX_NUMBER,
    Arguments,
    EpochName,
    ExitCode,
    Number,
    SignalName,
    Text,
    WireError,
    clip,
    refusal,
)
from sandbox.protocol.terminal import NAME, Side, Size

Seconds = Number | Annotated[float, Meta(ge=0, le=MAX_NUMBER)]


class TerminalBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A terminal to make. A missing member means the bridge's configuration."""

    command: Arguments | UnsetType = UNSET
    env: dict[str, str] | UnsetType = UNSET
    cwd: Text | UnsetType = UNSET
    cols: Side | UnsetType = UNSET
    rows: Side | UnsetType = UNSET

    __repr__ = object.__repr__  # `env` holds secrets

    def __post_init__(self) -> None:
        if (self.cols is UNSET) != (self.rows is UNSET):
            raise WireError("bad rows", "rows")

    @property
    def size(self) -> Size | None:
        return None if self.cols is UNSET or self.rows is UNSET else Size(self.cols, self.rows)


class ExitStatus(msgspec.Struct, frozen=True):
    code: ExitCode | None = None
    signal: SignalName | None = None


class TerminalStatus(msgspec.Struct, frozen=True, rename="camel"):
    """One terminal of a bridge's list."""

    name: Annotated[str, Meta(pattern=rf"^{NAME.pattern}\Z")]
    epoch: EpochName
    base: Number
    offset: Number
    cols: Side
    rows: Side
    viewers: Number
    idle_seconds: Seconds
    alive: bool
    exit: ExitStatus | None
    title: str
    command: list[str]

    def __post_init__(self) -> None:
        force_setattr(self, "title", clip(self.title))
        force_setattr(self, "command", [word.encode(errors="replace").decode() for word in self.command])


def decode_terminal(members: Any) -> dict[str, Any]:
    """Read one terminal of a bridge's list: the known members, if they are whole. Raises WireError."""
    try:
        found: dict[str, Any] = msgspec.to_builtins(msgspec.convert(members, TerminalStatus))
    except msgspec.ValidationError as exc:
        raise refusal(exc) from None
    return found
