"""What the parts of one session get of the house they live in: its clock, its tasks, its limits, and who is told."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from gateway.feed.feed import SessionFeed
from gateway.limits.inbound_bytes import InboundBytes
from gateway.limits.quota import Quota
from gateway.limits.start_turns import StartTurns
from gateway.session.inbox import Inbox
from gateway.session.model.ports import SessionLimits, SessionMetrics
from gateway.telemetry.telemetry import session_asked
from persistence.ports import MessageStore
from persistence.queue.queue import PersistenceQueue
from sync.machine.history import Moved

Spawn = Callable[[Any, Coroutine[Any, Any, None], str], None]


class SessionHost:
    """Implements gateway.session.model.ports.Host."""

    __slots__ = (
        "_loop",
        "_owner",
        "_provider",
        "_session_id",
        "_spawn",
        "durable",
        "ended",
        "feed",
        "limits",
        "metrics",
        "now",
        "pending",
        "post",
        "queue",
        "quota",
        "rng",
        "store",
        "turns",
        "user_id",
        "utcnow",
    )

    def __init__(
        self,
        session_id: str,
        user_id: str,
        provider: str,
        inbox: Inbox,
        *,
        store: MessageStore,
        queue: PersistenceQueue,
        limits: SessionLimits,
        turns: StartTurns,
        quota: Quota,
        metrics: SessionMetrics,
        pending: InboundBytes,
        feed: SessionFeed,
        spawn: Spawn,
        owner: object,
        rng: Random,
        utcnow: Callable[[], float],
    ) -> None:
        self._session_id = session_id
        self._provider = provider
        self.feed = feed
        self._spawn, self._owner = spawn, owner  # whose tasks they are, for who supervises them
        self._loop = asyncio.get_running_loop()
        self.user_id = user_id
        self.store, self.queue, self.limits, self.metrics, self.rng = store, queue, limits, metrics, rng
        self.turns, self.quota, self.pending = turns, quota, pending
        self.post = inbox.post
        self.now: Callable[[], float] = self._loop.time
        self.utcnow = utcnow
        self.ended = False  # nothing more is to be done for this session here
        self.durable: Callable[[], Coroutine[Any, Any, dict[str, Any]]]  # set by who puts the parts together

    def call_at(self, when: float, handler: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_at(when, self.post, handler)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._spawn(self._owner, work, name)

    def asked(self, what: str, by: str = "gateway", **fields: Any) -> None:
        session_asked(what, by, session_id=self._session_id, user_id=self.user_id, provider=self._provider, **fields)

    def stirred(self) -> None:
        if not self.ended:
            self.feed.stir(self.user_id, self._session_id)

    def sync_moved(self, moved: Moved) -> None:
        if not self.ended:
            self.feed.moved(self.user_id, self._session_id, moved)
            self.feed.stir(self.user_id, self._session_id)
