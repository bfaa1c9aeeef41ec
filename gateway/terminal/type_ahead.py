"""A viewer's input while it has no link to a program. Pure.

Input is for one program. It waits here until that program can read it, in order, and is typed once:

- Input for the program on the viewer's screen goes to that program or to none. It waits while the link is found again.
  If another program is found instead, it is dropped: a key meant for an editor must not run in a shell.
- A session at rest (asleep, failed) has no program, and one that is being put to sleep loses it. Input is for
  the next one, and wakes the session. A terminal's automatic answers and mouse reports are not kept: they answer a
  program that is gone.
- A sandbox that dies leaves viewers who may still look at its program. Until the next one is up, their input is
  dropped.

The buffer is bounded in bytes and in messages. A first message may be longer, while all waiting input of the user
leaves room for it. Input that does not fit is refused, and so is all later input: a line with a hole in it must not
run. A refusal is reported once until the next program is found.
"""

import re
from collections.abc import Iterable

from gateway.limits.inbound_bytes import InboundBytes
from sandbox.protocol.terminal import TerminalTrouble
from sandbox.terminal.queries import is_answer

MAX_BYTES = 64 * 1024
MAX_MESSAGES = 8192

FULL = TerminalTrouble("input_full", "the input buffer is full; this input was dropped")
GONE = TerminalTrouble("input_dropped", "the program ended before it could read this input; the input was dropped")
NOT_STARTED = TerminalTrouble("input_dropped", "the session did not start; the input was dropped")

_MOUSE = re.compile(rb"(?:\x1b\[<[\d;]+[Mm]|\x1b\[M...)+", re.DOTALL)


def is_typing(payload: bytes) -> bool:
    """True if a person typed it: not a terminal's automatic answer, and not a mouse report."""
    return bool(payload) and not is_answer(payload) and not _MOUSE.fullmatch(payload)


class TypeAhead:
    """`asked`: the waiting input has asked for a start, or came while one was under way."""

    __slots__ = ("_bytes", "_messages", "_orphaned", "_program", "_refuses", "_room", "asked")

    def __init__(self, program: str | None, room: InboundBytes) -> None:
        """`program` is the epoch of the program on the viewer's screen; None: there is none, so input is for the next
        one. `room` counts the waiting input of all the user's terminals."""
        self._program = program
        self._room = room
        self._messages: list[bytes] = []
        self._bytes = 0
        self._orphaned = False  # the program died with its sandbox, and the viewer still shows it
        self._refuses = False  # until the next program is found, or the waiting input is dropped
        self.asked = False

    def __len__(self) -> int:
        """The number of waiting messages."""
        return len(self._messages)

    def keep(self, payloads: Iterable[bytes]) -> TerminalTrouble | None:
        """Take input; return the trouble to report if this is the first input that is dropped."""
        for payload in payloads:
            if not payload or (self._has_no_program and not is_typing(payload)):
                continue
            if self._refuses:
                return None
            if self._orphaned or not self._fits(payload):
                self._refuses = True
                return GONE if self._orphaned else FULL
            self._messages.append(payload)
            self._bytes += len(payload)
            self._room.add(len(payload))
        return None

    @property
    def _has_no_program(self) -> bool:
        return self._program is None or self._orphaned

    def _fits(self, payload: bytes) -> bool:
        fits = self._bytes + len(payload) <= MAX_BYTES and len(self._messages) < MAX_MESSAGES
        return fits or (not self._messages and self._room.fits(len(payload)))

    def found(self, program: str) -> tuple[list[bytes], TerminalTrouble | None]:
        """The viewer shows this program now: return the input for it, and the trouble to report if input is dropped."""
        meant = self._program in (None, program)
        messages = self.drop()
        self._program, self._orphaned = program, False
        return (messages, None) if meant else ([], GONE if messages else None)

    def ended(self) -> TerminalTrouble | None:
        """The viewer has been or will be told that its program ended: later input is for the next one. Return the
        trouble to report if input is dropped."""
        dropped = self._program is not None and self.drop()
        self._program, self._orphaned = None, False
        return GONE if dropped else None

    def sandbox_lost(self) -> TerminalTrouble | None:
        """The sandbox is gone, and another is about to start; return the trouble to report if input is dropped."""
        if self._program is None:
            return None
        self._orphaned = True
        return GONE if self.drop() else None

    def at_rest(self, *, wanted: bool) -> TerminalTrouble | None:
        """No sandbox runs, and none is about to; return the trouble to report if input is dropped. Input for the next
        program stays until a start that it asked for has not happened; `wanted`: a start was asked for just now."""
        trouble = None
        if self._program is not None:
            trouble = GONE if self.drop() else None
        elif self.asked and not wanted:
            trouble = NOT_STARTED if self.drop() else None
        self._program, self._orphaned = None, False
        return trouble

    def drop(self) -> list[bytes]:
        """Forget the waiting input; return it."""
        messages, self._messages = self._messages, []
        self._room.remove(self._bytes)
        self._bytes = 0
        self._refuses = self.asked = False
        return messages
