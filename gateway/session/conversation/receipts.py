"""How far each record has come, and which senders still wait for the store's decision on it. Pure.

A record is *accepted* when it is durable on this node, and *stored* when it is where it is kept in the end. Where that
is one step, its sender gets `stored` only. Where the store follows, its sender gets `accepted` first, and later one
final answer: `stored`, or the reason why it never will be. Until then the record is *unsettled*.

The store decides in seq order, so a decision about one record settles all before it. A session that was loaded while
the store was behind does not know which of its records are settled: those up to `doubtful` may be unsettled until the
store decides about one. The same holds for a session whose store is behind by more records than are kept here.

Never: `stored` before the store has decided so, a second final answer, `accepted` after it. Bounds: `UNSETTLED`
records, and as many again that were asked about in doubt; `LISTENERS` replies for each. Above the first bound the
oldest record is dropped: its senders get no final answer, and learn its status when they send it again. Answers to the
agent's requests are not dropped: each is needed to open its request again.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum

import msgspec

from persistence.record import Record, Status

LISTENERS = 32
UNSETTLED = 10_000
REASON_LENGTH = 300


class Stage(StrEnum):
    ACCEPTED = "accepted"
    STORED = "stored"


class Accepted(msgspec.Struct, frozen=True, gc=False):
    seq: int
    status: str | None = Status.STORED  # None: trimmed away since, or the store is away
    stage: Stage = Stage.STORED


class MessageRefused(msgspec.Struct, frozen=True, gc=False):
    reason: str
    text: str | None = None


Reply = Callable[[Accepted | MessageRefused], None]


class Unsettled(msgspec.Struct):
    """A record whose senders wait for the final answer."""

    seq: int
    cid: str
    status: str = Status.STORED
    answers: Record | None = None  # the request it answers, if it is an answer
    replies: list[Reply] = []  # the newest

    def tell(self, word: Accepted | MessageRefused) -> None:
        for reply in self.replies:
            reply(word)


class Receipts:
    __slots__ = ("_doubted", "_doubtful", "_settled", "_waiting")

    def __init__(self, doubtful: int) -> None:
        self._doubtful = doubtful
        self._settled = 0
        self._waiting: dict[int, Unsettled] = {}  # in seq order
        self._doubted: dict[int, Unsettled] | None = None  # asked about, not known to wait; most often none

    def __len__(self) -> int:
        return len(self._waiting) + len(self._doubted or ())

    def accept(self, record: Record, replies: Iterable[Reply], *, answers: Record | None = None) -> None:
        """The record is durable here: acknowledge it, and note the senders who get the final answer."""
        unsettled = self._waiting[record.seq] = Unsettled(record.seq, record.cid, record.status, answers)
        for reply in replies:
            self._promise(unsettled, reply)
        if len(self._waiting) > UNSETTLED:
            self._let_go()

    def _let_go(self) -> None:
        oldest = next((record.seq for record in self._waiting.values() if record.answers is None), None)
        if oldest is not None:
            del self._waiting[oldest]
            self._doubtful = max(self._doubtful, oldest)

    def ask(self, seq: int, reply: Reply) -> bool:
        """A sender repeats a record. If it is known to be unsettled, acknowledge it as accepted, promise the final
        answer too, and return True."""
        record = self._waiting.get(seq)
        if record is not None:
            self._promise(record, reply)
        return record is not None

    def ask_doubted(self, seq: int, cid: str, status: str, reply: Reply) -> bool:
        """The same where the store was asked and is behind: also for a record that only may be unsettled."""
        if self.ask(seq, reply):
            return True
        doubted = self._settled < seq <= self._doubtful
        if doubted:
            self._doubted = self._doubted or {}
            self._promise(self._doubted.setdefault(seq, Unsettled(seq, cid, status)), reply)
            if len(self._doubted) > UNSETTLED:
                del self._doubted[next(iter(self._doubted))]
        return doubted

    def _promise(self, record: Unsettled, reply: Reply) -> None:
        record.replies = [*record.replies[-LISTENERS + 1 :], reply]
        reply(Accepted(record.seq, record.status, Stage.ACCEPTED))

    def note(self, seq: int, status: str) -> None:
        """Change a record's status; senders get it with the final answer."""
        if record := self._waiting.get(seq):
            record.status = status

    def settle(self, seq: int) -> tuple[list[Unsettled], Unsettled | None]:
        """The store has decided about `seq`. Return the records that waited before it, which are stored, and the one at
        `seq`."""
        self._settled = max(self._settled, seq)
        doubted = self._doubted or {}
        before = [doubted.pop(earlier) for earlier in sorted(doubted) if earlier < seq]
        while self._waiting and (earlier := next(iter(self._waiting))) < seq:
            before.append(self._waiting.pop(earlier))
        decided = self._waiting.pop(seq, None) or doubted.pop(seq, None)
        self._doubted = doubted or None
        return before, decided


def one_line(reason: str) -> str:
    """The store's reason for refusing a record, short and printable, for its sender."""
    words = " ".join(reason.split())
    shown = "".join(char if char.isprintable() else "?" for char in words)
    return shown if len(shown) <= REASON_LENGTH else shown[: REASON_LENGTH - 1] + "…"
