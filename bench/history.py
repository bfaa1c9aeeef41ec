"""The ratios of every run, one line of JSON for each run, and what got worse since an earlier run.

A ratio got worse if it moved to the wrong side by more than 5 % and by more than its spread: the middle halves of the
two runs do not overlap. Runs on different machines are not compared, nor is a quick look with a measurement. A run on a
busy machine is compared with no other.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.figures import Figure
from bench.results import Results

TOLERANCE = 0.05


@dataclass(frozen=True, slots=True)
class Ratio:
    """One figure's ratio with its spread. After a single round, all three values are the same."""

    ratio: float
    low: float
    high: float
    less_is_better: bool

    def worse(self, before: "Ratio") -> float:
        """How much worse it got, as a share of the earlier ratio. 0 if within tolerance or spread."""
        if self.less_is_better:
            change, apart = self.ratio / before.ratio - 1, self.low > before.high
        else:
            change, apart = before.ratio / self.ratio - 1, self.high < before.low
        return change if change > TOLERANCE and apart else 0.0


@dataclass(frozen=True, slots=True)
class Line:
    date: str
    commit: str
    machine: str
    quick: bool
    busy: bool
    ratios: Mapping[str, Ratio]

    def compares_with(self, other: "Line") -> bool:
        return (self.machine, self.quick) == (other.machine, other.quick) and not (self.busy or other.busy)


@dataclass(frozen=True, slots=True)
class Worse:
    name: str
    before: Ratio
    now: Ratio
    share: float

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.before.ratio:.2f}x ({self.before.low:.2f}-{self.before.high:.2f}) became "
            f"{self.now.ratio:.2f}x ({self.now.low:.2f}-{self.now.high:.2f}), {self.share:.0%} worse"
        )


def line(results: Results) -> Line:
    ratios = {}
    for name, claim in results.claims.items():
        for figure in claim.figures:
            if (ratio := figure.ratio) is not None:
                low, high = figure.spread or (ratio, ratio)
                kept = Ratio(round(ratio, 4), round(low, 4), round(high, 4), figure.less_is_better)
                ratios[key(name, figure)] = kept
    return Line(results.date, results.commit, results.machine, results.quick, results.was_busy, ratios)


def key(claim: str, figure: Figure) -> str:
    """The name of a figure in every line."""
    return f"{claim}: {figure.claim} / {figure.peer}"


def add(new: Line, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(asdict(new)) + "\n")


def read(path: Path) -> list[Line]:
    """All lines, oldest first. Empty if the file does not exist."""
    if not path.exists():
        return []
    found = []
    for text in path.read_text().splitlines():
        kept = json.loads(text)
        found.append(Line(**kept | {"ratios": {name: Ratio(**ratio) for name, ratio in kept["ratios"].items()}}))
    return found


def earlier(lines: Sequence[Line], commit: str | None = None) -> Line | None:
    """The line to compare the newest one with: the one before it on the same machine, or the newest of `commit`."""
    if not lines:
        return None
    fitting = [each for each in lines[:-1] if lines[-1].compares_with(each)]
    if commit is not None:
        fitting = [each for each in fitting if each.commit and each.commit.rstrip("+").startswith(commit)]
    return fitting[-1] if fitting else None


def got_worse(before: Line, now: Line) -> list[Worse]:
    """The figures of both lines that are worse in the later one, worst first."""
    found = [
        Worse(name, before.ratios[name], ratio, share)
        for name, ratio in now.ratios.items()
        if name in before.ratios and (share := ratio.worse(before.ratios[name]))
    ]
    return sorted(found, key=lambda each: -each.share)
