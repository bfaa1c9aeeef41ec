"""A bound on the bytes of one user's messages that are on their way in, on all the user's sockets together. Pure: a
message waits for room on an event, and nothing else waits.

A message counts from the moment its length is known until its session has processed it. A short one is counted when it
is whole; if that exceeds the bound, no further one is read for a while. A long one (above LARGE) asks for room before
it is read: its socket is read on when there is room, one after the other in the order they asked, so a thousand half
messages cost no more than the bound. A grant covers the whole message: none holds one part and waits for another.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from weakref import WeakValueDictionary

LARGE = 64 << 10
ROOM_BYTES = 8 << 20


class InboundBytes:
    """The room of one user. `add` and `remove` count present bytes; a `Claim` asks for room in advance."""

    __slots__ = ("__weakref__", "_waiting", "held", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self._waiting: OrderedDict[Claim, tuple[int, Callable[[], None]]] = OrderedDict()

    @property
    def full(self) -> bool:
        return self.held >= self.limit

    def fits(self, size: int) -> bool:
        """True if `size` more bytes are within the bound; a single message always is."""
        return self.held + size <= self.limit or not self.held

    def add(self, size: int) -> None:
        self.held += size

    def remove(self, size: int) -> None:
        self.held -= size
        while self._waiting:
            claim, (wanted, then) = next(iter(self._waiting.items()))
            if not self.fits(wanted):
                break
            del self._waiting[claim]
            claim.size = wanted
            self.held += wanted
            then()

    async def space(self) -> None:
        """Wait until it is not full."""
        claim, free = Claim(self), asyncio.Event()
        try:
            if not self.ask(claim, 1, free.set):
                await free.wait()
        finally:
            claim.drop()

    def ask(self, claim: "Claim", size: int, then: Callable[[], None]) -> bool:
        if self._waiting or not self.fits(size):
            self._waiting[claim] = size, then
            return False
        claim.size = size
        self.held += size
        return True

    def forget(self, claim: "Claim") -> None:
        self._waiting.pop(claim, None)
        size, claim.size = claim.size, 0
        self.remove(size)

    def waits(self, claim: "Claim") -> bool:
        return claim in self._waiting


class Claim:
    """One socket's part in its user's room."""

    __slots__ = ("_room", "size")

    def __init__(self, room: InboundBytes) -> None:
        self._room = room
        self.size = 0  # bytes that are granted

    def reach(self, size: int, then: Callable[[], None]) -> bool:
        """True if the socket may read a message of `size` bytes. If not, `then` is called once it may."""
        if size <= max(self.size, LARGE):
            return True
        if self._room.waits(self):
            return False
        self.drop()  # the grant belongs to an earlier, shorter message
        return self._room.ask(self, size, then)

    def drop(self) -> None:
        """The message is processed, or will not come."""
        if self.size or self._room.waits(self):
            self._room.forget(self)


class UsersInboundBytes:
    """A room for each user, all of one size. A room that is not used any more is forgotten."""

    def __init__(self, limit: int = ROOM_BYTES) -> None:
        self._limit = limit
        self._of: WeakValueDictionary[str, InboundBytes] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._of)

    def of(self, user: str) -> InboundBytes:
        room = self._of.get(user)
        if room is None:
            room = self._of[user] = InboundBytes(self._limit)
        return room
