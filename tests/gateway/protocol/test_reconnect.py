"""Whether to come back after a connection ended, and when."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.close_codes import CloseCode
from gateway.protocol.reconnect import FIRST_PAUSE, LONGEST_PAUSE, Comeback, farewell, pause, refusal
from tests.support.vectors import cases, check


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


def test_a_gateway_that_wants_too_much_absence_is_not_believed() -> None:
    for wished, most in ((10**9, 60), (-5, 0), ("soon", 0), (None, 0)):
        comeback = Comeback(Random(1))
        comeback.greeted(0)
        comeback.going_away(wished)
        coming = comeback.closed(1012, "", 1)
        assert coming.seconds is not None
        assert most <= coming.seconds <= most + FIRST_PAUSE


@pytest.mark.parametrize(("after", "least"), [("7", 7), ("soon", 2), (None, 2), ("", 2), ("0", 0)])
def test_the_gateways_own_wish_counts_where_there_is_one(after: str | None, least: float) -> None:
    coming = Comeback(Random(1)).refused(429, None, after)
    assert coming.seconds is not None
    assert least <= coming.seconds <= least + FIRST_PAUSE


@pytest.mark.parametrize("name", ["close_codes.json", "connections.json"])
def test_the_vectors_that_both_clients_share(name: str) -> None:
    check(name)


def test_every_close_code_of_the_gateway_has_a_vector() -> None:
    assert {int(code) for code in CloseCode} <= {case.get("code") for case in cases("close_codes.json")}
