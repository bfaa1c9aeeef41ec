"""Events of the link about the agent, processed in the order they arrive.

A line is processed as it comes (answers.py). Hellos, new processes and exits mean something else before a `done` than
after it: they wait until no line is held. Three conditions stop all processing. A new process, or a new bridge, must be
durable in the store before it is given anything; until then the order is shut. An agent that makes too many records a
second is slowed. And while 1,000 records are on their way to the store, no more are made. gate.py bounds how much may
wait.

    hello of a bridge    settle what it took > (another bridge: store its name) > call back the caller of the greeting
    a new process        end the one before > store its epoch > an agent is ready, deliver what waits
    exit of a process    end its epoch: what it took and did not answer is `interrupted`

A link may be lost while its events still wait. They count all the same, but none of them makes an agent ready:
`_link_number` is the number of the link that is there now.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gateway.agents.transcript import ANSWER_RECORDS
from gateway.protocol import chat_frames
from gateway.session.conversation.announced import Announced
from gateway.session.conversation.answers import Answers
from gateway.session.conversation.delivery import Delivery
from gateway.session.conversation.gate import COMING_LINES, Gate
from gateway.session.conversation.last_words import last_marks, still_pending
from gateway.session.conversation.log import SessionLog
from gateway.session.conversation.release_order import ReleaseOrder
from gateway.session.conversation.stream import AgentStream
from gateway.session.model.ports import SessionClock, SessionMetrics
from gateway.session.viewers.broadcast import Broadcast
from persistence.record import Record, Status
from sandbox.protocol.values import AgentExit, Hello, Position


class AgentOutput:
    __slots__ = (
        "_announced",
        "_audience",
        "_clock",
        "_delivery",
        "_gate",
        "_link_number",
        "_log",
        "_metrics",
        "_order",
        "_stream",
        "_whole",
        "agent_alive",
        "answers",
        "greeted_at",
        "on_ready",
        "received",
    )

    def __init__(
        self,
        log: SessionLog,
        delivery: Delivery,
        audience: Broadcast,
        stream: AgentStream,
        clock: SessionClock,
        metrics: SessionMetrics,
        *,
        checkpoint: bytes,
        rate: float,
        finished: Callable[[], None],
    ) -> None:
        """`rate`: how many records the agent may make a second. `finished` is called when one of its answers is stored
        and shown."""
        self._log = log
        self._delivery = delivery
        self._audience = audience
        self._stream = stream
        self._clock = clock
        self._metrics = metrics
        self.on_ready: Callable[[], None]  # called when an agent can be given lines
        self._order = ReleaseOrder(stream.relay)
        self._gate = Gate(self._order, log, delivery, clock, metrics, rate)
        self.answers = Answers(log, delivery, audience, self._order, self._gate, clock, metrics, checkpoint, finished)
        self._announced = Announced()
        self._whole = True  # False if the last process's exit was never reported
        self._link_number = 0
        self.agent_alive = False
        self.greeted_at = 0.0  # when a bridge last said hello
        # The last frame the link brought, processed or not. Not the state's epoch: that may be one behind.
        self.received = None if log.state.epoch is None else Position(log.state.epoch, 0)

    # -- for the other parts ------------------------------------------------------------------------------------------

    @property
    def answering(self) -> bool:
        """True while the agent owes an answer."""
        return bool(self._delivery.turns.unanswered) or self.answers.begun

    @property
    def settled(self) -> bool:
        """True if every event of the link was processed: none waits for a `done` to become durable."""
        return self._order.settled

    @property
    def exit_due(self) -> bool:
        """True if the last process has ended, and the bridge has yet to report how, and with which requests open."""
        return self._announced.exit_due is not None

    def abort(self) -> bool:
        """End the running turn as `aborted`; False if none runs."""
        if not (self.agent_alive and self.answering):
            return False
        self.answers.aborting = True
        return True

    def warn(self, event: str, **fields: Any) -> None:
        """Log a fault of the agent or the bridge, at most once a minute per event."""
        self.answers.warn(event, **fields)

    def close(self) -> None:
        self.answers.close()

    # -- from the link, in its order ----------------------------------------------------------------------------------

    def in_order(self, event: Callable[..., None]) -> None:
        """Call `event` after every earlier event of the link was processed and shown."""
        self._order.deal(event, after_held=True)

    def coming(self, lines: int) -> None:
        """Lines were received: `on_frames` gets them in its turn, unless the link is lost before."""
        gate = self._gate
        gate.coming += lines
        if gate.coming > COMING_LINES:
            gate.read_on()

    def count_unknown(self, core: str, counts: Mapping[str, int]) -> None:
        """Count the agent's frames that its core does not know. They have no other effect."""
        for kind, count in counts.items():
            self._metrics.unknown_frames(core, kind, count)

    def on_frames(self, epoch: str, first: int, lines: Sequence[bytes]) -> None:
        self.received = Position(epoch, first + len(lines) - 1)
        self._metrics.frames_relayed.inc(len(lines))
        self._log.touch()
        deal, said = self._order.deal, self.answers.line
        for offset, line in enumerate(lines, first):
            deal(said, offset, line, size=len(line))
        gate = self._gate
        gate.coming -= len(lines)
        gate.read_on()

    def on_taken(self, seq: int, recalled: bool = False) -> None:
        """The agent has the records up to `seq`; with `recalled`, the bridge holds that one back, as it was asked."""
        self._order.deal(self._delivery.recalled if recalled else self._delivery.taken, seq)

    def on_hello(self, hello: Hello, then: Callable[[], None]) -> None:
        self._order.deal(self._hello, hello, self._link_number, then, after_held=True)

    def on_epoch(self, epoch: str, base: int) -> None:
        self.received = Position(epoch, base)
        self._order.deal(self._epoch, epoch, base, self._link_number, after_held=True)

    def on_exit(self, exit: AgentExit, then: Callable[[bool], None]) -> None:
        """Process an exit in its order; `then` is called with whether the link that reported it is still there."""
        self._order.deal(self._exit, exit, self._link_number, then, after_held=True)

    def on_lost(self) -> None:
        """The link is gone; events that it brought before still count."""
        self.agent_alive = False
        self._announced.lost()
        self._gate.coming = 0
        self._link_number += 1
        self._delivery.disconnect()
        self._delivery.watch_expiry()

    # -- bridges and processes ----------------------------------------------------------------------------------------

    def _hello(self, hello: Hello, link_number: int, then: Callable[[], None]) -> None:
        log, delivery = self._log, self._delivery
        self.greeted_at = self._clock.now()
        if log.state.taker not in (None, hello.taker):
            delivery.forget_unsure()
        if link_number == self._link_number:
            known = log.state.ended and hello.epoch == log.state.epoch
            self._announced.hello(hello.epoch, alive=hello.alive, known=known)
        delivery.settle(hello.taken)
        if hello.epoch is None:  # the bridge has had no process, so nothing that was taken is in one
            self.end_epoch(None, "its sandbox ended")
        if log.state.taker != hello.taker:
            # Durable before anything is sent: otherwise a restart could not know that this bridge may have taken
            # messages.
            self._order.shut()
            log.write(self._gate.open, state=log.next_state(taker=hello.taker))
        self._order.deal(self._greeted, link_number, then, after_held=True)

    def _greeted(self, link_number: int, then: Callable[[], None]) -> None:
        if link_number == self._link_number:
            then()

    def _epoch(self, epoch: str, base: int, link_number: int) -> None:
        lives = link_number == self._link_number and self._announced.lives(epoch)
        log, ring = self._log, self._audience.ring
        if epoch != log.state.epoch:
            self._begin_epoch(epoch, base, link_number if lives else None)
            return
        if ring.epoch != epoch or ring.end != base:
            self.answers.skip(base)
            self._stream.begin(epoch, base, hole=True)
        if lives:
            if log.state.ended:  # declared dead too early
                log.save(ended=False)
            self._make_ready()

    def _begin_epoch(self, epoch: str, base: int, link_number: int | None) -> None:
        """`link_number`: of the link on which the process lives; None if it does not live."""
        log = self._log
        if not log.state.ended:
            self.end_epoch(None, "another agent process took its place")
        self.answers.begin(base)
        state = log.next_state(epoch=epoch, ended=False, offset=base, answer_from=base)
        starts = log.spec.start is not None and not log.spec.started
        spec = log.next_spec(started=True) if starts else None
        self._stream.begin(epoch, base, hole=not self._whole)
        # Durable before the process is given anything: otherwise a restart could not know which process took which
        # message.
        self._order.shut()
        log.write(self._epoch_known, link_number, state=state, spec=spec, checkpoint=b"")

    def _epoch_known(self, link_number: int | None) -> None:
        if link_number == self._link_number:
            self._make_ready()
        self._gate.open()

    def _make_ready(self) -> None:
        """The newest process runs, and may be given lines."""
        self.agent_alive = True
        self._delivery.connect()
        self.on_ready()
        self._delivery.pump()

    def _exit(self, exit: AgentExit, link_number: int, then: Callable[[bool], None]) -> None:
        self._announced.exited(exit.epoch)
        if exit.epoch == self._log.state.epoch and not self._log.state.ended:
            self.end_epoch(exit.taken, exit.reason)
            then(link_number == self._link_number)

    def end_epoch(self, taken: int | None, reason: str) -> None:
        """The agent process is gone: report its unfinished messages, and store its last answer."""
        log, delivery = self._log, self._delivery
        self.agent_alive = False
        delivery.disconnect()
        if taken is not None:
            delivery.settle(taken)
        interrupted, expired = delivery.turns.end(taken)
        interrupted += delivery.process_ended()
        if log.state.ended:  # taken by a process that the gateway before this one did not know of
            delivery.interrupted(interrupted, reason)
            return
        self._whole = taken is not None
        interrupted += [(entry.seq, entry.cid) for entry in delivery.window.withdraw_all(ANSWER_RECORDS)]
        pending = still_pending(expired.values())
        record, fed = self.answers.finish(reason), self.answers.fed
        position = Position(str(log.state.epoch), fed)
        log.write(
            self._epoch_ended,
            interrupted,
            expired,
            reason,
            position,
            append=record,
            marks=last_marks(interrupted, expired.values()),
            state=log.next_state(ended=True, offset=fed, answer_from=fed),
            checkpoint=b"",
            spec=log.next_spec(pending=pending) if pending or log.spec.pending else None,
        )
        delivery.watch_expiry()

    def _epoch_ended(
        self, interrupted: Sequence[tuple[int, str]], expired: Mapping[str, Record], reason: str, position: Position
    ) -> None:
        self._delivery.tell_marked(interrupted, Status.INTERRUPTED, reason)
        for request_id, request in expired.items():
            told = chat_frames.dump("expired", cid=request.cid, seq=request.seq, requestId=request_id)
            self._audience.tell(told)
        self.answers.confirm(position)
