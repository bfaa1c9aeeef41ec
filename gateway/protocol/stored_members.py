"""Stored documents of more than one version. Pure.

A member that this version does not know was written by a newer one. It is kept in `_unknown` and written back, so going
back to an older gateway and forward again loses nothing. That holds for documents in a document, too.
"""

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any

import msgspec
import orjson

Unknown = Mapping[str, Any] | None  # members that this version does not know
UNKNOWN = "_unknown"


def arguments(cls: Any, members: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments for `cls`, a dataclass or struct with a field `_unknown`: the known members, and the rest as that
    field."""
    names = _names(cls)
    known = {name: value for name, value in members.items() if name in names}
    if len(known) < len(members):
        known[UNKNOWN] = {name: value for name, value in members.items() if name not in names}
    return known


def dump(stored: Any) -> bytes:
    """The dataclass or struct as JSON, with the unknown members of it and of those in it."""
    return orjson.dumps(stored, default=_members, option=orjson.OPT_PASSTHROUGH_DATACLASS)


def _members(stored: Any) -> dict[str, Any]:
    known = {name: getattr(stored, name) for name in _names(stored.__class__)}
    return {**(getattr(stored, UNKNOWN) or {}), **known}


@cache
def _names(cls: Any) -> dict[str, None]:
    """The names of the known members, in order."""
    names = cls.__struct_fields__ if issubclass(cls, msgspec.Struct) else [known.name for known in fields(cls)]
    return {name: None for name in names if name != UNKNOWN}
