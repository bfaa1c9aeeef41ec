"""The protocol of one kind of terminal client. Pure: events go in, a server's frames ready for the wire come out.

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
    """The size that the client can show now."""

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
    """An immediate answer for a client that was greeted and reads; one that does not read gets none."""

    frames: bytes


Heard = Typed | Wanted | Renewal | Flow | Reply


class Dialect(Protocol):
    """`splices`: output passes as it is, and binary messages of the client are input as they are. Then `output` and
    `hear_binary` are never called."""

    splices: bool
    closes_at_exit: bool

    def greet(self, hello: Greeting, picture: bytes | None, *, absent: bool = False) -> bytes:
        """The first frames for the client, with the screen if that is not empty. Called once. If there is no link to a
        terminal yet, the epoch is the client's own, or "", and `repaint` comes when there is one. `absent`: no sandbox
        runs, so the program that the client may show is gone."""
        ...

    def output(self, payload: bytes) -> bytes:
        """Some of the program's bytes, cut anywhere. b"" if the client gets none of them yet."""
        ...

    def repaint(self, reset: Reset, picture: bytes) -> bytes:
        """The client's screen is void: clear, paint, go on."""
        ...

    def exited(self, exit: Exit) -> bytes: ...
    def resized(self, size: Size) -> bytes: ...
    def told_status(self, status: str) -> bytes:
        """The session's status has changed to this word."""
        ...

    def told_trouble(self, trouble: TerminalTrouble) -> bytes: ...
    def told_expiring(self, at: str) -> bytes:
        """The client's token ends at this time."""
        ...

    def hear_text(self, payload: bytes) -> Sequence[Heard]:
        """A text message, valid UTF-8."""
        ...

    def hear_binary(self, payload: bytes) -> Sequence[Heard]: ...
