"""What Gemini CLI's log says of its model, and the files of its conversations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.agents.core import HomeMove
from sandbox.agents.gemini import ATTEMPTS, FAILURES, FailedAttempt, conversations, failure, is_last, moves

STAMP = b"[2026-11-19T21:30:39.811Z] [WARN] "


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (b"Attempt 1 failed with status 500. Retrying with backoff... _ApiError: {", (1, "with status 500")),
        (b"Attempt 2 failed: quota is used up. Retrying after 5400ms...", (2, ": quota is used up")),
        (b"Attempt 10 failed: x. Max attempts reached", (10, ": x")),
        (b"Attempt 3 failed. Retrying with backoff...", (3, "")),
        (b"Attempt 3 failed \xff", (3, " \ufffd")),
    ],
)
def test_a_failed_attempt_is_heard_of(said: bytes, expected: tuple[int, str]) -> None:
    attempt, more = expected
    told = f"Attempt {attempt} failed{more if more[:1] in (':', ' ') else f' {more}'.rstrip()}"
    assert failure(STAMP + said) == FailedAttempt(attempt, told)


@pytest.mark.parametrize("said", [b"", b"Attempt 1 failed", b"[WARN] Attempts failed", b"[WARN] Attempt 1234 failed"])
def test_other_lines_say_nothing(said: bytes) -> None:
    assert failure(said) is None


@given(st.binary(), st.integers(0, 999))
def test_whatever_follows_is_bounded(tail: bytes, attempt: int) -> None:
    found = failure(STAMP + b"Attempt %d failed" % attempt + tail.replace(b"\n", b""))
    assert found is None or (found.attempt == attempt and len(found.told) < 500) or tail[:1].isdigit()


def test_the_fourth_attempt_is_the_last_and_so_is_the_sixth_failure() -> None:
    assert [is_last(FailedAttempt(attempt, ""), 1) for attempt in (1, ATTEMPTS - 1, ATTEMPTS)] == [False, False, True]
    assert [is_last(FailedAttempt(1, ""), row) for row in (FAILURES - 1, FAILURES)] == [False, True]


def test_files_of_conversations_are_found_by_names_that_are_good_for_files() -> None:
    (pattern,) = conversations("12345678-abc")
    assert pattern == ".gemini/tmp/*/chats/session-*12345678.jsonl"
    assert conversations("../../etc/passwd") == conversations("short") == ()
    assert moves("12345678-abc", [pattern]) == [HomeMove(pattern, "session-2000-01-01T00-00-12345678.jsonl")]
