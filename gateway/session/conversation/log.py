"""The session's log: the one writer of its records and its state. It fixes their order and knows which are durable.

One object numbers records (`sequence`), has the fence that `load` gave it, and puts every write of the session into the
persistence queue: a sender's record by `append`, every other write by `write`. So one order holds for everything a
session stores: the order of these calls. No other module changes `state` or `spec`.

The queue answers the writes of one session in the order they were put. So an answer needs no name: it belongs to the
first write in `_unanswered`. It comes through the session's inbox, and carries only an outcome.

Bounds: senders' records are refused while the queue has no room (`refusal`, `append`). The session's own writes join
the last one that waits, or carry a record of the agent, which gate.py slows. A crash loses only unanswered writes: none
of those was acknowledged.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from msgspec.structs import replace

from gateway.limits.quota import Quota
from gateway.protocol import chat_frames
from gateway.session.conversation.receipts import MessageRefused
from gateway.session.conversation.sequence import MessageSequence
from gateway.session.model.ports import Publisher, SessionClock, SessionMetrics, Tasks
from gateway.session.model.state import SessionSpec, SessionState, SessionStatus
from persistence.commit_plan import rejected_marker
from persistence.queue.queue import PersistenceQueue
from persistence.record import Dead, Fenced, Loaded, Outcome, Record, Rejected, Session, Status, Write

Marks = tuple[tuple[int, str], ...]  # (seq, new status)
Then = Callable[..., None]


class OwnerMoved(Exception):
    """Another gateway has loaded the session: this one ends, and its unstored writes are void."""


def give_up(session_id: str, outcome: Fenced | Rejected) -> NoReturn:
    """A write failed for good: this actor is not the session's writer any more, or its numbers are wrong."""
    if isinstance(outcome, Fenced):
        raise OwnerMoved(session_id)
    raise RuntimeError(f"the store rejected a write of {session_id}: {outcome.reason}")


class SessionLog:
    __slots__ = (
        "_clock",
        "_delivered",
        "_doubtful",
        "_fence",
        "_kept",
        "_metrics",
        "_publisher",
        "_queue",
        "_quota",
        "_tasks",
        "_unanswered",
        "active_at",
        "closed",
        "id",
        "last_durable",
        "sequence",
        "spec",
        "state",
        "user_id",
    )

    def __init__(
        self,
        loaded: Loaded,
        clock: SessionClock,
        tasks: Tasks,
        publisher: Publisher,
        queue: PersistenceQueue,
        quota: Quota,
        metrics: SessionMetrics,
    ) -> None:
        session = loaded.session
        self._clock = clock
        self._tasks = tasks
        self._publisher = publisher
        self._queue = queue
        self._quota = quota
        self._metrics = metrics
        self._kept = replace(session, spec=b"", state=b"")  # without spec and state: newer ones are kept below
        self._fence = loaded.fence
        self.id = session.id
        self.user_id = session.user_id
        self.spec = SessionSpec.from_json(session.spec)
        self.state = SessionState.from_json(session.state)
        self.sequence = MessageSequence(session.last_seq, loaded.cids)
        self.last_durable = session.last_seq
        self.active_at = self.when(self.state.last_active or session.created_at)
        self.closed = False  # stops all writes: the session may have another writer by now
        # Short, and most often empty; an empty deque takes 760 bytes.
        self._unanswered: list[tuple[bool, Record | None, Then | None, tuple[Any, ...]]] = []
        self._delivered: int | None = None  # reached the agent, not yet written
        self._doubtful: tuple[int, ...] = ()  # the undecided or refused among them: then the marker reports it

    # -- reads --------------------------------------------------------------------------------------------------------

    def when(self, utc: float) -> float:
        """Convert a time of the wall clock to this process's clock."""
        return self._clock.now() - max(0.0, self._clock.utcnow() - utc)

    def touch(self) -> None:
        """A user or a program was active: the session is not idle."""
        self.active_at = self._clock.now()

    @property
    def last_active(self) -> float:
        """The time of the last activity, on the wall clock."""
        return self._clock.utcnow() - (self._clock.now() - self.active_at)

    def seen(self) -> Session:
        """The session as its writer knows it, for readers while the store is away."""
        return replace(self._kept, spec=self.spec.to_json(), state=self.state.to_json(), last_seq=self.last_durable)

    # -- senders' records ---------------------------------------------------------------------------------------------

    def refusal(self, size: int) -> MessageRefused | None:
        """Why a sender's record of `size` bytes may not be stored now; None if it may."""
        if self.state.status is SessionStatus.ARCHIVED:
            return MessageRefused("archived")
        if (reason := self._queue.room(size)) is not None:
            return MessageRefused(reason)
        if (text := self._quota.full(self.user_id, self._tasks.spawn)) is not None:
            return MessageRefused("stored_too_much", text)
        return None

    def quota_exceeded(self) -> str | None:
        """The reason why the session's user may store no more; None if they may."""
        return self._quota.full(self.user_id, self._tasks.spawn)

    def record(self, cid: str, role: str, type: str, payload: bytes, status: Status) -> Record:
        """The next record. It must be written at once: its number is the next one that the store expects."""
        return Record(self.id, self.sequence.enter(cid), cid, role, type, payload, self._clock.utcnow(), status)

    def append(self, record: Record, marks: Marks, then: Then, *arguments: Any, refusable: bool) -> bool:
        """Write a sender's record; `then(outcome, *arguments)` is called with its outcome. False: the queue has no room
        for it, and its number is free again."""
        write = Write(self.id, append=record, marks=marks, fence=self._fence)
        if not self._queue.put(write, self._answer, refusable=refusable):
            self.sequence.withdraw(record.cid)
            return False
        self._unanswered.append((False, None, then, arguments))
        self._quota.grew(self.user_id, len(record.payload))
        return True

    # -- the session's own writes -------------------------------------------------------------------------------------

    def agent_record(self, place: str, payload: bytes, status: Status, type: str = "message") -> Record:
        """Make the next record, with the agent's output at `place`."""
        cid, now = f"agent:{self.state.epoch}:{place}", self._clock.utcnow()
        return Record(self.id, self.sequence.enter(cid), cid, "assistant", type, payload, now, status)

    def next_state(self, **changes: Any) -> bytes:
        """Change the state and return it encoded; the caller must write it at once."""
        before, clock = self.state.snapshot_bytes, self._clock
        last_active = clock.utcnow() - (clock.now() - self.active_at)
        self.state = state = replace(self.state, last_active=last_active, **changes)
        if state.snapshot_bytes != before:
            self._metrics.stored(state.snapshot_bytes - before)
        return state.to_json()

    def next_spec(self, **changes: Any) -> bytes:
        """Like `next_state`, for the spec."""
        self.spec = replace(self.spec, **changes)
        return self.spec.to_json()

    def save(self, **changes: Any) -> None:
        """Change the state and store it."""
        self.write(state=self.next_state(**changes))

    def save_spec(self, **changes: Any) -> None:
        """Change the spec and store it."""
        self.write(spec=self.next_spec(**changes))

    def change_spec(self, changes: Mapping[str, Any]) -> None:
        """Like `save_spec`, but writes nothing if the spec has these values already."""
        if any(getattr(self.spec, name) != value for name, value in changes.items()):
            self.save_spec(**changes)

    def note_delivered(self, seq: int, doubtful: Sequence[int]) -> None:
        """Records up to `seq` have reached the agent; the `doubtful` ones may not be in the store yet. Nothing depends
        on this being durable, because the bridge knows it: the write is delayed a moment, so that it can join another
        one."""
        self._delivered = seq
        if doubtful:
            self._doubtful = (*self._doubtful, *doubtful)
        self._clock.in_a_moment(self._delivered_due)

    def _delivered_due(self) -> None:
        if self._delivered is not None and not self.closed:  # most often an answer's write took it along
            self._tasks.post(self.save_delivered)

    def save_delivered(self) -> None:
        """Store now which records have reached the agent."""
        if self._delivered is not None:
            self.write()

    def write(
        self,
        then: Then | None = None,
        *arguments: Any,
        append: Record | None = None,
        marks: Marks = (),
        state: bytes | None = None,
        checkpoint: bytes | None = None,
        spec: bytes | None = None,
    ) -> None:
        """Put one of the session's own writes into the queue, which never refuses it. Once the write is durable here,
        its record is published, or the marker of a record that the store refused for good, and `then(*arguments)` is
        called. A rejected write means that the numbers here are wrong: the session must be loaded again."""
        if self.closed:
            return
        delivered = self._delivered
        if delivered is not None:
            self._delivered = None
            if self._doubtful:
                marks = (*((seq, Status.DELIVERED) for seq in self._doubtful), *marks)
                self._doubtful = ()
        write = Write(self.id, append, marks, delivered, state, checkpoint, spec, self._fence)
        if append is not None:
            self._quota.grew(self.user_id, len(append.payload))
        if self._queue.put(write, self._answer, refusable=False):
            self._unanswered.append((True, append, then, arguments))

    # -- the store's answers ------------------------------------------------------------------------------------------

    def _answer(self, outcome: Outcome) -> None:
        self._tasks.post(self._settled, outcome)

    def _settled(self, outcome: Outcome) -> None:
        """The oldest unanswered write has this outcome."""
        own, record, then, arguments = self._unanswered.pop(0)
        if not own:
            assert then is not None
            then(outcome, *arguments)
            return
        if isinstance(outcome, Fenced | Rejected):
            give_up(self.id, outcome)
        if record is not None:
            self.publish(rejected_marker(record, outcome.reason) if isinstance(outcome, Dead) else record)
        if then is not None:
            then(*arguments)

    def publish(self, record: Record) -> None:
        """Send the record to every viewer: it, or the marker in its place, is durable."""
        if record.seq > self.last_durable:
            self.last_durable = record.seq
        self._publisher.tell(chat_frames.record_frame(record))

    def note_durable(self, seq: int) -> None:
        """A durable record or marker stands at `seq`, and at every number before it."""
        if seq > self.last_durable:
            self.last_durable = seq

    def close(self) -> None:
        self.closed = True
