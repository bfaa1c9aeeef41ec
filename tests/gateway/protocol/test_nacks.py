"""Each reason of a nack says whether a client sends the message again, and what it tells people."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.nacks import NACKS, SendAgain, again, table, text_of

BY_ITSELF = {"busy", "storage_unavailable", "owner_moved"}


def test_what_passes_soon_is_sent_again_by_itself() -> None:
    assert {reason for reason in NACKS if again(reason) in (SendAgain.PAUSED, SendAgain.CONNECTED)} == BY_ITSELF
    assert again("owner_moved") is SendAgain.CONNECTED


@given(st.text(max_size=20).filter(lambda reason: reason not in NACKS))
def test_a_reason_that_is_not_known_is_final(reason: str) -> None:
    assert again(reason) is SendAgain.NEVER
    assert text_of(reason) is None


@pytest.mark.parametrize("reason", NACKS)
def test_a_sender_is_told_what_to_do_or_the_frame_says_it_itself(reason: str) -> None:
    assert (text_of(reason) is None) == (NACKS[reason].text == "")
    assert f"| `{reason}` | {NACKS[reason].docs} | {NACKS[reason].again} |" in table()
