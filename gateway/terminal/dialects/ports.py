"""How one kind of terminal client speaks. Pure: what happened goes in, wire-ready frames of a server come out.

A dialect object belongs to one viewer. `hear_*` never raise but FrameError (sandbox/protocol/websocket_frames.py),
which closes the connection with its code and reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sandbox.protocol.terminal import Exit, Greeting, Reset, Size, TerminalTrouble


@dataclass(frozen=True, slots=True)
class Typed:
    """Input for the program."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class Wanted:
    """The client can show this much now."""

    size: Size


@dataclass(frozen=True, slots=True)
class Renewal:
    """A new token for this connection."""

    token: str


@dataclass(frozen=True, slots=True)
class Flow:
    """The client wants no more output for now (`open` False), or wants it again."""

    open: bool


@dataclass(frozen=True, slots=True)
class Reply:
    """What to say at once to a client that was greeted and reads; whoever does not read gets none."""

    frames: bytes


Heard = Typed | Wanted | Renewal | Flow | Reply


class Dialect(Protocol):
    """`splices`: output passes as it is, and binary messages of the client are input as they are. Then `output` and
    `hear_binary` are never called."""

    splices: bool
    closes_at_exit: bool

    def greet(self, hello: Greeting, picture: bytes | None, *, absent: bool = False) -> bytes:
        """The terminal is there: what the client is told, with the screen if that is not empty. Called once. If there
        is no link to one yet, the epoch is the client's own, or "", and `repaint` comes when there is. `absent`: no
        sandbox runs, so whatever program the client shows is gone."""
        ...

    def output(self, payload: bytes) -> bytes:
        """Some of the program's bytes, cut anywhere. b"" if the client gets nothing of it yet."""
        ...

    def repaint(self, reset: Reset, picture: bytes) -> bytes:
        """What the client has is void: clear, paint, go on."""
        ...

    def exited(self, exit: Exit) -> bytes: ...
    def resized(self, size: Size) -> bytes: ...
    def told_status(self, status: str) -> bytes:
        """The session's status is this now: one of its words."""
        ...

    def told_trouble(self, trouble: TerminalTrouble) -> bytes: ...
    def told_expiring(self, at: str) -> bytes:
        """Its token ends at this time."""
        ...

    def hear_text(self, payload: bytes) -> Sequence[Heard]:
        """A text message, valid UTF-8."""
        ...

    def hear_binary(self, payload: bytes) -> Sequence[Heard]: ...
