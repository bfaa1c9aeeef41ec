"""Finds numbers at known places of a JSON document: in a parsed one, or in one of any size that passes by. Pure.

A place is a path of keys, such as `response`, `usage`. The whole numbers of the object there are counted, by their
names, and those of the objects in it (`input_tokens_details.cached_tokens`). In a document that is a list, each member
counts as a document. A `CountFinder` holds no more of a document than the keys of its outer levels and the present
text, cut; invalid JSON leads to wrong counts and does no other harm.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

Path = tuple[str, ...]
MOST = 10**15
MOST_NAMES = 50  # further ones are left out
MODEL = re.compile(r"[!-~]{1,100}", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]{1,40}", re.ASCII)
_LEVELS = 5  # a place, an object in it, a list around all, and one more
_TEXT_BYTES = 700  # MODEL, if each character were escaped
_NUMBER = re.compile(rb"[0-9]{1,15}")
_IN_TEXT = re.compile(rb'["\\]')
_OUTSIDE = re.compile(rb'["{}\[\]:,]')


@dataclass(slots=True)
class FoundCounts:
    """`places` are those where a number was found, `models` the names by their places."""

    counts: dict[str, int] = field(default_factory=dict)
    places: set[Path] = field(default_factory=set)
    models: dict[Path, str] = field(default_factory=dict)

    @property
    def model(self) -> str:
        return self.models[max(self.models, key=len)] if self.models else ""

    def count(self, place: Path, name: Path, count: int) -> None:
        said = ".".join(name)
        if all(map(_NAME.fullmatch, name)) and (said in self.counts or len(self.counts) < MOST_NAMES):
            self.counts[said] = max(count, self.counts.get(said, 0))
            self.places.add(place)

    def call(self, place: Path, model: str) -> None:
        if MODEL.fullmatch(model):
            self.models[place] = model


def found_in(document: Any, usage: Sequence[Path], model: Sequence[Path]) -> FoundCounts:
    """The counts of a parsed document at these places."""
    found = FoundCounts()
    for each in document if isinstance(document, list) else [document]:
        for place in usage:
            _add_all(found, place, _at(each, place))
        for place in model:
            if isinstance(name := _at(each, place), str):
                found.call(place, name)
    return found


def _at(document: Any, place: Path) -> Any:
    for key in place:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _add_all(found: FoundCounts, place: Path, members: Any, before: Path = ()) -> None:
    for name, value in members.items() if isinstance(members, dict) else ():
        if isinstance(value, dict) and not before:
            _add_all(found, place, value, (name,))
        elif isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST:
            found.count(place, (*before, name), value)


class CountFinder:
    """The same for a document that is fed in pieces."""

    def __init__(self, usage: Sequence[Path], model: Sequence[Path]) -> None:
        self.found = FoundCounts()
        self._usage = usage
        self._model = model
        self._depth = 0
        self._keys: list[str | None] = []  # of the outer levels; None for a list, and before the first key
        self._in_text = False
        self._escaped = False
        self._text: str | None = None  # the last one that ended
        self._piece = bytearray()  # of a text, or of the bytes between two signs

    def feed(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            at = self._read_text(data, at) if self._in_text else self._read_outside(data, at)

    def _read_text(self, data: bytes, at: int) -> int:
        if self._escaped:
            self._escaped = False
            self._keep(data[at : at + 1])
            return at + 1
        sign = _IN_TEXT.search(data, at)
        if sign is None:
            self._keep(data[at:])
            return len(data)
        self._keep(data[at : sign.start()])
        if sign[0] == b'"':
            self._in_text = False
            self._text = _read(self._piece)
            self._piece.clear()
        else:
            self._escaped = True
            self._keep(b"\\")
        return sign.end()

    def _read_outside(self, data: bytes, at: int) -> int:
        sign = _OUTSIDE.search(data, at)
        if sign is None:
            self._keep(data[at:])
            return len(data)
        self._keep(data[at : sign.start()])
        match sign[0]:
            case b'"':
                self._in_text = True
                self._piece.clear()
            case b"{" | b"[":
                self._depth += 1
                if self._depth <= _LEVELS:
                    self._keys.append(None)
                self._forget()
            case b":":
                if self._keys and self._depth == len(self._keys):
                    self._keys[-1] = self._text
                self._forget()
            case b",":
                self._value()
                if self._keys and self._depth == len(self._keys):
                    self._keys[-1] = None
            case _:
                self._value()
                if self._depth == len(self._keys) and self._keys:
                    self._keys.pop()
                self._depth = max(0, self._depth - 1)
        return sign.end()

    def _value(self) -> None:
        """A value has ended: a text, or the bytes between two signs."""
        path = self._path()
        if path is not None:
            if self._text is not None:
                if path in self._model:
                    self.found.call(path, self._text)
            elif _NUMBER.fullmatch(number := bytes(self._piece.strip())):
                self._count(path, int(number))
        self._forget()

    def _count(self, path: Path, number: int) -> None:
        for place in self._usage:
            name = path[len(place) :]
            if path[: len(place)] == place and 1 <= len(name) <= 2:
                self.found.count(place, name, number)

    def _path(self) -> Path | None:
        """The path of the present value; None if it is at no place of interest."""
        if self._depth != len(self._keys):
            return None
        keys = self._keys[1:] if self._keys and self._keys[0] is None else self._keys
        named = tuple(key for key in keys if key is not None)
        return named if len(named) == len(keys) and named else None

    def _keep(self, data: bytes) -> None:
        self._piece += data[: _TEXT_BYTES + 1 - len(self._piece)]

    def _forget(self) -> None:
        self._text = None
        self._piece.clear()


def _read(raw: bytearray) -> str:
    """The text without its escapes; "" if it is too long, or invalid."""
    if len(raw) > _TEXT_BYTES:
        return ""
    try:
        return msgspec.json.decode(b'"%b"' % bytes(raw), type=str)
    except msgspec.DecodeError:
        return ""
