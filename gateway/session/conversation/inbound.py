"""What senders say: numbered, made durable, and only then delivered.

`offer` -> `_on_outcome` -> the conversation's `pump`. Where the store follows later (`Spooled`), the first durable
stage is enough to deliver, and `settled` brings the last word. But for one case: a session too old to know all its cids
cannot know that a message is new before the store, or its index here, has looked. There it is delivered when it is
stored: never twice.

What the store will never take is *dead*: a marker stands at its seq, its sender is told, its cid may be used again, and
the session goes on. Bounds: the window (gateway/session/model/delivery_window.py) and the persistence queue; whatever
does not fit is refused with a reason. A crash loses only what was not acknowledged.
"""

from gateway.agents.transcript import ANSWER_RECORDS, ANSWERS
from gateway.protocol import chat_frames
from gateway.session.conversation.log import Conversation, give_up
from gateway.session.conversation.receipts import Accepted, MessageRefused, Reply, Unsettled, one_line
from gateway.session.model.delivery_window import WindowEntry
from gateway.session.model.ports import Host
from gateway.session.model.state import SessionStatus
from persistence import crash_points
from persistence.commit_plan import rejected_marker
from persistence.errors import StoreUnavailable
from persistence.record import Dead, Duplicate, Fenced, Outcome, Record, Rejected, Spooled, Status, Stored, Write


class Inbound:
    __slots__ = ("_early", "_host", "_replies", "_stages", "_talk", "asking")

    def __init__(self, host: Host, conversation: Conversation) -> None:
        self._host = host
        self._talk = conversation
        self._stages = conversation.stages
        self._replies: dict[str, list[Reply]] = {}
        self._early: dict[int, Outcome] = {}  # the store was faster than the queue
        self.asking = 0  # the store is asked what became of so many

    def offer(self, cid: str, *, role: str, type: str, payload: bytes, reply: Reply, deliver: bool) -> None:
        """Store a record and, if asked, deliver it. `reply` is called when it is refused, or when it is durable: once
        more if the store is to follow.
        """
        talk = self._talk
        if (seq := talk.ledger.seq_of(cid)) is not None:
            self._offered_again(cid, seq, reply)
            return
        reason = "archived" if talk.state.status is SessionStatus.ARCHIVED else self._host.queue.room(len(payload))
        text = None
        if reason is None and (text := self._host.quota.full(self._host.user_id, self._host.spawn)) is not None:
            reason = "stored_too_much"
        if reason is None and deliver:
            reason = talk.window.refusal(len(payload))
        if reason is None and not self._append(cid, role, type, payload, reply, deliver=deliver):
            reason = "storage_unavailable"
        if reason is not None:
            self._host.metrics.refused(reason)
            reply(MessageRefused(reason, text))

    def answer(self, cid: str, frame: chat_frames.ChatFrame, reply: Reply) -> None:
        """A viewer's answer to a permission or a question. The first wins, and is never refused for room."""
        if (seq := self._talk.ledger.seq_of(cid)) is not None:
            self._offered_again(cid, seq, reply)
            return
        if (reason := self._talk.window.answer_refusal()) is not None:
            self._host.metrics.refused(reason)
            reply(MessageRefused(reason))
            return
        record_type, answers = ANSWERS[frame.type]
        request = self._talk.debts.answer(str(frame.body["requestId"]), answers)
        if isinstance(request, str):
            reply(MessageRefused(request))
            return
        self._append(cid, "user", record_type, frame.payload(cid), reply, deliver=True, answers=request)

    def refuse_all(self, reason: str) -> None:
        """Whatever is not durable yet will not be."""
        replies, self._replies = self._replies, {}
        for reply in (reply for each in replies.values() for reply in each):
            reply(MessageRefused(reason))

    # -- sent again ---------------------------------------------------------------------------------------------------

    def _offered_again(self, cid: str, seq: int, reply: Reply) -> None:
        if cid in self._replies:
            self._replies[cid].append(reply)
        elif not self._stages.ask(seq, reply):
            self._ask_present_status(cid, reply, seq)

    def _ask_present_status(self, cid: str, reply: Reply, seq: int) -> None:
        self.asking += 1
        self._host.spawn(self._find_present_status(cid, reply, seq), f"status {self._talk.id}/{seq}")

    async def _find_present_status(self, cid: str, reply: Reply, seq: int) -> None:
        try:
            record = await self._host.store.by_cid(self._talk.id, cid)
            session = None if record else await self._host.store.find(self._talk.id)
            gone = session is not None and seq < session.first_seq
        except StoreUnavailable:
            record, gone = None, True
        self._host.post(self._tell_present_status, cid, reply, seq, record, gone)

    def _tell_present_status(self, cid: str, reply: Reply, seq: int, record: Record | None, gone: bool) -> None:
        """`gone`: its status is, with the record or for now; that it was stored is certain, unless it is in doubt."""
        self.asking -= 1
        at, status = (seq, Status.STORED) if record is None else (record.seq, record.status)
        died = record is None and self._talk.ledger.seq_of(cid) is None  # while the store was asked
        if died or status == Status.REJECTED:
            reply(MessageRefused("rejected"))
        elif self._host.store.behind(self._talk.id) and self._stages.ask_doubted(at, cid, status, reply):
            pass  # they were told what is certain, and hear the rest when it is
        elif record is None:
            reply(Accepted(seq, status=None) if gone else MessageRefused("storage_unavailable"))
        else:
            reply(Accepted(record.seq, record.status))

    # -- on the way to be durable -------------------------------------------------------------------------------------

    def _append(
        self,
        cid: str,
        role: str,
        type: str,
        payload: bytes,
        reply: Reply,
        *,
        deliver: bool,
        answers: Record | None = None,
    ) -> bool:
        host, talk = self._host, self._talk
        seq = talk.ledger.enter(cid)
        status = Status.STORED if deliver else Status.COMPLETE
        record = Record(talk.id, seq, cid, role, type, payload, host.utcnow(), status)
        marks = () if answers is None else ((answers.seq, Status.ANSWERED),)
        began = host.now()
        if not host.queue.put(
            Write(talk.id, append=record, marks=marks, fence=talk.fence),
            lambda outcome: host.post(self._on_outcome, record, answers, began, outcome),
            refusable=type not in ANSWER_RECORDS,
        ):
            talk.ledger.withdraw(cid)
            return False
        crash_points.reached("message.put")
        host.quota.grew(host.user_id, len(payload))
        self._replies[cid] = [reply]
        if deliver:
            talk.window.admit(WindowEntry(seq, cid, chat_frames.delivered_line(record), began, type))
        return True

    def _on_outcome(self, record: Record, answers: Record | None, began: float, outcome: Outcome) -> None:
        if isinstance(outcome, Fenced):
            give_up(self._talk.id, outcome)
        replies = self._replies.pop(record.cid, [])
        match outcome:
            case Rejected(reason):
                for reply in replies:
                    reply(MessageRefused("rejected", one_line(reason)))
                give_up(self._talk.id, outcome)
            case Duplicate(first):
                self._talk.last_durable = record.seq
                self._talk.window.withdraw(record.seq)
                for reply in replies:
                    self._ask_present_status(record.cid, reply, first)
            case Dead(reason):
                for reply in replies:
                    reply(MessageRefused("rejected", one_line(reason)))
                self._talk.record_told(rejected_marker(record, reason))
                self._died(record.seq, record.cid, answers)
            case _:
                self._host.metrics.message_seconds.observe(self._host.now() - began)
                self._durable(record, answers, replies, outcome)
        self._go_on()
        self._catch_up()

    def _durable(self, record: Record, answers: Record | None, replies: list[Reply], outcome: Stored | Spooled) -> None:
        if isinstance(outcome, Stored):
            for reply in replies:
                reply(Accepted(record.seq, record.status))
        else:
            self._stages.accept(record, replies, answers=answers)
        self._talk.record_told(record)
        if isinstance(outcome, Stored):
            self._talk.window.stored(record.seq)
        elif outcome.unique or self._talk.ledger.complete:
            self._talk.window.accepted(record.seq)

    def _go_on(self) -> None:
        self._talk.pump()
        self._talk.watch_expiry()

    # -- what the store made of it ------------------------------------------------------------------------------------

    def settled(self, seq: int, outcome: Outcome) -> None:
        """The store has decided about a record that was durable here first. Told in seq order, perhaps twice."""
        self._early[seq] = outcome
        self._catch_up()

    def _catch_up(self) -> None:
        """Deal with what the store has decided. It may be faster than the queue, which tells what is durable here."""
        for seq in sorted(self._early):
            if seq <= self._talk.last_durable:
                self._settle(seq, self._early.pop(seq))

    def _settle(self, seq: int, outcome: Outcome) -> None:
        stored, record = self._stages.settle(seq)
        for earlier in stored:
            self._talk.window.stored(earlier.seq)
            earlier.tell(Accepted(earlier.seq, earlier.status))
        if record is None:  # nobody waits to be told: an answer, most often, and its cid is slow to find
            record = Unsettled(seq, "" if isinstance(outcome, Stored) else self._talk.ledger.cid_of(seq) or "")
        match outcome:
            case Fenced():
                record.tell(
                    MessageRefused("rejected", "another gateway has the session, and went on without this record")
                )
                give_up(self._talk.id, outcome)
            case Rejected(reason):
                record.tell(MessageRefused("rejected", one_line(reason)))
                give_up(self._talk.id, outcome)
            case Dead(reason):
                record.tell(MessageRefused("rejected", one_line(reason)))
                self._died(seq, record.cid, record.answers)
            case Duplicate(first):
                self._talk.window.recall(seq)
                for reply in record.replies:
                    self._ask_present_status(record.cid, reply, first)
            case _:
                self._talk.window.stored(seq)
                record.tell(Accepted(seq, record.status))
        self._go_on()

    def _died(self, seq: int, cid: str, answers: Record | None) -> None:
        """The store will never have it: sent again it is another record. What the agent was given, it has."""
        self._talk.ledger.forget(cid, seq)
        if self._talk.window.recall(seq) is not None and answers is not None:
            self._talk.open_again(answers)
