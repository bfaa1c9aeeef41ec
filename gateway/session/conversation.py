"""A session's conversation: what is said, in order, once, and how it gets to the agent.

A message is numbered, stored, and only then sent: `offer` -> `_on_outcome` -> `pump` -> `delivered`. What comes down
from the agent is output.py's; both write through `put`, so one order holds for everything a session keeps.

Bounds: the window (pending.py) and the persistence queue; whatever does not fit is refused with a reason. A crash
loses only what was not acknowledged.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from gateway import wire
from gateway.session.audience import Audience
from gateway.session.debts import Debts
from gateway.session.ledger import Ledger
from gateway.session.pending import Entry, PendingWindow
from gateway.session.ports import Host
from gateway.session.state import SessionSpec, SessionState, SessionStatus
from gateway.session.transcript.chat import ANSWER_RECORDS, ANSWERS
from persistence.errors import StoreUnavailable
from persistence.record import Duplicate, Loaded, Outcome, Record, Rejected, Status, Write
from sandbox.ports import Link

DELIVERED_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Accepted:
    seq: int
    status: str = Status.STORED


@dataclass(frozen=True, slots=True)
class Refused:
    reason: str
    text: str | None = None


Reply = Callable[[Accepted | Refused], None]


class Conversation:
    def __init__(self, host: Host, loaded: Loaded, unanswered: Sequence[Record], audience: Audience) -> None:
        session = loaded.session
        self.id = session.id
        self.spec = SessionSpec.from_json(session.spec)
        self.state = SessionState.from_json(session.state)
        self.audience = audience
        self.link: Link | None = None
        self.last_durable = session.last_seq
        self._host = host
        self.active_at = host.now() - max(0.0, host.utcnow() - (self.state.last_active or session.created_at))
        self.ledger = Ledger(session.last_seq, loaded.cids)
        self.window = PendingWindow(host.limits.window)
        asked = {orjson.loads(record.payload)["requestId"]: record for record in loaded.open}
        self.debts = Debts(((record.seq, record.cid) for record in unanswered), asked)
        self._replies: dict[str, list[Reply]] = {}
        self.asking = 0  # the store is asked what became of so many
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._delivered: int | None = None  # reached the agent, not yet told to the store
        self._delivered_timer: asyncio.TimerHandle | None = None
        self._restore_window(loaded.waiting)

    def _restore_window(self, waiting: Sequence[Record]) -> None:
        now, wall = self._host.now(), self._host.utcnow()
        for record in waiting:
            age = max(0.0, wall - record.created_at)
            entry = Entry(record.seq, record.cid, wire.delivered_line(record), now - age, record.type, durable=True)
            # The gateway before this one may have sent it: only the bridge knows.
            entry.sent = self.state.taker is not None
            self.window.admit(entry)
        self.watch_expiry()

    # -- what the owner of this conversation asks ---------------------------------------------------------------------

    def touch(self) -> None:
        """Somebody did something: the session is not idle."""
        self.active_at = self._host.now()

    @property
    def last_active(self) -> float:
        """The same on the wall clock, for people."""
        return self._host.utcnow() - (self._host.now() - self.active_at)

    def next_state(self, **changes: Any) -> bytes:
        self.state = replace(self.state, last_active=self.last_active, **changes)
        return self.state.to_json()

    def save(self, **changes: Any) -> None:
        """Change the state and keep it."""
        self.put(Write(self.id, state=self.next_state(**changes)))

    def save_spec(self, **changes: Any) -> None:
        self.spec = replace(self.spec, **changes)
        self.put(Write(self.id, spec=self.spec.to_json()))

    # -- upward: from a sender to the agent ---------------------------------------------------------------------------

    def offer(self, cid: str, *, role: str, type: str, payload: bytes, reply: Reply, deliver: bool) -> None:
        """Store a record and, if asked, deliver it. `reply` is called once: when it is durable, or when it is
        refused.
        """
        if (seq := self.ledger.seq_of(cid)) is not None:
            self._offered_again(cid, seq, reply)
            return
        reason = "archived" if self.state.status is SessionStatus.ARCHIVED else self._host.queue.room(len(payload))
        if reason is None and deliver:
            reason = self.window.refusal(len(payload))
        if reason is None and not self._append(cid, role, type, payload, reply, deliver=deliver):
            reason = "storage_unavailable"
        if reason is not None:
            self._host.metrics.refused(reason)
            reply(Refused(reason))

    def answer(self, cid: str, frame: wire.Frame, reply: Reply) -> None:
        """A viewer's answer to a permission or a question. The first wins, and is never refused for room."""
        if (seq := self.ledger.seq_of(cid)) is not None:
            self._offered_again(cid, seq, reply)
            return
        request_id = str(frame.body["requestId"])
        record_type, answers = ANSWERS[frame.type]
        request = self.debts.answer(request_id, answers)
        if isinstance(request, str):
            reply(Refused(request))
            return
        self._append(
            cid,
            "user",
            record_type,
            frame.payload(cid),
            reply,
            deliver=True,
            marks=((request.seq, Status.ANSWERED),),
        )

    def _offered_again(self, cid: str, seq: int, reply: Reply) -> None:
        if cid in self._replies:
            self._replies[cid].append(reply)
        else:
            self._ask_present_status(cid, reply, seq)

    def _ask_present_status(self, cid: str, reply: Reply, seq: int) -> None:
        self.asking += 1
        self._host.spawn(self._tell_present_status(cid, reply), f"status {self.id}/{seq}")

    async def _tell_present_status(self, cid: str, reply: Reply) -> None:
        try:
            record = await self._host.store.by_cid(self.id, cid)
        except StoreUnavailable:
            record = None
        reply(Accepted(record.seq, record.status) if record else Refused("storage_unavailable"))
        self._host.post(self._asked)

    def _asked(self) -> None:
        self.asking -= 1

    def _append(
        self,
        cid: str,
        role: str,
        type: str,
        payload: bytes,
        reply: Reply,
        *,
        deliver: bool,
        marks: tuple[tuple[int, str], ...] = (),
    ) -> bool:
        host = self._host
        seq = self.ledger.enter(cid)
        status = Status.STORED if deliver else Status.COMPLETE
        record = Record(self.id, seq, cid, role, type, payload, host.utcnow(), status)
        began = host.now()
        if not host.queue.put(
            Write(self.id, append=record, marks=marks),
            lambda outcome: host.post(self._on_outcome, record, began, outcome),
            refusable=type not in ANSWER_RECORDS,
        ):
            self.ledger.withdraw(cid)
            return False
        self._replies[cid] = [reply]
        if deliver:
            self.window.admit(Entry(seq, cid, wire.delivered_line(record), began, type))
        return True

    def _on_outcome(self, record: Record, began: float, outcome: Outcome) -> None:
        replies = self._replies.pop(record.cid, [])
        match outcome:
            case Rejected(reason):
                self.window.withdraw(record.seq)
                for reply in replies:
                    reply(Refused("rejected", reason))
                raise RuntimeError(
                    f"the store rejected {record.id}: {reason}"
                )  # our numbers are wrong: load them again
            case Duplicate(first):
                self.window.withdraw(record.seq)
                self.last_durable = record.seq
                for reply in replies:
                    self._ask_present_status(record.cid, reply, first)
            case _:
                self.last_durable = record.seq
                self._host.metrics.message_seconds.observe(self._host.now() - began)
                self.window.stored(record.seq)
                for reply in replies:
                    reply(Accepted(record.seq))
                self.audience.tell(wire.record_frame(record))
                self._host.told(record)
                self.pump()
                self.watch_expiry()

    def pump(self) -> None:
        """Send what may be sent."""
        if self.link is not None:
            for entry in self.window.next_to_send():
                self.link.deliver(entry.seq, entry.line)

    def watch_expiry(self) -> None:
        if self._expiry_timer is not None or (due := self.window.next_expiry()) is None:
            return
        self._expiry_timer = self._host.call_at(due, self._expire)

    def _expire(self) -> None:
        self._expiry_timer = None
        gone = self.window.expire(self._host.now())
        self._mark(gone, Status.EXPIRED)
        self.watch_expiry()

    def _mark(self, entries: Sequence[Entry], status: Status) -> None:
        """Give undelivered records their last status, and tell everybody once that is durable."""

        def tell() -> None:
            for entry in entries:
                self.audience.tell(wire.dump(str(status), cid=entry.cid, seq=entry.seq))

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
                self.audience.tell(wire.dump("interrupted", cid=cid, seq=seq, reason=reason))

        if messages:
            self.put(Write(self.id, marks=tuple((seq, Status.INTERRUPTED) for seq, _ in messages)), tell)

    def discard_window(self) -> None:
        """The session ends: nothing that waits will be delivered."""
        self._mark(self.window.clear(), Status.INTERRUPTED)

    # -- shared with what comes down ----------------------------------------------------------------------------------

    def delivered(self, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        for entry in entries:
            if entry.type == "message":
                self.debts.deliver(entry.seq, entry.cid)
            self.audience.tell(wire.dump("receipt", cid=entry.cid, seq=entry.seq, stage="delivered"))
        # Nothing depends on this being durable, the bridge knows: it waits a moment for a write it can go along with.
        self._delivered = entries[-1].seq
        if self._delivered_timer is None:
            self._delivered_timer = self._host.call_at(self._host.now() + DELIVERED_SECONDS, self._save_delivered)
        self.pump()

    def _save_delivered(self) -> None:
        self._delivered_timer = None
        if self._delivered is not None:
            self.put(Write(self.id))

    def agent_record(self, place: str, payload: bytes, status: Status) -> Record:
        cid = f"agent:{self.state.epoch}:{place}"
        seq = self.ledger.enter(cid)
        return Record(self.id, seq, cid, "assistant", "message", payload, self._host.utcnow(), status)

    def record_told(self, record: Record) -> None:
        self.last_durable = max(self.last_durable, record.seq)
        self.audience.tell(wire.record_frame(record))
        self._host.told(record)

    def welcome(self, offset: int, *, recovered: bool | None = None) -> bytes:
        asked = [wire.record_json(record) for record in self.debts.open]
        return wire.dump(
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
        for timer in (self._expiry_timer, self._delivered_timer):
            if timer is not None:
                timer.cancel()

    def put(self, write: Write, then: Callable[[], None] | None = None) -> None:
        """A write of the session's own: never refused. If it is rejected, our numbers are wrong: load them again.
        Of an actor that has ended nothing is written: the session may have another by now.
        """
        if self._host.ended:
            return
        if self._delivered is not None:
            write = replace(write, delivered=self._delivered)
            self._delivered = None

        def settled(outcome: Outcome) -> None:
            if isinstance(outcome, Rejected):
                raise RuntimeError(f"the store rejected a write of {self.id}: {outcome.reason}")
            if then is not None:
                then()

        self._host.queue.put(write, lambda outcome: self._host.post(settled, outcome), refusable=False)
