"""The order in which events are processed and lines are shown. Pure: it calls the functions it is given, and never
waits.

Lines are processed as they come. A line may be *held*: it is processed, but shown only when its record is durable, and
everything to be shown behind it waits with it. Some events mean something else before a held line than after it: they
are processed when no line is held. And while the order is *shut* or *slowed*, or too many records are on their way to
the store, nothing is processed at all.

Never: an event processed before one that came earlier, a line shown before one that came earlier, a held line shown
before `release`. `bytes` is the size of everything that waits or is held, with a fixed cost for each entry; the owner
reads no further while it is too much.
"""

from collections.abc import Callable
from typing import Any

COST = 256  # of each waiting entry, beside its bytes
STORED_AT_ONCE = 1000  # records on their way to the store, whose queue all sessions share

Show = Callable[[bytes, bytes, bool], None]  # the bytes shown, the line they were made of, whether that line was held
Event = Callable[..., None]


class HeldLine:
    """A line that waits to be shown; `shown` is None while it may not be."""

    __slots__ = ("itself", "line", "shown")

    def __init__(self, line: bytes, shown: bytes | None) -> None:
        self.line = line
        self.shown = shown
        self.itself = shown is None


class ReleaseOrder:
    __slots__ = ("_closed", "_held", "_show", "_slowed", "_storing", "_waiting", "bytes")

    def __init__(self, show: Show) -> None:
        self._show = show
        # Lists, not deques, of which an empty one takes 760 bytes: every session has these, and they stay short.
        self._waiting: list[tuple[bool, int, Event, tuple[Any, ...]]] = []  # (after_held, size, callback, arguments)
        self._held: list[HeldLine] = []
        self._closed = False
        self._slowed = False
        self._storing = 0
        self.bytes = 0

    @property
    def settled(self) -> bool:
        """True if no event waits and no line is held. Events that wait only because the agent is slowed do not count:
        the next link repeats them."""
        return not (self._closed or self._held or (self._waiting and not self._slowed))

    def deal(self, event: Event, *arguments: Any, size: int = 0, after_held: bool = False) -> None:
        """Call `event` in its turn: now, if nothing precedes or blocks it."""
        shut = self._closed or self._slowed or self._storing >= STORED_AT_ONCE
        if self._waiting or shut or (after_held and self._held):
            self.bytes += size + COST
            self._waiting.append((after_held, size + COST, event, arguments))
        else:
            event(*arguments)

    def show(self, shown: bytes, line: bytes) -> None:
        """Show a line in its turn."""
        if self._held:
            self.bytes += len(line) + COST
            self._held.append(HeldLine(line, shown))
        else:
            self._show(shown, line, False)

    def hold(self, line: bytes) -> HeldLine:
        """Show no line from here on until `release` sets the bytes to show for this one."""
        held = HeldLine(line, None)
        self._held.append(held)
        self.store(len(line) + COST)
        return held

    def release(self, held: HeldLine, shown: bytes) -> None:
        held.shown = shown
        while self._held and (ready := self._held[0].shown) is not None:
            first = self._held.pop(0)
            if not first.itself:
                self.bytes -= len(first.line) + COST
            self._show(ready, first.line, first.itself)
        self.stored(len(held.line) + COST)

    def store(self, size: int) -> None:
        """A record is on its way to the store."""
        self._storing += 1
        self.bytes += size

    def stored(self, size: int) -> None:
        self._storing -= 1
        self.bytes -= size
        self._go_on()

    def shut(self) -> None:
        self._closed = True

    def open(self) -> None:
        self._closed = False
        self._go_on()

    def slow(self) -> None:
        """The agent makes records too fast: stop processing until `hasten`."""
        self._slowed = True

    def hasten(self) -> None:
        self._slowed = False
        self._go_on()

    @property
    def _shut(self) -> bool:
        return self._closed or self._slowed or self._storing >= STORED_AT_ONCE

    def _go_on(self) -> None:
        while self._waiting and not self._shut and not (self._waiting[0][0] and self._held):
            _, size, event, arguments = self._waiting.pop(0)
            self.bytes -= size
            event(*arguments)
