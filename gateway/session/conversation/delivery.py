"""Delivery of durable messages to the agent, and the final status of those that never arrive.

The window (gateway/session/model/delivery_window.py) decides which messages may be sent and which have expired; this
module sends them, stores their status and reports it to viewers. `link` is the agent's link while there is one.

Two cores that belong to it are read elsewhere: `turns`, the open turns between users and agent, and `receipts`, how far
each record has come. Bounds: the window's.
"""

import math
from collections.abc import Callable, Iterable, Sequence

from gateway.agents.transcript import request_id_of
from gateway.limits.inbound_bytes import InboundBytes
from gateway.protocol import chat_frames
from gateway.session.conversation.log import SessionLog
from gateway.session.conversation.open_turns import OpenTurns
from gateway.session.conversation.receipts import Receipts
from gateway.session.model.delivery_window import DeliveryWindow, WindowEntry, WindowLimits
from gateway.session.model.ports import Publisher, SessionClock, Timer
from persistence import crash_points
from persistence.record import Loaded, Record, Status
from sandbox.ports.link import Link


class Delivery:
    __slots__ = (
        "_clock",
        "_expiry_timer",
        "_log",
        "_newest",
        "_noted",
        "_publisher",
        "changed",
        "link",
        "recalled",
        "receipts",
        "turns",
        "window",
    )

    def __init__(
        self,
        log: SessionLog,
        clock: SessionClock,
        publisher: Publisher,
        limits: WindowLimits,
        shared: InboundBytes,
        loaded: Loaded,
        unanswered: Sequence[Record],
        *,
        behind: bool,
    ) -> None:
        """`shared` counts the bytes in all windows of the session's user. `behind`: the store has yet to decide about
        records that are durable here."""
        self._log = log
        self._clock = clock
        self._publisher = publisher
        self._expiry_timer: Timer | None = None
        self.link: Link | None = None
        self.changed: Callable[[], None] | None = None  # called after a waiting message changes, if anybody asked
        self.recalled: Callable[[int], None]  # called when the bridge holds a record back
        self.window = DeliveryWindow(limits, shared)
        asked = {request_id_of(record.payload): record for record in loaded.open}
        owed = ((record.seq, record.cid, log.when(record.created_at)) for record in unanswered)
        self.turns = OpenTurns(owed, asked, log.state.answered, log.state.answered_ahead)
        self._noted = loaded.session.delivered  # every message up to this one was delivered, or never will be
        self._newest = max([self._noted, *(record.seq for record in unanswered)])  # seq of the newest delivered message
        self.receipts = Receipts(loaded.session.last_seq if behind else 0)
        ahead = clock.now() - clock.utcnow()
        extended = {seq: until + ahead for seq, until in log.state.extended}
        for record in loaded.waiting:
            line, since = chat_frames.delivered_line(record), log.when(record.created_at)
            entry = WindowEntry(record.seq, record.cid, line, since, record.type, durable=True, stored=not behind)
            entry.created_at, entry.until = record.created_at, extended.get(record.seq, -math.inf)
            # The gateway before this one may have sent it: only the bridge knows.
            entry.sent = log.state.taker is not None
            entry.given = entry.sent and not log.state.ended
            entry.steers = chat_frames.steers(record.payload)
            self.window.admit(entry)
        self.watch_expiry()

    # -- to the agent -------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Send every message that the window allows."""
        if (link := self.link) is not None:
            for entry in self.window.next_to_send():
                link.deliver(entry.seq, entry.line)
                crash_points.reached("deliver.sent")

    def connect(self) -> None:
        """The agent can be given lines: messages do not expire until it is away again."""
        self.window.connect()
        self._cancel_expiry()

    def disconnect(self) -> None:
        """The agent cannot be reached: the messages sent to it are unsure, and the age of the others begins to
        count."""
        self.window.disconnect(self._clock.now())

    def taken(self, seq: int) -> None:
        """The agent has every record up to `seq` that was sent."""
        self.delivered(self.window.taken(seq))

    def settle(self, taken: int) -> None:
        """The bridge has reported which of the sent messages it took."""
        self.delivered(self.window.settle(taken))
        if self.changed is not None:
            self.changed()

    def taken_unheard(self, answers: Sequence[int] | None) -> None:
        """The agent answers these messages, or the oldest one that was sent. So it has them, although their `taken` may
        arrive after the answer."""
        unsure = self.window.unsure()
        had = unsure[:1] if answers is None else [entry for entry in unsure if entry.seq in answers]
        for entry in had:
            self.window.withdraw(entry.seq)
        self.delivered(had)

    def delivered(self, entries: Sequence[WindowEntry]) -> None:
        if not entries:
            return
        crash_points.reached("deliver.taken")
        self._newest = max(self._newest, entries[-1].seq)
        oldest = self.window.oldest
        doubtful: list[int] = []
        for entry in entries:
            if entry.type == "message":
                self.turns.deliver(entry.seq, entry.cid, entry.since)
            self.receipts.note(entry.seq, Status.DELIVERED)
            if not entry.stored or (oldest is not None and entry.seq > oldest):
                doubtful.append(entry.seq)
            self._publisher.tell(chat_frames.delivered(entry.cid, entry.seq))
        self._note_delivered(doubtful)
        if self.changed is not None:
            self.changed()
        self.pump()

    def _note_delivered(self, marked: Sequence[int] = ()) -> None:
        """Store the seq up to which every message was delivered. The `marked` messages are stored one by one: they
        overtook a message that still waits, or the store may yet refuse them."""
        oldest = self.window.oldest
        up_to = self._newest if oldest is None or self._newest < oldest else oldest - 1
        if up_to > self._noted or marked:
            self._noted = max(self._noted, up_to)
            self._log.note_delivered(self._noted, marked)
        if self._log.state.extended and not len(self.window):
            self._log.save(extended=())

    # -- messages that do not arrive ----------------------------------------------------------------------------------

    def watch_expiry(self) -> None:
        """Set the timer for the next expiry, unless it is set."""
        if self._expiry_timer is None and (due := self.window.next_expiry()) is not None:
            self._expiry_timer = self._clock.call_at(due, self._expire)

    def _cancel_expiry(self) -> None:
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
            self._expiry_timer = None

    def _expire(self) -> None:
        self._expiry_timer = None
        self._mark(self.window.expire(self._clock.now()), Status.EXPIRED)
        self.watch_expiry()

    def forget_unsure(self) -> None:
        """The bridge that could report what it took is gone for good: the messages sent to it become `interrupted`."""
        unsure = self.window.unsure()
        for entry in unsure:
            self.window.withdraw(entry.seq)
        self._mark(unsure, Status.INTERRUPTED)

    def process_ended(self) -> list[tuple[int, str]]:
        """The agent process is gone. Remove and return the steering messages that it may have been given ahead of a
        waiting message: no one can find out whether it got them. The fate of every other message is known."""
        passed: list[WindowEntry] = []
        waits = False
        for entry in self.window:
            if entry.given and entry.steers and waits and not entry.held:
                passed.append(entry)
            waits |= not entry.steers
            entry.given = False
        for entry in passed:
            self.window.withdraw(entry.seq)
        if passed and self.changed is not None:
            self.changed()
        return [(entry.seq, entry.cid) for entry in passed]

    def discard_window(self) -> None:
        """The session ends: nothing that waits will be delivered."""
        self._mark((entry for entry in self.window.clear() if not entry.held), Status.INTERRUPTED)

    def gone(self) -> None:
        """An entry has left the window: send the messages that waited behind it."""
        self._note_delivered()
        self.pump()
        self.watch_expiry()

    def _mark(self, entries: Iterable[WindowEntry], status: Status) -> None:
        self._mark_all([(entry.seq, entry.cid) for entry in entries], status)
        if self.changed is not None:
            self.changed()

    def interrupted(self, messages: Sequence[tuple[int, str]], reason: str) -> None:
        """Mark delivered messages that will not be answered."""
        self._mark_all(messages, Status.INTERRUPTED, reason)

    def _mark_all(self, messages: Sequence[tuple[int, str]], status: Status, reason: str | None = None) -> None:
        """Give records their last status, and report it to viewers once it is durable."""
        if messages:
            self._note_delivered()
            marks = tuple((seq, status) for seq, _ in messages)
            self._log.write(self.tell_marked, messages, status, reason, marks=marks)

    def tell_marked(self, messages: Sequence[tuple[int, str]], status: Status, reason: str | None) -> None:
        """Report that these records have their last status; it is durable."""
        for seq, cid in messages:
            self.receipts.note(seq, status)
            self._publisher.tell(chat_frames.dump(str(status), cid=cid, seq=seq, reason=reason))

    def open_again(self, request: Record) -> None:
        """The store refused the answer to a permission or a question. If the process that asked still runs, the request
        is open again and may be answered by another viewer."""
        state = self._log.state
        if request.cid.startswith(f"agent:{state.epoch}:") and not state.ended:
            self.turns.open_again(request_id_of(request.payload), request)
            self._log.write(marks=((request.seq, Status.OPEN),))

    def close(self) -> None:
        self.window.close()
        self._cancel_expiry()
