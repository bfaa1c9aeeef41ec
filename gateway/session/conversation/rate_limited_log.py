"""Warnings that an agent or a bridge can cause at will: the operator's log gets a few lines of them, not all.

Each event is logged at once, then at most once a minute, with the newest fields and `repeated`: how often it happened
since the line before. After a minute without it, it counts as new.
"""

from typing import Any

import structlog

from gateway.session.model.ports import SessionClock

EVERY_SECONDS = 60.0

log = structlog.get_logger()


class RateLimitedLog:
    """The limit of one session. Event names are constants, so there are only a few."""

    __slots__ = ("_clock", "_session_id", "_unsaid")

    def __init__(self, clock: SessionClock, session_id: str) -> None:
        self._clock = clock
        self._session_id = session_id
        self._unsaid: dict[str, tuple[int, dict[str, Any]]] = {}  # by event: how often, and the newest

    def warn(self, event: str, **fields: Any) -> None:
        if event in self._unsaid:
            self._unsaid[event] = (self._unsaid[event][0] + 1, fields)
        else:
            self._log(event, fields)

    def _log(self, event: str, fields: dict[str, Any]) -> None:
        log.warning(event, session_id=self._session_id, **fields)
        self._unsaid[event] = (0, {})
        self._clock.call_at(self._clock.now() + EVERY_SECONDS, self._catch_up, event)

    def _catch_up(self, event: str) -> None:
        repeated, fields = self._unsaid.pop(event)
        if repeated:
            self._log(event, {**fields, "repeated": repeated})
