"""Turns among one user's sockets. The allowance decides how much; this module performs it: a socket with more input
than fits a turn waits here. Sockets are served in the order of waiting, in the next turn or when the user's debt is
paid.
"""

import asyncio
from collections.abc import Callable
from socket import IPPROTO_TCP, TCP_INFO
from typing import Protocol

from gateway.limits.allowance import Allowance

_TCP_CLOSE = 7


def is_reset(transport: asyncio.Transport) -> bool:
    """True if the peer has cut the connection. A socket that is not read does not notice, and would keep its place."""
    socket = transport.get_extra_info("socket")
    return socket is not None and socket.getsockopt(IPPROTO_TCP, TCP_INFO, 1)[0] == _TCP_CLOSE


class TurnMember(Protocol):
    """A socket."""

    def take_turn(self) -> None:
        """Continue with its input; a socket that has more than fits asks for another turn."""

    def set_reading(self) -> None:
        """`shut` has changed."""


class Clock:
    """Counts the loop's turns, one clock for all users, and calls those that wait for the next one. It ticks only while
    a user waits, or has little left of the newest turn: a tick is one more round of the loop."""

    __slots__ = ("_loop", "_ticking", "_waiting", "turn")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ticking = False
        self._waiting: list[Callable[[], None]] = []
        self.turn = 0

    def call_next_turn(self, serve: Callable[[], None]) -> None:
        self._waiting.append(serve)
        self.keep_ticking()

    def keep_ticking(self) -> None:
        if not self._ticking:
            self._ticking = True
            self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        self._ticking = False
        self.turn += 1
        waiting, self._waiting = self._waiting, []
        for serve in waiting:
            serve()


class SocketTurns:
    """The turns of one user. `forget` is called when the last socket has left. A socket that reads calls `begin` if
    `turn` is not the clock's, and keeps the clock ticking when the allowance is LOW."""

    __slots__ = (
        "_called",
        "_forget",
        "_held",
        "_loop",
        "_members",
        "_timer",
        "_waiting",
        "allowance",
        "clock",
        "shut",
        "turn",
    )

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, allowance: Allowance, forget: Callable[[], None]
    ) -> None:
        self._loop = loop
        self.clock = clock
        self.turn = -1  # the newest that was begun
        self._forget = forget
        self._members: set[TurnMember] = set()
        self._waiting: dict[TurnMember, int] = {}  # with the bytes each holds
        self._held: dict[TurnMember, int] = {}  # likewise; these do not wait for a turn
        self._timer: asyncio.TimerHandle | None = None
        self._called = False  # `_serve` will be called in the next turn
        self.allowance = allowance
        self.shut = False  # too many bytes wait: only sockets that were granted room for a message are read

    def begin(self, now: float) -> None:
        """Begin a turn: each user has one, however many sockets they have."""
        self.turn = self.clock.turn
        self.allowance.begin(now)

    def join(self, member: TurnMember) -> None:
        self._members.add(member)

    def leave(self, member: TurnMember) -> None:
        if member not in self._members:
            return
        self._members.discard(member)
        if member in self._waiting:
            self._drop(member)
        self.let_go(member)
        if not self._members:
            if self._timer is not None:
                self._timer.cancel()
            self._forget()

    def wait(self, member: TurnMember, held: int) -> None:
        """The socket holds so many bytes, and wants a turn."""
        self._waiting[member] = held
        self._count(held)
        self._serve_later()

    def hold(self, member: TurnMember, held: int) -> None:
        """The socket holds so many bytes, and does not wait for a turn."""
        self.let_go(member)
        self._held[member] = held
        self._count(held)

    def let_go(self, member: TurnMember) -> None:
        """The socket waits no more: count its bytes no longer."""
        self._count(-self._held.pop(member, 0))

    def _serve_later(self) -> None:
        if self._timer is None and not self._called:
            owed = self.allowance.owes(self._loop.time())
            if owed:
                self._timer = self._loop.call_later(owed, self._serve)
            else:
                self._called = True
                self.clock.call_next_turn(self._serve)

    def _serve(self) -> None:
        self._timer, self._called = None, False
        self.begin(self._loop.time())
        for _ in range(len(self._waiting)):
            if self.allowance.left <= 0 or not self._waiting:
                break
            member = next(iter(self._waiting))
            self._drop(member)
            member.take_turn()
        if self._waiting:
            self._serve_later()

    def _drop(self, member: TurnMember) -> None:
        self._count(-self._waiting.pop(member))

    def _count(self, held: int) -> None:
        self.allowance.waiting += held
        if self.shut:
            if self.allowance.drained:
                self._shut(False)
        elif self.allowance.overfull:
            self._shut(True)

    def _shut(self, shut: bool) -> None:
        self.shut = shut
        for member in tuple(self._members):
            member.set_reading()
