from datetime import datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from persistence.record_json import content_of, iso, metadata_of


@settings(max_examples=60)
@given(st.integers(0, 4_000_000_000_000))
def test_times_are_told_in_utc_to_the_millisecond(milliseconds: int) -> None:
    text = iso(milliseconds / 1000)
    assert text == f"{text[:-5]}.{milliseconds % 1000:03d}Z"
    assert round(datetime.fromisoformat(text).timestamp() * 1000) == milliseconds


def test_content_is_what_was_said_or_the_frame_without_its_envelope() -> None:
    assert content_of({"type": "message", "content": None}) is None
    assert content_of({"type": "question", "cid": "c", "metadata": {}, "requestId": "r"}) == {"requestId": "r"}


def test_metadata_is_an_object_whatever_was_sent() -> None:
    assert metadata_of({"metadata": {"a": 1}}) == {"a": 1}
    assert metadata_of({"metadata": 7}) == metadata_of({}) == {}
