from collections.abc import Iterator
from datetime import datetime

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from persistence.record import Record
from persistence.record_json import BRIEF_BYTES, brief, content_of, iso, metadata_of, up_to


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


def test_a_short_spec_is_listed_as_it_is_and_a_long_one_without_what_its_agent_is_given_first() -> None:
    spec = {"title": "t", "start": {"prompt": "x"}, "pending": [], "metadata": {"start": 1}}
    short = orjson.dumps(spec)
    assert brief(short) == short
    long = orjson.dumps(spec | {"start": {"prompt": "x" * BRIEF_BYTES}})
    assert orjson.loads(brief(long)) == {"title": "t", "metadata": {"start": 1}}


@given(st.lists(st.integers(0, 9), max_size=10), st.none() | st.integers(0, 30))
def test_records_are_taken_until_they_have_so_many_bytes(sizes: list[int], limit: int | None) -> None:
    """Each that is taken found room: those before it had fewer bytes than the limit. At least one is always taken."""
    looked_at = []

    def records() -> Iterator[Record]:
        for seq, size in enumerate(sizes, 1):
            looked_at.append(seq)
            yield Record("s", seq, "c", "user", "message", b"x" * size, 0.0)

    found = [record.seq for record in up_to(records(), limit)]
    before = [sum(sizes[:place]) for place in range(len(sizes))]
    assert found == [seq for seq, size in enumerate(before, 1) if seq == 1 or limit is None or size < limit]
    assert looked_at == found, "what is left out is not looked at"
