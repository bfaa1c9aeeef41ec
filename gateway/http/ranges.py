"""Which bytes of a file a request asks for: all of them, or one range. Pure.

A request with many ranges can ask for far more than the file has, so there is never more than one.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.protocol.errors import ApiError

_RANGE = re.compile(r"bytes=[ \t]*([0-9]{0,18})-([0-9]{0,18})[ \t]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Span:
    """`length` bytes from `start`; at least one."""

    start: int
    length: int


class Unsatisfiable(ApiError):
    """The file has no byte of that range."""

    def __init__(self, size: int) -> None:
        super().__init__(416, "no_such_range", f"the file has {size} bytes, and none of those")


def read_range(given: Sequence[str], size: int) -> Span | None:
    """The range that the `Range` headers ask for of a file of `size` bytes; None for all of it. Raises ApiError."""
    if not given:
        return None
    found = _RANGE.fullmatch(given[0])
    if len(given) > 1 or found is None or found.groups() == ("", ""):
        raise ApiError(400, "bad_range", "Range must be one range, such as bytes=0-499, bytes=500- or bytes=-500")
    first, last = found.groups()
    if first and last and int(first) > int(last):
        raise ApiError(400, "bad_range", "Range ends before it begins")
    if not first:  # the last so many bytes
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
    if start >= end:
        raise Unsatisfiable(size)
    return Span(start, end - start)
