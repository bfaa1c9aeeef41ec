"""Whether a client that lost its connection should come back, and when. Pure."""

import json
from dataclasses import dataclass
from random import Random

from gateway.protocol.close_codes import CloseCode
from persistence.backoff import delay

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 15.0
LONGEST_ABSENCE = 60.0  # a gateway that asks for a longer absence is ignored
TOO_MANY_PAUSE = 2.0
LASTED = 10.0  # seconds, after which a connection counts as good
# Refusals of the upgrade that the same request will meet again.
HOPELESS_STATUS = frozenset({400, 401, 403, 404, 426})
# Protocol errors (RFC 6455): the same frames would be sent again.
HOPELESS_CLOSE = frozenset({1002, 1003, 1007, 1009, 1010})


def farewell(code: int | None, reason: str) -> tuple[str, bool]:
    """The reason why a connection ended, and whether that is final. `code` is None if it ended without a close
    frame."""
    if code is None:
        return "the connection was cut", False
    try:
        known = CloseCode(code)
    except ValueError:
        return reason or f"closed with {code}", code in HOPELESS_CLOSE
    if known is CloseCode.FINISHED:
        return known.reason, True
    return reason or known.reason, not known.come_back


def refusal(status: int, body: bytes | bytearray | None) -> tuple[str, bool]:
    """The reason why an upgrade was refused, and whether that is final."""
    try:
        reason = f"{json.loads(body or b'')['error']} ({status})"
    except (ValueError, KeyError, TypeError):
        reason = f"the gateway refused the connection ({status})"
    return reason, status in HOPELESS_STATUS


def pause(attempt: int, rng: Random, *, first: float = FIRST_PAUSE) -> float:
    """Seconds before attempt number `attempt` (from 0); with jitter, because all other clients were cut off too."""
    return delay(attempt, rng, base=first, cap=LONGEST_PAUSE)


@dataclass(frozen=True, slots=True)
class NextAttempt:
    """`reason` is why the last attempt ended; `seconds` until the next one begins, None: coming back would not help."""

    reason: str
    seconds: float | None


class Comeback:
    """Decides when a client connects again. A refused token is asked for once more, at once; if it is refused again
    before a connection has lasted, that is final. Pauses grow and begin again at each greeting, and have jitter,
    because all other clients were cut off too. A gateway that goes away sets the shortest pause."""

    def __init__(self, rng: Random, *, first: float = FIRST_PAUSE) -> None:
        self._rng = rng
        self._first = first
        self._attempt = 0
        self._asked = False  # for another token, since the last connection that lasted
        self._greeted_at: float | None = None
        self._least = 0.0

    def greeted(self, now: float) -> None:
        self._attempt = 0
        self._least = 0.0
        self._greeted_at = now

    def going_away(self, seconds: object) -> None:
        given = seconds if isinstance(seconds, int | float) else 0.0
        self._least = min(LONGEST_ABSENCE, max(0.0, given))

    def closed(self, code: int | None, reason: str, now: float) -> NextAttempt:
        """The connection is gone; without a close frame if `code` is None."""
        if self._greeted_at is not None and now - self._greeted_at >= LASTED:
            self._asked = False
        self._greeted_at = None
        told, final = farewell(code, reason)
        if code == CloseCode.TOKEN:
            return self._ask_again(told)
        if final:
            return NextAttempt(told, None)
        return self.cut(told, least=TOO_MANY_PAUSE if code == CloseCode.TOO_MANY else 0.0)

    def refused(self, status: int, body: bytes | bytearray | None, retry_after: str | None = None) -> NextAttempt:
        """There was an HTTP answer in place of a socket."""
        told, final = refusal(status, body)
        if status == 401:
            return self._ask_again(told)
        if final:
            return NextAttempt(told, None)
        wished = float(retry_after) if retry_after and retry_after.isascii() and retry_after.isdecimal() else None
        return self.cut(told, least=wished if wished is not None else TOO_MANY_PAUSE if status == 429 else 0.0)

    def cut(self, reason: str, *, least: float = 0.0) -> NextAttempt:
        """The gateway cannot be reached, or not any more."""
        seconds = max(least, self._least) + pause(self._attempt, self._rng, first=self._first)
        self._attempt += 1
        return NextAttempt(reason, seconds)

    def _ask_again(self, reason: str) -> NextAttempt:
        if self._asked:
            return NextAttempt(reason, None)
        self._asked = True
        return NextAttempt(reason, 0.0)
