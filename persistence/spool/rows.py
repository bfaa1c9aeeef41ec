"""A write as columns of the spool, and back, unchanged. Pure."""

import json
from collections.abc import Sequence
from math import isnan, nan
from typing import Any

from persistence.commit_plan import is_text
from persistence.record import Record, Write
from persistence.spool.ports import SpoolRow

COLUMNS = """no, session_id, fence, seq, cid, role, type, created_at, status, marks, delivered, size, spooled_at,
    state, spec, payload, checkpoint"""
SIZE = 11


def columns_of(row: SpoolRow, now: float) -> tuple[Any, ...]:
    write, record = row.write, row.write.append
    kept: tuple[Any, ...] = (None,) * 6
    if record is not None:
        created_at = None if isnan(record.created_at) else record.created_at
        role, kind = _kept_text(record.role), _kept_text(record.type)
        kept = (record.seq, _kept_text(record.cid), role, kind, created_at, _kept_text(record.status))
    marks = json.dumps(write.marks) if write.marks else None
    payload = record.payload if record else None
    last = (write.state, write.spec, payload, write.checkpoint)
    return (row.no, write.session_id, write.fence, *kept, marks, write.delivered, write.size, now, *last)


def row_of(columns: Sequence[Any]) -> SpoolRow:
    (no, session_id, fence, seq, cid, role, kind, created_at, status, marks, delivered, _, _, state, spec, payload) = (
        columns[:16]
    )
    record = None
    if seq is not None:
        text = (_told_text(cid), _told_text(role), _told_text(kind))
        record = Record(session_id, seq, *text, payload, nan if created_at is None else created_at, _told_text(status))
    marked = tuple((int(on), str(to)) for on, to in json.loads(marks)) if marks else ()
    return SpoolRow(no, Write(session_id, record, marked, delivered, state, columns[16], spec, fence))


def _kept_text(text: str) -> str | bytes:
    # str(): the driver takes a slow road for a subclass such as Status
    return str(text) if is_text(text) else text.encode("utf-8", "surrogatepass")


def _told_text(kept: str | bytes | None) -> str:
    return kept.decode("utf-8", "surrogatepass") if isinstance(kept, bytes) else kept or ""
