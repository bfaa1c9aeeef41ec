"""Bytes that may be compressed, as they come."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.bridge.tree.gunzip import MAX_RATIO, Gunzip
from sandbox.system.problem import TreeProblem


def test_bytes_that_are_not_gzip_pass_as_they_are() -> None:
    gunzip = Gunzip()
    pieces = [b"p", b"lain", b"", b"\x1f\x8b"]
    assert b"".join(grown for piece in pieces for grown in gunzip.feed(piece)) == b"plain\x1f\x8b"
    gunzip.finish()


def inflated(archive: bytes, step: int) -> bytes:
    gunzip = Gunzip()
    pieces = [archive[at : at + step] for at in range(0, len(archive), step)]
    grown = b"".join(grown for piece in pieces for grown in gunzip.feed(piece))
    gunzip.finish()
    return grown


@given(st.lists(st.binary(max_size=2000), min_size=1, max_size=3), st.integers(0, 20), st.integers(1, 500))
def test_streams_one_after_the_other_are_inflated_however_they_are_cut(
    contents: list[bytes], padding: int, step: int
) -> None:
    archive = b"".join(gzip.compress(content) + bytes(padding) for content in contents)
    assert inflated(archive, step) == b"".join(contents)


@pytest.mark.parametrize("archive", [b"", b"\x1f", gzip.compress(b"x" * 100)[:-1]])
def test_what_ends_in_the_middle_is_refused(archive: bytes) -> None:
    with pytest.raises(TreeProblem, match="ends in the middle"):
        inflated(archive, 10)


def test_damage_is_refused() -> None:
    with pytest.raises(TreeProblem, match="damaged"):
        inflated(gzip.compress(b"x" * 100)[:-8] + bytes(8), 10)


def test_what_grows_too_much_is_refused_before_it_is_made() -> None:
    with pytest.raises(TreeProblem) as refused:
        inflated(gzip.compress(bytes(MAX_RATIO * 20_000)), 1 << 20)
    assert refused.value.code == "too_large"
