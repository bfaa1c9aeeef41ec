"""Close codes: what the design names, each with a reason a close frame can carry."""

import pytest

from gateway.protocol.close_codes import CloseCode

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
