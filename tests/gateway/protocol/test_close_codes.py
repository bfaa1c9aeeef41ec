"""Close codes: what the design names, each with a reason a close frame can carry."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.close_codes import CloseCode, table

COME_BACK = {1011, 1012, 4408, 4409, 4429}
STAY_AWAY = {1000, 1009, 4400, 4401, 4403, 4404}


def test_the_codes_are_those_of_the_protocol() -> None:
    assert {int(code) for code in CloseCode} == COME_BACK | STAY_AWAY


@pytest.mark.parametrize("code", CloseCode)
def test_every_code_says_why_and_whether_to_return(code: CloseCode) -> None:
    assert 0 < len(code.reason.encode()) <= 123  # a control frame has 125 bytes, two of them are the code
    assert code.reason.isprintable()
    assert code.come_back is (int(code) in COME_BACK)


@pytest.mark.parametrize("code", CloseCode)
def test_every_code_may_stand_in_a_close_frame(code: CloseCode) -> None:
    assert code in (1000, 1009, 1011, 1012) or 4000 <= code <= 4999


def test_reasons_differ() -> None:
    assert len({code.reason for code in CloseCode}) == len(CloseCode)


@given(st.sampled_from(CloseCode))
def test_the_table_of_the_docs_says_the_same(code: CloseCode) -> None:
    (row,) = [line for line in table().splitlines() if line.startswith(f"| {int(code)} |")]
    returns = row.split("|")[3].strip()
    assert returns.startswith("yes") == code.come_back
    assert returns in ("yes", "no", "with a new token", "yes, later", "yes, from the last offset")
    assert ", come back" not in row
