"""Figures. A figure compares one number of ours with one of a named peer, measured in the same run. It is printed and
kept as JSON."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

NO_SPREAD_BELOW = 4  # rounds: with fewer, the spread is the whole range


@dataclass(frozen=True, slots=True)
class Goal:
    """The ratio must be at least `bound`, or at most `bound` where less is better. `reach` is the ratio to aim for."""

    bound: float
    reach: float | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """`ours` compared with `theirs`, both in `unit`. `rounds` has the (ours, theirs) pairs if there were several."""

    claim: str
    peer: str
    unit: str
    ours: float
    theirs: float
    less_is_better: bool = False
    rounds: tuple[tuple[float, float], ...] = ()
    note: str = ""
    goal: Goal | None = None

    @property
    def ratio(self) -> float | None:
        """The median of the rounds' ratios. None if noise is larger than the difference to be measured."""
        ratios = self._ratios()
        if 2 * len(ratios) > len(self.rounds) > 0:
            return statistics.median(ratios)
        return self.ours / self.theirs if self.ours > 0 and self.theirs > 0 else None

    @property
    def spread(self) -> tuple[float, float] | None:
        """The two ratios between which the middle half of the rounds lies. None if there was one round."""
        ratios = self._ratios()
        if len(ratios) < 2:
            return None
        if len(ratios) < NO_SPREAD_BELOW:
            return min(ratios), max(ratios)
        low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
        return low, high

    @property
    def wanted(self) -> str:
        """The goal as text. Empty if there is none."""
        if self.goal is None:
            return ""
        return f"at {'most' if self.less_is_better else 'least'} {self.goal.bound:g}x"

    @property
    def verdict(self) -> str:
        """The goal and whether it is met. Empty if there is no goal."""
        if self.goal is None:
            return ""
        words = f"{self.wanted}, {self._met(self.goal.bound)}"
        if self.goal.reach is None:
            return words
        return f"{words}; reach {self.goal.reach:g}x, {self._met(self.goal.reach)}"

    def _met(self, bound: float) -> str:
        if self.ratio is None:
            return "too noisy to say"
        return "met" if (self.ratio <= bound if self.less_is_better else self.ratio >= bound) else "missed"

    def _ratios(self) -> list[float]:
        return [ours / theirs for ours, theirs in self.rounds if ours > 0 and theirs > 0]

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"ratio": self.ratio, "spread": self.spread}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> "Figure":
        members = {name: value for name, value in kept.items() if name not in ("ratio", "spread")}
        goal = members["goal"]
        rounds = tuple((ours, theirs) for ours, theirs in members["rounds"])
        return cls(**members | {"goal": Goal(**goal) if goal else None, "rounds": rounds})


def compare(
    claim: str,
    peer: str,
    unit: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    less_is_better: bool = False,
    goal: Goal | None = None,
    note: str = "",
) -> Figure:
    """A figure from one value of ours and theirs for each round. If one has more rounds, the first ones are paired."""
    pairs = tuple(zip(ours, theirs, strict=False))
    mine, other = statistics.median(ours), statistics.median(theirs)
    return Figure(claim, peer, unit, mine, other, less_is_better, pairs if len(pairs) > 1 else (), note, goal)


def show(figures: Sequence[Figure]) -> None:
    """Print the figures as a table, with goals and notes below it."""
    table(
        ("", "holdfast", "peer", "", "ratio", "spread", "", "peer is"),
        [
            (
                figure.claim,
                number(figure.ours),
                number(figure.theirs),
                figure.unit,
                ratio_text(figure.ratio),
                spread_text(figure.spread),
                "less is better" if figure.less_is_better else "more is better",
                figure.peer,
            )
            for figure in figures
        ],
    )
    for figure in figures:
        goal = f"goal: {figure.verdict}" if figure.goal else ""
        if said := "; ".join(filter(None, (goal, figure.note))):
            print(f"{figure.claim}, {figure.peer}: {said}")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns. A column whose head names figures is aligned to the right."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    right = [all(_is_figure(row[column]) for row in rows) for column in range(len(head))]
    for row in (head, *rows):
        cells = (
            f"{cell:>{width}}" if to_right else f"{cell:<{width}}"
            for cell, width, to_right in zip(row, widths, right, strict=True)
        )
        print("  ".join(cells).rstrip())


def _is_figure(cell: str) -> bool:
    return not cell or cell[0].isdigit() or cell[0] == "-" or cell == TOO_NOISY


TOO_NOISY = "too noisy"


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def ratio_text(ratio: float | None) -> str:
    return TOO_NOISY if ratio is None else f"{ratio:.2f}x"


def spread_text(spread: tuple[float, float] | None) -> str:
    return "" if spread is None else f"{spread[0]:.2f}-{spread[1]:.2f}"
