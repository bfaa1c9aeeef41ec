"""What a batch of writes does to a store. This module decides; each adapter performs it in its own transaction. Pure.

An adapter reads what it knows of the touched sessions (`Head`s, and the seqs of cids it has), calls `plan`, and
performs the plan. The rules that make a conversation trustworthy are in this file alone:

- A record is appended at `last + 1` or not at all, so `seq` has no holes.
- A cid is stored once. The same cid at the same seq is a retry whose first reply was lost: `Stored`, no second
  record. At a new seq it is `Duplicate`: a marker record takes the seq that the writer had already given. The rest of
  the write is applied in both cases, so a repeated batch ends in the same state, whatever part of it was stored
  before.
- `delivered` only grows and never passes `last`. A mark names a record that exists, or has been trimmed away.
- Only the session's newest writer writes: any other's `fence` is not the head's.
- A record that the store refuses is dead: a marker record takes its seq, the record itself becomes a dead letter, and
  the rest of the write is applied, so that the conversation moves on. Its cid is free: sent again it is another
  record.
- A rejected write leaves no trace and harms no other.
"""

from collections.abc import Iterable, Mapping, Sequence
from json import dumps
from math import isnan

import msgspec
from msgspec.structs import replace

from persistence.record import Dead, Duplicate, Fenced, Outcome, Record, Rejected, Status, Stored, Write

# Cids of marker records. No other record may have them, or a marker could collide.
DUPLICATE = "duplicate:"
REJECTED = "rejected:"


class Head(msgspec.Struct, gc=False):
    """What the store knows of one session before the batch."""

    last_seq: int
    delivered: int
    fence: int = 0
    checkpoint: bool = True  # whether it may have one


class Plan(msgspec.Struct):
    """What to perform, and what to answer. Perform in this order: rows, marks, then sessions and checkpoints."""

    outcomes: list[Outcome] = []
    rows: list[Record] = []
    marks: list[tuple[str, str, int]] = []  # (status, session id, seq), in order
    heads: dict[str, Head] = {}  # new heads of the changed sessions
    after: dict[str, Head] = {}  # every head after the batch, changed or not
    states: dict[str, bytes] = {}
    specs: dict[str, bytes] = {}
    checkpoints: dict[str, bytes] = {}  # b"" removes; not for a session without one
    dead: list[tuple[Record, str]] = []  # records for the dead letters, each with its reason

    @property
    def grown(self) -> dict[str, int]:
        """The bytes of payload that each session gains."""
        grown: dict[str, int] = {}
        for record in self.rows:
            grown[record.session_id] = grown.get(record.session_id, 0) + len(record.payload)
        return grown


def plan(
    writes: Sequence[Write],
    heads: Mapping[str, Head],
    cids: Mapping[tuple[str, str], int],
    poison: Mapping[int, str] | None = None,
) -> Plan:
    """Decide every write in order. `heads` has all touched sessions that exist; `cids` has the seq of every stored
    (session, cid) from `questions`. An adapter may leave out cids at seqs above the head if its own uniqueness check
    would then fail the transaction, and plan again. `poison` names the writes that the database refuses, by their
    place in the batch, with the reason."""
    now = {
        session_id: Head(head.last_seq, head.delivered, head.fence, head.checkpoint)
        for session_id, head in heads.items()
    }
    result = Plan(after=now)
    known = dict(cids)
    for place, write in enumerate(writes):
        session_id = write.session_id
        head = now.get(session_id)
        refused = poison.get(place) if poison else None
        outcome = Rejected("no such session") if head is None else _decide(write, head, known, refused)
        result.outcomes.append(outcome)
        if head is None or isinstance(outcome, Rejected | Fenced):
            continue
        record = write.append
        if record is not None and record.seq > head.last_seq:
            if isinstance(outcome, Duplicate):
                record = duplicate_marker(record, outcome.first)
            elif isinstance(outcome, Dead):
                result.dead.append((buried(record), outcome.reason))
                record = rejected_marker(record, outcome.reason)
            known[session_id, record.cid] = head.last_seq = record.seq
            result.rows.append(record)
            result.heads[session_id] = head
        if write.delivered is not None and write.delivered > head.delivered:
            head.delivered = write.delivered
            result.heads[session_id] = head
        for seq, status in write.marks:
            result.marks.append((status, session_id, seq))
        if write.state is not None:
            result.states[session_id] = write.state
        if write.spec is not None:
            result.specs[session_id] = write.spec
        if write.checkpoint or (head.checkpoint and write.checkpoint is not None):
            result.checkpoints[session_id] = write.checkpoint
            head.checkpoint = bool(write.checkpoint)
    return result


def _decide(write: Write, head: Head, known: Mapping[tuple[str, str], int], poison: str | None) -> Outcome:
    if write.fence is not None and write.fence != head.fence:
        return Fenced()
    record = write.append
    if record is None:
        return _misfit(write, head.last_seq) or (Stored(0) if poison is None else Rejected(poison))
    seq = record.seq
    first = known.get((write.session_id, record.cid))
    if first == seq:
        return _misfit(write, head.last_seq) or Stored(seq)
    if first is not None and known.get((write.session_id, f"{DUPLICATE}{seq}")) == seq:
        return _misfit(write, head.last_seq) or Duplicate(first)
    if seq <= head.last_seq and known.get((write.session_id, f"{REJECTED}{seq}")) == seq:
        return _misfit(write, head.last_seq) or Dead("the store refused it")
    if seq != head.last_seq + 1:
        return Rejected(f"seq {seq} does not follow {head.last_seq}")
    if record.session_id != write.session_id:
        return Rejected("record of another session")
    if record.cid.startswith((DUPLICATE, REJECTED)):
        return Rejected("reserved cid")
    if not is_text(record.cid, record.role, record.type, record.status) or isnan(record.created_at):
        poison = poison or "it is not made of characters and times"
    if poison is not None:
        return _misfit(write, seq) or Dead(poison)
    return _misfit(write, seq) or (Stored(seq) if first is None else Duplicate(first))


def _misfit(write: Write, last_seq: int) -> Rejected | None:
    if write.delivered is not None and not 0 <= write.delivered <= last_seq:
        return Rejected(f"delivered {write.delivered} is not within {last_seq}")
    for seq, status in write.marks:
        if not 1 <= seq <= last_seq or not is_text(status):
            return Rejected(f"mark on {seq} is not within {last_seq}")
    return None


def questions(writes: Iterable[Write], heads: Mapping[str, Head], *, retries_only: bool) -> set[tuple[str, str]]:
    """The (session, cid)s whose seq `plan` needs. `retries_only`: just those of appends at a seq already taken."""
    asked = set()
    for write in writes:
        head = heads.get(write.session_id)
        record = write.append
        if record is None or head is None:
            continue
        taken = record.seq <= head.last_seq
        if taken:
            asked.add((write.session_id, f"{DUPLICATE}{record.seq}"))
            asked.add((write.session_id, f"{REJECTED}{record.seq}"))
        if (taken or not retries_only) and is_text(record.cid):
            asked.add((write.session_id, record.cid))
    return asked


def duplicate_marker(record: Record, first: int) -> Record:
    """The marker at `record.seq`: its cid was stored before, at `first`."""
    return _marker(record, DUPLICATE, Status.DUPLICATE, {"cid": record.cid, "first": first})


def rejected_marker(record: Record, reason: str) -> Record:
    """The marker at `record.seq`: the store refused the record."""
    metadata = {"cid": _printable(record.cid), "type": _printable(record.type), "reason": reason}
    return _marker(buried(record), REJECTED, Status.REJECTED, metadata)


def _marker(record: Record, prefix: str, status: Status, metadata: Mapping[str, object]) -> Record:
    payload = dumps({"content": None, "metadata": dict(metadata)}).encode()
    return replace(record, cid=f"{prefix}{record.seq}", type=str(status), payload=payload, status=status)


def buried(record: Record) -> Record:
    """The record in its dead letter: values that are not text are escaped, and a message that was never
    delivered is `interrupted`."""
    return replace(
        record,
        cid=_printable(record.cid),
        role=_printable(record.role),
        type=_printable(record.type),
        created_at=0.0 if isnan(record.created_at) else record.created_at,
        status=Status.INTERRUPTED if record.status == Status.STORED else _printable(record.status),
    )


def _printable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")


def is_text(*values: str) -> bool:
    """Whether every database can store `values` as text: a lone surrogate from a lenient parser is no character, and
    some refuse a NUL."""
    for value in values:
        if "\0" in value:
            return False
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                return False
    return True
