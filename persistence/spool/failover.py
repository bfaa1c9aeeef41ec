"""How the store follows the spool: where a batch goes, and when the store is asked again. Pure.

Two states. *Direct*: the spool is empty and the store has no batch of ours. A batch goes to the store itself, and is
stored when it answers. If the store does not answer in time, or fails, the batch goes into the spool: its writes are
accepted there, and its outcome in the store is found out later. *Spooling*: every batch goes behind the rows in the
spool, and a drainer gives the spool to the store, in order. When the spool is empty, the state is direct again.

Spooling costs more than storing, so under load a spool that fills faster than it drains would never empty. So while
the store does well, a new batch waits for the drainer: until the spool is empty if the rest is one batch, else for
one step. While the store does badly, no batch waits for it.

A batch with an unknown outcome goes to the store again: the store recognises it by its seqs and cids. It is
unchanged, except for checkpoints that newer ones behind them have made pointless, and nobody reads before those are
in. The store has one batch at a time, and is never asked while an answer may still come: an old batch that arrived
behind a newer one could set back a session's state.

A session that another gateway holds in the store is left aside, with pauses of its own; the others go on.

What never happens: two writes of a session change their order; a write reported as Spooled is neither in the spool,
nor in the store, nor among the dead letters; a session is loaded while writes of it are in the spool.
"""

from collections.abc import Iterable
from enum import Enum
from random import Random

import msgspec

from persistence import backoff
from persistence.record import Rejected, Write

BATCH_WRITES = 2_000
BATCH_BYTES = 8 * 2**20
SPOOL_AFTER_SECONDS = 0.1
SPOOL_AFTER_SECONDS_PER_WRITE = 0.0001  # extra time for a large batch
RETURN_SECONDS = 0.5  # how long a batch waits for the spool to be empty
STALLED_SECONDS = 1.0  # a store without an answer for so long counts as failing

LARGEST = 2**63 - 1


class WritePath(Enum):
    DIRECT = "give it to the store"
    WAIT = "for the drainer's next step"
    SPOOL = "put it into the spool"


def patience(writes: int) -> float:
    """How long a batch of so many writes may take before it goes into the spool."""
    return SPOOL_AFTER_SECONDS + writes * SPOOL_AFTER_SECONDS_PER_WRITE


class _Aside(msgspec.Struct, gc=False):
    attempts: int
    until: float


class Failover:
    """The known health of the store."""

    def __init__(self) -> None:
        self._asked: tuple[float, int] | None = None  # since when the store has a batch, of so many writes
        self._prompt = False  # the last answer came in time
        self._failures = 0
        self._rests_until = 0.0
        self._aside: dict[str, _Aside] = {}

    @property
    def has_asked(self) -> bool:
        return self._asked is not None

    @property
    def failures(self) -> int:
        """The number of the store's failures in a row."""
        return self._failures

    def failing(self, now: float) -> bool:
        return self._failures > 0 or (self._asked is not None and now - self._asked[0] >= STALLED_SECONDS)

    def does_well(self, now: float) -> bool:
        waits = 0.0 if self._asked is None else now - self._asked[0] - patience(self._asked[1])
        return self._prompt and not self._failures and not self._aside and waits <= 0

    def way(self, *, writes: int, size: int, since: float, steps: int, now: float) -> WritePath:
        """Where a batch goes that came at `since`, after which the drainer took `steps`, behind so many spooled
        `writes` of `size` bytes."""
        if not writes and self._asked is None:
            return WritePath.DIRECT
        if not self.does_well(now) or now - since >= RETURN_SECONDS:
            return WritePath.SPOOL
        one_batch = writes <= BATCH_WRITES and size <= BATCH_BYTES
        return WritePath.WAIT if one_batch or not steps else WritePath.SPOOL

    def ask(self, writes: int, *, now: float) -> None:
        if self._asked is not None:
            raise RuntimeError("the store has a batch already")
        self._asked = (now, writes)

    def answered(self, session_ids: Iterable[str], *, now: float) -> int:
        """The batch is stored. Return how many times in a row the store had failed before."""
        since, writes = self._take_back()
        failures, self._failures = self._failures, 0
        self._prompt = now - since <= patience(writes)
        for session_id in session_ids:
            self._aside.pop(session_id, None)
        return failures

    def failed(self, *, now: float, rng: Random) -> float:
        """The outcome of the batch is unknown. Return how long the drainer rests."""
        self._take_back()
        pause = backoff.delay(self._failures, rng)
        self._failures += 1
        self._rests_until = now + pause
        return pause

    def busy(self, session_ids: Iterable[str], *, now: float, rng: Random) -> None:
        """The store has stored nothing of the batch, because of these sessions."""
        self._take_back()
        self._failures = 0
        for session_id in session_ids:
            aside = self._aside.setdefault(session_id, _Aside(0, now))
            aside.until = now + backoff.delay(aside.attempts, rng)
            aside.attempts += 1

    def _take_back(self) -> tuple[float, int]:
        if self._asked is None:
            raise RuntimeError("the store has no batch")
        asked, self._asked = self._asked, None
        return asked

    def pause(self, now: float) -> float:
        """How long the drainer still rests."""
        return max(0.0, self._rests_until - now) if self._failures else 0.0

    def aside(self, now: float) -> frozenset[str]:
        """The sessions to leave out."""
        return frozenset(session_id for session_id, aside in self._aside.items() if aside.until > now)

    def next_due(self, now: float) -> float | None:
        """How long until one of them may be tried again."""
        return min((aside.until - now for aside in self._aside.values() if aside.until > now), default=None)

    def forget(self, session_id: str) -> None:
        self._aside.pop(session_id, None)


def misfit(write: Write) -> Rejected | None:
    """Why no store would take the write, whatever the store holds: such a write is not spooled."""
    record = write.append
    if record is not None and record.session_id != write.session_id:
        return Rejected("record of another session")
    numbers = (record.seq if record else 0, write.delivered or 0, write.fence or 0, *(seq for seq, _ in write.marks))
    if not all(-LARGEST <= number <= LARGEST for number in numbers):
        return Rejected("a number beyond all records")
    try:
        write.session_id.encode()
    except UnicodeEncodeError:
        return Rejected("no such session")
    return None
