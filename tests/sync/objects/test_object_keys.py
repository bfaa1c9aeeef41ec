"""Which keys and prefixes are taken. What every adapter refuses is in its contract."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync.objects.object_keys import MAX_COMPONENT, MAX_KEY, check_key, check_prefix, is_key
from sync.ports import ObjectsRefused

PARTS = st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True).filter(lambda part: part not in (".", ".."))


@given(st.lists(PARTS, min_size=1, max_size=10))
def test_components_of_plain_characters_are_a_key_and_with_a_slash_a_prefix(parts: list[str]) -> None:
    key = "/".join(parts)
    assert check_key(key) == key
    assert check_prefix(f"{key}/") == f"{key}/"
    assert not is_key(f"{key}/")


@given(st.text(max_size=30) | st.text(alphabet="./a", max_size=8))
def test_nothing_else_is(text: str) -> None:
    parts = text.split("/")
    plain = all(re.fullmatch(r"[A-Za-z0-9._-]+", part) and part not in (".", "..") for part in parts)
    assert is_key(text) == plain


def test_the_limits_are_where_they_are_said_to_be() -> None:
    assert is_key("x" * MAX_COMPONENT)
    assert not is_key("x" * (MAX_COMPONENT + 1))
    longest = "/".join(["x" * 199] * 4)
    assert len(longest) < MAX_KEY
    assert is_key(longest + "y")
    assert not is_key(longest + "y/z")
    assert check_prefix("") == ""


@pytest.mark.parametrize("text", ["", "/", "a/", "/a", "a//b", "a/../b", "a b", "é", "a" * (MAX_COMPONENT + 1)])
def test_a_store_is_not_asked_for_what_is_no_key(text: str) -> None:
    with pytest.raises(ObjectsRefused, match="no key: "):
        check_key(text)


@pytest.mark.parametrize("text", ["a", "/", "a//", "../", "a b/"])
def test_a_store_is_not_asked_for_what_is_no_prefix(text: str) -> None:
    with pytest.raises(ObjectsRefused, match=r"no prefix: .*; it is empty or ends with /"):
        check_prefix(text)
