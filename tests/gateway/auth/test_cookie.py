"""The session cookie, as it is written."""

from http.cookies import SimpleCookie

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.auth.cookie import COOKIE, can_be_kept, forgotten, kept

PART = st.text("abcXYZ019_-", min_size=1, max_size=20)


@given(PART, PART, PART, st.integers(0, 10**9), st.booleans())
def test_a_browser_reads_back_what_is_kept(head: str, claims: str, sign: str, seconds: int, secure: bool) -> None:
    token = f"{head}.{claims}.{sign}"
    assert can_be_kept(token)
    read = SimpleCookie(kept(token, seconds, secure=secure))[COOKIE]
    assert (read.value, read["max-age"], read["path"], read["samesite"]) == (token, str(seconds), "/", "Strict")
    assert (bool(read["httponly"]), bool(read["secure"]), read["domain"]) == (True, secure, "")


@pytest.mark.parametrize("secure", [True, False])
def test_a_forgotten_cookie_ends_at_once(secure: bool) -> None:
    read = SimpleCookie(forgotten(secure=secure))[COOKIE]
    assert (read.value, read["max-age"], bool(read["secure"])) == ("", "0", secure)


@pytest.mark.parametrize(
    "token", ["", "a.b", "a.b.c.d", "a.b.c; Domain=evil", "a.b.c\n", "a.b.c\r\nX: y", "a.b.é", "a..c"]
)
def test_what_is_no_token_is_not_written(token: str) -> None:
    assert not can_be_kept(token)
    with pytest.raises(AssertionError):
        kept(token, 60, secure=True)
