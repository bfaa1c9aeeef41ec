import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync.errors import Damaged
from sync.format.checksummed import seal, unseal


@given(st.binary(max_size=200))
def test_what_was_sealed_comes_out_again(content: bytes) -> None:
    assert unseal("it", seal(content)) == content


def test_every_flipped_bit_and_every_cut_is_noticed() -> None:
    sealed = seal(b'{"a":1}')
    for place in range(len(sealed)):
        for bit in range(8):
            flipped = bytearray(sealed)
            flipped[place] ^= 1 << bit
            with pytest.raises(Damaged, match="it differs from what was written"):
                unseal("it", bytes(flipped))
        with pytest.raises(Damaged):
            unseal("it", sealed[:place])
    with pytest.raises(Damaged):
        unseal("it", sealed + b" ")
