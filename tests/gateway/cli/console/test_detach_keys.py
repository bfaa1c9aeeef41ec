"""Leaving a terminal: the keys that do it, and what is undone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.cli.console.detach_keys import DEFAULT, HELD_SECONDS, DetachKeys, read_keys

TWICE = read_keys(DEFAULT)


@pytest.mark.parametrize(
    ("text", "keys"),
    [("ctrl-],ctrl-]", (29, 29)), ("ctrl-p,ctrl-q", (16, 17)), ("^P^q", (16, 17)), ("^]", (29,)), ("none", ())],
)
def test_keys_can_be_named(text: str, keys: tuple[int, ...]) -> None:
    assert read_keys(text) == keys


@pytest.mark.parametrize("text", ["", "q", "ctrl-", "ctrl-p,", "ctrl-pq", "^", "^P^", "ctrl-1", "^é", "alt-x"])
def test_names_of_no_key_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ctrl-"):
        read_keys(text)


@pytest.mark.parametrize(
    "typed",
    [
        b"\x1d\x1d",
        b"\x1b[93;5u\x1b[93;5u",
        b"\x1b[93;5:1u\x1b[93;5:3u\x1b[57442;1:3u\x1b[93;5:1u",
        b"\x1b[93;69u\x1b[93::93;133u",
        b"\x1b[27;5;93~\x1d",
    ],
)
def test_the_keys_are_found_in_every_encoding(typed: bytes) -> None:
    assert DetachKeys(TWICE).type(b"ls" + typed + b"dropped", now=0) == (b"ls", True)


@pytest.mark.parametrize(
    "typed", [b"\x1b[93;6u\x1b[93;6u", b"\x1b[93;5:3u\x1b[93;5:3u", b"\x1b[27;2;93~", b"\x1b[9;5u", b"]]", b"\x1b[A"]
)
def test_other_keys_are_for_the_program(typed: bytes) -> None:
    keys = DetachKeys(TWICE)
    passed, leaves = keys.type(typed, now=0)
    assert (passed + keys.due(), leaves) == (typed, False)


def waits_until(keys: DetachKeys) -> float | None:
    return keys.deadline


def test_half_of_it_waits_for_the_other_half_and_not_for_long() -> None:
    keys = DetachKeys(TWICE)
    assert keys.type(b"a\x1d", now=10) == (b"a", False)
    assert waits_until(keys) == 10 + HELD_SECONDS
    assert keys.due() == b"\x1d"
    assert waits_until(keys) is None
    assert keys.type(b"\x1d", now=20) == (b"", False)
    assert keys.type(b"x", now=20.1) == (b"\x1dx", False)
    assert waits_until(keys) is None
    assert keys.type(b"\x1d", now=30) == (b"", False)
    assert keys.type(b"\x1d", now=30.1) == (b"", True)


def test_a_false_start_can_be_the_beginning_of_the_right_one() -> None:
    keys = DetachKeys((1, 1, 2))
    assert keys.type(b"\x01\x01\x01\x02", now=0) == (b"\x01", True)


def test_keys_can_be_turned_off() -> None:
    assert DetachKeys(()).type(b"\x1d\x1d\x1d", now=0) == (b"\x1d\x1d\x1d", False)


@given(st.lists(st.sampled_from([b"\x1d", b"x", b"\x1b[A", b"\x1b[93;6u", "é".encode()]), max_size=20))
def test_nothing_typed_is_lost_or_turned_round(typed: list[bytes]) -> None:
    keys, passed, before = DetachKeys(TWICE), b"", b""
    for key in typed:
        more, leaves = keys.type(key, now=0)
        passed += more
        before += key
        assert leaves is before.endswith(b"\x1d\x1d")
        if leaves:
            assert passed == before[:-2]
            return
    assert passed + keys.due() == before
