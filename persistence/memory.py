"""Conversations in memory: for tests and for trying things out. Gone when the process ends."""

import asyncio
import json
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import msgspec
from msgspec.structs import replace

from persistence.commit_plan import REJECTED, Head, plan, questions
from persistence.listener import NobodyListens, StoreListener
from persistence.memory_users import MemoryUsers
from persistence.record import (
    DeadLetter,
    Duplicate,
    Loaded,
    Outcome,
    Record,
    Rejected,
    Session,
    Status,
    Stored,
    Usage,
    Write,
)
from persistence.record_json import brief, up_to

CIDS_LOADED = 10_000


def _snapshot_bytes(state: bytes) -> int:
    try:
        return int(json.loads(state).get("snapshot_bytes") or 0)
    except (ValueError, AttributeError):
        return 0


class _Kept(msgspec.Struct):
    session: Session
    records: dict[int, Record] = {}  # by seq, in order
    cids: dict[str, int] = {}
    checkpoint: bytes = b""
    fence: int = 0

    def seen(self, record: Record) -> Record:
        """The record for readers: delivery is a watermark."""
        if record.status == Status.STORED and record.seq <= self.session.delivered:
            return replace(record, status=Status.DELIVERED)
        return record

    def stays(self, record: Record) -> bool:
        """Whether the record still awaits delivery or an answer."""
        awaits_delivery = record.status == Status.STORED and record.seq > self.session.delivered
        return awaits_delivery or record.status == Status.OPEN


class MemoryStore:
    """A MessageStore that forgets. Every call gives the loop one turn, as a store that does I/O would."""

    def __init__(self) -> None:
        self.heard: StoreListener = NobodyListens()
        self.users = MemoryUsers()
        self._kept: dict[str, _Kept] = {}  # in order of creation
        self._dead: dict[int, DeadLetter] = {}
        self._buried = 0
        self._installation = ""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    async def installation(self, proposed: str) -> str:
        await asyncio.sleep(0)
        self._installation = self._installation or proposed
        return self._installation

    async def create(self, session: Session) -> Session:
        await asyncio.sleep(0)
        fresh = replace(session, last_seq=0, delivered=0, first_seq=1)
        return self._kept.setdefault(session.id, _Kept(fresh)).session

    async def find(self, session_id: str) -> Session | None:
        await asyncio.sleep(0)
        kept = self._kept.get(session_id)
        return kept.session if kept else None

    async def load(self, session_id: str) -> Loaded | None:
        await asyncio.sleep(0)
        kept = self._kept.get(session_id)
        if kept is None:
            return None
        kept.fence += 1
        records = kept.records.values()
        known = [record for record in records if record.status not in (Status.DUPLICATE, Status.REJECTED)]
        return Loaded(
            session=kept.session,
            fence=kept.fence,
            checkpoint=kept.checkpoint,
            cids={record.cid: record.seq for record in known[-CIDS_LOADED:]},
            waiting=[r for r in records if r.status == Status.STORED and r.seq > kept.session.delivered],
            open=[record for record in records if record.status == Status.OPEN],
        )

    async def sessions(
        self, user_id: str | None = None, *, after: str | None = None, limit: int | None = None
    ) -> list[Session]:
        await asyncio.sleep(0)
        newest_first = [kept.session for kept in reversed(self._kept.values())]
        if after is not None:
            ids = [session.id for session in newest_first]
            newest_first = newest_first[ids.index(after) + 1 :] if after in ids else []
        page = [session for session in newest_first if user_id is None or session.user_id == user_id][:limit]
        return [replace(session, spec=brief(session.spec)) for session in page]

    async def usage(self, user_id: str) -> Usage:
        await asyncio.sleep(0)
        theirs = [kept for kept in self._kept.values() if kept.session.user_id == user_id]
        records = sum(len(record.payload) for kept in theirs for record in kept.records.values())
        return Usage(len(theirs), records, sum(_snapshot_bytes(kept.session.state) for kept in theirs))

    async def waiting(self) -> list[str]:
        await asyncio.sleep(0)
        return [
            kept.session.id
            for kept in self._kept.values()
            if any(r.status == Status.STORED and r.seq > kept.session.delivered for r in kept.records.values())
        ]

    async def commit(self, writes: Sequence[Write]) -> list[Outcome]:
        await asyncio.sleep(0)
        heads = {}
        for write in writes:
            if kept := self._kept.get(write.session_id):
                heads[write.session_id] = Head(kept.session.last_seq, kept.session.delivered, kept.fence)
        cids = {
            (session_id, cid): seq
            for session_id, cid in questions(writes, heads, retries_only=False)
            if (seq := self._kept[session_id].cids.get(cid)) is not None
        }
        decided = plan(writes, heads, cids)
        for record in decided.rows:
            kept = self._kept[record.session_id]
            kept.records[record.seq] = record
            kept.cids[record.cid] = record.seq
        for status, session_id, seq in decided.marks:
            records = self._kept[session_id].records
            if seq in records:
                records[seq] = replace(records[seq], status=status)
        for session_id, head in decided.heads.items():
            kept = self._kept[session_id]
            kept.session = replace(kept.session, last_seq=head.last_seq, delivered=head.delivered)
        for session_id, state in decided.states.items():
            self._kept[session_id].session = replace(self._kept[session_id].session, state=state)
        for session_id, spec in decided.specs.items():
            self._kept[session_id].session = replace(self._kept[session_id].session, spec=spec)
        for session_id, body in decided.checkpoints.items():
            self._kept[session_id].checkpoint = body
        for record, reason in decided.dead:
            self._buried += 1
            self._dead[self._buried] = DeadLetter(self._buried, record, reason, time.time())
        for session_id in {record.session_id for record in decided.rows}:
            self.heard.grown(session_id)
        return decided.outcomes

    async def messages(
        self,
        session_id: str,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int = 100,
        role: str | None = None,
        type: str | None = None,
        max_bytes: int | None = None,
    ) -> list[Record]:
        await asyncio.sleep(0)
        kept = self._kept.get(session_id)
        if kept is None or limit <= 0:
            return []
        found = [
            record
            for record in kept.records.values()
            if record.seq > after
            and (before is None or record.seq < before)
            and role in (None, record.role)
            and type in (None, record.type)
        ]
        newest = before is not None and after <= 0
        page = up_to(found[: -limit - 1 : -1] if newest else found[:limit], max_bytes)
        return [kept.seen(record) for record in (page[::-1] if newest else page)]

    async def by_cid(self, session_id: str, cid: str) -> Record | None:
        await asyncio.sleep(0)
        kept = self._kept.get(session_id)
        seq = kept.cids.get(cid) if kept else None
        return kept.seen(kept.records[seq]) if kept and seq else None

    def behind(self, session_id: str) -> bool:
        return False

    async def trim(
        self, session_id: str, *, older_than: float | None, keep: int | None, below: int, limit: int = 1000
    ) -> int:
        await asyncio.sleep(0)
        kept = self._kept.get(session_id)
        if kept is None:
            return 0
        gone: list[Record] = []
        for record in kept.records.values():
            too_old = older_than is not None and record.created_at < older_than
            too_many = keep is not None and record.seq <= kept.session.last_seq - keep
            if record.seq >= below or len(gone) >= limit or kept.stays(record) or not (too_old or too_many):
                break
            gone.append(record)
        for record in gone:
            del kept.records[record.seq], kept.cids[record.cid]
            kept.session = replace(kept.session, first_seq=record.seq + 1)
        return len(gone)

    async def purge(self, session_id: str) -> None:
        await asyncio.sleep(0)
        self._kept.pop(session_id, None)
        self._dead = {n: letter for n, letter in self._dead.items() if letter.record.session_id != session_id}

    async def dead_letters(
        self, session_id: str | None = None, *, after: int = 0, limit: int = 100
    ) -> list[DeadLetter]:
        await asyncio.sleep(0)
        found = [n for n, letter in self._dead.items() if n > after and session_id in (None, letter.record.session_id)]
        return [self._dead[number] for number in found[: max(limit, 0)]]

    async def retry_dead_letter(self, number: int) -> Outcome | None:
        await asyncio.sleep(0)
        letter = self._dead.get(number)
        if letter is None:
            return None
        record = letter.record
        kept = self._kept[record.session_id]
        marker = f"{REJECTED}{record.seq}"
        if kept.cids.get(marker) != record.seq:
            return Rejected("its place in the conversation is gone")
        del self._dead[number]
        if (first := kept.cids.get(record.cid)) is not None:
            return Duplicate(first)
        del kept.cids[marker]
        kept.cids[record.cid] = record.seq
        kept.records[record.seq] = record
        return Stored(record.seq)

    async def drop_dead_letter(self, number: int) -> bool:
        await asyncio.sleep(0)
        return self._dead.pop(number, None) is not None
