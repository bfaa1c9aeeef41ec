"""Whether a client that lost its connection should come back, and when. Pure."""

import json
from random import Random

from gateway.protocol.close_codes import CloseCode
from persistence.backoff import delay

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 15.0
# Refusals of the upgrade that the same request will meet again.
HOPELESS_STATUS = frozenset({400, 401, 403, 404, 426})
# Protocol errors (RFC 6455): what was sent would only be sent again.
HOPELESS_CLOSE = frozenset({1002, 1003, 1007, 1009, 1010})


def farewell(code: int | None, reason: str) -> tuple[str, bool]:
    """Why a connection ended, and whether that is final. `code` is None if it ended without a word."""
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
    """Why an upgrade was refused, and whether that is final."""
    try:
        reason = f"{json.loads(body or b'')['error']} ({status})"
    except (ValueError, KeyError, TypeError):
        reason = f"the gateway refused the connection ({status})"
    return reason, status in HOPELESS_STATUS


def pause(attempt: int, rng: Random, *, first: float = FIRST_PAUSE) -> float:
    """Seconds before attempt number `attempt` (from 0); with jitter, for everybody else was cut off too."""
    return delay(attempt, rng, base=first, cap=LONGEST_PAUSE)
