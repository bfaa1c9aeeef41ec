"""The values of a recording as JSON, and back. Pure.

A value that JSON has is written as it is. Every other value is an object with the member `!`, which names its kind:
bytes, tuples, enums, the classes in `PLAIN`, exceptions. A live thing (a viewer, a link, a handler) is no value: the
caller's `live` names it, and `alive` finds or makes it again.

`hide` gets every text before it is written and takes secrets out of it. It must keep the length in UTF-8: a session's
behaviour depends on sizes.
"""

import base64
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from enum import Enum
from types import ModuleType
from typing import Any

import msgspec

from gateway.auth import shares
from gateway.limits import images, network, resources, start_queue, start_turns
from gateway.protocol import chat_frames, close_codes
from gateway.session.conversation import receipts
from gateway.session.model import delivery_window, ports, state
from gateway.session.sandbox.lifecycle import events
from persistence import record
from sandbox.ports import progress
from sandbox.ports import resources as resource_limits
from sandbox.protocol import values
from sync.format import pointer
from sync.machine import driver
from sync.machine import state as sync_state

KIND = "!"
MODULES: tuple[ModuleType, ...] = (
    *(
        shares,
        images,
        network,
        resources,
        progress,
        resource_limits,
        start_queue,
        start_turns,
        chat_frames,
        close_codes,
        receipts,
        delivery_window,
        ports,
        state,
    ),
    *(events, record, values, pointer, driver, sync_state),
)

Live = Callable[[Any], dict[str, Any]]
Alive = Callable[[dict[str, Any]], Any]
Hide = Callable[[str], str]


class NotARecording(ValueError):
    """The JSON is not a value of a recording."""


class RecordedError(Exception):
    """An exception of which the recording has the text only."""


def _is_plain(kind: type) -> bool:
    return is_dataclass(kind) or issubclass(kind, Enum | msgspec.Struct)


def _classes(modules: Iterable[ModuleType]) -> dict[str, type]:
    found: dict[str, type] = {}
    for module in modules:
        for name, kind in vars(module).items():
            if isinstance(kind, type) and kind.__module__ == module.__name__ and _is_plain(kind):
                assert name not in found, f"two classes are called {name}"
                found[name] = kind
    return found


PLAIN = _classes(MODULES)


def _members(value: Any) -> tuple[str, ...]:
    if isinstance(value, msgspec.Struct):
        return tuple(name for name in value.__struct_fields__ if getattr(value, name) is not msgspec.UNSET)
    return tuple(field.name for field in fields(value))


def error_text(error: BaseException) -> str:
    return str(error) if isinstance(error, RecordedError) else f"{type(error).__name__}: {error}"


class Encoder:
    def __init__(self, live: Live, hide: Hide) -> None:
        self._live = live
        self._hide = hide

    def __call__(self, value: Any) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, Enum):
            return {KIND: type(value).__name__, "=": value.value} if type(value).__name__ in PLAIN else value.value
        if isinstance(value, int):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {KIND: "float", "=": str(value)}
        if isinstance(value, str):
            return self._hide(value)
        if isinstance(value, bytes | bytearray | memoryview):
            return self._bytes(bytes(value))
        return self._compound(value)

    def _bytes(self, value: bytes) -> dict[str, str]:
        text = self._hide(value.decode(errors="surrogateescape"))
        try:
            text.encode()
        except UnicodeEncodeError:
            return {KIND: "bytes", "64": base64.b64encode(text.encode(errors="surrogateescape")).decode()}
        return {KIND: "bytes", "=": text}

    def _compound(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self(each) for each in value]
        if isinstance(value, tuple):
            return {KIND: "tuple", "=": [self(each) for each in value]}
        if isinstance(value, set | frozenset):
            return {KIND: "set", "=": sorted((self(each) for each in value), key=json.dumps)}
        if isinstance(value, dict):
            if all(isinstance(name, str) and not name.startswith(KIND) for name in value):
                return {self._hide(name): self(each) for name, each in value.items()}
            return {KIND: "dict", "=": [[self(name), self(each)] for name, each in value.items()]}
        if type(value).__name__ in PLAIN and _is_plain(type(value)):
            return {KIND: type(value).__name__, **{name: self(getattr(value, name)) for name in _members(value)}}
        if isinstance(value, BaseException):
            return {KIND: "error", "=": self._hide(error_text(value))}
        return self._live(value)


def decode(value: Any, alive: Alive) -> Any:
    """Raises NotARecording."""
    if isinstance(value, list):
        return [decode(each, alive) for each in value]
    if not isinstance(value, dict):
        return value
    if KIND not in value:
        return {name: decode(each, alive) for name, each in value.items()}
    try:
        return _named(value, alive)
    except (KeyError, TypeError, ValueError) as error:
        raise NotARecording(f"there is no such value: {json.dumps(value)[:200]}") from error


def _named(value: dict[str, Any], alive: Alive) -> Any:
    kind = value[KIND]
    match kind:
        case "float":
            return float(value["="])
        case "bytes":
            return base64.b64decode(value["64"]) if "64" in value else value["="].encode()
        case "tuple":
            return tuple(decode(each, alive) for each in value["="])
        case "set":
            return frozenset(decode(each, alive) for each in value["="])
        case "dict":
            return {decode(name, alive): decode(each, alive) for name, each in value["="]}
        case "error":
            return RecordedError(value["="])
    if kind not in PLAIN:
        return alive(value)
    if issubclass(PLAIN[kind], Enum):
        return PLAIN[kind](value["="])
    return PLAIN[kind](**{name: decode(each, alive) for name, each in value.items() if name != KIND})
