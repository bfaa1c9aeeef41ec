"""A session's conversation: what is said, in order, once, and how it gets to the agent.

A message is numbered, stored, and only then sent. What senders say is inbound.py's, up to the window; what comes down
from the agent is outbound.py's. Everything a session keeps goes through one queue, so one order holds for it.

Bounds: the window (gateway/session/model/delivery_window.py) and the persistence queue; whatever does not fit is
refused with a reason. A crash loses only what was not acknowledged.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import orjson

from gateway.protocol import chat_frames
from gateway.session.conversation.open_turns import OpenTurns
from gateway.session.conversation.rate_limited_log import RateLimitedLog
from gateway.session.conversation.receipts import Receipts
from gateway.session.conversation.sequence import MessageSequence
from gateway.session.model.delivery_window import DeliveryWindow, WindowEntry
from gateway.session.model.ports import Host
from gateway.session.model.state import SessionSpec, SessionState
from gateway.session.viewers.broadcast import Broadcast
from persistence import crash_points
from persistence.commit_plan import rejected_marker
from persistence.record import Dead, Fenced, Loaded, Outcome, Record, Rejected, Session, Status, Write
from sandbox.ports.link import Link

DELIVERED_SECONDS = 0.01


class OwnerMoved(Exception):
    """Another gateway has loaded the session: this one ends, and what it had not stored is void."""


def give_up(session_id: str, outcome: Fenced | Rejected) -> NoReturn:
    """A write came to nothing: this actor is not the session's writer any more, or its numbers are wrong."""
    if isinstance(outcome, Fenced):
        raise OwnerMoved(session_id)
    raise RuntimeError(f"the store rejected a write of {session_id}: {outcome.reason}")


class Conversation:
    __slots__ = (
        "_delivered",
        "_delivered_timer",
        "_expiry_timer",
        "_host",
        "_kept",
        "_reached",
        "_warnings",
        "active_at",
        "audience",
        "debts",
        "fence",
        "id",
        "last_durable",
        "ledger",
        "link",
        "spec",
        "stages",
        "state",
        "window",
    )

    def __init__(self, host: Host, loaded: Loaded, unanswered: Sequence[Record], audience: Broadcast) -> None:
        session = loaded.session
        self.id = session.id
        self.spec = SessionSpec.from_json(session.spec)
        self.state = SessionState.from_json(session.state)
        self.audience = audience
        self.link: Link | None = None
        self.last_durable = session.last_seq
        self.fence = loaded.fence
        self._kept = replace(session, spec=b"", state=b"")  # there are newer ones
        self._host = host
        self.active_at = host.now() - max(0.0, host.utcnow() - (self.state.last_active or session.created_at))
        self.ledger = MessageSequence(session.last_seq, loaded.cids)
        self.window = DeliveryWindow(host.limits.window, host.pending)
        asked = {orjson.loads(record.payload)["requestId"]: record for record in loaded.open}
        self.debts = OpenTurns(((record.seq, record.cid, self._since(record)) for record in unanswered), asked)
        self.stages = Receipts(session.last_seq if host.store.behind(session.id) else 0)
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._delivered: int | None = None  # reached the agent, not yet told to the store
        self._reached: list[int] = []  # of these, what the store refused or may yet: the marker then says it
        self._delivered_timer: asyncio.TimerHandle | None = None
        self._warnings: RateLimitedLog | None = None  # few sessions have any
        self._restore_window(loaded.waiting)

    def _restore_window(self, waiting: Sequence[Record]) -> None:
        stored = not self._host.store.behind(self.id)
        for record in waiting:
            line = chat_frames.delivered_line(record)
            entry = WindowEntry(
                record.seq, record.cid, line, self._since(record), record.type, durable=True, stored=stored
            )
            # The gateway before this one may have sent it: only the bridge knows.
            entry.sent = self.state.taker is not None
            self.window.admit(entry)
        self.watch_expiry()

    def _since(self, record: Record) -> float:
        """When the record was made, on this process's clock."""
        return self._host.now() - max(0.0, self._host.utcnow() - record.created_at)

    # -- what the owner of this conversation asks ---------------------------------------------------------------------

    def touch(self) -> None:
        """Somebody did something: the session is not idle."""
        self.active_at = self._host.now()

    def warn(self, event: str, **fields: Any) -> None:
        """Log what the agent or the bridge did, once a minute however often it does that."""
        self._warnings = self._warnings or RateLimitedLog(self._host, self.id)
        self._warnings.warn(event, **fields)

    @property
    def last_active(self) -> float:
        """The same on the wall clock, for people."""
        return self._host.utcnow() - (self._host.now() - self.active_at)

    def seen(self) -> Session:
        """The session as its writer knows it, for readers while the store cannot be asked."""
        return replace(self._kept, spec=self.spec.to_json(), state=self.state.to_json(), last_seq=self.last_durable)

    def next_state(self, **changes: Any) -> bytes:
        before = self.state.snapshot_bytes
        self.state = replace(self.state, last_active=self.last_active, **changes)
        if self.state.snapshot_bytes != before:
            self._host.metrics.stored(self.state.snapshot_bytes - before)
        return self.state.to_json()

    def save(self, **changes: Any) -> None:
        """Change the state and keep it."""
        self.put(Write(self.id, state=self.next_state(**changes)))

    def save_and_then(self, then: Callable[[], Any], **changes: Any) -> None:
        """Change the state, keep it, and call `then` once that is durable."""
        self.put(Write(self.id, state=self.next_state(**changes)), then)

    def save_spec(self, **changes: Any) -> None:
        self.spec = replace(self.spec, **changes)
        self._host.stirred()
        self.put(Write(self.id, spec=self.spec.to_json()))

    # -- upward: to the agent --------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Send what may be sent."""
        if self.link is not None:
            for entry in self.window.next_to_send():
                self.link.deliver(entry.seq, entry.line)
                crash_points.reached("deliver.sent")

    def watch_expiry(self) -> None:
        if self._expiry_timer is not None or (due := self.window.next_expiry()) is None:
            return
        self._expiry_timer = self._host.call_at(due, self._expire)

    def _expire(self) -> None:
        self._expiry_timer = None
        gone = self.window.expire(self._host.now())
        self._mark(gone, Status.EXPIRED)
        self.watch_expiry()

    def _mark(self, entries: Sequence[WindowEntry], status: Status) -> None:
        """Give undelivered records their last status, and tell everybody once that is durable."""

        def tell() -> None:
            for entry in entries:
                self.stages.note(entry.seq, status)
                self.audience.tell(chat_frames.dump(str(status), cid=entry.cid, seq=entry.seq))

        if entries:
            self.put(Write(self.id, marks=tuple((entry.seq, status) for entry in entries)), tell)

    def forget_unsure(self) -> None:
        """The bridge that could have said what it took is gone for good: what was sent to it is `interrupted`."""
        unsure = self.window.unsure()
        for entry in unsure:
            self.window.withdraw(entry.seq)
        self._mark(unsure, Status.INTERRUPTED)

    def interrupted(self, messages: Sequence[tuple[int, str]], reason: str) -> None:
        """Messages that were delivered will not be answered."""

        def tell() -> None:
            for seq, cid in messages:
                self.stages.note(seq, Status.INTERRUPTED)
                self.audience.tell(chat_frames.dump("interrupted", cid=cid, seq=seq, reason=reason))

        if messages:
            self.put(Write(self.id, marks=tuple((seq, Status.INTERRUPTED) for seq, _ in messages)), tell)

    def open_again(self, request: Record) -> None:
        """The answer to a permission or a question came to nothing: if who asked is there, somebody may answer yet."""
        if request.cid.startswith(f"agent:{self.state.epoch}:") and not self.state.ended:
            self.debts.open_again(orjson.loads(request.payload)["requestId"], request)
            self.put(Write(self.id, marks=((request.seq, Status.OPEN),)))

    def discard_window(self) -> None:
        """The session ends: nothing that waits will be delivered."""
        self._mark(self.window.clear(), Status.INTERRUPTED)

    # -- shared with what comes down ----------------------------------------------------------------------------------

    def delivered(self, entries: Sequence[WindowEntry]) -> None:
        if not entries:
            return
        crash_points.reached("deliver.taken")
        for entry in entries:
            if entry.type == "message":
                self.debts.deliver(entry.seq, entry.cid, entry.since)
            self.stages.note(entry.seq, Status.DELIVERED)
            if not entry.stored:
                self._reached.append(entry.seq)
            self.audience.tell(chat_frames.dump("receipt", cid=entry.cid, seq=entry.seq, stage="delivered"))
        # Nothing depends on this being durable, the bridge knows: it waits a moment for a write it can go along with.
        self._delivered = entries[-1].seq
        if self._delivered_timer is None:
            self._delivered_timer = self._host.call_at(self._host.now() + DELIVERED_SECONDS, self._save_delivered)
        self.pump()

    def _save_delivered(self) -> None:
        self._delivered_timer = None
        self.save_delivered()

    def save_delivered(self) -> None:
        """Write down now what reached the agent."""
        if self._delivered is not None:
            self.put(Write(self.id))

    def agent_record(self, place: str, payload: bytes, status: Status) -> Record:
        cid = f"agent:{self.state.epoch}:{place}"
        seq = self.ledger.enter(cid)
        return Record(self.id, seq, cid, "assistant", "message", payload, self._host.utcnow(), status)

    def record_told(self, record: Record) -> None:
        """The record is durable, or what stands in its place: viewers hear of it."""
        self.last_durable = max(self.last_durable, record.seq)
        self.audience.tell(chat_frames.record_frame(record))

    def welcome(self, offset: int, *, recovered: bool | None = None) -> bytes:
        asked = [chat_frames.record_json(record) for record in self.debts.open]
        return chat_frames.dump(
            "welcome",
            sessionId=self.id,
            epoch=self.state.epoch or "",
            offset=offset,
            lastSeq=self.last_durable,
            recovered=recovered,
            status=self.state.status,
            reason=self.state.reason or None,
            open=asked or None,
        )

    def close(self) -> None:
        self.window.close()
        for timer in (self._expiry_timer, self._delivered_timer):
            if timer is not None:
                timer.cancel()

    def put(self, write: Write, then: Callable[[], None] | None = None) -> None:
        """A write of the session's own: never refused. Once it is durable here its record is told, or the marker of one
        that the store will never take, and `then` is called. If it is rejected, our numbers are wrong: load them again.
        Of an actor that has ended nothing is written: the session may have another by now.
        """
        if self._host.ended:
            return
        if self._delivered is not None:
            marks = (*((seq, Status.DELIVERED) for seq in self._reached), *write.marks)
            write = replace(write, delivered=self._delivered, marks=marks)
            self._delivered, self._reached = None, []

        def settled(outcome: Outcome) -> None:
            if isinstance(outcome, Fenced | Rejected):
                give_up(self.id, outcome)
            if (record := write.append) is not None:
                self.record_told(rejected_marker(record, outcome.reason) if isinstance(outcome, Dead) else record)
            if then is not None:
                then()

        if write.append is not None:
            self._host.quota.grew(self._host.user_id, len(write.append.payload))
        fenced = replace(write, fence=self.fence)
        self._host.queue.put(fenced, lambda outcome: self._host.post(settled, outcome), refusable=False)
