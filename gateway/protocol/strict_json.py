"""JSON from outside: one object, of bounded depth, number of keys and number of elements, each key once. Pure.

orjson already refuses invalid JSON (NaN, lone surrogates, numbers beyond a double, bytes that are not UTF-8). Two keys
of the same name are legal there and let two readers of one text disagree about its meaning; so they are refused here.
"""

from collections.abc import Iterator
from typing import Any

import orjson

MAX_DEPTH = 64
MAX_KEYS = 10_000
MAX_ELEMENTS = 10_000
SURELY_NARROW = MAX_KEYS + MAX_ELEMENTS  # bytes


class BadJson(ValueError):
    """Not a JSON object that is safe to read. The text says what is wrong."""


def load_object(raw: bytes | str) -> dict[str, Any]:
    """Return the object in `raw`; raise BadJson for anything else."""
    data = raw.encode(errors="surrogatepass") if isinstance(raw, str) else raw
    if len(data) > SURELY_NARROW:
        check_width(data)
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadJson(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadJson("not a JSON object")
    keys = _count_keys(value)
    # A colon inside a string only makes the first count too high, so the exact one is rarely needed.
    if data.count(b":") != keys and _outside_strings(data).count(b":") != keys:
        raise BadJson("an object names a member twice")
    return value


def check_width(data: bytes) -> None:
    """Raise BadJson for a text that is far too wide, before it is parsed: parsing makes an object of each element."""
    most = MAX_KEYS + MAX_ELEMENTS
    if data.count(b",") > most and _outside_strings(data).count(b",") > most:
        raise BadJson(f"more than {MAX_KEYS} members or {MAX_ELEMENTS} elements")


def _outside_strings(data: bytes) -> bytes:
    """The text between the strings of a JSON text. For invalid JSON the result is arbitrary, and takes no longer."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(data.split(b'"')[::2])


def within_depth(value: Any) -> bool:
    """True if a JSON object or array nests no deeper than MAX_DEPTH."""
    return all(depth <= MAX_DEPTH for depth, _ in enumerate(_levels(value), 1))


def _count_keys(value: dict[str, Any]) -> int:
    if len(value) <= MAX_KEYS:
        for child in value.values():
            if isinstance(child, (dict, list)):
                break
        else:
            return len(value)  # most frames are flat
    keys = elements = 0
    for depth, level in enumerate(_levels(value), 1):
        if depth > MAX_DEPTH:
            raise BadJson(f"nested deeper than {MAX_DEPTH}")
        keys += sum(len(item) for item in level if isinstance(item, dict))
        if keys > MAX_KEYS:
            raise BadJson(f"more than {MAX_KEYS} members")
        elements += sum(len(item) for item in level if isinstance(item, list))
        if elements > MAX_ELEMENTS:
            raise BadJson(f"more than {MAX_ELEMENTS} elements")
    return keys


def _levels(value: Any) -> Iterator[list[Any]]:
    """The objects and arrays of `value`, one list per level of nesting."""
    level = [value]
    while level:
        yield level
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, (dict, list))
        ]
