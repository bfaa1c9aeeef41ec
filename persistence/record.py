"""What is kept of a conversation: records, the session they belong to, and the writes that change both.

A record's `payload` is one JSON object on one line; `content` and `metadata` are members of it. For a message it is the
browser's own frame, byte for byte, so that what the agent is given after a restart is what the browser sent.
"""

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """Where a record stands. A message is `stored`, then `delivered`, unless it is `expired` or `interrupted`."""

    STORED = "stored"
    DELIVERED = "delivered"
    EXPIRED = "expired"
    INTERRUPTED = "interrupted"
    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    ABORTED = "aborted"
    OPEN = "open"
    ANSWERED = "answered"
    DUPLICATE = "duplicate"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Record:
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


@dataclass(frozen=True, slots=True)
class Session:
    """A session as the store knows it. `spec` is what its creator asked for, `state` where its actor stands: JSON."""

    id: str
    user_id: str
    created_at: float
    spec: bytes = b"{}"
    state: bytes = b"{}"
    last_seq: int = 0
    delivered: int = 0  # every STORED record up to this seq has reached the agent
    first_seq: int = 1  # what was before it has been trimmed away


@dataclass(frozen=True, slots=True)
class Usage:
    """What a user has: sessions, archived ones included, the bytes of their records' payloads, and of the files in the
    newest snapshot of each, as their states tell it (`snapshot_bytes`)."""

    sessions: int = 0
    record_bytes: int = 0
    snapshot_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Write:
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
        return (
            256
            + (len(self.append.payload) if self.append else 0)
            + len(self.state or b"")
            + len(self.spec or b"")
            + len(self.checkpoint or b"")
            + 32 * len(self.marks)
        )


@dataclass(frozen=True, slots=True)
class Stored:
    """The write is durable. `seq` is the appended record's (0 if it appended none)."""

    seq: int


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The cid was known: `first` is its record's seq. At the new seq stands a marker record of type `duplicate`."""

    first: int


@dataclass(frozen=True, slots=True)
class Spooled:
    """The write is durable on this node, and the store will follow: `StoreListener.settled` tells what came of it."""

    seq: int
    unique: bool = False  # whether it is certain that the cid is new: the store will not call it a Duplicate


@dataclass(frozen=True, slots=True)
class Dead:
    """The store will never take this record. It is among the dead letters; at its seq stands a marker of type
    `rejected`. The rest of the write was kept."""

    reason: str


@dataclass(frozen=True, slots=True)
class Fenced:
    """Somebody else has loaded the session since this writer did; nothing of the write was kept."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The write does not fit what is stored; nothing of it was kept."""

    reason: str


Outcome = Stored | Spooled | Duplicate | Dead | Fenced | Rejected


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that the store would not take, and why. `record.status` is what it will have if it is stored yet."""

    number: int  # given by the store, never twice
    record: Record
    reason: str
    buried_at: float


@dataclass(frozen=True, slots=True)
class Loaded:
    """Everything a session's writer must know before it takes a message."""

    session: Session
    fence: int  # for the writer's writes: from now on those with another number are refused
    checkpoint: bytes  # b"" when there is none
    cids: dict[str, int]  # the newest 10,000, oldest first
    waiting: list[Record]  # STORED and not delivered, in seq order
    open: list[Record]  # permission requests and questions without an answer
