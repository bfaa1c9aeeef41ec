"""The bodies and answers of the HTTP API as msgspec structs: their bases, and the types that many of them share. Pure.

A struct has the same name in `/openapi.json` as here, without the ending `Json` or `Body` that sets it apart from a
class of the gateway. Its docstring and the descriptions of its members are public words. A member without a default is
required. UNSET, where it is the default, is a member that may be absent.

`must` describes the expected value of a body's member. A refusal is made of these words, never of the given value,
which may be a secret.
"""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType


class JsonAnswer(Struct, rename="camel"):
    pass


class JsonBody(Struct, rename="camel", forbid_unknown_fields=True):
    pass


def must(words: str, code: str = "bad_member") -> Meta:
    """The expected value of a body's member in words, and the code of the refusal."""
    return Meta(extra={"must": (words, code)})


def meaning(description: str, **schema: Any) -> Meta:
    """A description, and the JSON Schema beyond the type."""
    return Meta(description=description, extra_json_schema=schema or None)


def schema(**members: Any) -> Meta:
    return Meta(extra_json_schema=members)


def one_of(*words: str) -> Meta:
    return Meta(extra_json_schema={"enum": list(words)})


SESSION_ID = "^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$"

Whole = Annotated[int, Meta(ge=0)]
Number = Annotated[int, Meta(ge=1)]
Time = Annotated[str, schema(format="date-time")]
SessionId = Annotated[str, Meta(pattern=SESSION_ID)]
Owner = Annotated[str | None, meaning("null: it belongs to the services")]
Base64 = Annotated[str, meaning("given where the name is not UTF-8", contentEncoding="base64")]
Yes = Annotated[bool, schema(const=True)]


class Nothing(JsonBody):
    """No members are accepted."""


class Error(JsonAnswer):
    """Every refusal."""

    error: Annotated[str, meaning("for people")]
    code: Annotated[str, meaning("for programs")]
    stale: Annotated[Yes | UnsetType, meaning("the store cannot be read: the answer may be old")] = UNSET
