"""Parameters of a request: declared with their route, and read by that declaration. Pure.

Each is given at most once. An invalid one is refused with 400 `bad_parameter`, in words that name it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar

from starlette.requests import HTTPConnection

from gateway.protocol.errors import ApiError

Default = TypeVar("Default", int, None)
_WORD = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Parameter:
    """A parameter's declaration for OpenAPI. A route reads one of this class itself."""

    def __init__(
        self,
        name: str,
        schema: Mapping[str, Any],
        doc: str = "",
        *,
        where: Literal["query", "header", "path"] = "query",
    ) -> None:
        self.name = name
        self.schema = schema
        self.doc = doc
        self.where = where

    def _given(self, request: HTTPConnection) -> Sequence[str]:
        return request.query_params.getlist(self.name)

    def _bad(self, wanted: str) -> ApiError:
        return ApiError(400, "bad_parameter", f"{self.name} must be {wanted}")


class IntegerParameter(Parameter, Generic[Default]):
    """A whole number within bounds; `default` when it is absent."""

    def __init__(self, name: str, low: int, high: int, default: Default, doc: str = "") -> None:
        usual: dict[str, Any] = {"default": default} if default else {}
        super().__init__(name, {"type": "integer", "minimum": low, "maximum": high, **usual}, doc)
        self._low, self._high = low, high
        self._default: Default = default

    def read(self, request: HTTPConnection) -> int | Default:
        given = self._given(request)
        if not given:
            return self._default
        text = given[0]
        readable = len(given) == 1 and text.isascii() and text.isdecimal() and len(text) <= 19
        if not readable or not self._low <= int(text) <= self._high:
            raise self._bad(f"given once, a whole number from {self._low} to {self._high}")
        return int(text)


class FlagParameter(Parameter):
    def __init__(self, name: str, doc: str, *, default: bool = False) -> None:
        usual = {"default": "1"} if default else {}
        super().__init__(name, {"type": "string", "enum": ["0", "1", "true", "false"], **usual}, doc)
        self._default = "1" if default else "0"

    def read(self, request: HTTPConnection) -> bool:
        given = self._given(request) or [self._default]
        if len(given) > 1 or given[0] not in ("0", "1", "true", "false"):
            raise self._bad("given once, 0 or 1")
        return given[0] in ("1", "true")


class WordParameter(Parameter):
    def __init__(self, name: str, doc: str) -> None:
        super().__init__(name, {"type": "string", "pattern": f"^{_WORD.pattern}$"}, doc)

    def read(self, request: HTTPConnection) -> str | None:
        given = self._given(request)
        if not given:
            return None
        if len(given) > 1 or not _WORD.fullmatch(given[0]):
            raise self._bad("given once: letters, digits, _ and -, at most 64")
        return given[0]


class ChoiceParameter(Parameter):
    """One of `known`, the first of them when it is absent."""

    def __init__(self, name: str, known: tuple[str, ...], doc: str = "") -> None:
        super().__init__(name, {"type": "string", "enum": list(known), "default": known[0]}, doc)
        self._known = known

    def read(self, request: HTTPConnection) -> str:
        given = self._given(request) or self._known[:1]
        if len(given) > 1 or given[0] not in self._known:
            raise self._bad(f"given once, one of {', '.join(self._known)}")
        return given[0]


class UserParameter(Parameter):
    def __init__(self, doc: str = "those of this user only") -> None:
        super().__init__("userId", {"type": "string", "maxLength": 256}, doc)

    def read(self, request: HTTPConnection) -> str | None:
        given = self._given(request)
        if not given:
            return None
        if len(given) > 1 or not 0 < len(given[0]) <= 256 or not given[0].isprintable():
            raise self._bad("given once, 1 to 256 printable characters")
        return given[0]


USER = UserParameter()
PATH = Parameter(
    "path",
    {"type": "string", "description": "components percent-encoded, with `/` between them"},
    where="path",
)
