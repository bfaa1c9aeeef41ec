"""A session's inbox: every event of the session comes through here, one after the other.

Its posters bound the inbox: a socket whose frames fill it is not read until there is room; gate.py in conversation/
slows the link; stores and timers post at most one event for each request they were given.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from gateway.limits.inbound_bytes import InboundBytes
from gateway.session.model.ports import SessionLimits

Handler = Callable[..., None]

EVENTS_A_TURN = 32


class Asking(Protocol):
    asking: int  # requests processed that wait for an answer of the store; they count like events in the inbox


class Inbox:
    __slots__ = ("_asking", "_bell", "_heard_bytes", "_limits", "_loop", "closed", "crowd", "entries", "room")

    def __init__(self, limits: SessionLimits, room: InboundBytes) -> None:
        self._limits = limits
        self.room = room  # shared with the user's other sessions
        self._loop = asyncio.get_running_loop()
        self.entries: list[tuple[Handler, tuple[Any, ...]]] = []  # short; an empty deque takes 760 bytes
        self._heard_bytes = 0  # of received frames in it
        self._asking: Asking | None = None
        self._bell: asyncio.Future[None] | None = None
        self.crowd: asyncio.Event | None = None  # set when there is room; None while no socket waits
        self.closed: Callable[[Handler, tuple[Any, ...]], None] | None = None  # takes events that arrive after the end

    def count(self, asking: Asking) -> None:
        self._asking = asking

    def post(self, handler: Handler, *arguments: Any) -> None:
        """Call `handler` in the session's own task, after every earlier event."""
        if self.closed is not None:
            self.closed(handler, arguments)
            return
        self.entries.append((handler, arguments))
        if self._bell is not None and not self._bell.done():
            self._bell.set_result(None)

    def hear(self, size: int, handler: Handler, *arguments: Any) -> None:
        """Post an event of `size` bytes from a peer. The bytes count until the event is processed."""
        if self.closed is not None:
            return
        self._heard_bytes += size
        self.room.add(size)
        self.post(self._deal_with, size, handler, arguments)

    def _deal_with(self, size: int, handler: Handler, arguments: tuple[Any, ...]) -> None:
        self._heard_bytes -= size
        self.room.remove(size)
        handler(*arguments)

    def filled(self) -> "asyncio.Future[None]":
        """A future that is set when an event arrives; for the session's task alone."""
        self._bell = self._loop.create_future()
        return self._bell

    def take_turn(self) -> None:
        """Process the next few events. A function of its own, so that the waiting task keeps no reference to the last
        event."""
        for _ in range(min(len(self.entries), EVENTS_A_TURN)):
            handler, arguments = self.entries.pop(0)
            handler(*arguments)

    def deal(self, handler: Handler, *arguments: Any) -> None:
        """Process an event at once; for the session's task alone, or before there is one."""
        handler(*arguments)

    def make_room(self) -> None:
        """Wake the sockets that wait for room, if there is room."""
        if self.crowd is not None and not self._crowded:
            self.crowd.set()
            self.crowd = None

    @property
    def crowded(self) -> bool:
        """True if a socket should pause reading and call `wait_for_room`."""
        room = self.room
        return room.held >= room.limit or self._crowded

    @property
    def _crowded(self) -> bool:
        asking = 0 if self._asking is None else self._asking.asking
        return len(self.entries) + asking >= self._limits.inbox or self._heard_bytes >= self._limits.inbox_bytes

    async def wait_for_room(self) -> None:
        """Wait until this session, and all sessions of its user together, are below their bounds."""
        while self.closed is None:
            if self._crowded:
                self.crowd = self.crowd or asyncio.Event()
                await self.crowd.wait()
            elif self.room.full:
                await self.room.space()
            else:
                break

    def close(self, turn_away: Callable[[Handler, tuple[Any, ...]], None]) -> None:
        """The session has ended: pass waiting and later events to `turn_away`."""
        self.closed = turn_away
        self.room.remove(self._heard_bytes)
        for handler, arguments in self.entries:
            turn_away(handler, arguments)
        if self.crowd is not None:
            self.crowd.set()
