"""Parameters are read as they are declared; what is not as declared is refused by name."""

from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from gateway.protocol.errors import ApiError
from gateway.routing.parameters import (
    PATH,
    USER,
    ChoiceParameter,
    FlagParameter,
    IntegerParameter,
    WordParameter,
)

LIMIT = IntegerParameter("limit", 1, 1000, 100, "how many")
AFTER = IntegerParameter("after", 0, 2**53, None)
PURGE = FlagParameter("purge", "all of it")
WAIT = FlagParameter("wait", "until it is done", default=True)
ROLE = WordParameter("role", "of this role")
SOURCE = ChoiceParameter("source", ("auto", "live"))
ALL: list[Any] = [LIMIT, AFTER, PURGE, WAIT, ROLE, SOURCE, USER]


def asked(*pairs: tuple[str, str]) -> Request:
    return Request({"type": "http", "headers": [], "query_string": urlencode(pairs).encode()})


def test_what_is_absent_is_as_usual() -> None:
    assert [each.read(asked()) for each in ALL] == [100, None, False, True, None, "auto", None]


@pytest.mark.parametrize(
    ("parameter", "given", "value"),
    [
        (LIMIT, "1", 1),
        (LIMIT, "1000", 1000),
        (AFTER, "0", 0),
        (AFTER, str(2**53), 2**53),
        (PURGE, "1", True),
        (PURGE, "true", True),
        (WAIT, "0", False),
        (WAIT, "false", False),
        (ROLE, "user-1_a", "user-1_a"),
        (SOURCE, "live", "live"),
        (USER, "ada lovelace", "ada lovelace"),
    ],
)
def test_what_is_given_is_read(parameter: Any, given: str, value: Any) -> None:
    assert parameter.read(asked((parameter.name, given), ("other", "x"))) == value


@pytest.mark.parametrize(
    ("parameter", "given", "wanted"),
    [
        *(
            (LIMIT, bad, "given once, a whole number from 1 to 1000")
            for bad in ("0", "1001", "", "-1", "1.0", "\u0661")
        ),
        *((AFTER, bad, f"given once, a whole number from 0 to {2**53}") for bad in ("9" * 20, str(2**53 + 1), "x")),
        *((PURGE, bad, "given once, 0 or 1") for bad in ("", "yes", "TRUE", "2")),
        *((ROLE, bad, "given once: letters, digits, _ and -, at most 64") for bad in ("", "a b", "x" * 65, "a\n")),
        *((SOURCE, bad, "given once, one of auto, live") for bad in ("", "Live", "live,auto")),
        *((USER, bad, "given once, 1 to 256 printable characters") for bad in ("", "x" * 257, "a\nb")),
    ],
)
def test_what_is_not_as_declared_is_refused_by_name(parameter: Any, given: str, wanted: str) -> None:
    with pytest.raises(ApiError) as refused:
        parameter.read(asked((parameter.name, given)))
    assert (refused.value.status, refused.value.code) == (400, "bad_parameter")
    assert str(refused.value) == f"{parameter.name} must be {wanted}"


@pytest.mark.parametrize("parameter", ALL)
def test_twice_is_refused(parameter: Any) -> None:
    good = {"role": "a", "source": "live", "userId": "a"}.get(parameter.name, "1")
    assert parameter.read(asked((parameter.name, good))) is not None
    with pytest.raises(ApiError, match=f"^{parameter.name} must be given once"):
        parameter.read(asked((parameter.name, good), (parameter.name, good)))


def test_what_openapi_says_of_them() -> None:
    assert LIMIT.schema == {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}
    assert AFTER.schema == {"type": "integer", "minimum": 0, "maximum": 2**53}
    assert WAIT.schema == {"type": "string", "enum": ["0", "1", "true", "false"], "default": "1"}
    assert PURGE.schema == {"type": "string", "enum": ["0", "1", "true", "false"]}
    assert SOURCE.schema == {"type": "string", "enum": ["auto", "live"], "default": "auto"}
    assert ROLE.schema["pattern"] == "^[A-Za-z0-9_-]{1,64}$"
    assert (LIMIT.doc, LIMIT.where, PATH.where) == ("how many", "query", "path")


@given(st.lists(st.tuples(st.sampled_from([each.name for each in ALL]), st.text(max_size=6)), max_size=4))
def test_any_query_is_read_or_refused(pairs: list[tuple[str, str]]) -> None:
    codes = set()
    for parameter in ALL:
        try:
            parameter.read(asked(*pairs))
        except ApiError as refused:
            codes.add(refused.code)
    assert codes <= {"bad_parameter"}
