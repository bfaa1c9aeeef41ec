"""Records on their way to the agent: decides which one goes next. Pure.

Records come in seq order. A record that waits goes when the agent is ready for it. The records behind it wait, too,
except those that never wait: they go *ahead*. The note of taken records is one number, the highest seq. So a record
that went ahead is noted only after all before it; its seq stays here, and when its turn comes it is noted and not
sent again. The seq stays for as long as the process runs, through any change of link, because a gateway that comes
back delivers unnoted records again. It goes with the process: a request of the agent dies with it, and so does the
answer. Nothing that waits ever goes ahead, so no process gets a message that is missing in the notes. A message to be
*folded* into the running turn does not wait for that turn's end, but stays here while the agent cannot take it in.

A record may be held back: then neither it nor the records behind it go until it is dropped. A record that went cannot
be held back.

Bounds: `lines` and `size` of records; the caller checks `full` before it adds. A crash loses the queue: the gateway
has it.
"""

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DueDelivery:
    """Note that everything up to `noted` is taken, unless it is None. Then give `line` to the agent; None if it went
    ahead."""

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
        """Length of the oldest record; 0 if there is none."""
        return len(self._queue[0][1]) if self._queue else 0

    def add(self, seq: int, line: bytes, *, waits: bool, folded: bool = False) -> None:
        self._queue.append((seq, line, waits, folded))
        self._size += len(line)

    def next(self, taken: int, *, ready: bool, can_fold: bool = True) -> DueDelivery | None:
        """What is due now, None if nothing is. `taken` is the number in the notes."""
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
        """Hold a record back. False if it went already, or is not here."""
        here = seq not in self._ahead and any(seq == each[0] for each in self._queue)
        if here:
            self._held.add(seq)
        return here

    def drop_held(self, seq: int) -> None:
        """Forget a held record, and go on behind it."""
        if seq in self._held:
            self._held.discard(seq)
            self._size -= sum(len(each[1]) for each in self._queue if each[0] == seq)
            self._queue = deque(each for each in self._queue if each[0] != seq)

    def drop(self) -> None:
        """Forget the records. The seqs of those that went ahead stay."""
        self._queue.clear()
        self._held.clear()
        self._size = 0

    def forget_process(self) -> None:
        """Forget everything: the process is gone, or never was."""
        self.drop()
        self._ahead.clear()
