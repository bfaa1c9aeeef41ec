"""Which form of a file a browser gets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.negotiation import choose_encoding, is_known

ALL = ("identity", "br", "gzip")


@pytest.mark.parametrize(
    ("accepted", "available", "chosen"),
    [
        ("", ALL, "identity"),
        ("gzip, deflate, br, zstd", ALL, "br"),
        ("gzip, deflate", ALL, "gzip"),
        ("gzip, br", ("identity", "gzip"), "gzip"),
        ("gzip, br", ("identity",), "identity"),
        ("br;q=0, gzip", ALL, "gzip"),
        ("br;q=0.5, gzip;q=0.8", ALL, "gzip"),
        ("BR ; q=1.000", ALL, "br"),
        ("*", ALL, "br"),
        ("*;q=0", ALL, "identity"),
        ("*;q=0.5, identity", ALL, "identity"),
        ("identity;q=0, br;q=0", ALL, "identity"),
        ("identity;q=0.1, *;q=0", ALL, "identity"),
        ("gzip;q=0.5, identity;q=0.9", ALL, "identity"),
        ("x-gzip", ALL, "gzip"),
        ("br;level=3, ,;q=1", ALL, "br"),
        ("br;q=2, gzip;q=x, gzip;q=0.1234", ALL, "identity"),
        ("br;q=1.5", ALL, "br"),
        ("br;q=0.\u0663", ALL, "identity"),
        ("zstd", ALL, "identity"),
    ],
)
def test_the_best_that_is_liked_is_chosen(accepted: str, available: tuple[str, ...], chosen: str) -> None:
    assert choose_encoding(accepted, available) == chosen


@given(st.text(alphabet="brgzip,;q=.0*1 \t\u0663", max_size=60))
def test_whatever_is_written_there_one_that_exists_is_chosen(accepted: str) -> None:
    assert choose_encoding(accepted, ALL) in ALL
    assert choose_encoding(accepted, ("identity",)) == "identity"


def test_a_tag_is_known_in_any_list_weak_or_not() -> None:
    assert is_known('"a", W/"b"', '"b"')
    assert is_known("*", '"b"')
    assert not is_known('"a", "bb"', '"b"')
    assert not is_known("", '"b"')
