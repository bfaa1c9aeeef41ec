"""The possible input of a program that sends its terminal queries. Pure."""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tests.campaign.terminal.recorder import FIRST_MODE, place

_PIECE = re.compile(
    rb"""
        (?P<typed> [ab]\d+; )
      | \x1b\[ (?P<cursor> \d+;\d+ ) R
      | \x1b\[\? (?P<mode> \d+ ) ;\d \$y
      | (?P<kind> \x1b\[\?[\d;]+c )
      | (?P<other> .[^ab\x1b]* )
    """,
    re.VERBOSE | re.DOTALL,
)


class Reading:
    """Its input, taken apart: typing in its order, and the number of answers to each query."""

    def __init__(self, log: bytes) -> None:
        found = [(match.lastgroup, match[0]) for match in _PIECE.finditer(log)]
        self.typed = [piece.decode() for kind, piece in found if kind == "typed"]
        self.others = [piece for kind, piece in found if kind == "other"]
        self.kinds = sum(kind == "kind" for kind, _ in found)
        self.cursors: Counter[tuple[int, int]] = Counter()
        self.modes: Counter[int] = Counter()
        for match in _PIECE.finditer(log):
            if match.lastgroup == "cursor":
                row, _, column = match["cursor"].partition(b";")
                self.cursors[int(row), int(column)] += 1
            elif match.lastgroup == "mode":
                self.modes[int(match["mode"])] += 1

    @property
    def answers(self) -> int:
        return self.kinds + self.cursors.total() + self.modes.total()

    def problems(self, typed: Sequence[str], asked: Sequence[int], surely: Collection[int]) -> list[str]:
        """`typed` are the tokens that were, in order: `a1;` by one, `b2;` by another. `asked` are the questions, those
        in `surely` while nothing was broken."""
        found: list[str] = []
        for person in "ab":  # the input of two people at once has no order
            theirs = [token for token in typed if token.startswith(person)]
            read = [token for token in self.typed if token.startswith(person)]
            if read != [token for token in theirs if token in read]:
                found.append(f"read what was not typed so: {read}")
        if self.others:
            found.append(f"read what nobody typed: {self.others[:5]}")
        if self.kinds > len(asked):
            found.append(f"asked {len(asked)} times what the terminal is, was told {self.kinds} times")
        found += _miscounted("cursor", self.cursors, {number: place(number) for number in asked}, surely)
        found += _miscounted("mode", self.modes, {number: FIRST_MODE + number for number in asked}, surely)
        return found


def _miscounted(what: str, answers: Counter[Any], of: Mapping[int, Any], surely: Collection[int]) -> list[str]:
    found: list[str] = []
    if unasked := set(answers) - set(of.values()):
        found.append(f"{what}: answers to what was never asked: {sorted(unasked)[:5]}")
    if twice := [number for number in of if answers[of[number]] > 1]:
        found.append(f"{what}: answered more than once: {twice}")
    if never := [number for number in surely if not answers[of[number]]]:
        found.append(f"{what}: never answered: {never}")
    return found
