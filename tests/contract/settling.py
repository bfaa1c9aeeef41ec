"""A store that answers Spooled, as somebody sees it who waits until everything is settled."""

import asyncio
from collections.abc import Sequence

from persistence.listener import NobodyListens, StoreListener
from persistence.ports import MessageStore
from persistence.record import Outcome, Spooled, Write
from tests.support.faults import FlakyStore


class _Ear:
    """Remembers how each record ended, and passes everything on."""

    def __init__(self) -> None:
        self.then: StoreListener = NobodyListens()
        self.ends: dict[tuple[str, int], Outcome] = {}
        self._told = asyncio.Event()

    def grown(self, session_id: str) -> None:
        self.then.grown(session_id)

    def settled(self, session_id: str, seq: int, outcome: Outcome) -> None:
        self.ends[session_id, seq] = outcome
        self._told.set()
        self.then.settled(session_id, seq, outcome)

    async def end_of(self, session_id: str, seq: int) -> Outcome:
        while (session_id, seq) not in self.ends:
            self._told.clear()
            await self._told.wait()
        return self.ends[session_id, seq]


class Settling(FlakyStore):
    """`commit` returns when no outcome is Spooled any more. The contract is stated for such a store."""

    def __init__(self, inner: MessageStore) -> None:
        super().__init__(inner)
        self._ear = _Ear()
        inner.heard = self._ear

    @property
    def heard(self) -> StoreListener:
        return self._ear.then

    @heard.setter
    def heard(self, heard: StoreListener) -> None:
        self._ear.then = heard

    async def commit(self, writes: Sequence[Write]) -> list[Outcome]:
        outcomes = await self.inner.commit(writes)
        async with asyncio.timeout(120):
            for place, (write, outcome) in enumerate(zip(writes, outcomes, strict=True)):
                if isinstance(outcome, Spooled):
                    outcomes[place] = await self._ear.end_of(write.session_id, outcome.seq)
        return outcomes

    async def purge(self, session_id: str) -> None:
        await self.inner.purge(session_id)
        for key in [key for key in self._ear.ends if key[0] == session_id]:
            del self._ear.ends[key]
