"""A chat client's knowledge of a session: its unsettled messages and its position. Pure: frames and the time go in,
frames to send come out, and `take` returns the outcome of sent messages.

The browser's client has the same rules (`web/client/src/conversation.ts`), and `tests/vectors/` holds both to them. A
frame with a `cid` is an *item* until it is settled:

    queued -> sent -> (accepted ->) stored     it is watched until the agent has it
                   -> refused | expired        it is over
                   -> cancelled                it is over, by request

Nothing is sent before `welcome`. On every new connection all unsettled items are sent again, oldest first, each with
its first cid: the gateway knows which it has. Watched items are sent again, too, for a receipt may have been missed.

Temporary refusals are tried again here: `owner_moved` on the next connection, `storage_unavailable` and `busy` after a
pause, up to TRIES times; meanwhile no younger item goes out. Every other reason is final for the item.

Each agent frame is shown once: `offset` is the last one of `epoch`. Bounds: MOST_ITEMS and MOST_BYTES unsettled,
MOST_WATCHED beside them.
"""

import json
from dataclasses import dataclass
from typing import Any, Literal

from gateway.protocol.nacks import SendAgain, again
from gateway.protocol.reconnect import FIRST_PAUSE, LONGEST_PAUSE

MOST_ITEMS = 500
MOST_BYTES = 4 << 20
LONGEST_FRAME = 1 << 20
MOST_WATCHED = 1000
TRIES = 6
_AGAIN_FIRST = 4  # a busy gateway is given seconds, not milliseconds: the exponent to begin with
_AGAIN_LEAST = 0.5
_CID_BYTES = 160
_CANCELLED = "cancelled"

Stage = Literal["queued", "sent", "accepted", "stored", "over"]


@dataclass(frozen=True, slots=True)
class Fate:
    """The outcome of an item. With `seq` and a `code`: it is stored, and will not be delivered."""

    cid: str
    to: Literal["stored", "delivered", "failed"]
    seq: int | None = None
    code: str = ""
    error: str = ""


@dataclass(slots=True)
class OwedItem:
    cid: str
    frame: dict[str, Any]
    bytes: int
    stage: Stage = "queued"
    unsent: bool = True
    tries: int = 0
    known: bool = False  # its delivery or final status has been reported


class ClientConversation:
    def __init__(self) -> None:
        self.epoch = ""
        self.offset = 0
        self.hold: float | None = None  # nothing is sent before this time
        self._items: dict[str, OwedItem] = {}  # by cid, in sending order
        self._watched: dict[str, OwedItem] = {}  # stored, and not known to be delivered
        self._bytes = 0
        self._fates: list[Fate] = []

    @property
    def unsettled(self) -> int:
        """The number of frames that are not known to be durable."""
        return sum(item.stage != "accepted" for item in self._items.values())

    def owes(self, cid: str) -> bool:
        """True if the item is on its way, or watched. If it still is after a nack, the nack was not final."""
        return cid in self._items or cid in self._watched

    def take(self) -> list[Fate]:
        """The outcomes since the last call."""
        fates, self._fates = self._fates, []
        return fates

    def offer(self, frame: dict[str, Any], cid: str) -> str | None:
        """Take a frame that must arrive. Returns the reason if it cannot be taken."""
        size = len(spelled(frame).encode()) + _CID_BYTES
        if size > LONGEST_FRAME:
            return "too_long"
        if len(self._items) >= MOST_ITEMS or self._bytes + size > MOST_BYTES:
            return "outbox_full"
        if self.owes(cid):
            return "invalid"
        self._items[cid] = OwedItem(cid, frame, size)
        self._bytes += size
        return None

    # the connection

    def position(self) -> dict[str, str]:
        """The URL parameters with which the gateway resumes from here."""
        return {"epoch": self.epoch, "offset": str(self.offset)} if self.epoch else {}

    def connected(self) -> None:
        """A connection was welcomed: all unsettled items have to be sent on it."""
        self.hold = None
        for item in (*self._watched.values(), *self._items.values()):
            item.unsent = True

    def next(self, now: float) -> dict[str, Any] | None:
        """The next frame to send, oldest first."""
        if self.hold is not None and now < self.hold:
            return None
        self.hold = None
        for item in (*self._watched.values(), *self._items.values()):
            if item.unsent:
                item.unsent = False
                if item.stage == "queued":
                    item.stage = "sent"
                return {**item.frame, "cid": item.cid}
        return None

    def too_long(self) -> str | None:
        """The connection ended because a frame was too long: it can only have been the longest one, whose cid this
        returns. None if none was sent."""
        sent = [item for item in self._items.values() if item.stage == "sent" and not item.unsent]
        if not sent:
            return None
        longest = max(sent, key=lambda item: item.bytes)
        self._refuse(longest, "too_long", "longer than the gateway takes")
        return longest.cid

    # received frames

    def heard(self, frame: dict[str, Any], now: float, random: float) -> bool:
        """Process a frame; False if it is a repetition, or unreadable, and must not be shown. `random` is in [0, 1)."""
        cid, seq = frame.get("cid"), frame.get("seq")
        if frame.get("type") == "welcome":
            self.epoch = _words(frame.get("epoch"))
            self.offset = frame["offset"] if _is_count(frame.get("offset")) else 0
        elif "_offset" in frame:
            offset = frame["_offset"]
            if not _is_count(offset) or offset <= self.offset:
                return False
            self.offset = offset
        elif isinstance(cid, str) and (item := self._items.get(cid) or self._watched.get(cid)) is not None:
            if frame.get("type") == "nack":
                self._nacked(item, _words(frame.get("reason")), _words(frame.get("error")), now, random)
            elif isinstance(seq, int) and _is_count(seq):
                self._moved(item, frame, seq)
        return True

    def _moved(self, item: OwedItem, frame: dict[str, Any], seq: int) -> None:
        match frame.get("type"):
            case "ack":
                if frame.get("stage") == "accepted":
                    item.stage = "accepted" if item.stage in ("queued", "sent") else item.stage
                elif item.cid in self._items:
                    self._fates.append(Fate(item.cid, "stored", seq))
                    self._remove(item, "stored")
                    if not item.known:
                        self._watch(item)
                self._became(item, _words(frame.get("status")), seq)
            case "receipt":
                self._became(item, "delivered", seq)
            case "expired" | "interrupted" as kind:
                self._became(item, _CANCELLED if frame.get("reason") == _CANCELLED else kind, seq)

    def _became(self, item: OwedItem, status: str, seq: int) -> None:
        """The record has this status now."""
        if item.known or status not in ("delivered", "interrupted", "expired", _CANCELLED):
            return
        item.known = True
        delivered = status == "delivered"
        self._fates.append(Fate(item.cid, "delivered", seq) if delivered else Fate(item.cid, "failed", seq, status))
        self._watched.pop(item.cid, None)
        if not delivered and item.cid in self._items:
            self._remove(item, "over")

    def _nacked(self, item: OwedItem, reason: str, error: str, now: float, random: float) -> None:
        if item.cid in self._watched:
            if reason == "rejected":
                del self._watched[item.cid]
                self._fates.append(Fate(item.cid, "failed", code=reason, error=error))
            return  # it is stored; only its later status is unknown
        how = again(reason)
        if how is SendAgain.CONNECTED:
            return  # close code 4409 follows
        if how is SendAgain.PAUSED and item.tries < TRIES:
            share = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (_AGAIN_FIRST + item.tries))
            self.hold = now + _AGAIN_LEAST + random * share
            item.tries += 1
            item.unsent = True
        else:
            self._refuse(item, reason or "refused", error)

    def _refuse(self, item: OwedItem, reason: str, error: str) -> None:
        self._fates.append(Fate(item.cid, "failed", code=reason, error=error))
        self._remove(item, "over")

    def _watch(self, item: OwedItem) -> None:
        self._watched[item.cid] = item
        while len(self._watched) > MOST_WATCHED:
            del self._watched[next(iter(self._watched))]

    def _remove(self, item: OwedItem, stage: Stage) -> None:
        del self._items[item.cid]
        self._bytes -= item.bytes
        item.stage = stage
        item.unsent = False


def spelled(frame: dict[str, Any]) -> str:
    """The frame as it is sent. Half a surrogate pair, which no WebSocket carries, becomes a question mark."""
    return json.dumps(frame, ensure_ascii=False, separators=(",", ":")).encode(errors="replace").decode()


def _words(value: object) -> str:
    return value if isinstance(value, str) else ""


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0
