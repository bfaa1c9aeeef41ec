"""Conversations in memory: for tests and for trying things out. Gone when the process ends."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

from persistence.batch import Head, plan, questions
from persistence.record import Loaded, Outcome, Record, Session, Status, Write

CIDS_LOADED = 10_000


@dataclass(slots=True)
class _Kept:
    session: Session
    records: list[Record] = field(default_factory=list)  # the record with seq n is at n - 1
    cids: dict[str, int] = field(default_factory=dict)
    checkpoint: bytes = b""

    def seen(self, record: Record) -> Record:
        """The record as readers see it: delivery is a watermark."""
        if record.status == Status.STORED and record.seq <= self.session.delivered:
            return replace(record, status=Status.DELIVERED)
        return record


class MemoryStore:
    """A MessageStore that forgets. Every call gives the loop one turn, as a store that does I/O would."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}  # in order of creation

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    async def create(self, session: Session) -> Session:
        await asyncio.sleep(0)
        return self._kept.setdefault(session.id, _Kept(replace(session, last_seq=0, delivered=0))).session

    async def find(self, session_id: str) -> Session | None:
        await asyncio.sleep(0)
        kept = self._kept.get(session_id)
        return kept.session if kept else None

    async def load(self, session_id: str) -> Loaded | None:
        await asyncio.sleep(0)
        kept = self._kept.get(session_id)
        if kept is None:
            return None
        known = [record for record in kept.records if record.status != Status.DUPLICATE]
        return Loaded(
            session=kept.session,
            checkpoint=kept.checkpoint,
            cids={record.cid: record.seq for record in known[-CIDS_LOADED:]},
            waiting=[r for r in kept.records if r.status == Status.STORED and r.seq > kept.session.delivered],
            open=[record for record in kept.records if record.status == Status.OPEN],
        )

    async def sessions(self, user_id: str | None = None) -> list[Session]:
        await asyncio.sleep(0)
        newest_first = (kept.session for kept in reversed(self._kept.values()))
        return [session for session in newest_first if user_id is None or session.user_id == user_id]

    async def waiting(self) -> list[str]:
        await asyncio.sleep(0)
        return [
            kept.session.id
            for kept in self._kept.values()
            if any(record.status == Status.STORED for record in kept.records[kept.session.delivered :])
        ]

    async def commit(self, writes: Sequence[Write]) -> list[Outcome]:
        await asyncio.sleep(0)
        heads = {}
        for write in writes:
            if kept := self._kept.get(write.session_id):
                heads[write.session_id] = Head(kept.session.last_seq, kept.session.delivered)
        cids = {
            (session_id, cid): seq
            for session_id, cid in questions(writes, heads, retries_only=False)
            if (seq := self._kept[session_id].cids.get(cid)) is not None
        }
        decided = plan(writes, heads, cids)
        for record in decided.rows:
            kept = self._kept[record.session_id]
            kept.records.append(record)
            kept.cids[record.cid] = record.seq
        for status, session_id, seq in decided.marks:
            records = self._kept[session_id].records
            records[seq - 1] = replace(records[seq - 1], status=status)
        for session_id, head in decided.heads.items():
            kept = self._kept[session_id]
            kept.session = replace(kept.session, last_seq=head.last_seq, delivered=head.delivered)
        for session_id, state in decided.states.items():
            self._kept[session_id].session = replace(self._kept[session_id].session, state=state)
        for session_id, spec in decided.specs.items():
            self._kept[session_id].session = replace(self._kept[session_id].session, spec=spec)
        for session_id, body in decided.checkpoints.items():
            self._kept[session_id].checkpoint = body
        return decided.outcomes

    async def messages(
        self, session_id: str, *, after: int = 0, before: int | None = None, limit: int = 100
    ) -> list[Record]:
        await asyncio.sleep(0)
        kept = self._kept.get(session_id)
        if kept is None or limit <= 0:
            return []
        after = max(after, 0)
        found = kept.records[after : None if before is None else max(before - 1, 0)]
        newest = before is not None and after == 0
        return [kept.seen(record) for record in (found[-limit:] if newest else found[:limit])]

    async def by_cid(self, session_id: str, cid: str) -> Record | None:
        await asyncio.sleep(0)
        kept = self._kept.get(session_id)
        seq = kept.cids.get(cid) if kept else None
        return kept.seen(kept.records[seq - 1]) if kept and seq else None

    async def purge(self, session_id: str) -> None:
        await asyncio.sleep(0)
        self._kept.pop(session_id, None)
