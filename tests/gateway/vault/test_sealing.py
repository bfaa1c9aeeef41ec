"""What is sealed opens where it was sealed for, with its own key, and is not seen before."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.vault.sealing import NONCE_BYTES, DamagedSeal, Keyring, UnknownKey, VaultKey

ONE, TWO = VaultKey("one " * 8), VaultKey("two " * 8)
NONCE = bytes(NONCE_BYTES)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXTS, TEXTS, st.binary(), st.binary(min_size=NONCE_BYTES, max_size=NONCE_BYTES))
def test_what_was_sealed_opens(user: str, provider: str, plain: bytes, nonce: bytes) -> None:
    assert ONE.unseal(user, provider, ONE.seal(user, provider, plain, nonce)) == plain


@given(st.tuples(TEXTS, TEXTS), st.tuples(TEXTS, TEXTS))
def test_it_opens_nowhere_else(here: tuple[str, str], there: tuple[str, str]) -> None:
    sealed = ONE.seal(*here, b"plain", NONCE)
    if here != there:
        with pytest.raises(DamagedSeal):
            ONE.unseal(*there, sealed)


@given(st.integers(0, 40), st.integers(1, 255))
def test_a_changed_byte_is_noticed_wherever_it_is(at: int, change: int) -> None:
    sealed = bytearray(ONE.seal("ann", "openai", b"a value of some length", NONCE))
    sealed[at] ^= change
    with pytest.raises(DamagedSeal, match="set it again"):
        ONE.unseal("ann", "openai", bytes(sealed))


@given(st.integers(0, 50))
def test_what_was_cut_short_is_noticed(size: int) -> None:
    sealed = ONE.seal("ann", "openai", b"a value of some length", NONCE)[:size]
    with pytest.raises(DamagedSeal):
        ONE.unseal("ann", "openai", sealed)


def test_the_value_is_not_in_what_is_sealed_and_two_seals_differ() -> None:
    first, second = (ONE.seal("ann", "openai", b"sk-canary", os.urandom(NONCE_BYTES)) for _ in range(2))
    assert b"canary" not in first
    assert first != second


def test_a_ring_seals_with_the_present_key_and_opens_with_older_ones() -> None:
    ring = Keyring(TWO, [ONE])
    assert ring.ids == {ONE.id, TWO.id}
    assert ring.unseal(ONE.id, "ann", "openai", ONE.seal("ann", "openai", b"x", NONCE)) == b"x"
    assert TWO.unseal("ann", "openai", ring.seal("ann", "openai", b"y", NONCE)) == b"y"


def test_a_key_that_is_not_there_is_told_from_damage() -> None:
    with pytest.raises(UnknownKey, match="HOLDFAST_VAULT_KEY_OLD"):
        Keyring(TWO).unseal(ONE.id, "ann", "openai", ONE.seal("ann", "openai", b"x", NONCE))


def test_a_key_shows_nothing_of_itself_but_its_id() -> None:
    assert repr(ONE) == f"VaultKey({ONE.id})"
    assert ONE.id != TWO.id
    assert VaultKey("one " * 8).id == ONE.id
