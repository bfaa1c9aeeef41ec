"""The parts of a stored conversation: records, their session, and the writes that change both.

A record's `payload` is one JSON object on one line; `content` and `metadata` are members of it. For a message it is
the browser's own frame, byte for byte, so that after a restart the agent gets exactly what the browser sent.

Each message makes a dozen of these values. So they are structs, made at a tenth of the cost of a frozen dataclass.
With `gc=False` the garbage collector skips them: everything in them is frozen, too, so they form no cycle.
"""

from enum import StrEnum

import msgspec


class Status(StrEnum):
    """The state of a record. A message is `stored`, then `delivered`, unless it is `expired`, `interrupted` or
    `cancelled`."""

    STORED = "stored"
    DELIVERED = "delivered"
    EXPIRED = "expired"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"
    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    ABORTED = "aborted"
    OPEN = "open"
    ANSWERED = "answered"
    DUPLICATE = "duplicate"
    REJECTED = "rejected"


class Record(msgspec.Struct, frozen=True, gc=False):
    """One durable entry of a session's conversation."""

    session_id: str
    seq: int
    cid: str
    role: str
    type: str
    payload: bytes
    created_at: float  # seconds since 1970, for people; never used to order records
    status: str = Status.COMPLETE  # records that await delivery begin as STORED

    @property
    def id(self) -> str:
        return f"{self.session_id}.{self.seq}"


NO_USER = ""  # The `user_id` of a session that belongs to the services; no user has this name


class Session(msgspec.Struct, frozen=True, gc=False):
    """A session in the store. `spec` is its creator's request, `state` the state of its actor: JSON."""

    id: str
    user_id: str
    created_at: float
    spec: bytes = b"{}"
    state: bytes = b"{}"
    last_seq: int = 0
    delivered: int = 0  # every STORED record up to this seq has reached the agent
    first_seq: int = 1  # earlier records have been trimmed away


class Usage(msgspec.Struct, frozen=True, gc=False):
    """A user's usage: sessions, archived ones included, the bytes of their records' payloads, and of the files in
    each session's newest snapshot, as its state reports them (`snapshot_bytes`)."""

    sessions: int = 0
    record_bytes: int = 0
    snapshot_bytes: int = 0


class Write(msgspec.Struct, frozen=True, gc=False):
    """The changes of one session in one step: all of them become durable, or none."""

    session_id: str
    append: Record | None = None
    marks: tuple[tuple[int, str], ...] = ()  # (seq, new status)
    delivered: int | None = None
    state: bytes | None = None
    checkpoint: bytes | None = None  # the unfinished answer; overwritten each time, b"" removes it
    spec: bytes | None = None
    fence: int | None = None  # the number that `load` gave its writer; None is not checked, and not for a session's own

    @property
    def size(self) -> int:
        size = 256 + 32 * len(self.marks)
        if self.append is not None:
            size += len(self.append.payload)
        if self.state is not None:
            size += len(self.state)
        if self.spec is not None:
            size += len(self.spec)
        if self.checkpoint is not None:
            size += len(self.checkpoint)
        return size


class Stored(msgspec.Struct, frozen=True, gc=False):
    """The write is durable. `seq` is the appended record's (0 if it appended none)."""

    seq: int


class Duplicate(msgspec.Struct, frozen=True, gc=False):
    """The cid was known: `first` is its record's seq. A marker record of type `duplicate` is at the new seq."""

    first: int


class Spooled(msgspec.Struct, frozen=True, gc=False):
    """The write is durable on this node, and the store will follow: `StoreListener.settled` reports the result."""

    seq: int
    unique: bool = False  # whether it is certain that the cid is new: the store will not call it a Duplicate


class Dead(msgspec.Struct, frozen=True, gc=False):
    """The store will never take this record. It is a dead letter; a marker of type `rejected` is at its seq. The rest
    of the write was stored."""

    reason: str


class Fenced(msgspec.Struct, frozen=True, gc=False):
    """Another writer has loaded the session since; nothing of the write was stored."""


class Rejected(msgspec.Struct, frozen=True, gc=False):
    """The write does not fit the stored state; nothing of it was stored."""

    reason: str


Outcome = Stored | Spooled | Duplicate | Dead | Fenced | Rejected


class DeadLetter(msgspec.Struct, frozen=True, gc=False):
    """A record that the store refused, and why. `record.status` is the status it gets if it is stored later."""

    number: int  # given by the store, never twice
    record: Record
    reason: str
    buried_at: float


class Loaded(msgspec.Struct, frozen=True):
    """Everything a session's writer must know before it takes a message."""

    session: Session
    fence: int  # for the writer's writes: from now on those with another number are refused
    checkpoint: bytes  # b"" when there is none
    cids: dict[str, int]  # the newest 10,000, oldest first
    waiting: list[Record]  # STORED and not delivered, in seq order
    open: list[Record]  # permission requests and questions without an answer
