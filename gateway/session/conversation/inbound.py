"""Messages from senders: numbered, made durable, and only then delivered.

`offer` -> the log -> `_on_outcome` -> `Delivery.pump`. Where the store follows later (`Spooled`), the first durable
stage is enough to deliver, and `settled` brings the store's decision. There is one exception: a session too old to know
all its cids cannot know that a message is new before the store, or its index here, has looked. There a message is
delivered when it is stored: never twice.

A message that the store refuses for good is *dead*: a marker takes its seq, its sender gets a nack, its cid may be used
again, and the session goes on. Bounds: the window (gateway/session/model/delivery_window.py) and the persistence queue;
a message that does not fit is refused with a reason. A crash loses only messages that were not acknowledged.
"""

from collections.abc import Sequence

from gateway.agents.transcript import ANSWER_RECORDS, ANSWERS
from gateway.protocol import chat_frames
from gateway.session.conversation.delivery import Delivery
from gateway.session.conversation.log import SessionLog, give_up
from gateway.session.conversation.receipts import Accepted, MessageRefused, Reply, Unsettled, one_line
from gateway.session.model.delivery_window import WindowEntry
from gateway.session.model.ports import SessionClock, SessionMetrics, Tasks
from persistence import crash_points
from persistence.commit_plan import rejected_marker
from persistence.errors import StoreUnavailable
from persistence.ports import MessageStore
from persistence.record import Dead, Duplicate, Fenced, Outcome, Record, Rejected, Spooled, Status, Stored


class Inbound:
    __slots__ = (
        "_asked",
        "_clock",
        "_delivery",
        "_early",
        "_log",
        "_metrics",
        "_receipts",
        "_replies",
        "_store",
        "_tasks",
        "asking",
    )

    def __init__(
        self,
        log: SessionLog,
        delivery: Delivery,
        store: MessageStore,
        clock: SessionClock,
        tasks: Tasks,
        metrics: SessionMetrics,
    ) -> None:
        self._log = log
        self._delivery = delivery
        self._receipts = delivery.receipts
        self._store = store
        self._clock = clock
        self._tasks = tasks
        self._metrics = metrics
        self._replies: dict[str, list[Reply]] = {}
        self._asked: dict[int, Reply] | None = None  # replies that wait for the store; few sessions have any
        self._early: dict[int, Outcome] | None = None  # the store was faster than the queue
        self.asking = 0  # number of questions to the store about a record's present status

    def offer(self, cid: str, *, role: str, type: str, payload: bytes, reply: Reply, deliver: bool) -> None:
        """Store a record and, if asked, deliver it. `reply` is called when the record is refused, or when it is
        durable, and once more if the store is to follow.
        """
        if (seq := self._log.sequence.seq_of(cid)) is not None:
            self._offered_again(cid, seq, reply)
            return
        refused = self._log.refusal(len(payload))
        if refused is None and deliver and (reason := self._delivery.window.refusal(len(payload))) is not None:
            refused = MessageRefused(reason)
        if refused is None and not self._append(cid, role, type, payload, reply, deliver=deliver):
            refused = MessageRefused("storage_unavailable")
        if refused is not None:
            self._metrics.refused(refused.reason)
            reply(refused)

    def answer(self, cid: str, frame: chat_frames.ChatFrame, reply: Reply) -> None:
        """Store a viewer's answer to a permission or a question. The first answer wins. It is refused for lack of room
        only if the user's windows hold twice their bound."""
        if (seq := self._log.sequence.seq_of(cid)) is not None:
            self._offered_again(cid, seq, reply)
            return
        if (reason := self._delivery.window.answer_refusal()) is not None:
            self._metrics.refused(reason)
            reply(MessageRefused(reason))
            return
        record_type, answers = ANSWERS[frame.type]
        request = self._delivery.turns.answer(str(frame.body["requestId"]), answers)
        if isinstance(request, str):
            reply(MessageRefused(request))
            return
        self._append(cid, "user", record_type, frame.payload(cid), reply, deliver=True, answers=request)

    def refuse_all(self, reason: str) -> None:
        """Refuse every message that is not durable yet: it never will be."""
        replies, self._replies = self._replies, {}
        for reply in (reply for each in replies.values() for reply in each):
            reply(MessageRefused(reason))

    # -- sent again ---------------------------------------------------------------------------------------------------

    def _offered_again(self, cid: str, seq: int, reply: Reply) -> None:
        if cid in self._replies:
            self._replies[cid].append(reply)
        elif not self._receipts.ask(seq, reply):
            self._ask_present_status(cid, reply, seq)

    def _ask_present_status(self, cid: str, reply: Reply, seq: int) -> None:
        self.asking += 1
        self._asked = {} if self._asked is None else self._asked
        asked = max(self._asked, default=0) + 1
        self._asked[asked] = reply
        self._tasks.spawn(self._find_present_status(asked, cid, seq), f"status {self._log.id}/{seq}")

    async def _find_present_status(self, asked: int, cid: str, seq: int) -> None:
        try:
            record = await self._store.by_cid(self._log.id, cid)
            session = None if record else await self._store.find(self._log.id)
            gone = session is not None and seq < session.first_seq
        except StoreUnavailable:
            record, gone = None, True
        self._tasks.post(self._tell_present_status, asked, cid, seq, record, gone)

    def _tell_present_status(self, asked: int, cid: str, seq: int, record: Record | None, gone: bool) -> None:
        """`gone`: the record's status could not be read, because the record is gone or the store is away. The message
        itself was certainly stored, unless its record is in doubt."""
        assert self._asked is not None, "somebody did"
        self.asking -= 1
        reply = self._asked.pop(asked)
        self._asked = self._asked or None
        at, status = (seq, Status.STORED) if record is None else (record.seq, record.status)
        died = record is None and self._log.sequence.seq_of(cid) is None  # while the store was asked
        if died or status == Status.REJECTED:
            reply(MessageRefused("rejected"))
        elif self._store.behind(self._log.id) and self._receipts.ask_doubted(at, cid, status, reply):
            pass  # the senders have the certain part of the status, and get the rest when the store has decided
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
        log, began = self._log, self._clock.now()
        record = log.record(cid, role, type, payload, Status.STORED if deliver else Status.COMPLETE)
        marks = () if answers is None else ((answers.seq, Status.ANSWERED),)
        refusable = type not in ANSWER_RECORDS
        if not log.append(record, marks, self._on_outcome, record, answers, began, refusable=refusable):
            return False
        crash_points.reached("message.put")
        self._replies[cid] = [reply]
        if deliver:
            line = chat_frames.delivered_line(record)
            steers = chat_frames.steers(payload)
            entry = WindowEntry(record.seq, cid, line, began, type, steers=steers, created_at=record.created_at)
            self._delivery.window.admit(entry)
        return True

    def _on_outcome(self, outcome: Outcome, record: Record, answers: Record | None, began: float) -> None:
        if isinstance(outcome, Stored | Spooled):
            self._metrics.message_seconds.observe(self._clock.now() - began)
            replies = self._replies.pop(record.cid, [])
            if not self._replies:
                self._replies.clear()  # frees the memory that the dict has grown to
            self._durable(record, answers, replies, outcome)
        else:
            self._came_to_nothing(outcome, record, answers)
        self._delivery.pump()
        self._delivery.watch_expiry()
        if self._early is not None:
            self._catch_up(self._early)

    def _durable(self, record: Record, answers: Record | None, replies: list[Reply], outcome: Stored | Spooled) -> None:
        if isinstance(outcome, Stored):
            accepted = Accepted(record.seq, record.status)
            for reply in replies:
                reply(accepted)
        else:
            self._receipts.accept(record, replies, answers=answers)
        self._log.publish(record)
        if isinstance(outcome, Stored):
            self._delivery.window.stored(record.seq)
        elif outcome.unique or self._log.sequence.complete:
            self._delivery.window.accepted(record.seq)

    def _came_to_nothing(
        self, outcome: Duplicate | Dead | Fenced | Rejected, record: Record, answers: Record | None
    ) -> None:
        if isinstance(outcome, Fenced):
            give_up(self._log.id, outcome)
        replies = self._replies.pop(record.cid, [])
        match outcome:
            case Rejected(reason):
                _refuse(replies, reason)
                give_up(self._log.id, outcome)
            case Duplicate(first):
                self._log.note_durable(record.seq)
                self._delivery.window.withdraw(record.seq)
                for reply in replies:
                    self._ask_present_status(record.cid, reply, first)
            case Dead(reason):
                _refuse(replies, reason)
                self._log.publish(rejected_marker(record, reason))
                self._died(record.seq, record.cid, answers)

    # -- the store's decisions ----------------------------------------------------------------------------------------

    def settled(self, seq: int, outcome: Outcome) -> None:
        """The store has decided about a record that was durable here first. Decisions arrive in seq order, perhaps
        twice."""
        self._early = {} if self._early is None else self._early
        self._early[seq] = outcome
        self._catch_up(self._early)

    def _catch_up(self, early: dict[int, Outcome]) -> None:
        """Apply the store's decisions. The store may be faster than the queue, which reports what is durable here."""
        for seq in sorted(early):
            if seq <= self._log.last_durable:
                self._settle(seq, early.pop(seq))
        self._early = early or None

    def _settle(self, seq: int, outcome: Outcome) -> None:
        stored, record = self._receipts.settle(seq)
        for earlier in stored:
            self._delivery.window.stored(earlier.seq)
            earlier.tell(Accepted(earlier.seq, earlier.status))
        if record is None:  # no reply waits. Most often this is an answer of the agent, and its cid is slow to find
            record = Unsettled(seq, "" if isinstance(outcome, Stored) else self._log.sequence.cid_of(seq) or "")
        match outcome:
            case Fenced():
                record.tell(
                    MessageRefused("rejected", "another gateway has the session, and went on without this record")
                )
                give_up(self._log.id, outcome)
            case Rejected(reason):
                record.tell(MessageRefused("rejected", one_line(reason)))
                give_up(self._log.id, outcome)
            case Dead(reason):
                record.tell(MessageRefused("rejected", one_line(reason)))
                self._died(seq, record.cid, record.answers)
            case Duplicate(first):
                self._delivery.window.recall(seq)
                for reply in record.replies:
                    self._ask_present_status(record.cid, reply, first)
            case _:
                self._delivery.window.stored(seq)
                record.tell(Accepted(seq, record.status))
        self._delivery.pump()
        self._delivery.watch_expiry()

    def _died(self, seq: int, cid: str, answers: Record | None) -> None:
        """The store will never have this record, so its cid sent again makes a new record. The agent keeps what it was
        given."""
        self._log.sequence.forget(cid, seq)
        if self._delivery.window.recall(seq) is not None and answers is not None:
            self._delivery.open_again(answers)


def _refuse(replies: Sequence[Reply], reason: str) -> None:
    refused = MessageRefused("rejected", one_line(reason))
    for reply in replies:
        reply(refused)
