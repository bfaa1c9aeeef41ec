"""Bounds on the link's output that waits in the session.

`ReleaseOrder` decides when each line is processed and shown. The gate reads the link while there is room, and slows an
agent that makes more records than its share.

Bounds: `GATED_BYTES` of output held, waiting or being stored, and `COMING_LINES` in the session's inbox; above either,
the link is not read. A crash loses nothing: the bridge repeats every unconfirmed frame.
"""

from gateway.limits.rate import Budget
from gateway.session.conversation.delivery import Delivery
from gateway.session.conversation.log import SessionLog
from gateway.session.conversation.release_order import HeldLine, ReleaseOrder
from gateway.session.model.ports import SessionClock, SessionMetrics

GATED_BYTES = 1 << 20
COMING_LINES = 4096  # received from the link and not yet processed
RECORD_BYTES = 4 << 10
BURST_SECONDS = 10.0


class Gate:
    __slots__ = ("_budget", "_clock", "_delivery", "_log", "_metrics", "_order", "_rate", "_slowed", "coming")

    def __init__(
        self,
        order: ReleaseOrder,
        log: SessionLog,
        delivery: Delivery,
        clock: SessionClock,
        metrics: SessionMetrics,
        rate: float,
    ) -> None:
        """`rate`: how many records one agent may make a second."""
        self._log = log
        self._delivery = delivery
        self._clock = clock
        self._metrics = metrics
        self._rate = rate
        self._order = order
        self._budget: Budget | None = None  # of records
        self._slowed = False
        self.coming = 0  # lines in the inbox: the owner counts them

    def release(self, held: HeldLine, shown: bytes) -> None:
        """Show a line that was held."""
        self._order.release(held, shown)
        self.read_on()

    def stored(self, size: int) -> None:
        """A record of the agent has been stored."""
        self._order.stored(size)
        self.read_on()

    def open(self) -> None:
        """Process the lines that wait."""
        self._order.open()
        self.read_on()

    def read_on(self) -> None:
        """Read the link while there is room for its output; stop reading it otherwise."""
        if (link := self._delivery.link) is None:
            return
        if self._order.bytes > GATED_BYTES or self.coming > COMING_LINES:
            link.pause_reading()
        else:
            link.resume_reading()

    def charge(self, size: int, *, asked_for: bool) -> None:
        """Charge the agent's budget of records. While the budget is overdrawn, no more output of the agent is
        processed, and none is lost. An answer to a message was asked for and costs nothing; a long record counts as
        several. Once the user has used up their stored-records quota, the agent makes one record a second."""
        cost = (not asked_for) + float(size // RECORD_BYTES)
        if self._log.quota_exceeded() is not None:
            cost = max(cost, self._rate)
        if not cost:
            return
        now = self._clock.now()
        self._budget = self._budget or Budget(self._rate, BURST_SECONDS * self._rate, now)
        wait = self._budget.spend(cost, now)
        if wait and not self._slowed:
            self._slowed = True
            self._order.slow()
            self._metrics.agent_slowed_seconds.inc(wait)
            self._clock.call_at(now + wait, self._hasten)

    def _hasten(self) -> None:
        self._slowed = False
        self._order.hasten()
        self.read_on()
