"""Whether to come back after a connection ended, and when."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.close_codes import CloseCode
from gateway.protocol.reconnect import LONGEST_PAUSE, farewell, pause, refusal


@pytest.mark.parametrize("code", list(CloseCode))
def test_a_close_code_says_whether_to_come_back(code: CloseCode) -> None:
    assert farewell(code, "") == (code.reason, not code.come_back)


def test_reasons_are_told_in_the_peers_words_if_it_has_any() -> None:
    assert farewell(None, "") == ("the connection was cut", False)
    assert farewell(1012, "deploy") == ("deploy", False)
    assert farewell(1000, "bye") == ("finished", True)
    assert farewell(1002, "") == ("closed with 1002", True)
    assert farewell(1001, "away") == ("away", False)
    assert refusal(404, b'{"error":"there is no such session"}') == ("there is no such session (404)", True)
    assert refusal(503, None) == ("the gateway refused the connection (503)", False)
    assert refusal(429, b"[]") == ("the gateway refused the connection (429)", False)


@given(st.integers(0, 5000), st.integers())
def test_pauses_are_bounded_whatever_the_number_of_attempts(attempt: int, seed: int) -> None:
    assert 0 <= pause(attempt, Random(seed)) <= LONGEST_PAUSE
