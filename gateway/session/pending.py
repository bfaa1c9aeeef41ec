"""Messages that the agent does not have yet: listed, cancelled, given more time.

A message may be cancelled until the agent has it. While it waits here, cancelling it is a mark. Where it is in the
bridge's queue, or on its way there, the bridge is asked to hold it back; the agent does not get a message that is held
back. Either way no later message goes further until the mark is durable (delivery_window.py says why); then viewers get
the new status, the request is answered, and the bridge goes on behind the message.

A request gets `not_pending` if the agent took the message first, or if it left the window in another way. While the
link is away, the outcome is unknown: the request waits until the bridge reports what it took. A cancellation goes on
even if no request waits for its answer any more. A crash of the gateway forgets it, unless the mark is durable: the
message is delivered.

A message that waits for its sandbox may be given more time than others. Bounds: `MOST_EXTENDED` of them.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import orjson

from gateway.agents.transcript import ANSWER_RECORDS
from gateway.protocol import chat_frames
from gateway.protocol.errors import ApiError
from gateway.session.asks import Asks
from gateway.session.conversation.delivery import Delivery
from gateway.session.conversation.log import SessionLog
from gateway.session.conversation.replies import not_known
from gateway.session.model.delivery_window import WindowEntry
from gateway.session.model.ports import Host, Publisher
from persistence.record import Status
from persistence.record_json import content_of, iso, metadata_of

SHOWN_BYTES = 1 << 20  # of content in one list; messages beyond it are listed without
MOST_EXTENDED = 100


class PendingMessages:
    __slots__ = ("_asked", "_asks", "_delivery", "_host", "_log", "_publisher")

    def __init__(self, log: SessionLog, delivery: Delivery, publisher: Publisher, host: Host, asks: Asks) -> None:
        self._log = log
        self._delivery = delivery
        self._publisher = publisher
        self._host = host
        self._asks = asks
        self._asked: dict[int, list[int]] = {}  # cancellations under way, by seq: the requests that wait
        delivery.recalled = self.recalled

    def listed(self) -> list[dict[str, Any]]:
        """The waiting messages, in order."""
        room, shown = SHOWN_BYTES, []
        for entry in self._delivery.window:
            if entry.durable and entry.type not in ANSWER_RECORDS:
                room -= len(entry.line)
                shown.append(self._shown(entry, omitted=room < 0))
        return shown

    def _shown(self, entry: WindowEntry, status: Status = Status.STORED, *, omitted: bool = False) -> dict[str, Any]:
        expires = self._delivery.window.expires_at(entry)
        if omitted:
            said: dict[str, Any] = {"content": None, "metadata": {}, "omitted": True}
        elif entry.type == "raw":
            said = {"content": entry.line.decode(errors="replace"), "metadata": {}}
        else:
            frame = orjson.loads(entry.line)
            del frame["seq"]
            said = {"content": content_of(frame), "metadata": metadata_of(frame)}
        return {
            "seq": entry.seq,
            "cid": entry.cid,
            "type": entry.type,
            **said,
            "createdAt": iso(entry.created_at),
            "status": str(status),
            "inSandbox": entry.sent,
            "expiresAt": None if expires is None else iso(self._host.utcnow() + expires - self._host.now()),
        }

    # -- asked over HTTP ----------------------------------------------------------------------------------------------

    async def cancel(self, seq: int) -> dict[str, Any]:
        """Cancel a message that the agent does not have; return the message as it waited. Raises ApiError."""
        return await self._in_time(self._asks.have(self._host.post, self.cancel_asked, seq))

    async def extend(self, seq: int, seconds: float) -> dict[str, Any]:
        """Let a message wait longer for its sandbox; return the message as it waits now. Raises ApiError."""
        return await self._in_time(self._asks.have(self._host.post, self.extend_asked, seq, seconds))

    async def _in_time(self, asked: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
        try:
            async with asyncio.timeout(self._host.limits.durable_seconds):
                return await asked
        except TimeoutError:
            raise not_known() from None

    # -- cancelled ----------------------------------------------------------------------------------------------------

    def cancel_asked(self, ask: int, seq: int) -> None:
        """Cancel a message. `ask` is answered when that is durable, or refused when the agent has the message."""
        self._log.touch()
        entry = self._pending(ask, seq)
        if entry is None:
            return
        link = self._delivery.link
        if entry.sent and not entry.held and link is not None and not link.recall(seq):
            self._refuse([ask], seq)
            return
        self._asked.setdefault(seq, []).append(ask)
        self._delivery.changed = self._look_again
        self._look_again()

    def recalled(self, seq: int) -> None:
        """The bridge holds the message back."""
        entry, link = self._delivery.window.find(seq), self._delivery.link
        if entry is None and link is not None:
            link.drop(seq)  # the agent has it already: otherwise later messages would wait for ever
        elif entry is not None and seq in self._asked and not entry.held:
            self._hold(entry)

    def _look_again(self) -> None:
        """An entry has left the window, or the bridge has reported which messages it took."""
        for seq in list(self._asked):
            entry = self._delivery.window.find(seq)
            if entry is None:
                self._refuse(self._forget(seq), seq)
            elif not (entry.sent or entry.held):
                self._hold(entry)

    def _hold(self, entry: WindowEntry) -> None:
        entry.held = True
        self._log.write(self._cancelled, entry.seq, marks=((entry.seq, Status.CANCELLED),))

    def _cancelled(self, seq: int) -> None:
        entry = self._delivery.window.withdraw(seq)
        if entry is None:  # the session is deleted, or the store never takes the record
            self._refuse(self._forget(seq), seq)
            return
        shown = self._shown(entry, Status.CANCELLED)
        if (link := self._delivery.link) is not None:
            link.drop(seq)
        self._delivery.receipts.note(seq, Status.CANCELLED)
        self._publisher.tell(chat_frames.dump("expired", cid=entry.cid, seq=seq, reason="cancelled"))
        for ask in self._forget(seq):
            self._asks.answer(ask, shown)
        self._delivery.gone()

    def _forget(self, seq: int) -> list[int]:
        asks = self._asked.pop(seq, [])
        if not self._asked:
            self._delivery.changed = None
        return asks

    # -- given more time ----------------------------------------------------------------------------------------------

    def extend_asked(self, ask: int, seq: int, seconds: float) -> None:
        """Let a message wait for its sandbox at least so long from now on. `ask` is answered when that is durable."""
        self._log.touch()
        entry = self._pending(ask, seq)
        if entry is None:
            return
        window, utc = self._delivery.window, self._host.utcnow()
        still = {seq: until for seq, until in self._log.state.extended if window.find(seq) is not None}
        if len(still) >= MOST_EXTENDED and seq not in still:
            told = f"{MOST_EXTENDED} messages of this session have been extended already: cancel one, or wait"
            self._asks.refuse(ask, ApiError(409, "too_many_extended", told))
            return
        still[seq] = max(utc + seconds, still.get(seq, 0.0))
        entry.until = max(entry.until, self._host.now() + seconds)
        self._log.write(self._extended, ask, seq, state=self._log.next_state(extended=tuple(still.items())))
        self._delivery.watch_expiry()

    def _extended(self, ask: int, seq: int) -> None:
        entry = self._delivery.window.find(seq)
        if entry is None:
            self._refuse([ask], seq)
        else:
            self._asks.answer(ask, self._shown(entry))

    # -- refusals -----------------------------------------------------------------------------------------------------

    def _pending(self, ask: int, seq: int) -> WindowEntry | None:
        entry = self._delivery.window.find(seq)
        if entry is not None and entry.durable and entry.type not in ANSWER_RECORDS:
            return entry
        if not 0 < seq <= self._log.last_durable:
            self._asks.refuse(ask, ApiError(404, "unknown_message", "there is no such message in this session"))
        else:
            self._refuse([ask], seq)
        return None

    def _refuse(self, asks: list[int], seq: int) -> None:
        told = f"message {seq} does not wait: the agent has it, or it was cancelled, expired or interrupted before"
        for ask in asks:
            self._asks.refuse(ask, ApiError(409, "not_pending", told))
