"""The session's numbers: the next `seq`, and the `seq` of each known `cid`. Pure.

The writer numbers and the store checks. A `cid` seen before is answered from here; only one older than the newest
10,000 gets as far as the store, which then keeps a marker at the new number: never a hole, never a second delivery.
"""

from collections import OrderedDict

REMEMBERED = 10_000


class MessageSequence:
    __slots__ = ("_cids", "complete", "last_seq")

    def __init__(self, last_seq: int, cids: dict[str, int]) -> None:
        """`cids` are the newest that the store has: all of them, if they are fewer than `REMEMBERED`."""
        self.last_seq = last_seq
        self._cids = dict(cids)
        self.complete = len(cids) < REMEMBERED  # True if a cid that is missing here exists nowhere

    def seq_of(self, cid: str) -> int | None:
        return self._cids.get(cid)

    def enter(self, cid: str) -> int:
        """Give `cid` the next seq."""
        self.last_seq += 1
        self._cids[cid] = self.last_seq
        if len(self._cids) > REMEMBERED:
            self._forget_oldest()
        return self.last_seq

    def _forget_oldest(self) -> None:
        if not isinstance(self._cids, OrderedDict):  # quick to find its oldest, and twice as large: few need it
            self._cids = OrderedDict(self._cids)
        self._cids.popitem(last=False)
        self.complete = False

    def withdraw(self, cid: str) -> None:
        """Undo the newest `enter`: the queue had no room for its record."""
        if self._cids.get(cid) != self.last_seq:
            raise ValueError("only the newest entry can be undone")
        del self._cids[cid]
        self.last_seq -= 1

    def cid_of(self, seq: int) -> str | None:
        """Slow, and rarely asked."""
        return next((cid for cid, known in self._cids.items() if known == seq), None)

    def forget(self, cid: str, seq: int) -> None:
        """The record at `seq` is not kept after all: its cid may be used again, its number not."""
        if self._cids.get(cid) == seq:
            del self._cids[cid]
