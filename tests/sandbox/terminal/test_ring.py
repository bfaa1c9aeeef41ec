"""The ring against plain bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.terminal.ring import ByteRing


@given(limit=st.integers(1, 40), pieces=st.lists(st.binary(max_size=60), max_size=30), most=st.integers(0, 100))
def test_what_is_kept_is_the_end_of_all_that_was_written(limit: int, pieces: list[bytes], most: int) -> None:
    ring, written = ByteRing(limit), b""
    for piece in pieces:
        ring.append(piece)
        written += piece
        assert ring.end == len(written)
        assert ring.base == max(len(written) - limit, 0)
        for offset in range(len(written) + 2):
            found = ring.since(offset, most)
            if ring.base <= offset <= ring.end:
                assert found == written[offset : offset + most]
            else:
                assert found is None


def test_a_ring_keeps_at_least_one_byte() -> None:
    with pytest.raises(ValueError, match="at least one"):
        ByteRing(0)


def test_small_pieces_cost_no_more_than_their_bytes() -> None:
    ring = ByteRing(1 << 20)
    for _ in range(10_000):
        ring.append(b"x")
    assert len(ring._buffer) == 10_000
