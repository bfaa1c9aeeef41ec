"""What the contract asks of a store, asked of a SpooledStore: outcomes once they are final."""

import asyncio
from collections.abc import Sequence
from random import Random

from persistence.errors import StoreUnavailable
from persistence.listener import NobodyListens, StoreListener
from persistence.memory import MemoryStore
from persistence.record import Fenced, Outcome, Rejected, Spooled, Stored, Write
from persistence.spool.ports import SpoolPort, SpoolRow
from persistence.spool.rows import columns_of
from persistence.spool.store import SpooledStore
from tests.support.faults import FlakyStore
from tests.support.waiting import until


def _key(write: Write) -> str:
    """The same for a write that has been in a file."""
    return repr(columns_of(SpoolRow(0, write), 0.0))


class Impatient(Random):
    """Nobody rests before he tries again."""

    def uniform(self, a: float, b: float) -> float:
        return 0.0


class DecidingStore(FlakyStore):
    """Remembers what it decided about each write, in order. It takes `seconds`, and the first time it is
    `away`."""

    def __init__(self, seconds: float = 0.0, *, away: bool = False) -> None:
        super().__init__(MemoryStore())
        self.decided: list[tuple[Write, Outcome]] = []
        self._seconds = seconds
        self._away = away
        self._asked: set[str] = set()

    async def commit(self, writes: Sequence[Write]) -> list[Outcome]:
        await asyncio.sleep(self._seconds)
        if self._away and not self._asked.issuperset(map(_key, writes)):
            self._asked.update(map(_key, writes))
            raise StoreUnavailable("away")
        outcomes = await self.inner.commit(writes)
        self.decided += zip(writes, outcomes, strict=True)
        return outcomes


class _Ear(NobodyListens):
    def __init__(self, then: StoreListener) -> None:
        self.then = then
        self.told: list[tuple[str, int, Outcome]] = []

    def grown(self, session_id: str) -> None:
        self.then.grown(session_id)

    def settled(self, session_id: str, seq: int, outcome: Outcome) -> None:
        self.told.append((session_id, seq, outcome))
        self.then.settled(session_id, seq, outcome)


class FinalOutcomes(FlakyStore):
    """A SpooledStore whose `commit` returns what the remote store decided in the end. Each record that was spooled is
    told of exactly once, in order, with that outcome."""

    def __init__(self, remote: DecidingStore, spool: SpoolPort, rng: Random) -> None:
        self.spooled_store = SpooledStore(remote, spool, rng)
        super().__init__(self.spooled_store)
        self._remote = remote
        self._ear = _Ear(self.spooled_store.heard)
        self.spooled_store.heard = self._ear
        self.spooled_outcomes = 0

    @property
    def heard(self) -> StoreListener:
        return self._ear.then

    @heard.setter
    def heard(self, heard: StoreListener) -> None:
        self._ear.then = heard

    async def commit(self, writes: Sequence[Write]) -> list[Outcome]:
        self._remote.decided.clear()
        self._ear.told.clear()
        outcomes = await self.inner.commit(writes)
        spooled = [write for write, outcome in zip(writes, outcomes, strict=True) if isinstance(outcome, Spooled)]
        self.spooled_outcomes += len(spooled)
        if not spooled:
            assert self._ear.told == []
            return outcomes
        await until(lambda: not self.spooled_store.stats()["rows"], "an empty spool")
        expected = set(map(_key, spooled))
        decided = [(write, outcome) for write, outcome in self._remote.decided if _key(write) in expected]
        assert [_key(write) for write, _ in decided] == [_key(write) for write in spooled]
        records = [(write.append, outcome) for write, outcome in decided if write.append]
        for told, (record, outcome) in zip(self._ear.told, records, strict=True):
            # Of a record that is refused because it is there already, nobody hears that it was refused.
            there = told[2] == Stored(record.seq) and isinstance(outcome, Fenced | Rejected)
            assert told == (record.session_id, record.seq, told[2] if there else outcome)
        final = iter(outcome for _, outcome in decided)
        return [next(final) if isinstance(outcome, Spooled) else outcome for outcome in outcomes]
