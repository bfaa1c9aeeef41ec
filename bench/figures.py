"""What a benchmark found: one number of ours beside one of a named peer, measured in the same run."""

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """`ours` against `theirs`, both in `unit`. `rounds` are (ours, theirs) pairs where there was more than one."""

    claim: str
    peer: str
    unit: str
    ours: float
    theirs: float
    less_is_better: bool = False
    rounds: tuple[tuple[float, float], ...] = ()
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Ours divided by theirs; None where noise has swallowed the difference that was to be measured."""
        return self.ours / self.theirs if self.ours > 0 and self.theirs > 0 else None

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"ratio": self.ratio}


def show(figures: Sequence[Figure], tell: Callable[[str], None]) -> None:
    width = max(len(figure.claim) for figure in figures)
    for figure in figures:
        better = "less is better" if figure.less_is_better else "more is better"
        ours, theirs = _number(figure.ours), _number(figure.theirs)
        ratio = "too noisy" if figure.ratio is None else f"{figure.ratio:.2f}x"
        tell(
            f"{figure.claim:<{width}}  holdfast {ours:>8}  {figure.peer} {theirs:>8}  {figure.unit}"
            f"  = {ratio} ({better})"
        )
        if len(figure.rounds) > 1:
            pairs = ", ".join(f"{_number(ours)}/{_number(theirs)}" for ours, theirs in figure.rounds)
            tell(f"{'':<{width}}  by round: {pairs}")
        if figure.note:
            tell(f"{'':<{width}}  {figure.note}")


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def machine() -> str:
    """Where the figures were taken, and how busy it was: they compare within one run only."""
    busy = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    return f"{os.cpu_count()} cores, load {busy}"
