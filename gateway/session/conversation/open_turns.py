"""What the agent owes its users, and its users owe the agent. Pure.

A delivered message is owed an answer until a `done` comes; each `done` answers the oldest. A permission or a question
is open until the first answer; the second is told that it came too late. When the agent process ends, nobody owes
anybody anything any more: what was open is named once, and gone. An agent that asks without end has its oldest requests
expire: at most `MOST_OPEN` of `OPEN_BYTES` are open, or one of any size.
"""

from collections.abc import Iterable

from persistence.record import Record

MOST_OPEN = 100
OPEN_BYTES = 1 << 20
MOST_UNANSWERED = 10_000
REMEMBERED = 1000  # answered requests, so that a late answer hears `already_answered`


class OpenTurns:
    __slots__ = ("_answered", "_open", "_open_bytes", "_unanswered")

    def __init__(self, unanswered: Iterable[tuple[int, str, float]], open_requests: dict[str, Record]) -> None:
        self._unanswered = list(unanswered)  # (seq, cid, since when its sender waits); few, most often none
        self._open = dict(open_requests)
        self._open_bytes = sum(len(record.payload) for record in open_requests.values())
        self._answered: dict[str, None] = {}

    @property
    def unanswered(self) -> int:
        return len(self._unanswered)

    @property
    def open(self) -> list[Record]:
        return list(self._open.values())

    def deliver(self, seq: int, cid: str, since: float) -> None:
        self._unanswered.append((seq, cid, since))
        # An agent that never says `done` would otherwise be owed answers for ever; the oldest are let go.
        del self._unanswered[:-MOST_UNANSWERED]

    def done(self) -> tuple[int, float] | None:
        """Return the seq of the message that this `done` answers, and since when its sender waits."""
        if not self._unanswered:
            return None
        seq, _, since = self._unanswered.pop(0)
        return seq, since

    def ask(self, request_id: str, record: Record) -> list[Record]:
        """A request is open; return those that no longer are. Asked again, its newest record is the one to answer."""
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

    def answer(self, request_id: str, type: str) -> Record | str:
        """Close the request and return its record, or the reason why it cannot be answered."""
        record = self._open.get(request_id)
        if record is None or record.type != type:
            return "already_answered" if request_id in self._answered else "unknown_request"
        self._close(request_id)
        self._answered[request_id] = None
        if len(self._answered) > REMEMBERED:
            del self._answered[next(iter(self._answered))]
        return record

    def open_again(self, request_id: str, record: Record) -> None:
        """Its answer came to nothing."""
        if self._answered.pop(request_id, 0) is None:
            self._open[request_id] = record
            self._open_bytes += len(record.payload)

    def end(self, taken: int | None) -> tuple[list[tuple[int, str]], dict[str, Record]]:
        """The process is gone: return what it did not answer, and what it still wanted to know. Messages above `taken`
        were never its own (None: all were): another process has them, and owes their answers."""
        gone = [(seq, cid) for seq, cid, _ in self._unanswered if taken is None or seq <= taken]
        del self._unanswered[: len(gone)]
        open_requests, self._open, self._open_bytes = self._open, {}, 0
        return gone, open_requests
