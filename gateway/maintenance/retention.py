"""Retention of conversations: removes old records, by age and by count, and never one that is still needed.

The store removes a session's oldest records up to the first that must stay, and never one that awaits delivery or an
answer to its question. The store cannot know which delivered messages the agent has not answered yet: a restarted
gateway must find them, so no record at or after the oldest of them is removed. A seq is never given again.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import orjson
import structlog

from gateway.session.model.state import SessionState
from persistence.paging import sessions_after
from persistence.ports import MessageStore
from persistence.record import Record, Session, Status

log = structlog.get_logger()

SESSIONS_AT_ONCE = 100
TRIMMED_AT_ONCE = 1000
LOOKED_AT_ONCE = 16  # a record may have 1 MiB
PAUSE_SECONDS = 0.05  # between two steps: other writes go first
OWED = (Status.STORED, Status.DELIVERED)


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """The records that may go: those older than `age` seconds, and all but the newest `count` of a session. None: no
    bound."""

    age: float | None
    count: int | None

    def __bool__(self) -> bool:
        return self.age is not None or self.count is not None

    def concerns(self, session: Session, now: float) -> bool:
        """True if the session may have records to remove. The store then decides record by record."""
        kept = session.last_seq - session.first_seq + 1
        too_many = self.count is not None and kept > self.count
        return kept > 0 and (too_many or (self.age is not None and session.created_at < now - self.age))


class Trimmed(NamedTuple):
    sessions: int
    records: int


def first_owed(records: Sequence[Record]) -> int | None:
    """The seq of the first message that waits for its answer, of records after the last answered one."""
    return next((record.seq for record in records if record.status in OWED and _is_message(record)), None)


def _is_message(record: Record) -> bool:
    """True also for a message that the store refused: if it had reached the agent by then, its marker waits for the
    answer."""
    if record.type != Status.REJECTED:
        return record.type == "message"
    return bool(orjson.loads(record.payload)["metadata"]["type"] == "message")


class Retention:
    def __init__(
        self,
        store: MessageStore,
        policy: RetentionPolicy,
        *,
        told: Callable[[int], None] = lambda _: None,
        utcnow: Callable[[], float] = time.time,
    ) -> None:
        """`told` is called with the number of records that each step removed."""
        self._store = store
        self._policy = policy
        self._told = told
        self._utcnow = utcnow

    async def run(self) -> None:
        """Walk all sessions once. Raises StoreUnavailable: the rest waits for the next run."""
        now = self._utcnow()
        looked, sessions, records = 0, 0, 0
        try:
            page = await self._store.sessions(limit=SESSIONS_AT_ONCE)
            while page:
                for session in page:
                    looked += 1
                    if self._policy.concerns(session, now) and (gone := await self._trim(session, now)):
                        sessions, records = sessions + 1, records + gone
                await asyncio.sleep(PAUSE_SECONDS)
                page = await sessions_after(self._store, page, limit=SESSIONS_AT_ONCE)
        finally:
            log.info("retention.ran", looked_at=looked, sessions=sessions, records=records)

    async def _trim(self, session: Session, now: float) -> int:
        below = await self._first_needed(session)
        older_than = None if self._policy.age is None else now - self._policy.age
        total = 0
        while True:
            gone = await self._store.trim(
                session.id, older_than=older_than, keep=self._policy.count, below=below, limit=TRIMMED_AT_ONCE
            )
            total += gone
            self._told(gone)
            if gone < TRIMMED_AT_ONCE:
                return total
            await asyncio.sleep(PAUSE_SECONDS)

    async def _first_needed(self, session: Session) -> int:
        """Records stored after the look are beyond the session's last seq, and so are not affected."""
        return min([await self._first_owed(session, type) for type in ("message", Status.REJECTED)])

    async def _first_owed(self, session: Session, type: str) -> int:
        after = SessionState.from_json(session.state).answered
        while page := await self._store.messages(session.id, after=after, limit=LOOKED_AT_ONCE, type=type):
            if (owed := first_owed(page)) is not None:
                return owed
            after = page[-1].seq
        return session.last_seq + 1
