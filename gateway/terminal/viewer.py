"""One viewer of a terminal: a client's connection, spliced to a link of its own, in the client's dialect.

A viewer is *linked*, or it is not: its link is being found again, or its sandbox does not run. Without a link, input
waits, up to a bound (gateway/terminal/type_ahead.py), and the session learns that there is some. A lost link is found
again at the same position, so that the client notices nothing; if that is not possible, its screen is painted again.

Output is not queued: a client that takes nothing is not written to, and its link is not read. A client may also ask for
no more output for now (`Flow`). One that pauses for long, or again and again, is *parked*: it gives up its link, before
the bridge does, and gets another, at the same position, when it goes on or types.
"""

from collections.abc import Callable
from typing import Any, Protocol

from gateway.limits.inbound_bytes import InboundBytes
from gateway.protocol.close_codes import CloseCode
from gateway.server.spliced_socket import SplicedSocket
from gateway.terminal.dialects.ports import Dialect, Flow, Heard, Renewal, Reply, Typed, Wanted
from gateway.terminal.read_pauses import ReadPauses
from gateway.terminal.type_ahead import TypeAhead
from sandbox.ports.terminals import TerminalLink
from sandbox.protocol.terminal import NOWHERE, Exit, Greeting, Open, Reset, Role, Size, TerminalTrouble
from sandbox.protocol.terminal_frames import payloads
from sandbox.protocol.values import Position
from sandbox.protocol.websocket_frames import BINARY, client_frame

NO_SIZE = Size(80, 24)


class TerminalRoom(Protocol):
    """The session's side of its viewers."""

    @property
    def stopping(self) -> bool:
        """True while programs end because their sandbox is being put to sleep, not by themselves."""
        ...

    @property
    def waiting(self) -> InboundBytes:
        """Counts the waiting input for all programs of the session's user."""
        ...

    def left(self, viewer: "TerminalViewer") -> None: ...
    def link_lost(self, viewer: "TerminalViewer", reason: str) -> None: ...
    def typed_unlinked(self, viewer: "TerminalViewer", frames: bytes) -> None:
        """Input came, in whole masked frames, and there is no link for it."""
        ...

    def input_dropped(self, viewer: "TerminalViewer", trouble: TerminalTrouble | None) -> None:
        """Some of the viewer's input was dropped; None: none was."""
        ...

    def paused(self, viewer: "TerminalViewer", took: int) -> None:
        """The viewer wants no more output, after so many bytes since its last pause: `park` it if the pause lasts.
        Called again for each link that it gets during the pause."""
        ...

    def went_on(self, viewer: "TerminalViewer") -> None:
        """The viewer wants output again."""
        ...

    def wanted(self, viewer: "TerminalViewer") -> None:
        """The viewer was parked, and needs a link again."""
        ...


def _ignore(token: str) -> None:
    """For a viewer that came without a token, and needs no new one."""


class TerminalViewer:
    """Implements SplicedOwner for its socket, and TerminalEvents for its link."""

    __slots__ = (
        "_at",
        "_dialect",
        "_full",
        "_greeted",
        "_kept",
        "_link",
        "_room",
        "_size",
        "_socket",
        "_stopped",
        "_told",
        "_took",
        "_trouble",
        "_typed",
        "_withheld",
        "ahead",
        "flaps",
        "linked_at",
        "name",
        "noted",
        "on_renewal",
        "over",
        "parked",
        "parking",
        "pauses",
        "role",
    )

    def __init__(
        self, room: TerminalRoom, name: str, dialect: Dialect, role: Role, *, after: Position | None, size: Size | None
    ) -> None:
        self._room = room
        self._dialect = dialect
        self._socket: SplicedSocket | None = None
        self._link: TerminalLink | None = None
        self._at = after  # as of the last hello or reset; before the first, the client's position
        self._size = size
        self._greeted = False
        self._full = False  # the client takes no more
        self._kept = False  # it typed while its sandbox was being stopped
        self._stopped = False  # the client wants no more
        self._told = ""  # the newest status that it was sent
        self._took = 0  # bytes of output since its last pause
        self._trouble: TerminalTrouble | None = None  # why it is not linked, if the bridge says so
        self._typed = 0  # input messages that were translated, not passed on
        self._withheld: Exit | None = None  # of a program that ended because its sandbox is being stopped
        self.ahead = TypeAhead(None if after in (None, NOWHERE) else after.epoch, room.waiting)
        self.flaps = 0  # links in a row that did not last
        self.linked_at = 0.0
        self.name = name
        self.noted = False  # the log has a line about its dropped input
        self.role = role
        self.over = False
        self.parked = False
        self.parking: Any = None  # the room's own: a timer, and for how long it may be paused
        self.pauses = ReadPauses()
        self.on_renewal: Callable[[str], None] = _ignore

    def begin(self, socket: SplicedSocket) -> None:
        self._socket = socket

    @property
    def linked(self) -> bool:
        return self._link is not None

    @property
    def inputs(self) -> int:
        """The number of inputs so far: it grows while a person types."""
        return 0 if self.role == "view" else self._typed + (self._socket.passed_frames if self._socket else 0)

    def opening(self) -> Open:
        """The request for its next link. A client whose dialect closes at a program's end wants the next program when
        it comes back."""
        drives = self.role == "drive"
        anew = drives and self._dialect.closes_at_exit and self._at is None
        return Open.of(self._size if drives else None, self.role, self._at, anew)

    # Called by the session

    def drop_link(self) -> None:
        if self._link is not None:
            self._note_position()
            self._link.close()
            self._link = None
            self.on_input_full(False)

    @property
    def stopped(self) -> bool:
        """True while the client wants no more output."""
        return self._stopped

    def park(self) -> None:
        """Give up the link; input waits for the next one."""
        self.parked = True
        self.drop_link()

    def _unpark(self) -> None:
        if self.parked:
            self.parked = False
            self._room.wanted(self)

    def tell_withheld(self) -> None:
        """The sandbox was not stopped after all: report the exit that was withheld. Input that came meanwhile is for
        the program that goes on, or for the next one."""
        exit, self._withheld = self._withheld, None
        kept, self._kept = self._kept, False
        if exit is not None:
            self.on_exit(exit)
        if kept and self._link is not None and self._at is not None:
            waited = self.ahead.drop() if exit is not None else self.ahead.found(self._at.epoch)[0]
            for payload in waited:
                self._link.type(payload)

    def forget_withheld(self) -> None:
        self._withheld, self._kept = None, False

    def tell_status(self, status: str, *, absent: bool = False) -> None:
        """Send the session's status, if the client does not know it yet. `absent`: no sandbox runs."""
        self._greet_unlinked(absent=absent)
        if status != self._told:
            self._told = status
            self._write(self._dialect.told_status(status))

    def _greet_unlinked(self, *, absent: bool = False) -> None:
        """Greet a client without a terminal. One that comes back keeps its screen, until that proves to be void."""
        if not self._greeted:
            self._greeted = True
            at = Position("", 0) if self._at in (None, NOWHERE) else self._at
            assert at is not None
            hello = Greeting.of(at.epoch, at.offset, self._size or NO_SIZE, 0, False)
            self._write(self._dialect.greet(hello, None, absent=absent))

    def tell_trouble(self, code: str, reason: str) -> None:
        """Send an error frame, unless the client does not read: it could provoke any number of them."""
        self._greet_unlinked()
        if not self._full:
            self._write(self._dialect.told_trouble(TerminalTrouble(code, reason)))

    def tell_expiring(self, at: str) -> None:
        self._write(self._dialect.told_expiring(at))

    def close(self, code: CloseCode, reason: str | None = None) -> None:
        if self._socket is not None:
            self._socket.close(code, reason or code.reason)

    def abort(self) -> None:
        """End the connection now, without a close frame."""
        if self._socket is not None:
            self._socket.abort()

    # SplicedOwner: events of the client

    def on_frames(self, frames: bytes) -> None:
        if self.role != "view":
            if self._link is None or self.parked or self._room.stopping:
                self._enter(frames)
            else:
                self._link.write(frames)

    def _enter(self, frames: bytes) -> None:
        """Take input, as whole frames of a client. A program that a sleep is about to end may never read it, so then it
        is kept for the next."""
        self._unpark()
        if self._link is not None and not self._room.stopping:
            self._link.write(frames)
            return
        if self._link is not None and not self._kept:
            self._kept = True
            self.ahead.ended()
        self._room.typed_unlinked(self, frames)

    def on_text(self, payload: bytes) -> None:
        for heard in self._dialect.hear_text(payload):
            self._take(heard)

    def on_binary(self, payload: bytes) -> None:
        for heard in self._dialect.hear_binary(payload):
            self._take(heard)

    def _take(self, heard: Heard) -> None:
        match heard:
            case Typed(payload):
                self._type(payload)
            case Wanted(size):
                self._size = size
                if self._link is not None and self.role == "drive":
                    self._link.resize(size)
            case Renewal(token):
                self.on_renewal(token)
            case Flow(open) if open is self._stopped:  # said again, it says nothing
                self._stopped = not open
                self._set_flow()
                if open:
                    self._room.went_on(self)
                    self._unpark()
                else:
                    self._tell_paused()
            case Reply(frames) if self._greeted and not self._full:
                self._write(frames)

    def _tell_paused(self) -> None:
        took, self._took = self._took, 0
        self._room.paused(self, took)

    def _type(self, payload: bytes) -> None:
        if self.role != "view":
            self._typed += 1
            self._enter(client_frame(BINARY, payload))

    def on_full(self, full: bool) -> None:
        self._full = full
        self._set_flow()

    def _set_flow(self) -> None:
        if self._link is not None:
            if self._full or self._stopped:
                self._link.pause_reading()
            else:
                self._link.resume_reading()

    def on_over(self) -> None:
        self.over = True
        self.ahead.drop()  # frees the memory now, not when the garbage collector runs
        self.drop_link()
        self._room.left(self)

    # TerminalEvents: events of the bridge

    def on_hello(self, link: TerminalLink, hello: Greeting, picture: bytes | None) -> None:
        if self.over:
            link.close()
            return
        self._link = link
        self.on_input_full(False)
        self._trouble = self._withheld = None
        self._kept = False
        self._set_flow()
        if self._stopped:
            self._tell_paused()
        asked, self._at = self._at, Position(hello.epoch, hello.offset)
        if not self._greeted:
            self._greeted = True
            self._write(self._dialect.greet(hello, picture))
        elif picture is not None or asked != self._at:
            self._write(self._dialect.repaint(Reset.of(hello.epoch, hello.offset, hello.size), picture or b""))
        if self._told:  # something else; and a terminal is there only while it runs
            self.tell_status("running")
        waited, trouble = self.ahead.found(hello.epoch)
        self.noted = False
        self._room.input_dropped(self, trouble)
        for payload in waited:
            link.type(payload)

    def on_reset(self, reset: Reset, picture: bytes) -> None:
        self._at = Position(reset.epoch, reset.offset)
        self.ahead.found(reset.epoch)
        self._write(self._dialect.repaint(reset, picture))

    def on_exit(self, exit: Exit) -> None:
        if self._room.stopping:  # the client gets the status, and stays: typing wakes the session
            self._withheld = exit
            return
        self._write(self._dialect.exited(exit))
        self._room.input_dropped(self, self.ahead.ended())
        if self._dialect.closes_at_exit and not self.ahead:  # else input for the next program waits already
            self.close(CloseCode.FINISHED)

    def on_resized(self, size: Size) -> None:
        self._write(self._dialect.resized(size))

    def on_trouble(self, trouble: TerminalTrouble) -> None:
        """An error that keeps the viewer from being linked is reported once, however many attempts fail."""
        if self._link is None:
            self._greet_unlinked()
            if trouble == self._trouble:
                return
            self._trouble = trouble
        self.tell_trouble(trouble.code, trouble.reason)

    def on_input_full(self, full: bool) -> None:
        if self._socket is not None:
            self._socket.hold(full)

    def on_lost(self, reason: str) -> None:
        self._note_position()
        self._link = None
        self.on_input_full(False)
        if not self.over:
            self._room.link_lost(self, reason)

    def on_gone(self) -> None:
        self._link = None
        self.close(CloseCode.FINISHED, "the terminal was ended")

    def pass_on(self, frames: bytes) -> None:
        """Pass on output, in the bridge's own frames."""
        if self.over or self._socket is None:
            return
        self._took += len(frames)
        if self._dialect.splices:
            self._socket.write(frames)
        else:
            self._write(self._dialect.output(b"".join(payloads(frames))))

    def _note_position(self) -> None:
        if self._link is not None and self._at is not None:
            self._at = Position(self._at.epoch, self._at.offset + self._link.passed_bytes)

    def _write(self, frames: bytes) -> None:
        if frames and not self.over and self._socket is not None:
            self._socket.write(frames)
