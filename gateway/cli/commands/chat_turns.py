"""Tracks the messages of a chat that have no answer yet. Pure."""

from collections.abc import Collection


class ChatTurns:
    """A `done` answers the messages that it names, or else the oldest of the session, from any sender."""

    def __init__(self) -> None:
        self._mine: set[str] = set()  # sent from here, not settled
        self._asked: dict[int, str] = {}  # seq -> cid, stored and unanswered
        self._newest = 0  # highest seq noted: an ack and a record may report the same message
        self._newest_answer = 0  # likewise of answers: a `done` and the history may report the same one

    @property
    def waiting(self) -> bool:
        """True if a message sent from here may still be answered."""
        return bool(self._mine)

    def sent(self, cid: str) -> None:
        self._mine.add(cid)

    def expects(self, cid: str) -> bool:
        return cid in self._mine

    def asked(self, seq: int, cid: str) -> None:
        if seq > self._newest:
            self._newest = seq
            self._asked[seq] = cid

    def answered(self, seq: int, named: Collection[int] | None = None) -> None:
        """The answer stored as `seq` is complete, and answers the messages `named`; None: the oldest."""
        if seq <= self._newest_answer:
            return
        self._newest_answer = seq
        oldest = [min(self._asked)] if self._asked else []
        for each in oldest if named is None else named:
            self._mine.discard(self._asked.pop(each, ""))

    def dropped(self, cid: str) -> None:
        """The message will not be answered: refused, expired, cancelled, interrupted. Reported twice, it counts
        once."""
        self._mine.discard(cid)
        self._asked = {seq: other for seq, other in self._asked.items() if other != cid}
