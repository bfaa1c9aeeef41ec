"""The pending window: messages that are durable, or about to be, and that the agent does not have. Pure.

The window copies nothing: each entry is a stored record. An entry moves through

    admitted -> durable -> sent -> taken (gone from here)

and only forward, with two exceptions. When the link is lost or the agent ends, a `sent` entry becomes *unsure*. It is
neither sent again nor expired until the bridge has reported what it took (`settle`); only then is it sent again, or
gone. And an entry that the agent does not have may be cancelled: it is *held* while the cancellation is written, and no
later entry is sent. Otherwise the bridge could take a later one, and the next gateway would conclude that it took both.

While the sandbox is away the window is small (100 records, a byte bound) and its entries age: past the TTL they expire.
While it is connected the window only buffers the pipe to the agent (1,000 records, 8 MiB) and no entry expires; an
entry's time may be extended. All windows of one user together have a bound, too (`shared`). An answer to a permission
or a question passes these bounds, for an agent waits for it; it is refused only where all windows of its user hold
twice their bound.

Never: an entry overtaken by a later one, an entry sent before it is durable, an entry that leaves without being named
by `taken`, `expired`, `recall` or a withdrawal; the one exception is `clear`, at a delete.
"""

import math
from collections.abc import Iterator

import msgspec

from gateway.limits.inbound_bytes import InboundBytes


class WindowLimits(msgspec.Struct, frozen=True):
    away_records: int = 100
    away_bytes: int = 8 << 20
    away_seconds: float = 300.0
    connected_records: int = 1000
    connected_bytes: int = 8 << 20
    link_records: int = 64  # sent and not yet taken
    link_bytes: int = 2 << 20


class WindowEntry(msgspec.Struct, gc=False):
    seq: int
    cid: str
    line: bytes
    since: float
    type: str = "message"
    durable: bool = False
    stored: bool = False  # in its final store; the store may yet refuse a record that is only durable here
    sent: bool = False
    given: bool = False  # sent while the present agent process was the newest
    steers: bool = False  # meant for the running turn: an agent may be given it ahead of waiting messages
    held: bool = False  # being cancelled: `withdraw` follows
    until: float = -math.inf  # it does not expire before this time
    created_at: float = 0.0  # of its record


class DeliveryWindow:
    __slots__ = (
        "_away_since",
        "_bytes",
        "_connected",
        "_entries",
        "_limits",
        "_sent",
        "_sent_bytes",
        "_shared",
        "_word",
    )

    def __init__(self, limits: WindowLimits, shared: InboundBytes) -> None:
        self._limits = limits
        self._shared = shared
        self._entries: dict[int, WindowEntry] = {}  # in seq order
        self._bytes = 0
        self._sent = 0
        self._sent_bytes = 0
        self._connected = False
        self._word = "buffer_full"  # the reason with which a full window refuses
        self._away_since = -math.inf

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def queued_bytes(self) -> int:
        return self._bytes

    @property
    def oldest(self) -> int | None:
        """The lowest seq in the window."""
        return next(iter(self._entries), None)

    def refusal(self, size: int) -> str | None:
        """The reason why a record of `size` bytes may not enter now; None if it may."""
        limits = self._limits
        if self._connected:
            full = len(self._entries) >= limits.connected_records or self._bytes + size > limits.connected_bytes
        else:
            full = len(self._entries) >= limits.away_records or self._bytes + size > limits.away_bytes
        return self._word if full or not self._shared.fits(size) else None

    def answer_refusal(self) -> str | None:
        """Like `refusal`, for an answer that an agent waits for."""
        return self._word if self._shared.held >= 2 * self._shared.limit else None

    def close(self) -> None:
        """The session ends: drop all entries, and take them out of the user's count."""
        self._shared.remove(self._bytes)
        self._bytes, self._entries = 0, {}

    def admit(self, entry: WindowEntry) -> None:
        """Add an entry with the highest seq so far. The caller has asked `refusal` before, or the entry may not be
        refused."""
        self._entries[entry.seq] = entry
        self._bytes += len(entry.line)
        self._shared.add(len(entry.line))
        if entry.sent:  # by a gateway before this one, perhaps: unsure
            self._sent += 1
            self._sent_bytes += len(entry.line)

    def accepted(self, seq: int) -> None:
        """The record at `seq` is durable: it may be sent."""
        if entry := self._entries.get(seq):
            entry.durable = True

    def stored(self, seq: int) -> None:
        """The record at `seq` is in its final store."""
        if entry := self._entries.get(seq):
            entry.durable = entry.stored = True

    def recall(self, seq: int) -> WindowEntry | None:
        """Remove and return the entry at `seq`, unless it was sent: then the agent may have it, and it stays."""
        entry = self._entries.get(seq)
        return None if entry is None or entry.sent else self.withdraw(seq)

    def find(self, seq: int) -> WindowEntry | None:
        return self._entries.get(seq)

    def __iter__(self) -> Iterator[WindowEntry]:
        return iter(self._entries.values())

    def connect(self) -> None:
        """The agent can be given lines. Unsure entries must have been settled before."""
        self._connected, self._word = True, "busy"

    def disconnect(self, now: float) -> None:
        """The agent cannot be reached. Sent entries are unsure from here on; the others begin to age."""
        if self._connected:
            self._connected, self._word = False, "buffer_full"
            self._away_since = now

    def settle(self, taken: int) -> list[WindowEntry]:
        """The bridge has reported what it took: remove and return those entries; the others may be sent again."""
        gone = self.taken(taken)
        self._sent = self._sent_bytes = 0
        for entry in self._entries.values():
            entry.sent = False
        return gone

    def unsure(self) -> list[WindowEntry]:
        """Entries that were sent and not confirmed, in order."""
        return [entry for entry in self._entries.values() if entry.sent and not entry.held]

    def next_to_send(self) -> list[WindowEntry]:
        """Mark and return the entries to send now: in order, durable, within the link's bounds."""
        if not self._connected:
            return []
        ready: list[WindowEntry] = []
        for entry in self._entries.values():
            if entry.sent and not entry.held:
                continue
            over = (
                self._sent >= self._limits.link_records or self._sent_bytes + len(entry.line) > self._limits.link_bytes
            )
            if not entry.durable or entry.held or (over and self._sent):
                break
            entry.sent = entry.given = True
            self._sent += 1
            self._sent_bytes += len(entry.line)
            ready.append(entry)
        return ready

    def taken(self, seq: int) -> list[WindowEntry]:
        """The agent has every record up to `seq` that was sent: remove and return those."""
        gone = []
        for entry in self._entries.values():
            if not entry.sent or entry.seq > seq or entry.held:
                break
            gone.append(entry)
        for entry in gone:
            self.withdraw(entry.seq)
        return gone

    def next_expiry(self) -> float | None:
        """The time of the next expiry, if nothing changes; None if no entry ages."""
        if self._connected:
            return None
        return min((due for entry in self if (due := self.expires_at(entry)) is not None), default=None)

    def expire(self, now: float) -> list[WindowEntry]:
        """Remove and return the entries that outlived their TTL while the sandbox was away."""
        gone = [entry for entry in self if (due := self.expires_at(entry)) is not None and due <= now]
        for entry in gone:
            self.withdraw(entry.seq)
        return gone

    def withdraw_all(self, types: frozenset[str]) -> list[WindowEntry]:
        """Remove and return the entries of these types."""
        gone = [entry for entry in self._entries.values() if entry.type in types]
        for entry in gone:
            self.withdraw(entry.seq)
        return gone

    def clear(self) -> list[WindowEntry]:
        """Remove and return all entries."""
        gone = list(self._entries.values())
        for entry in gone:
            self.withdraw(entry.seq)
        return gone

    def expires_at(self, entry: WindowEntry) -> float | None:
        """The time when the entry expires, if nothing changes; None while it does not age."""
        if self._connected or not entry.durable or entry.sent or entry.held:
            return None
        return max(max(entry.since, self._away_since) + self._limits.away_seconds, entry.until)

    def withdraw(self, seq: int) -> WindowEntry | None:
        """Remove the entry at `seq`: it is not to be delivered, or the agent has it although earlier ones wait."""
        entry = self._entries.pop(seq, None)
        if entry is not None:
            self._bytes -= len(entry.line)
            self._shared.remove(len(entry.line))
            if entry.sent:
                self._sent -= 1
                self._sent_bytes -= len(entry.line)
            if not self._entries:
                self._entries.clear()  # frees the memory that the dict has grown to
        return entry
