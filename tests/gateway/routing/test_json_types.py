"""The bases of what the API takes and answers, and the words that go with their members."""

from typing import Annotated, get_args

import msgspec
import pytest

from gateway.routing.json_types import (
    Error,
    JsonAnswer,
    JsonBody,
    Nothing,
    Owner,
    SessionId,
    Time,
    Whole,
    meaning,
    must,
    one_of,
    schema,
)


class Example(JsonAnswer):
    session_id: SessionId
    user_id: Owner
    made_at: Time
    how_many: Annotated[Whole, meaning("of them", maximum=9)]
    colour: Annotated[str, one_of("red", "blue")]
    other: Annotated[str, schema(format="uri")]


def test_members_are_written_in_camel_case_and_described() -> None:
    _, found = msgspec.json.schema_components([Example])
    members = found["Example"]["properties"]
    assert list(members) == ["sessionId", "userId", "madeAt", "howMany", "colour", "other"]
    assert members["howMany"] == {"type": "integer", "minimum": 0, "maximum": 9, "description": "of them"}
    assert members["colour"] == {"type": "string", "enum": ["red", "blue"]}
    assert (members["madeAt"]["format"], members["other"]["format"]) == ("date-time", "uri")
    assert members["userId"]["description"] == "null: it belongs to the services"


def test_an_error_is_stale_only_if_it_is_said() -> None:
    assert msgspec.json.encode(Error("no", "bad")) == b'{"error":"no","code":"bad"}'
    assert msgspec.json.encode(Error("no", "bad", True)) == b'{"error":"no","code":"bad","stale":true}'


def test_what_a_member_must_be_goes_with_its_type() -> None:
    kind = Annotated[int, must("a number"), must("a small number", "bad_number")]
    words = [each.extra for each in get_args(kind)[1:]]
    assert words == [{"must": ("a number", "bad_member")}, {"must": ("a small number", "bad_number")}]


def test_a_body_has_no_members_but_its_own() -> None:
    for kind in (Nothing, JsonBody):
        assert msgspec.convert({}, kind) is not None
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({"more": 1}, kind)
