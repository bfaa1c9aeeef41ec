"""The agent's output, line by line: shown to viewers, put together into answers and requests, and stored.

A frame goes into the transcript once: frames up to `fed` are in it already, from before a restart, and are only shown.
A `done` is shown to viewers when its record is durable; until then the gate *holds* it and every frame behind it. The
unfinished answer is checkpointed as it grows. The bridge may forget only frames that the ring has forgotten: after a
restart the bridge fills the ring again, so that viewers resume as if nothing had happened.

Bounds: the transcript's (gateway/agents/transcript.py) and the gate's. A crash loses nothing: the bridge repeats every
unconfirmed frame, and a record that is already stored is not stored again.
"""

from collections.abc import Callable, Sequence
from typing import Any

from gateway.agents.status import told
from gateway.agents.transcript import AgentAnswer, Remark, Request, RequestGone, Transcript, ends_answer
from gateway.protocol import chat_frames
from gateway.session.conversation.delivery import Delivery
from gateway.session.conversation.gate import Gate
from gateway.session.conversation.log import SessionLog
from gateway.session.conversation.rate_limited_log import RateLimitedLog
from gateway.session.conversation.release_order import HeldLine, ReleaseOrder
from gateway.session.model.ports import SessionClock, SessionMetrics, Timer
from gateway.session.viewers.broadcast import Broadcast
from persistence import crash_points
from persistence.record import Record, Status
from sandbox.protocol.values import Position

CHECKPOINT_SECONDS = 1.0
CHECKPOINT_BYTES = 64 << 10


class Answers:
    __slots__ = (
        "_audience",
        "_checkpoint_timer",
        "_clock",
        "_delivery",
        "_finished",
        "_gate",
        "_log",
        "_metrics",
        "_order",
        "_retried_at",
        "_transcript",
        "_unsaved_bytes",
        "_warnings",
        "aborting",
        "fed",
    )

    def __init__(
        self,
        log: SessionLog,
        delivery: Delivery,
        audience: Broadcast,
        order: ReleaseOrder,
        gate: Gate,
        clock: SessionClock,
        metrics: SessionMetrics,
        checkpoint: bytes,
        finished: Callable[[], None],
    ) -> None:
        """`finished` is called when an answer is stored and shown."""
        self._log = log
        self._delivery = delivery
        self._audience = audience
        self._order = order
        self._gate = gate
        self._clock = clock
        self._metrics = metrics
        self._finished = finished
        self._transcript = Transcript.restore(checkpoint) if checkpoint else Transcript()
        self._unsaved_bytes = 0
        self._retried_at = 0  # offset of the last frame that reported a retry
        self._checkpoint_timer: Timer | None = None
        self._warnings: RateLimitedLog | None = None  # few sessions have any
        self.fed = log.state.offset
        self.aborting = False  # the running turn is to end as `aborted`

    @property
    def begun(self) -> bool:
        """True while an answer is unfinished."""
        return self._transcript.begun

    def warn(self, event: str, **fields: Any) -> None:
        """Log a fault of the agent or the bridge, at most once a minute per event."""
        self._warnings = self._warnings or RateLimitedLog(self._clock, self._log.id)
        self._warnings.warn(event, **fields)

    def close(self) -> None:
        if self._checkpoint_timer is not None:
            self._checkpoint_timer.cancel()
            self._checkpoint_timer = None

    # -- lines --------------------------------------------------------------------------------------------------------

    def line(self, offset: int, line: bytes) -> None:
        """Process the agent's frame `offset`."""
        body = chat_frames.read_agent_frame(line)
        kind = body.get("type") if body is not None else None
        if body is not None and kind == "agent_status" and offset > self.fed:
            self._hear_status(offset, body)
        if kind in chat_frames.OWN_TYPES:
            self.warn("agent.frame_refused", offset=offset, type=kind)
            self.fed = max(self.fed, offset)
            self._order.show(b"", line)
            self._unsaved_bytes += len(line)
            self._note_progress()
            return
        if body is not None and offset > self.fed:
            due = self._transcript.feed(body, line)
            self.fed = offset
            if isinstance(due, AgentAnswer):
                self._store_answer(offset, line, due)
                return
            if isinstance(due, Request):
                self._store_request(offset, due)
            elif isinstance(due, RequestGone):
                self._withdraw_request(offset, due)
            elif isinstance(due, Remark):
                self._store_remark(offset, due)
        elif body is not None and ends_answer(body):  # an old one, on its way into the ring only
            self._show_again(offset, body, line)
            return
        self.fed = max(self.fed, offset)
        self._order.show(chat_frames.numbered(offset, line, is_frame=body is not None), line)
        self._unsaved_bytes += len(line)
        if self._unsaved_bytes >= CHECKPOINT_BYTES or self._checkpoint_timer is None:
            self._note_progress()

    def _hear_status(self, offset: int, status: dict[str, Any]) -> None:
        """The agent reports who it is, or how its work goes. Each new fact about the agent is a write."""
        if status.get("status") == "retrying":
            self._retried_at = offset
        log = self._log
        known = told(log.spec.agent_told, status)
        if known is not log.spec.agent_told:
            self._gate.charge(0, asked_for=False)
            log.save_spec(agent_told=known)

    @property
    def retrying(self) -> bool:
        """True if the agent's latest report is that it tries again."""
        return self._retried_at == self.fed > 0

    def _show_again(self, offset: int, done: dict[str, Any], line: bytes) -> None:
        log, audience = self._log, self._audience
        seq = log.sequence.seq_of(f"agent:{log.state.epoch}:{offset}") or 0
        audience.relay(chat_frames.done_frame(offset, done, line, f"{log.id}.{seq}", seq), line)
        audience.ring.pin(offset)

    def _store_answer(self, offset: int, line: bytes, answer: AgentAnswer) -> None:
        log, delivery, turns = self._log, self._delivery, self._delivery.turns
        if answer.answers is not None or not turns.unanswered:
            delivery.taken_unheard(answer.answers)
        asked_at = turns.done(answer.answers, delivery.window.oldest)
        self._gate.charge(len(answer.payload), asked_for=asked_at is not None)
        aborted = self.aborting or answer.aborted
        self.aborting = False
        state = log.next_state(offset=offset, answer_from=offset, answered=turns.answered, answered_ahead=turns.ahead)
        record = log.agent_record(str(offset), answer.payload, Status.ABORTED if aborted else Status.COMPLETE)
        held = self._order.hold(line)
        log.write(
            self._answer_stored, offset, held, answer.done, record, asked_at, append=record, state=state, checkpoint=b""
        )
        crash_points.reached("answer.put")
        self._unsaved_bytes = 0

    def _answer_stored(
        self, offset: int, held: HeldLine, done: dict[str, Any], record: Record, asked_at: float | None
    ) -> None:
        crash_points.reached("answer.stored")
        self._gate.release(held, chat_frames.done_frame(offset, done, held.line, record.id, record.seq))
        crash_points.reached("done.shown")
        self._confirm_up_to(offset)
        if asked_at is not None:
            self._metrics.answer_seconds.observe(self._clock.now() - asked_at)
        self._finished()

    def _store_request(self, offset: int, request: Request) -> None:
        log, size = self._log, len(request.payload)
        record = log.agent_record(str(offset), request.payload, Status.OPEN, request.type)
        self._gate.charge(size, asked_for=False)
        gone = self._delivery.turns.ask(request.request_id, record)
        self._order.store(size)
        log.write(
            self._request_stored,
            size,
            gone,
            append=record,
            marks=tuple((old.seq, Status.EXPIRED) for old in gone),
            state=log.next_state(offset=offset),
            checkpoint=self._so_far(),
        )

    def _request_stored(self, size: int, gone: Sequence[Record]) -> None:
        for old in gone:
            self._audience.tell(chat_frames.dump("expired", cid=old.cid, seq=old.seq))
        self._gate.stored(size)

    def _store_remark(self, offset: int, remark: Remark) -> None:
        log, size = self._log, len(remark.payload)
        record = log.agent_record(str(offset), remark.payload, Status.COMPLETE, remark.type)
        self._gate.charge(size, asked_for=False)
        self._order.store(size)
        state = log.next_state(offset=offset)
        log.write(self._gate.stored, size, append=record, state=state, checkpoint=self._so_far())

    def _withdraw_request(self, offset: int, gone: RequestGone) -> None:
        record = self._delivery.turns.withdraw(gone.request_id)
        if record is not None:
            log = self._log
            log.write(
                self._request_gone,
                record,
                gone,
                marks=((record.seq, Status.EXPIRED),),
                state=log.next_state(offset=offset),
                checkpoint=self._so_far(),
            )

    def _request_gone(self, record: Record, gone: RequestGone) -> None:
        told = chat_frames.dump(
            "expired", cid=record.cid, seq=record.seq, requestId=gone.request_id, reason=gone.reason or "withdrawn"
        )
        self._audience.tell(told)

    # -- processes ----------------------------------------------------------------------------------------------------

    def begin(self, base: int) -> None:
        """A new process: its first frame is `base` + 1."""
        self._transcript, self.fed = Transcript(), base

    def skip(self, base: int) -> None:
        """Frames up to `base` will not come any more."""
        self.fed = max(self.fed, base)

    def finish(self, reason: str) -> Record | None:
        """The process is gone. Return its unfinished answer as a record, or None if no answer was under way. The write
        that carries this record replaces every checkpoint."""
        record = None
        if self._transcript.begun:
            status = Status.ABORTED if self.aborting else Status.INCOMPLETE
            record = self._log.agent_record("end", self._transcript.finish({"reason": reason}), status)
        self.aborting = False
        self._unsaved_bytes = 0
        return record

    # -- keeping up ---------------------------------------------------------------------------------------------------

    def _note_progress(self) -> None:
        """Checkpoint the unfinished answer each second or 64 KiB, whichever is sooner."""
        if self._unsaved_bytes >= CHECKPOINT_BYTES:
            self._checkpoint()
        elif self._checkpoint_timer is None:
            self._checkpoint_timer = self._clock.call_at(self._clock.now() + CHECKPOINT_SECONDS, self._checkpoint_due)

    def _checkpoint_due(self) -> None:
        """The timer outlives the answer it was set for: short answers would set and cancel one each."""
        self._checkpoint_timer = None
        if self._unsaved_bytes:
            self._checkpoint()

    def _checkpoint(self) -> None:
        log, offset = self._log, self.fed
        self._unsaved_bytes = 0
        if log.state.ended:
            return
        log.write(self._confirm_up_to, offset, state=log.next_state(offset=offset), checkpoint=self._so_far())
        crash_points.reached("checkpoint.put")

    def _so_far(self) -> bytes:
        return self._transcript.save() if self._transcript.begun else b""

    def _confirm_up_to(self, durable: int) -> None:
        """Let the bridge forget only what the ring has forgotten: after a restart the bridge fills the ring again."""
        ring = self._audience.ring
        if ring.epoch is not None and ring.epoch == self._log.state.epoch:
            self.confirm(Position(ring.epoch, min(ring.base, durable)))

    def confirm(self, position: Position) -> None:
        """Tell the bridge that the agent's output up to `position` is durable."""
        if (link := self._delivery.link) is not None:
            link.confirm(position)
