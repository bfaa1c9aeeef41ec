"""Records on their way to the agent: which one is given to it next. Pure.

Records come in seq order. One that waits is given when the agent is ready for it. All that follow it wait behind it,
but for those that do not wait themselves: they are given *ahead*. What was taken is noted as one number, the highest
seq. So a record that was given ahead is not noted until all before it are: its seq is kept here, and when its turn
comes it is noted and not given again. The seq is kept for as long as the process runs, over any change of link, because
a gateway that comes back delivers again what was not noted. With the process it is forgotten: what an agent asked dies
with it, and so does the answer. Nothing that waits is ever given ahead, so no process is given a message that the
notes do not have. A message that is *folded* into the turn that runs does not wait for that turn's end, but stays here
while the agent cannot take it in.

A record may be held back: then neither it nor what follows it is given, until it is dropped. What was given already
cannot be.

Bounds: `lines` and `size` of records; whoever adds looks at `full`. A crash loses the queue: the gateway has it.
"""

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DueDelivery:
    """Note that everything up to `noted` is taken, unless it is None; then give `line`, unless it was given before."""

    noted: int | None
    line: bytes | None


class DeliveryQueue:
    __slots__ = ("_ahead", "_held", "_lines", "_queue", "_size", "_size_limit")

    def __init__(self, lines: int, size: int) -> None:
        self._lines = lines
        self._size_limit = size
        self._queue: deque[tuple[int, bytes, bool, bool]] = deque()  # seq, line, waits, folded
        self._size = 0
        self._ahead: set[int] = set()
        self._held: set[int] = set()

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def full(self) -> bool:
        return len(self._queue) >= self._lines or self._size >= self._size_limit

    @property
    def oldest_bytes(self) -> int:
        """How long the oldest record is; 0 if there is none."""
        return len(self._queue[0][1]) if self._queue else 0

    def add(self, seq: int, line: bytes, *, waits: bool, folded: bool = False) -> None:
        self._queue.append((seq, line, waits, folded))
        self._size += len(line)

    def next(self, taken: int, *, ready: bool, can_fold: bool = True) -> DueDelivery | None:
        """What is due now; None if nothing is. `taken` is what the notes have."""
        while self._queue:
            seq, line, waits, folded = self._queue[0]
            if seq in self._held:
                return None
            if seq > taken and ((waits and not ready) or (folded and not can_fold and seq not in self._ahead)):
                return self._next_ahead(taken, can_fold=can_fold)
            self._queue.popleft()
            self._size -= len(line)
            if seq > taken:
                if seq not in self._ahead:
                    return DueDelivery(seq, line)
                self._ahead.discard(seq)
                return DueDelivery(seq, None)
        return None

    def _next_ahead(self, taken: int, *, can_fold: bool) -> DueDelivery | None:
        for seq, line, waits, folded in self._queue:
            if seq in self._held:
                break
            if not waits and (can_fold or not folded) and seq > taken and seq not in self._ahead:
                self._ahead.add(seq)
                return DueDelivery(None, line)
        return None

    def hold(self, seq: int) -> bool:
        """Hold a record back; False if it was given, or is not here."""
        here = seq not in self._ahead and any(seq == each[0] for each in self._queue)
        if here:
            self._held.add(seq)
        return here

    def drop_held(self, seq: int) -> None:
        """Forget a record that is held back, and go on behind it."""
        if seq in self._held:
            self._held.discard(seq)
            self._size -= sum(len(each[1]) for each in self._queue if each[0] == seq)
            self._queue = deque(each for each in self._queue if each[0] != seq)

    def drop(self) -> None:
        """Forget the records; what was given ahead stays known."""
        self._queue.clear()
        self._held.clear()
        self._size = 0

    def forget_process(self) -> None:
        """Forget everything: the process is gone, or never was."""
        self.drop()
        self._ahead.clear()
