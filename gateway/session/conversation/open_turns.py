"""Open turns: the answers that the agent owes its users, and the answers that users owe the agent. Pure.

A delivered message is owed an answer until a `done` comes; each `done` answers the oldest, or the messages that it
names. One number, `answered`, records the progress: every message up to it has had its `done`. Messages above it that
were answered out of order are `ahead` of it.

A permission or a question is open until the first answer, or until the agent withdraws it; a later answer is refused as
too late. When the agent process ends, all debts end with it: `end` returns the open ones once and forgets them. An
agent that asks without end has its oldest requests expire: at most `MOST_OPEN` of `OPEN_BYTES` are open, or one of any
size.
"""

from bisect import insort
from collections.abc import Iterable, Sequence

from persistence.record import Record

MOST_OPEN = 100
OPEN_BYTES = 1 << 20
MOST_UNANSWERED = 10_000
MOST_AHEAD = 1000  # they are stored with the session's state; beyond, the oldest count as not answered after a restart
REMEMBERED = 1000  # answered and withdrawn requests, so that a late answer is refused with `already_answered`


class OpenTurns:
    __slots__ = ("_answered", "_open", "_open_bytes", "_unanswered", "ahead", "answered")

    def __init__(
        self,
        unanswered: Iterable[tuple[int, str, float]],
        open_requests: dict[str, Record],
        answered: int = 0,
        ahead: Iterable[int] = (),
    ) -> None:
        self.answered = answered
        self.ahead = tuple(ahead)
        # (seq, cid, since when its sender waits), by seq; few, most often none
        self._unanswered = [each for each in unanswered if each[0] not in self.ahead]
        self._open = dict(open_requests)
        self._open_bytes = sum(len(record.payload) for record in open_requests.values())
        self._answered: dict[str, bool] = {}  # by request id: True if the agent has withdrawn it

    @property
    def unanswered(self) -> int:
        return len(self._unanswered)

    @property
    def open(self) -> list[Record]:
        return list(self._open.values())

    def deliver(self, seq: int, cid: str, since: float) -> None:
        if self._unanswered and seq < self._unanswered[-1][0]:  # the last one overtook it
            insort(self._unanswered, (seq, cid, since))
        else:
            self._unanswered.append((seq, cid, since))
        # An agent that never says `done` would otherwise be owed answers for ever: the oldest are dropped.
        del self._unanswered[:-MOST_UNANSWERED]

    def done(self, answers: Sequence[int] | None = None, waiting: int | None = None) -> float | None:
        """A `done` answers these messages, or the oldest. Return the time since which the first of their senders waits;
        None if no message was answered. `waiting` is the oldest message that the agent does not have yet."""
        if answers is None:
            now, self._unanswered[:1] = self._unanswered[:1], []
        else:
            named = set(answers)
            now = [each for each in self._unanswered if each[0] in named]
            self._unanswered = [each for each in self._unanswered if each[0] not in named]
        if not now:
            return None
        self._note_answered([seq for seq, _, _ in now], waiting)
        return min(since for _, _, since in now)

    def _note_answered(self, seqs: Sequence[int], waiting: int | None) -> None:
        first = self._unanswered[0][0] if self._unanswered else None
        owed = [seq for seq in (first, waiting) if seq is not None]
        had = sorted({*self.ahead, *seqs})
        before = [seq for seq in had if not owed or seq < min(owed)]
        self.answered = max(self.answered, *before[-1:], 0)
        self.ahead = tuple(had[len(before) :][-MOST_AHEAD:])

    def ask(self, request_id: str, record: Record) -> list[Record]:
        """Open a request and return the requests that this closes. A request that is asked again is answered by its
        newest record."""
        gone = [self._close(request_id)] if request_id in self._open else []
        self._open[request_id] = record
        self._open_bytes += len(record.payload)
        self._answered.pop(request_id, None)
        while len(self._open) > 1 and (len(self._open) > MOST_OPEN or self._open_bytes > OPEN_BYTES):
            gone.append(self._close(next(iter(self._open))))
        return gone

    def _close(self, request_id: str) -> Record:
        record = self._open.pop(request_id)
        self._open_bytes -= len(record.payload)
        return record

    def withdraw(self, request_id: str) -> Record | None:
        """The agent withdraws a request: close it and return its record, if it is open. A later answer is too late."""
        if request_id in self._open:
            self._remember(request_id, withdrawn=True)
            return self._close(request_id)
        if request_id in self._answered:  # if the store refuses its answer, the request must not open again
            self._answered[request_id] = True
        return None

    def answer(self, request_id: str, type: str) -> Record | str:
        """Close the request and return its record, or the reason why it cannot be answered."""
        record = self._open.get(request_id)
        if record is None or record.type != type:
            return "already_answered" if request_id in self._answered else "unknown_request"
        self._remember(request_id, withdrawn=False)
        return self._close(request_id)

    def _remember(self, request_id: str, *, withdrawn: bool) -> None:
        self._answered[request_id] = withdrawn
        if len(self._answered) > REMEMBERED:
            del self._answered[next(iter(self._answered))]

    def open_again(self, request_id: str, record: Record) -> None:
        """The store refused the answer: open the request again, unless the agent has withdrawn it since."""
        if self._answered.get(request_id) is False:
            del self._answered[request_id]
            self._open[request_id] = record
            self._open_bytes += len(record.payload)

    def end(self, taken: int | None) -> tuple[list[tuple[int, str]], dict[str, Record]]:
        """The process is gone: return the messages that it did not answer, and the requests that it still had open.
        Messages above `taken` were never given to it (None: all were): another process has them, and owes their
        answers."""
        gone = [(seq, cid) for seq, cid, _ in self._unanswered if taken is None or seq <= taken]
        del self._unanswered[: len(gone)]
        open_requests, self._open, self._open_bytes = self._open, {}, 0
        return gone, open_requests
