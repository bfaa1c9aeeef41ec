"""Stored records as the API shows them."""

from typing import Annotated, Any

from msgspec import UNSET, UnsetType

from gateway.routing.json_types import JsonAnswer, Number, Owner, SessionId, Time, Whole, Yes, meaning, one_of, schema


class RecordJson(JsonAnswer):
    id: Annotated[str, meaning("`<session id>.<seq>`")]
    seq: Annotated[Number, meaning("gap-free per session; never given twice")]
    cid: Annotated[str, meaning("the sender's own id for it; stored once per session")]
    role: Annotated[str, meaning("`user`, `assistant`, `system` or `tool`")]
    type: Annotated[
        str,
        meaning(
            "`message`, `raw`, `permission_request`, `permission_response`, `question`, `question_answer`, the "
            "markers `duplicate` and `rejected`, or whatever services write"
        ),
    ]
    content: Annotated[Any, meaning("a string, an array of parts, or whatever was stored")]
    metadata: dict[str, Any]
    created_at: Time
    status: Annotated[
        str,
        one_of(
            "stored", "delivered", "expired", "interrupted", "cancelled", "complete", "incomplete", "aborted", "open",
            "answered", "duplicate", "rejected",
        ),
    ]  # fmt: skip


class ExportLine(RecordJson):
    session_id: SessionId
    user_id: Owner


class Page(JsonAnswer):
    messages: list[RecordJson]
    last_seq: Whole
    first_seq: Annotated[Whole, meaning("what was before it has been trimmed away")]
    stale: Annotated[Yes | UnsetType, meaning("some of it is durable here, and not yet in the store")] = UNSET


class Written(JsonAnswer):
    message_id: str
    seq: Whole
    stage: Annotated[str, one_of("stored", "accepted"), meaning("`accepted`: durable here, the store follows")]


class DeadLetterHead(JsonAnswer):
    number: Number
    session_id: SessionId
    seq: Whole
    cid: str
    role: str
    type: str
    reason: Annotated[str, meaning("what the store said")]
    bytes: Whole
    created_at: Time | None
    buried_at: Time | None


class DeadLetterJson(DeadLetterHead):
    content: Annotated[Any, schema()] = UNSET
    metadata: Annotated[Any, schema()] = UNSET
    payload: Annotated[
        str | UnsetType, meaning("base64, where it cannot be read as JSON", contentEncoding="base64")
    ] = UNSET


class DeadLetters(JsonAnswer):
    dead_letters: list[DeadLetterHead]
    next: Whole | None


class Retried(JsonAnswer):
    number: Whole
    outcome: Annotated[str, meaning("`stored`, `duplicate`, `dead`: it stays, `rejected`: its place is gone")]
    seq: Whole | UnsetType = UNSET
    first: Whole | UnsetType = UNSET
    reason: str | UnsetType = UNSET


class Dropped(JsonAnswer):
    number: Whole
    dropped: Yes
