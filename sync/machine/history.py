"""The last transitions of one session's sync, for people to see. Pure.

It stays as long as a session is loaded, so it is small: a transition takes 19 bytes, and its reason, if any, a
reference to the text that the state has anyway. A session that never synced has no history.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from sync.machine.state import State, Transition

KEPT = 50
REASON_LENGTH = 500

_ENTRY = struct.Struct("<dQHB")  # at, generation, attempt, state
_STATES = tuple(State)


@dataclass(frozen=True, slots=True)
class Moved:
    """A transition, and when it happened: seconds since 1970."""

    at: float
    transition: Transition


class History:
    """At most `KEPT` transitions; one more replaces the oldest."""

    __slots__ = ("_entries", "_first", "_reasons")

    def __init__(self) -> None:
        self._entries = b""
        self._first = 0  # the oldest one's number
        self._reasons: dict[int, str] | None = None  # by number

    def __len__(self) -> int:
        return len(self._entries) // _ENTRY.size

    def __iter__(self) -> Iterator[Moved]:
        """The oldest first."""
        reasons = self._reasons or {}
        for number, (at, generation, attempt, state) in enumerate(_ENTRY.iter_unpack(self._entries), self._first):
            yield Moved(at, Transition(_STATES[state], generation, attempt, reasons.get(number)))

    def note(self, transition: Transition, at: float) -> None:
        attempt, state = min(transition.attempt, 0xFFFF), _STATES.index(transition.state)
        self._entries += _ENTRY.pack(at, transition.generation, attempt, state)
        if transition.reason is not None:
            self._reasons = self._reasons or {}
            self._reasons[self._first + len(self) - 1] = transition.reason[:REASON_LENGTH]
        if len(self) > KEPT:
            self._entries = self._entries[_ENTRY.size :]
            if self._reasons is not None:
                self._reasons.pop(self._first, None)
            self._first += 1
