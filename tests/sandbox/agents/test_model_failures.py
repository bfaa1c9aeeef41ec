"""What agents' logs say of models that fail."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.agents.model_failures import ATTEMPTS, FAILURES, FailedAttempt, failed_attempt, is_last

OPENCODE = b'timestamp=T level=ERROR message="stream error" modelID=m1 small=%b agent=a error.error="AI: fake \xff500"'
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
    assert failed_attempt(STAMP + said) == FailedAttempt(attempt, told)


@pytest.mark.parametrize("said", [b"", b"Attempt 1 failed", b"[WARN] Attempts failed", b"[WARN] Attempt 1234 failed"])
def test_other_lines_say_nothing(said: bytes) -> None:
    assert failed_attempt(said) is None


@given(st.binary(), st.integers(0, 999))
def test_whatever_follows_is_bounded(tail: bytes, attempt: int) -> None:
    found = failed_attempt(STAMP + b"Attempt %d failed" % attempt + tail.replace(b"\n", b""))
    assert found is None or (found.attempt == attempt and len(found.told) < 500) or tail[:1].isdigit()


def test_opencode_s_failures_are_heard_of_but_those_of_titles() -> None:
    assert failed_attempt(OPENCODE % b"false") == FailedAttempt(None, "AI: fake \ufffd500")
    assert failed_attempt(OPENCODE % b"true") is None


def test_the_fourth_attempt_is_the_last_and_so_is_the_sixth_failed_attempt() -> None:
    assert [is_last(FailedAttempt(attempt, ""), 1) for attempt in (1, ATTEMPTS - 1, ATTEMPTS)] == [False, False, True]
    assert [is_last(FailedAttempt(1, ""), row) for row in (FAILURES - 1, FAILURES)] == [False, True]
    assert [is_last(FailedAttempt(None, ""), row) for row in (ATTEMPTS - 1, ATTEMPTS)] == [False, True]
