"""A JSON object is read as the struct that a route declares, or refused by the member's name."""

from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Meta, UnsetType

from gateway.protocol.errors import ApiError
from gateway.routing.bodies import bad_member, given_members, members, read_struct, unknown_members
from gateway.routing.json_types import JsonBody, Nothing, must
from tests.support.routes import SPECS


class Order(JsonBody):
    dish_name: Annotated[str, Meta(max_length=8), must("the name of a dish")]
    how_many: Annotated[int, Meta(ge=1, le=9), must("a whole number from 1 to 9")] = 1
    size: Annotated[Literal["small", "large"] | UnsetType, must("small or large", "bad_size")] = UNSET
    extras: Annotated[dict[str, list[str]] | UnsetType | None, must("names by kind")] = UNSET


def refusal(body: dict[str, Any], kind: type[JsonBody] = Order) -> tuple[str, str]:
    with pytest.raises(ApiError) as refused:
        read_struct(body, kind)
    assert refused.value.status == 400
    return refused.value.code, refused.value.message


def test_a_body_is_read() -> None:
    assert read_struct({"dishName": "soup"}, Order) == Order("soup", 1, UNSET, UNSET)
    whole = {"dishName": "soup", "howMany": 2, "size": "large", "extras": {"herbs": ["dill"]}}
    assert read_struct(whole, Order) == Order("soup", 2, "large", {"herbs": ["dill"]})
    assert read_struct({}, Nothing) == Nothing()


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({}, ("bad_member", "dishName must be the name of a dish")),
        ({"dishName": None}, ("bad_member", "dishName must be the name of a dish")),
        ({"dishName": "x" * 9}, ("bad_member", "dishName must be the name of a dish")),
        ({"dishName": "soup", "howMany": 10}, ("bad_member", "howMany must be a whole number from 1 to 9")),
        ({"dishName": "soup", "howMany": True}, ("bad_member", "howMany must be a whole number from 1 to 9")),
        ({"dishName": "soup", "howMany": 2.0}, ("bad_member", "howMany must be a whole number from 1 to 9")),
        ({"dishName": "soup", "howMany": "2"}, ("bad_member", "howMany must be a whole number from 1 to 9")),
        ({"dishName": "soup", "size": "secret"}, ("bad_size", "size must be small or large")),
        ({"dishName": "soup", "extras": {"a": [1]}}, ("bad_member", "extras must be names by kind")),
        ({"dishName": "soup", "extras": {"`$.x`": "secret"}}, ("bad_member", "extras must be names by kind")),
    ],
)
def test_a_bad_member_is_refused_in_the_words_of_its_declaration(body: dict[str, Any], told: tuple[str, str]) -> None:
    assert refusal(body) == told


def test_unknown_members_are_refused_first_and_by_name() -> None:
    known = "known are dishName, extras, howMany, size"
    assert refusal({"b": 1, "a": 2, "dishName": 1}) == ("unknown_member", f"unknown members: 'a', 'b'; {known}")
    assert refusal({"dish_name": "soup"}) == ("unknown_member", f"unknown members: 'dish_name'; {known}")
    assert refusal({"x" * 99: 1}, Nothing) == (
        "unknown_member",
        f"unknown members: '{'x' * 64}'; none is taken here",
    )
    assert refusal(dict.fromkeys("abcdefg"), Nothing)[1].startswith("unknown members: 'a', 'b', 'c', 'd', 'e'; ")
    assert unknown_members(["a"], []).code == "unknown_member"
    assert bad_member("a", "b", "c").code == "c"


def test_which_members_were_given_is_known() -> None:
    assert given_members(read_struct({"dishName": "soup", "extras": None}, Order)) == ["dishName", "extras", "howMany"]


def test_every_member_of_every_body_says_what_it_must_be() -> None:
    class Careless(JsonBody):
        name: str

    class Silent(JsonBody):
        name: Annotated[str, Meta(description="a name")]

    for kind in (Careless, Silent):
        with pytest.raises(ValueError, match="say with `must`"):
            members(kind)
    bodies = {spec.body for spec in SPECS if spec.body is not None}
    assert len(bodies) > 10
    for body in bodies:
        assert all(words and code for words, code in members(body).values())


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


BODIES = {spec.body.__name__: spec.body for spec in SPECS if spec.body is not None}


@given(st.sampled_from(sorted(BODIES)), st.data())
def test_anything_is_read_or_refused_by_every_body(name: str, data: st.DataObject) -> None:
    """What is refused names a member, whatever its value is: msgspec's words are read for it."""
    known = members(BODIES[name])
    value = data.draw(st.dictionaries(st.sampled_from(sorted(known)), ANY)) if known else {}
    told = None
    try:
        read_struct(value, BODIES[name])
    except ApiError as refused:
        told = refused.message
    assert told is None or told.partition(" ")[0] in known
