"""One range of bytes, read from a header that anybody may have written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.ranges import Span, Unsatisfiable, read_range
from gateway.protocol.errors import ApiError

CONTENT = bytes(range(100))


def cut(header: str) -> bytes:
    span = read_range([header], len(CONTENT))
    assert span is not None
    return CONTENT[span.start : span.start + span.length]


def test_the_three_forms_of_a_range() -> None:
    assert cut("bytes=0-9") == CONTENT[:10]
    assert cut("bytes=90-") == CONTENT[90:]
    assert cut("bytes=-10") == CONTENT[-10:]
    assert cut("bytes=99-99") == CONTENT[99:]
    assert cut("bytes=0-999999999999999999") == CONTENT
    assert cut("bytes=-999999999999999999") == CONTENT
    assert cut("bytes= 1-2 ") == CONTENT[1:3]
    assert read_range([], 5) is None


@pytest.mark.parametrize(
    "header",
    [
        "bytes=0-0,1-1",
        "bytes=" + ",".join("0-" for _ in range(5000)),
        "bytes=",
        "bytes=-",
        "bytes=a-b",
        "bytes=5-4",
        "bytes=--5",
        "bytes=1",
        "bytes=+1-2",
        "bytes=٣-٤",
        "bytes=0x1-2",
        "bytes=" + "9" * 30 + "-",
        "items=0-5",
        "",
        "bytes=0-5\n",
    ],
)
def test_what_is_no_single_range_is_a_bad_request(header: str) -> None:
    with pytest.raises(ApiError) as refusal:
        read_range([header], 100)
    assert (refusal.value.status, refusal.value.code) == (400, "bad_range")


def test_two_headers_are_two_ranges() -> None:
    with pytest.raises(ApiError, match="one range"):
        read_range(["bytes=0-1", "bytes=0-1"], 100)


@pytest.mark.parametrize(("header", "size"), [("bytes=100-", 100), ("bytes=-0", 100), ("bytes=0-", 0), ("bytes=-5", 0)])
def test_a_range_of_nothing_cannot_be_satisfied(header: str, size: int) -> None:
    with pytest.raises(Unsatisfiable):
        read_range([header], size)


@given(st.integers(0, 50), st.integers(0, 60), st.integers(0, 60))
def test_a_span_lies_within_the_file_and_is_what_slicing_would_be(size: int, first: int, last: int) -> None:
    try:
        span = read_range([f"bytes={first}-{last}"], size)
    except Unsatisfiable:
        assert first >= size
    except ApiError:
        assert first > last
    else:
        assert span is not None
        assert span == Span(first, len(range(size)[first : last + 1]))
        assert 0 < span.length <= size
