"""The request for a record, and what the service's answer means. Pure.

An answer means one of three things. `RecordTaken`: a 2xx that names the message. `RecordRefused`: a 4xx about the
record itself; it would be refused for ever, so it becomes a dead letter and the next one goes on. `Again`: everything
else. Two of those are the operator's problem, not the sink's: a refused token, and an answer that only another
service would give. A dead letter for each record would lose a conversation to a typing error. So the records wait,
and the log says why.
"""

from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum
from hashlib import sha256
from urllib.parse import quote

import msgspec
import orjson

from persistence.commit_plan import DUPLICATE, REJECTED
from persistence.record import Record
from persistence.record_json import content_of, iso, metadata_of

LONGEST_WAIT_SECONDS = 300.0
REASON_CHARACTERS = 300


class RetryReason(StrEnum):
    """Why a post is repeated. Each reason is logged separately."""

    AWAY = "away"
    CREDENTIALS = "credentials"
    REDIRECT = "redirect"
    MISDIRECTED = "misdirected"

    @property
    def is_ours(self) -> bool:
        """Whether an operator must change a setting."""
        return self is not RetryReason.AWAY


class SinkResponse(msgspec.Struct, frozen=True, gc=False):
    """An answer; the beginning of its body is enough."""

    status: int
    body: bytes = b""
    retry_after: str | None = None


class RecordTaken(msgspec.Struct, frozen=True, gc=False):
    """The sink has the record."""


class Again(msgspec.Struct, frozen=True, gc=False):
    """Post it again, with the same key, not before `at_least` seconds."""

    trouble: RetryReason
    reason: str
    at_least: float = 0.0


class RecordRefused(msgspec.Struct, frozen=True, gc=False):
    """The sink will never take this record."""

    reason: str


Verdict = RecordTaken | Again | RecordRefused


def judge(answer: SinkResponse, *, wall: float) -> Verdict:
    """The meaning of `answer`, which came at `wall` seconds since 1970."""
    match answer.status:
        case status if 200 <= status < 300:
            if _names_a_message(answer.body):
                return RecordTaken()
            words = f"{status} without a messageId: does HOLDFAST_STORE point at the right service?"
            return Again(RetryReason.MISDIRECTED, words)
        case status if 300 <= status < 400:
            # A redirect would give the token and the conversation to any named server, and turn a POST into a GET.
            return Again(
                RetryReason.REDIRECT, f"{status}: redirects are not followed; set HOLDFAST_STORE to its target"
            )
        case 401 | 403 as status:
            return Again(RetryReason.CREDENTIALS, f"{status}: the service does not accept HOLDFAST_INTERNAL_TOKEN")
        case status if status in (408, 429) or 500 <= status < 600:
            return Again(RetryReason.AWAY, spoken(answer), retry_after(answer.retry_after, wall=wall))
        case status if 400 <= status < 500:
            return RecordRefused(spoken(answer))
        case status:
            return Again(RetryReason.MISDIRECTED, f"{status}: does HOLDFAST_STORE point at the right service?")


def _names_a_message(body: bytes) -> bool:
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    name = answer.get("messageId") if isinstance(answer, dict) else None
    return (isinstance(name, str) and name != "") or (isinstance(name, int) and not isinstance(name, bool))


def retry_after(value: str | None, *, wall: float) -> float:
    """The header's seconds or date as seconds to wait, at most five minutes; 0 if it makes no sense."""
    text = (value or "").strip()
    if text.isascii() and text.isdecimal():
        return LONGEST_WAIT_SECONDS if len(text) > 9 else min(float(text), LONGEST_WAIT_SECONDS)
    try:
        date = parsedate_to_datetime(text)
        if date.tzinfo is None:  # a date with -0000 is UTC, too
            date = date.replace(tzinfo=UTC)
        return min(max(date.timestamp() - wall, 0.0), LONGEST_WAIT_SECONDS)
    except (ValueError, OverflowError):
        return 0.0


def spoken(answer: SinkResponse) -> str:
    """The answer as a reason for people: its status and its beginning, without characters that confuse a terminal."""
    text = answer.body.decode(errors="replace").strip()[:REASON_CHARACTERS]
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return f"{answer.status}: {shown}" if shown else str(answer.status)


def path_of(session_id: str) -> str:
    return f"/internal/sessions/{quote(session_id, safe='')}/messages"


def key_of(record: Record) -> str:
    """The record's idempotency key, the same at each post. After a purge, or a data directory that was lost or set
    back, other records have the same seqs. The key differs, so the sink does not take them for the old ones."""
    which = sha256(f"{record.created_at!r} {record.cid}".encode()).hexdigest()[:16]
    return f"{quote(record.session_id, safe='')}.{record.seq}.{which}"


def is_marker(record: Record) -> bool:
    """Whether it only holds the place of a record, which is no news for a sink."""
    return record.cid.startswith((DUPLICATE, REJECTED))


def body_of(record: Record) -> bytes | RecordRefused:
    """The body of the post."""
    try:
        payload = orjson.loads(record.payload)
        if not isinstance(payload, dict):
            return RecordRefused("its payload is no JSON object")
        return orjson.dumps(
            {
                "role": record.role,
                "type": record.type,
                "content": content_of(payload),
                "metadata": metadata_of(payload),
                "cid": record.cid,
                "seq": record.seq,
                "createdAt": iso(record.created_at),
            }
        )
    except (ValueError, OverflowError, OSError, TypeError) as error:
        return RecordRefused(f"it cannot be written as JSON: {error}")
