"""The prices of tokens. Pure: works on the lines of files.

Costs are whole nano-dollars (10^-9 USD), rounded up: they add up to the same in any order. A name with a reseller's
prefix (`anthropic/claude-...`) is looked up as it is, then without the prefix. A model without a line has no known
cost: its tokens are counted, its cost is reported as unknown, and where a budget in USD holds, it is refused, because
the budget could not be enforced. A line `"*"` of the operator's file gives every model a price.
"""

import re
import tomllib
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Any

from gateway.egress.meter import Tokens

NANO = 10**9
MOST_LINES = 2000
_PATTERN = re.compile(r"[!-~]{1,100}", re.ASCII)
_MEMBERS = ("input", "output", "cache_read", "cache_write")
_MILLION = 10**6


@dataclass(frozen=True, slots=True)
class Price:
    """In nano-dollars for a million tokens."""

    input: int
    output: int
    cache_read: int
    cache_write: int

    def cost(self, tokens: Tokens) -> int:
        """In nano-dollars."""
        parts = (
            self.input * tokens.input,
            self.output * tokens.output,
            self.cache_read * tokens.cache_read,
            self.cache_write * tokens.cache_write,
        )
        return -(-sum(parts) // _MILLION)

    def most(self, given: int, made: int) -> int:
        """The highest cost of so many tokens given to the model and made by it."""
        dearest = max(self.input, self.cache_read, self.cache_write)
        return -(-(dearest * given + self.output * made) // _MILLION)


class Prices:
    """Lines in order; the first that matches counts."""

    def __init__(self, lines: tuple[tuple[str, Price], ...] = ()) -> None:
        self.lines = lines
        self._found: dict[str, Price | None] = {}

    def of(self, model: str) -> Price | None:
        """None: the model has no price."""
        if model not in self._found:
            if len(self._found) >= MOST_LINES:
                self._found.clear()
            self._found[model] = self._look(model) or self._look(model.rpartition("/")[2])
        return self._found[model]

    def _look(self, model: str) -> Price | None:
        return next((price for pattern, price in self.lines if _fits(pattern, model)), None) if model else None


def read_prices(*files: bytes) -> Prices:
    """The lines of all files, those of the first file first. Raises ValueError, with a line for each problem."""
    lines: list[tuple[str, Price]] = []
    problems: list[str] = []
    for data in files:
        try:
            found = tomllib.loads(data.decode(), parse_float=Decimal)
        except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
            raise ValueError(f"is no TOML: {error}") from None
        if len(found) > MOST_LINES:
            raise ValueError(f"has more than {MOST_LINES} lines")
        for pattern, members in found.items():
            try:
                lines.append((pattern, _read_line(pattern, members)))
            except ValueError as error:
                problems.append(f"{pattern[:60]!r} {error}")
    if problems:
        raise ValueError("\n".join(problems[:20]))
    return Prices(tuple(lines))


def _read_line(pattern: str, members: Any) -> Price:
    if not _PATTERN.fullmatch(pattern):
        raise ValueError('is no pattern of names, such as "claude-*": a name with a dot stands in quotes')
    if not isinstance(members, dict) or not {"input", "output"} <= members.keys() <= set(_MEMBERS):
        raise ValueError("wants { input = 3, output = 15 } in USD per million, perhaps with cache_read and cache_write")
    given = _nano(members["input"])
    rest = (_nano(members.get(name, members["input"])) for name in ("cache_read", "cache_write"))
    return Price(given, _nano(members["output"]), *rest)


def _nano(value: Any) -> int:
    is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    if not is_number or not Decimal(value).is_finite() or not 0 <= value <= 100_000:
        raise ValueError("wants prices from 0 to 100000")
    return int((Decimal(value) * NANO).to_integral_value(ROUND_CEILING))


def _fits(pattern: str, model: str) -> bool:
    """`*` is any characters. Takes time proportional to the lengths."""
    first, *parts = pattern.lower().split("*")
    name = model.lower()
    if not parts:
        return name == first
    *middle, last = parts
    if not name.startswith(first) or not name.endswith(last) or len(name) < len(first) + len(last):
        return False
    at, end = len(first), len(name) - len(last)
    for part in middle:
        found = name.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True
