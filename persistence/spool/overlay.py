"""What the spool knows of each session beyond the store. Pure.

While writes of a session are in the spool, all its newer writes are behind them there. So together they are newer
than anything in the store, and stay true until the last of them has left. A tail sums them up: one per session with
writes in the spool, small, and in memory.
"""

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from persistence.record import Record, Session, Status, Write


class Tail(msgspec.Struct):
    """The sum of one session's writes in the spool."""

    writes: int = 0
    records: int = 0
    last_seq: int = 0
    last_stored: int = 0  # seq of the last appended record that awaits delivery
    delivered: int = 0
    state: bytes | None = None
    spec: bytes | None = None
    marks: dict[int, str] = {}

    def add(self, write: Write) -> None:
        self.writes += 1
        if write.append is not None:
            self.records += 1
            self.last_seq = max(self.last_seq, write.append.seq)
            if write.append.status == Status.STORED:
                self.last_stored = max(self.last_stored, write.append.seq)
        if write.delivered is not None:
            self.delivered = max(self.delivered, write.delivered)
        if write.state is not None:
            self.state = write.state
        if write.spec is not None:
            self.spec = write.spec
        self.marks.update(write.marks)

    def over(self, session: Session) -> Session:
        """The session in the store, with newer values from here."""
        return replace(
            session,
            last_seq=max(session.last_seq, self.last_seq),
            delivered=max(session.delivered, self.delivered),
            state=session.state if self.state is None else self.state,
            spec=session.spec if self.spec is None else self.spec,
        )

    def seen(self, record: Record) -> Record:
        """The record for readers."""
        status = self.marks.get(record.seq, record.status)
        if status == Status.STORED and record.seq <= self.delivered:
            status = Status.DELIVERED
        return record if status == record.status else replace(record, status=status)


class SpoolOverlay:
    """Every session with writes in the spool, and the size of all of them."""

    def __init__(self) -> None:
        self.by_session: dict[str, Tail] = {}
        self.writes = 0
        self.bytes = 0

    def add(self, write: Write, size: int) -> None:
        self.writes += 1
        self.bytes += size
        self.by_session.setdefault(write.session_id, Tail()).add(write)

    def remove(self, gone: Iterable[tuple[str, bool, int]]) -> None:
        """Writes have left: session, whether they appended, size."""
        for session_id, appended, size in gone:
            self.writes -= 1
            self.bytes -= size
            tail = self.by_session[session_id]
            tail.writes -= 1
            tail.records -= appended
            if not tail.writes:
                del self.by_session[session_id]


def merge(
    stored: Iterable[Record], spooled: Iterable[Record], tail: Tail | None, limit: int, *, newest: bool
) -> list[Record]:
    """One page in seq order: records of the store and of the spool. If both have a record, the store's counts: it may
    be a marker."""
    by_seq = {record.seq: record for record in spooled} | {record.seq: record for record in stored}
    found = [by_seq[seq] for seq in sorted(by_seq)]
    page = found[-limit:] if newest else found[:limit]
    return page if tail is None else [tail.seen(record) for record in page]
