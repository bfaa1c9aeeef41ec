"""What is kept of a conversation: records, the session they belong to, and the writes that change both.

A record's `payload` is one JSON object on one line; `content` and `metadata` are members of it. For a message it is the
browser's own frame, byte for byte, so that what the agent is given after a restart is what the browser sent.

Each message makes a dozen of these values. So they are structs, made at a tenth of the cost of a frozen dataclass. With
`gc=False` the garbage collector passes them by: all that they hold is frozen, too, so no cycle can be made of them.
"""

from enum import StrEnum

import msgspec


class Status(StrEnum):
    """Where a record stands. A message is `stored`, then `delivered`, unless it is `expired`, `interrupted` or
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
    created_at: float  # seconds since 1970, for people; nothing is ordered by it
    status: str = Status.COMPLETE  # records that await delivery begin as STORED

    @property
    def id(self) -> str:
        return f"{self.session_id}.{self.seq}"


NO_USER = ""  # the `user_id` of a session that belongs to the services; no user is called so


class Session(msgspec.Struct, frozen=True, gc=False):
    """A session as the store knows it. `spec` is what its creator asked for, `state` where its actor stands: JSON."""

    id: str
    user_id: str
    created_at: float
    spec: bytes = b"{}"
    state: bytes = b"{}"
    last_seq: int = 0
    delivered: int = 0  # every STORED record up to this seq has reached the agent
    first_seq: int = 1  # what was before it has been trimmed away


class Usage(msgspec.Struct, frozen=True, gc=False):
    """What a user has: sessions, archived ones included, the bytes of their records' payloads, and of the files in the
    newest snapshot of each, as their states tell it (`snapshot_bytes`)."""

    sessions: int = 0
    record_bytes: int = 0
    snapshot_bytes: int = 0


class Write(msgspec.Struct, frozen=True, gc=False):
    """What one session changes in one step: all of it becomes durable, or none."""

    session_id: str
    append: Record | None = None
    marks: tuple[tuple[int, str], ...] = ()  # (seq, new status)
    delivered: int | None = None
    state: bytes | None = None
    checkpoint: bytes | None = None  # the unfinished answer; overwritten each time, b"" removes it
    spec: bytes | None = None
    fence: int | None = None  # the number `load` gave its writer; None is not checked, and not for a session's own

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
    """The cid was known: `first` is its record's seq. At the new seq stands a marker record of type `duplicate`."""

    first: int


class Spooled(msgspec.Struct, frozen=True, gc=False):
    """The write is durable on this node, and the store will follow: `StoreListener.settled` tells what came of it."""

    seq: int
    unique: bool = False  # whether it is certain that the cid is new: the store will not call it a Duplicate


class Dead(msgspec.Struct, frozen=True, gc=False):
    """The store will never take this record. It is among the dead letters; at its seq stands a marker of type
    `rejected`. The rest of the write was kept."""

    reason: str


class Fenced(msgspec.Struct, frozen=True, gc=False):
    """Somebody else has loaded the session since this writer did; nothing of the write was kept."""


class Rejected(msgspec.Struct, frozen=True, gc=False):
    """The write does not fit what is stored; nothing of it was kept."""

    reason: str


Outcome = Stored | Spooled | Duplicate | Dead | Fenced | Rejected


class DeadLetter(msgspec.Struct, frozen=True, gc=False):
    """A record that the store would not take, and why. `record.status` is what it will have if it is stored yet."""

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
