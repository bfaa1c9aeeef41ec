"""Records and marks that are written when an agent process ends. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from persistence.record import Record, Status

PENDING_BYTES = 512 << 10  # of open requests repeated to a new process: its start line has a bound


def last_marks(unanswered: Iterable[tuple[int, str]], requests: Iterable[Record]) -> tuple[tuple[int, str], ...]:
    """The last status of messages that the process did not answer, given as (seq, cid), and of its open requests."""
    interrupted = ((seq, Status.INTERRUPTED) for seq, _ in unanswered)
    return (*interrupted, *((request.seq, Status.EXPIRED) for request in requests))


def still_pending(requests: Iterable[Record]) -> list[Any]:
    """The open requests that the next process's start line repeats: the newest that fit, in their order."""
    return _newest_within(PENDING_BYTES, [request.payload for request in requests])


def _newest_within(limit: int, payloads: Sequence[bytes]) -> list[Any]:
    kept: list[Any] = []
    for payload in reversed(payloads):
        limit -= len(payload)
        if limit < 0:
            break
        kept.append(orjson.loads(payload))
    return kept[::-1]
