"""A request's JSON object as the struct that its route declares, or a refusal that names the member. Pure."""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from gateway.protocol.errors import ApiError
from gateway.routing.json_types import JsonBody

Body = TypeVar("Body", bound=JsonBody)
_MEMBER = re.compile(r"`\$\.([A-Za-z_]+)|required field `([A-Za-z_]+)`")


def read_struct(value: dict[str, Any], kind: type[Body]) -> Body:
    """`value` as a `kind`. Unknown members, and then the first invalid one, are refused by name with 400; the refusal
    contains no value."""
    wanted = members(kind)
    if unknown := sorted(value.keys() - wanted.keys()):
        raise unknown_members(unknown, sorted(wanted))
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        found = _MEMBER.search(str(error))
        assert found is not None  # every error is about one of our own members
        name = found[1] or found[2]
        raise bad_member(name, *wanted[name]) from None


def given_members(body: JsonBody) -> list[str]:
    """The members that a client gave, of a body whose members are UNSET where it gave none."""
    given = (each for each in msgspec.structs.fields(body) if getattr(body, each.name) is not msgspec.UNSET)
    return sorted(each.encode_name for each in given)


def unknown_members(unknown: Sequence[str], known: Sequence[str]) -> ApiError:
    told = ", ".join(repr(name[:64]) for name in unknown[:5])
    taken = f"known are {', '.join(known)}" if known else "none is taken here"
    return ApiError(400, "unknown_member", f"unknown members: {told}; {taken}")


def bad_member(name: str, wanted: str, code: str = "bad_member") -> ApiError:
    return ApiError(400, code, f"{name} must be {wanted}")


@cache
def members(kind: type[JsonBody]) -> dict[str, tuple[str, str]]:
    """Every member of a body, with its expected value in words and the code of the refusal."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return {each.encode_name: _words(each.type) for each in info.fields}


def _words(kind: inspect.Type) -> tuple[str, str]:
    """Raises ValueError for a member without `must`."""
    if not isinstance(kind, inspect.Metadata) or not kind.extra:
        raise ValueError("say with `must` what a member of a body has to be")
    words, code = kind.extra["must"]
    return words, code
