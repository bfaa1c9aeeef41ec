"""Stored records in seq order, a few at a time: a reader's memory and the cost of one query are bounded, whatever the
request.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import orjson

from gateway.protocol.chat_frames import record_json
from persistence.errors import StoreUnavailable
from persistence.paging import Look, seen_again
from persistence.ports import MessageStore
from persistence.record import Record, Session

# Bounds of one read: it ends once so many bytes are there. A record may have 1 MiB, so this bounds the memory of one
# request, whatever its `limit`.
AT_ONCE = 16
PAGE_BYTES = 1 << 20
# A rare type in a long conversation is looked for in steps of so many records: no statement runs for minutes.
SPAN = 5000


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """The records that are wanted; None means all."""

    role: str | None = None
    type: str | None = None

    def __bool__(self) -> bool:
        return self.role is not None or self.type is not None


EVERYTHING = RecordFilter()


class SessionGone(StoreUnavailable):
    """The session was removed during the read: records that are found under its id now may be another user's."""


async def pages(
    store: MessageStore,
    look: Look,
    session: Session,
    *,
    after: int,
    before: int,
    wanted: int | None = None,
    only: RecordFilter = EVERYTHING,
    span: int = SPAN,
) -> AsyncIterator[list[Record]]:
    """The first `wanted` records with after < seq < before, in order, and of this very session. A page may be empty.
    Raises StoreUnavailable, or SessionGone.
    """
    while after + 1 < before and wanted != 0:
        step = AT_ONCE if wanted is None else min(AT_ONCE, wanted)
        # A store takes `before` without an `after` as a request for the newest. So a read from the very beginning
        # leaves `before` out; or, if that might be a long search, asks for the first number alone.
        end = min(before, after + 1 + span) if after > 0 else min(before, 2) if only else before
        bound = None if after <= 0 and not only else end
        found = await store.messages(
            session.id, after=after, before=bound, limit=step, role=only.role, type=only.type, max_bytes=PAGE_BYTES
        )
        found = [record for record in found if record.seq < end]
        if await seen_again(look, session) is None:  # asked after the page was read: it was there all the time
            raise SessionGone(f"session {session.id} was removed while it was read")
        after = found[-1].seq if found else end - 1
        if wanted is not None:
            wanted -= len(found)
        yield found


async def unbroken(found: AsyncIterator[list[Record]], after: int) -> AsyncIterator[list[Record]]:
    """Pages of every record after `after`, up to the first that is missing: it was trimmed away meanwhile."""
    async for page in found:
        kept = [record for seq, record in enumerate(page, after + 1) if record.seq == seq]
        after += len(kept)
        yield kept
        if len(kept) < len(page):
            return


async def first_of_newest(store: MessageStore, session_id: str, *, before: int, wanted: int, only: RecordFilter) -> int:
    """The seq at which the last `wanted` records before `before` begin; `before` if there are none."""
    while wanted > 0:
        found = await store.messages(
            session_id,
            before=before,
            limit=min(AT_ONCE, wanted),
            role=only.role,
            type=only.type,
            max_bytes=PAGE_BYTES,
        )
        if not found:
            break
        before = found[0].seq
        wanted -= len(found)
    return before


def record_bytes(record: Record) -> bytes:
    return orjson.dumps(record_json(record))
