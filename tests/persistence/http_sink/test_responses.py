import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from persistence.commit_plan import duplicate_marker, rejected_marker
from persistence.http_sink.responses import (
    Again,
    RecordRefused,
    RecordTaken,
    RetryReason,
    SinkResponse,
    body_of,
    is_marker,
    judge,
    key_of,
    path_of,
    retry_after,
    spoken,
)
from persistence.record import Record

RECORD = Record("s", 3, "c", "user", "message", b'{"type":"message","content":"hi","metadata":{"k":1}}', 1.5)


@pytest.mark.parametrize("status", [200, 201, 202, 299])
@pytest.mark.parametrize("body", [b'{"messageId":"m"}', b'{"messageId":7,"more":[]}'])
def test_a_2xx_that_names_the_message_is_taken(status: int, body: bytes) -> None:
    assert judge(SinkResponse(status, body), wall=0) == RecordTaken()


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"{}", b"[]", b'{"messageId":null}', b'{"messageId":""}', b'{"messageId":true}', b"\xff"]
)
def test_a_2xx_that_does_not_is_somebody_elses(body: bytes) -> None:
    verdict = judge(SinkResponse(200, body), wall=0)
    assert isinstance(verdict, Again)
    assert (verdict.trouble, verdict.trouble.is_ours) == (RetryReason.MISDIRECTED, True)
    assert "HOLDFAST_STORE" in verdict.reason


@pytest.mark.parametrize(
    ("status", "trouble"),
    [
        (100, RetryReason.MISDIRECTED),
        (301, RetryReason.REDIRECT),
        (307, RetryReason.REDIRECT),
        (401, RetryReason.CREDENTIALS),
        (403, RetryReason.CREDENTIALS),
        (408, RetryReason.AWAY),
        (429, RetryReason.AWAY),
        (500, RetryReason.AWAY),
        (503, RetryReason.AWAY),
        (599, RetryReason.AWAY),
        (600, RetryReason.MISDIRECTED),
    ],
)
def test_what_may_heal_is_posted_again(status: int, trouble: RetryReason) -> None:
    verdict = judge(SinkResponse(status, b"later"), wall=0)
    assert isinstance(verdict, Again)
    assert verdict.trouble is trouble
    assert str(status) in verdict.reason


@pytest.mark.parametrize("status", [400, 404, 409, 410, 413, 422, 451, 499])
def test_any_other_4xx_is_a_refusal_with_its_words(status: int) -> None:
    assert judge(SinkResponse(status, b"too rude"), wall=0) == RecordRefused(f"{status}: too rude")
    assert judge(SinkResponse(status), wall=0) == RecordRefused(str(status))


def test_the_words_of_a_refusal_are_short_and_play_no_tricks() -> None:
    told = spoken(SinkResponse(400, "\x1b[2J\x00\u202e\xad\n é ".encode() + b"\xff" * 900))
    assert told.startswith("400: \\x1b[2J\\x00\\u202e\\xad\\n é \ufffd")
    assert told.isprintable()
    assert told.count("\ufffd") == 300 - len("\x1b[2J\x00\u202e\xad\n é ")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        (" 7 ", 7.0),
        ("120", 120.0),
        ("301", 300.0),
        ("9" * 5000, 300.0),
        ("-5", 0.0),
        ("1.5", 0.0),
        ("٣", 0.0),
        ("soon", 0.0),
        ("", 0.0),
        (None, 0.0),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 90.0),
        ("Thu, 01 Jan 1970 00:01:40 -0000", 90.0),
        ("Thu, 01 Jan 1970 00:00:01 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 300.0),
        ("Fri, 31 Dec 99999 23:59:59 GMT", 0.0),
    ],
)
def test_retry_after_is_seconds_or_a_date_and_at_most_five_minutes(value: str | None, seconds: float) -> None:
    assert retry_after(value, wall=10.0) == seconds
    verdict = judge(SinkResponse(429, retry_after=value), wall=10.0)
    assert isinstance(verdict, Again)
    assert verdict.at_least == seconds


@given(st.integers(-1000, 1000), st.integers(0, 4_000_000_000))
def test_a_date_means_the_time_until_then(ahead: int, wall: int) -> None:
    date = datetime.fromtimestamp(wall, UTC) + timedelta(seconds=ahead)
    assert retry_after(format_datetime(date, usegmt=True), wall=wall) == min(max(ahead, 0), 300)


@given(st.text(max_size=40))
def test_any_header_is_understood_or_ignored(value: str) -> None:
    assert 0.0 <= retry_after(value, wall=0.0) <= 300.0


def test_a_record_is_posted_with_what_readers_see() -> None:
    body = body_of(RECORD)
    assert isinstance(body, bytes)
    assert json.loads(body) == {
        "role": "user",
        "type": "message",
        "content": "hi",
        "metadata": {"k": 1},
        "cid": "c",
        "seq": 3,
        "createdAt": "1970-01-01T00:00:01.500Z",
    }


@pytest.mark.parametrize(
    ("payload", "created_at"), [(b"not json", 1.0), (b"[]", 1.0), (b"{}", float("inf")), (b"{}", 1e15)]
)
def test_what_cannot_be_said_is_refused_before_it_is_posted(payload: bytes, created_at: float) -> None:
    assert isinstance(body_of(Record("s", 1, "c", "user", "message", payload, created_at)), RecordRefused)


def test_the_key_is_the_records_and_no_other_records() -> None:
    assert key_of(RECORD) == "s.3.fccd6bc4f2dc234a"
    assert key_of(replace(RECORD, status="delivered")) == key_of(RECORD)
    others = [replace(RECORD, session_id="s.3"), replace(RECORD, seq=4), replace(RECORD, cid="d")]
    others += [replace(RECORD, created_at=1.5000001), replace(RECORD, cid="5 c", created_at=1.0)]
    assert len({key_of(record) for record in [RECORD, *others]}) == 6


def test_the_key_and_the_path_hold_any_session_id() -> None:
    odd = Record("a/../ü\n", 1, "c", "user", "message", b"{}", 1.0)
    assert key_of(odd).startswith("a%2F..%2F%C3%BC%0A.1.")
    assert path_of(odd.session_id) == "/internal/sessions/a%2F..%2F%C3%BC%0A/messages"


def test_markers_are_not_news() -> None:
    assert is_marker(duplicate_marker(RECORD, 1))
    assert is_marker(rejected_marker(RECORD, "why"))
    assert not is_marker(RECORD)
