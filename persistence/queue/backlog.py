"""The writes that wait to be stored: the core of the persistence queue. Pure.

Writes wait in one line. Its front is *in flight*: the batch that the store has. A batch in flight is never changed:
the store may have stored it although its answer was lost, so the retry must be the same batch. It leaves the line
when its outcomes are known. A batch is made smaller only if there was no room for it: then the store kept nothing of
it, or recognises it. The next batch is whatever has arrived meanwhile: group commit without a timer.

A write without a record joins the session's last waiting write, if there is one: the newest state and checkpoint win,
`delivered` only grows, and the newest mark per record wins. Nothing is reordered, because it joins the last one. So a
session that streams an answer while the store is away holds one checkpoint, not a thousand. Writes of two writers of
the session (`fence`) are never joined: the store refuses one and keeps the other.

A session can be *held*: its writes wait beside the line until it is released, then in front of it. Held writes may
take a quarter of the whole bound; one more write releases its session. Other sessions never notice.

What never happens: two writes of a session change their order; a write is lost or stored by halves; a write is
refused although the caller said that it cannot be.
"""

from collections import deque
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from persistence.record import Fenced, Outcome, Rejected, Spooled, Stored, Write

Then = Callable[[Outcome], None]


class QueueLimits(msgspec.Struct, frozen=True, gc=False):
    """Bounds of the waiting writes and of one batch."""

    max_writes: int = 10_000
    max_bytes: int = 64 * 2**20
    batch_writes: int = 2_000
    batch_bytes: int = 8 * 2**20
    flush_seconds: float = 10.0  # how long leaving the queue waits for the store


class _QueuedWrite(msgspec.Struct):
    write: Write
    since: float
    size: int
    then: Then | None
    joined: list[Then] | None = None  # callbacks of writes that were merged into this one


class WriteBacklog:
    """One line of writes, bounded in number and bytes. Full: refusable appends are refused; all else is taken."""

    def __init__(self, limits: QueueLimits) -> None:
        self._limits = limits
        self._waiting: deque[_QueuedWrite] = deque()
        self._last: dict[str, _QueuedWrite] = {}  # each session's last waiting write
        self._in_flight: list[_QueuedWrite] = []
        self._held: dict[str, deque[_QueuedWrite]] = {}  # by session: the writes beside the line
        self.bytes = 0  # waiting and in flight
        self.coalesced = 0

    @property
    def depth(self) -> int:
        return len(self._waiting) + len(self._in_flight) + sum(map(len, self._held.values()))

    @property
    def oldest_since(self) -> float | None:
        """When the oldest write came, or None if nothing waits."""
        lines = (self._in_flight, self._waiting, *self._held.values())
        return min((line[0].since for line in lines if line), default=None)

    def has_room(self, size: int) -> bool:
        return self.depth < self._limits.max_writes and self.bytes + size <= self._limits.max_bytes

    def offer(self, write: Write, then: Then | None, *, now: float, refusable: bool) -> bool:
        """Take the write, or return False: then it is not taken, and `then` will never run."""
        if write.append is None:
            last = self._last.get(write.session_id)
            if last is not None and last.write.fence == write.fence:
                self._join(last, write, then)
                return True
        size = write.size
        if refusable and write.append is not None and not self.has_room(size):
            return False
        entry = _QueuedWrite(write, now, size, then)
        self._last[write.session_id] = entry
        self.bytes += size
        held = self._held.get(write.session_id) if self._held else None
        if held is None:
            self._waiting.append(entry)
        else:
            held.append(entry)
            if self._too_much_held:
                self.release(write.session_id)
        return True

    @property
    def _too_much_held(self) -> bool:
        sizes = [entry.size for held in self._held.values() for entry in held]
        return len(sizes) > self._limits.max_writes // 4 or sum(sizes) > self._limits.max_bytes // 4

    def hold(self, session_id: str) -> None:
        """Hold the session's writes: those that are not in flight, and all further ones."""
        if session_id not in self._held:
            self._held[session_id] = deque(entry for entry in self._waiting if entry.write.session_id == session_id)
            self._waiting = deque(entry for entry in self._waiting if entry.write.session_id != session_id)

    def release(self, session_id: str) -> None:
        self._waiting.extendleft(reversed(self._held.pop(session_id, ())))

    @property
    def held(self) -> list[str]:
        """The sessions that are held."""
        return list(self._held)

    def _join(self, entry: _QueuedWrite, write: Write, then: Then | None) -> None:
        entry.write = merged(entry.write, write)
        size = entry.write.size
        self.bytes += size - entry.size
        entry.size = size
        if then is not None:
            if entry.joined is None:
                entry.joined = []
            entry.joined.append(then)
        self.coalesced += 1

    def take(self) -> list[Write]:
        """Put the next batch in flight; empty if nothing waits. The batch before it must be settled."""
        if self._in_flight:
            raise RuntimeError("a batch is already in flight")
        total = 0
        while self._waiting and len(self._in_flight) < self._limits.batch_writes:
            entry = self._waiting[0]
            total += entry.size
            if self._in_flight and total > self._limits.batch_bytes:
                break
            self._waiting.popleft()
            self._in_flight.append(entry)
            if self._last.get(entry.write.session_id) is entry:
                del self._last[entry.write.session_id]
        return [entry.write for entry in self._in_flight]

    def settle(self, outcomes: Sequence[Outcome]) -> list[tuple[Then, Outcome]]:
        """The batch in flight is decided: return each callback with its outcome, in order.

        A write that joined another shares its fate: it failed if that one failed, else it is durable.
        """
        entries, self._in_flight = self._in_flight, []
        owed: list[tuple[Then, Outcome]] = []
        for entry, outcome in zip(entries, outcomes, strict=True):
            self.bytes -= entry.size
            if entry.then is not None:
                owed.append((entry.then, outcome))
            if entry.joined:
                shared = _shared(outcome)
                owed.extend((then, shared) for then in entry.joined)
        return owed

    def halve(self) -> list[Write]:
        """The store had no room for the batch: its second half waits again, in front. Return the batch in flight."""
        keep = (len(self._in_flight) + 1) // 2
        back, self._in_flight = self._in_flight[keep:], self._in_flight[:keep]
        for entry in reversed(back):
            self._held.get(entry.write.session_id, self._waiting).appendleft(entry)
        for session_id, entry in {entry.write.session_id: entry for entry in back}.items():
            self._last.setdefault(session_id, entry)
        return [entry.write for entry in self._in_flight]

    def by_session(self) -> dict[str, int]:
        """The number of unsettled writes of each session."""
        counts: dict[str, int] = {}
        held = [entry for entries in self._held.values() for entry in entries]
        for entry in (*self._in_flight, *self._waiting, *held):
            counts[entry.write.session_id] = counts.get(entry.write.session_id, 0) + 1
        return counts


def _shared(outcome: Outcome) -> Outcome:
    """The outcome of a write without a record that joined another."""
    match outcome:
        case Rejected() | Fenced():
            return outcome
        case Spooled():
            return Spooled(0)
    return Stored(0)


def merged(earlier: Write, later: Write) -> Write:
    """One write with the effect of both in order; `later` appends nothing."""
    delivered = earlier.delivered
    if later.delivered is not None and (delivered is None or later.delivered > delivered):
        delivered = later.delivered
    return replace(
        earlier,
        marks=tuple({**dict(earlier.marks), **dict(later.marks)}.items()) if later.marks else earlier.marks,
        delivered=delivered,
        state=earlier.state if later.state is None else later.state,
        checkpoint=earlier.checkpoint if later.checkpoint is None else later.checkpoint,
        spec=earlier.spec if later.spec is None else later.spec,
    )
