"""What is written when a process ends: a last status for each thing it left open, and requests for the next process."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.session.conversation import last_words
from gateway.session.conversation.last_words import last_marks, still_pending
from persistence.record import Record, Status


def asked(seq: int, size: int = 0) -> Record:
    payload = orjson.dumps({"requestId": str(seq), "x": "x" * size})
    return Record("s", seq, f"agent:e:{seq}", "assistant", "question", payload, 0.0, Status.OPEN)


def test_each_thing_that_was_left_open_has_a_last_status() -> None:
    assert last_marks([], []) == ()
    assert last_marks([(1, "a"), (4, "b")], [asked(3)]) == (
        (1, Status.INTERRUPTED),
        (4, Status.INTERRUPTED),
        (3, Status.EXPIRED),
    )


def test_the_next_process_is_told_of_every_request_in_order() -> None:
    assert [request["requestId"] for request in still_pending([asked(3), asked(7)])] == ["3", "7"]


@given(st.lists(st.integers(0, 60), max_size=12), st.integers(0, 300))
def test_what_is_too_much_leaves_out_the_oldest(sizes: list[int], bound: int) -> None:
    requests = [asked(seq, size) for seq, size in enumerate(sizes)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(last_words, "PENDING_BYTES", bound)
        kept = [int(request["requestId"]) for request in still_pending(requests)]
    first = len(sizes) - len(kept)
    assert kept == list(range(first, len(sizes)))
    assert sum(len(request.payload) for request in requests[first:]) <= bound
    assert first == 0 or sum(len(request.payload) for request in requests[first - 1 :]) > bound
