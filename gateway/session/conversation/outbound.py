"""What the agent says, and what becomes of it, in the order the link tells it.

Every line is dealt with at once: it goes into the transcript, and what it makes due goes to the store. But a `done`
is shown to viewers when its record is durable, so it is *held*, and whatever is to be shown after it with it.
Greetings, new processes and exits mean something else before a `done` than after it: they wait until nothing is held.
One thing holds up everything: a new process, or a new bridge, is known to the store before anybody is given anything
(the *gate*). The gate is shut, too, while an agent has more answers and requests on their way to the store than is its
share, or has made more of them of late.

A frame goes into the transcript once: those up to `_fed` are in it already, from before a restart, and are only
shown. The unfinished answer is checkpointed as it grows. The bridge may forget what the ring has forgotten: after a
restart the ring is filled from it again, so that viewers resume as if nothing had happened.

Bounds: `GATED_BYTES` of output held, waiting or being stored, after which the link is not read. A crash loses nothing:
the bridge repeats what was not confirmed, and what was stored is not stored again.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import orjson

from gateway.agents.transcript import ANSWER_RECORDS, AgentAnswer, ChatTranscript, Request
from gateway.limits.rate import Budget
from gateway.protocol import chat_frames
from gateway.session.conversation.log import Conversation
from gateway.session.conversation.release_order import ReleaseOrder
from gateway.session.model.ports import Host
from persistence import crash_points
from persistence.record import Status, Write
from sandbox.protocol.values import AgentExit, Hello, Position

GATED_BYTES = 1 << 20
COMING_LINES = 4096  # heard and not yet dealt with; beyond, the link is not read either
PENDING_BYTES = 512 << 10  # of open requests that a new process is told of: its start line has a bound
RECORD_BYTES = 4 << 10
BURST_SECONDS = 10.0
CHECKPOINT_SECONDS = 1.0
CHECKPOINT_BYTES = 64 << 10


class AgentOutput:
    __slots__ = (
        "_aborting",
        "_budget",
        "_checkpoint_timer",
        "_coming",
        "_exit_due",
        "_fed",
        "_host",
        "_link_number",
        "_order",
        "_replay_to",
        "_replayed",
        "_slowed",
        "_talk",
        "_transcript",
        "_unsaved_bytes",
        "_whole",
        "agent_alive",
        "agent_starting",
        "greeted_at",
        "received",
    )

    def __init__(self, host: Host, conversation: Conversation, checkpoint: bytes) -> None:
        self._host = host
        self._talk = conversation
        self.agent_alive = False
        # The last frame the link brought, dealt with or not. Not the state's epoch: that may be one behind.
        epoch = conversation.state.epoch
        self.received = None if epoch is None else Position(epoch, 0)
        self._transcript = ChatTranscript.restore(checkpoint) if checkpoint else ChatTranscript()
        self._fed = conversation.state.offset
        self._replay_to = 0 if conversation.state.ended else conversation.state.offset
        self._order = ReleaseOrder(self._relay)
        self._coming = 0  # lines in the inbox
        self.agent_starting = False
        self._replayed: tuple[str, bool] | None = None  # the newest process at `hello`, until it is announced; alive?
        self._exit_due: str | None = None  # the newest process at `hello`, if it has ended and its exit is to come
        self._whole = True  # whether the last process was heard to its end
        self._link_number = 0
        self.greeted_at = 0.0  # when a bridge last said hello
        self._unsaved_bytes = 0
        self._checkpoint_timer: asyncio.TimerHandle | None = None
        self._aborting = False
        self._budget: Budget | None = None  # of records
        self._slowed = False

    @property
    def answering(self) -> bool:
        """Whether the agent owes somebody an answer."""
        return bool(self._talk.debts.unanswered) or self._transcript.begun

    @property
    def settled(self) -> bool:
        """Whether everything the link has told was dealt with: nothing waits for a `done` to become durable."""
        return self._order.settled

    @property
    def exit_due(self) -> bool:
        """Whether the last process is known to have ended, but not yet how, and with what open."""
        return self._exit_due is not None

    @property
    def catching_up(self) -> bool:
        """Whether frames from before a restart are still on their way back into the ring."""
        return self._talk.audience.ring.end < self._replay_to

    def close(self) -> None:
        if self._checkpoint_timer is not None:
            self._checkpoint_timer.cancel()
            self._checkpoint_timer = None

    # -- downward: from the link, in its order ------------------------------------------------------------------------

    def on_hello(self, hello: Hello, then: Callable[[], None]) -> None:
        number = self._link_number

        def said() -> None:
            self._hello(hello, current=number == self._link_number)
            self.in_order(lambda: then() if number == self._link_number else None)

        self.in_order(said)

    def on_epoch(self, epoch: str, base: int) -> None:
        self.received, number = Position(epoch, base), self._link_number
        self.in_order(lambda: self._epoch(epoch, base, number))

    def coming(self, lines: int) -> None:
        """Lines were heard: `on_frames` will be told of them in its turn, unless the link is lost before."""
        self._coming += lines
        if self._coming > COMING_LINES and self._talk.link:
            self._talk.link.pause_reading()

    def on_frames(self, epoch: str, first: int, lines: Sequence[bytes]) -> None:
        self.received = Position(epoch, first + len(lines) - 1)
        self._coming -= len(lines)
        self._host.metrics.frames_relayed.inc(len(lines))
        for offset, line in enumerate(lines, first):
            self._order.deal(partial(self._line, offset, line), size=len(line))
        self._read_on()

    def on_exit(self, exit: AgentExit, then: Callable[[bool], None]) -> None:
        """Deal with an exit in its order; `then` hears whether the link that told of it is still there."""
        number = self._link_number

        def ended() -> None:
            if exit.epoch == self._exit_due:
                self._exit_due = None
            if exit.epoch == self._talk.state.epoch and not self._talk.state.ended:
                self.end_epoch(exit.taken, exit.reason)
                then(number == self._link_number)

        self.in_order(ended)

    def on_taken(self, seq: int) -> None:
        self._order.deal(lambda: self._talk.delivered(self._talk.window.taken(seq)))

    def on_lost(self) -> None:
        """The link is gone; what it brought before that still counts."""
        self._talk.link = None
        self.agent_alive = self.agent_starting = False
        self._replayed = self._exit_due = None
        self._coming = 0
        self._link_number += 1  # what is still held up was told by a link that is gone
        self._talk.window.disconnect(self._host.now())
        self._talk.watch_expiry()

    def in_order(self, event: Callable[[], None]) -> None:
        """Do `event` after everything the link has told so far was dealt with, and shown."""
        self._order.deal(event, after_held=True)

    def _open_gate(self) -> None:
        self._order.open()
        self._read_on()

    def _read_on(self) -> None:
        """Read the link while there is room for what it brings."""
        if self._talk.link is None:
            return
        if self._order.bytes > GATED_BYTES:
            self._talk.link.pause_reading()
        elif self._coming <= COMING_LINES:
            self._talk.link.resume_reading()

    def _hello(self, hello: Hello, *, current: bool) -> None:
        self.greeted_at = self._host.now()
        if self._talk.state.taker not in (None, hello.taker):
            self._talk.forget_unsure()
        if current:
            self.agent_starting = False
            self._replayed = None if hello.epoch is None else (hello.epoch, hello.alive)
            known = self._talk.state.ended and hello.epoch == self._talk.state.epoch
            self._exit_due = None if hello.alive or known else hello.epoch
        self._talk.delivered(self._talk.window.settle(hello.taken))
        if hello.epoch is None:  # whatever was taken, no process is left to have it
            self.end_epoch(None, "its sandbox ended")
        if self._talk.state.taker != hello.taker:
            # Durable before anything is sent: otherwise a restart could not tell that it may have been.
            self._order.shut()
            self._talk.put(Write(self._talk.id, state=self._talk.next_state(taker=hello.taker)), self._open_gate)

    def _epoch(self, epoch: str, base: int, link_number: int) -> None:
        live = link_number == self._link_number and self._is_live(epoch)
        if epoch != self._talk.state.epoch:
            if not self._talk.state.ended:
                self.end_epoch(None, "another agent process took its place")
            self._transcript, self._fed, self._replay_to = ChatTranscript(), base, 0
            state = self._talk.next_state(epoch=epoch, ended=False, offset=base, answer_from=base)
            spec = None
            if self._talk.spec.start is not None and not self._talk.spec.started:
                self._talk.spec = replace(self._talk.spec, started=True)
                spec = self._talk.spec.to_json()
            self._begin_stream(epoch, base, hole=not self._whole)

            def known() -> None:
                if live and link_number == self._link_number:
                    self._ready()
                self._open_gate()

            # Durable before it is given anything: otherwise a restart could not tell who took what.
            self._order.shut()
            self._talk.put(Write(self._talk.id, state=state, spec=spec, checkpoint=b""), known)
            return
        if self._talk.audience.ring.epoch != epoch or self._talk.audience.ring.end != base:
            self._fed = max(self._fed, base)
            self._begin_stream(epoch, base, hole=True)
        if live:
            if self._talk.state.ended:  # declared dead too early
                self._talk.save(ended=False)
            self._ready()

    def _ready(self) -> None:
        """The newest process runs, and may be given lines."""
        self.agent_alive, self.agent_starting = True, False
        self._talk.window.connect()
        self._host.agent_ready()
        self._talk.pump()

    def _is_live(self, epoch: str) -> bool:
        """Whether a process that is announced may be given lines: those before the newest at `hello` ended long ago,
        and what is begun after it was begun just now.
        """
        if self._replayed is None:
            return True
        newest, alive = self._replayed
        if epoch != newest:
            return False
        self._replayed = None
        return alive

    def _begin_stream(self, epoch: str, base: int, *, hole: bool) -> None:
        """Announce that frames of `epoch` follow; whoever missed some before them is told so."""
        lost = self._talk.audience.restart(epoch, base)
        for viewer in self._talk.audience:
            viewer.send(self._talk.welcome(base, recovered=False if hole or viewer in lost else None))

    def _line(self, offset: int, line: bytes) -> None:
        self._talk.touch()
        body = chat_frames.read_agent_frame(line)
        kind = body.get("type") if body is not None else None
        if kind in chat_frames.OWN_TYPES:
            self._talk.warn("agent.frame_refused", offset=offset, type=kind)
            self._fed = max(self._fed, offset)
            self._order.show(b"", line)
            self._note_progress(len(line))
            return
        if body is not None and offset > self._fed:
            due = self._transcript.feed(body, line)
            self._fed = offset
            if isinstance(due, AgentAnswer):
                self._store_answer(offset, line, due)
                return
            if isinstance(due, Request):
                self._store_request(offset, due)
        elif body is not None and kind == "done":  # an old one, on its way into the ring only
            seq = self._talk.ledger.seq_of(f"agent:{self._talk.state.epoch}:{offset}") or 0
            self._talk.audience.relay(chat_frames.done_frame(offset, body, f"{self._talk.id}.{seq}", seq), line)
            self._talk.audience.ring.pin(offset)
            return
        self._fed = max(self._fed, offset)
        self._order.show(chat_frames.numbered(offset, line, is_frame=body is not None), line)
        self._note_progress(len(line))

    def _relay(self, shown: bytes, line: bytes, is_done: bool) -> None:
        self._talk.audience.relay(shown, line)
        if is_done:
            ring = self._talk.audience.ring
            ring.pin(ring.end)

    def _store_answer(self, offset: int, line: bytes, answer: AgentAnswer) -> None:
        if not self._talk.debts.unanswered:  # its `taken` may be behind it on the wire
            self._talk.delivered(
                self._talk.window.taken(min((entry.seq for entry in self._talk.window.unsure()), default=0))
            )
        asked_for = self._talk.debts.done()
        self._charge(len(answer.payload), asked_for=asked_for is not None)
        answered = self._talk.state.answered if asked_for is None else asked_for[0]
        metadata = answer.done.get("metadata")
        aborted = self._aborting or (isinstance(metadata, dict) and metadata.get("aborted") is True)
        self._aborting = False
        state = self._talk.next_state(offset=offset, answer_from=offset, answered=answered)
        record = self._talk.agent_record(str(offset), answer.payload, Status.ABORTED if aborted else Status.COMPLETE)
        held = self._order.hold(line)

        def stored() -> None:
            crash_points.reached("answer.stored")
            self._order.release(held, chat_frames.done_frame(offset, answer.done, record.id, record.seq))
            self._read_on()
            crash_points.reached("done.shown")
            self._confirm_up_to(offset)
            if asked_for is not None:
                self._host.metrics.answer_seconds.observe(self._host.now() - asked_for[1])
            self._host.answer_finished()

        self._talk.put(Write(self._talk.id, append=record, state=state, checkpoint=b""), stored)
        crash_points.reached("answer.put")
        self._unsaved_bytes = 0

    def _store_request(self, offset: int, request: Request) -> None:
        record = replace(self._talk.agent_record(str(offset), request.payload, Status.OPEN), type=request.type)
        self._charge(len(request.payload), asked_for=False)
        gone = self._talk.debts.ask(request.request_id, record)
        self._order.store(len(request.payload))
        write = Write(
            self._talk.id,
            append=record,
            marks=tuple((old.seq, Status.EXPIRED) for old in gone),
            state=self._talk.next_state(offset=offset),
            checkpoint=self._so_far(),
        )

        def stored() -> None:
            for old in gone:
                self._talk.audience.tell(chat_frames.dump("expired", cid=old.cid, seq=old.seq))
            self._order.stored(len(request.payload))
            self._read_on()

        self._talk.put(write, stored)

    def _charge(self, size: int, *, asked_for: bool) -> None:
        """An agent makes so many records a second, and hears no further while it made more: nothing is lost, it waits.
        What answers a message was asked for; a long record counts as several. One whose user has stored as much as
        they may makes one a second."""
        rate = self._host.limits.agent_records
        cost = (not asked_for) + float(size // RECORD_BYTES)
        if self._host.quota.full(self._host.user_id, self._host.spawn) is not None:
            cost = max(cost, rate)
        if not cost:
            return
        now = self._host.now()
        self._budget = self._budget or Budget(rate, BURST_SECONDS * rate, now)
        wait = self._budget.spend(cost, now)
        if wait and not self._slowed:
            self._slowed = True
            self._order.slow()
            self._host.metrics.agent_slowed_seconds.inc(wait)
            self._host.call_at(now + wait, self._hasten)

    def _hasten(self) -> None:
        self._slowed = False
        self._order.hasten()
        self._read_on()

    def end_epoch(self, taken: int | None, reason: str) -> None:
        """The agent process is gone: what it had and did not finish is told, and its last words are kept."""
        self.agent_alive = False
        self._talk.window.disconnect(self._host.now())
        if taken is not None:
            self._talk.delivered(self._talk.window.settle(taken))
        interrupted, expired = self._talk.debts.end(taken)
        if self._talk.state.ended:  # taken by a process that the gateway before this one had not heard of
            self._talk.interrupted(interrupted, reason)
            return
        self._whole = taken is not None
        interrupted += [(entry.seq, entry.cid) for entry in self._talk.window.withdraw_all(ANSWER_RECORDS)]
        marks: list[tuple[int, str]] = [(seq, Status.INTERRUPTED) for seq, _ in interrupted]
        marks += [(request.seq, Status.EXPIRED) for request in expired.values()]
        pending = _newest_within(PENDING_BYTES, [request.payload for request in expired.values()])
        record = None
        if self._transcript.begun:
            status = Status.ABORTED if self._aborting else Status.INCOMPLETE
            record = self._talk.agent_record("end", self._transcript.finish({"reason": reason}), status)
        self._aborting = False
        state = self._talk.next_state(ended=True, offset=self._fed, answer_from=self._fed)
        spec = None
        if pending or self._talk.spec.pending:
            self._talk.spec = replace(self._talk.spec, pending=pending)
            spec = self._talk.spec.to_json()
        write = Write(self._talk.id, append=record, marks=tuple(marks), state=state, checkpoint=b"", spec=spec)
        position = Position(str(self._talk.state.epoch), self._fed)

        def stored() -> None:
            for seq, cid in interrupted:
                self._talk.stages.note(seq, Status.INTERRUPTED)
                self._talk.audience.tell(chat_frames.dump("interrupted", cid=cid, seq=seq, reason=reason))
            for request_id, request in expired.items():
                self._talk.audience.tell(
                    chat_frames.dump("expired", cid=request.cid, seq=request.seq, requestId=request_id)
                )
            self._confirm(position)

        self._talk.put(write, stored)
        self._unsaved_bytes = 0
        self._talk.watch_expiry()

    # -- keeping up ---------------------------------------------------------------------------------------------------

    def abort(self) -> bool:
        """Note that the running turn is to end as `aborted`; False if none runs."""
        if not (self.agent_alive and self.answering):
            return False
        self._aborting = True
        return True

    @property
    def aborting(self) -> bool:
        return self._aborting

    def _note_progress(self, size: int) -> None:
        """Checkpoint the unfinished answer each second or 64 KiB, whichever is sooner."""
        self._unsaved_bytes += size
        if self._unsaved_bytes >= CHECKPOINT_BYTES:
            self._checkpoint()
        elif self._checkpoint_timer is None:
            self._checkpoint_timer = self._host.call_at(self._host.now() + CHECKPOINT_SECONDS, self._checkpoint_due)

    def _checkpoint_due(self) -> None:
        """The timer outlives the answer it was set for: short answers would set and cancel one each."""
        self._checkpoint_timer = None
        if self._unsaved_bytes:
            self._checkpoint()

    def _checkpoint(self) -> None:
        offset = self._fed
        self._unsaved_bytes = 0
        if self._talk.state.ended:
            return
        write = Write(self._talk.id, state=self._talk.next_state(offset=offset), checkpoint=self._so_far())
        self._talk.put(write, lambda: self._confirm_up_to(offset))
        crash_points.reached("checkpoint.put")

    def _so_far(self) -> bytes:
        return self._transcript.save() if self._transcript.begun else b""

    def _confirm_up_to(self, durable: int) -> None:
        """The bridge may forget what the ring has forgotten: after a restart the ring is filled from it again."""
        ring = self._talk.audience.ring
        if ring.epoch is not None and ring.epoch == self._talk.state.epoch:
            self._confirm(Position(ring.epoch, min(ring.base, durable)))

    def _confirm(self, position: Position) -> None:
        if self._talk.link is not None:
            self._talk.link.confirm(position)


def _newest_within(limit: int, payloads: Sequence[bytes]) -> list[Any]:
    """The newest of these JSON objects that fit, in their order."""
    kept: list[Any] = []
    for payload in reversed(payloads):
        limit -= len(payload)
        if limit < 0:
            break
        kept.append(orjson.loads(payload))
    return kept[::-1]
