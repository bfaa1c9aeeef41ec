"""Plots as hand-made SVG text: small, readable on light and dark pages, and identical for the same figures. Pure.

`bars` compares each figure with its peer on a scale of powers of two. To the right is better; the middle line is the
peer. `lines` shows how ratios moved from run to run.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

from bench.figures import Figure

WIDTH, LEFT, RIGHT = 960, 520, 70
LABEL = 80  # characters; a longer label loses the end of its claim, not its peer
ROW, TOP, BOTTOM = 20, 30, 12
STYLE = """<style>
text{font:12px system-ui,sans-serif;fill:#24292f}.soft{fill:#57606a}.axis{stroke:#8c959f;stroke-width:1}
.grid{stroke:#8c959f;stroke-opacity:.3}.good{fill:#1a7f37}.bad{fill:#bc4c00}.spread{stroke:#24292f;stroke-width:1.5}
.goal{stroke:#8250df;stroke-width:2}.l0{stroke:#0969da}.l1{stroke:#bc4c00}.l2{stroke:#1a7f37}.l3{stroke:#8250df}.l4{stroke:#9a6700}
.l5{stroke:#bf3989}path{fill:none;stroke-width:2}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.soft{fill:#9198a1}.good{fill:#3fb950}.bad{fill:#db6d28}
.spread{stroke:#e6edf3}.goal{stroke:#ab7df8}.l0{stroke:#4493f8}.l1{stroke:#db6d28}.l2{stroke:#3fb950}
.l3{stroke:#ab7df8}.l4{stroke:#d29922}.l5{stroke:#db61a2}}
</style>"""
COLOURS = 6


def bars(figures: Sequence[Figure]) -> str:
    """A bar for each figure that has a ratio."""
    shown = [(figure, ratio) for figure in figures if (ratio := figure.ratio) is not None]
    reach = max((_ceiling(figure, ratio) for figure, ratio in shown), default=1)
    height = TOP + ROW * len(shown) + BOTTOM

    def x(value: float) -> float:
        share = (max(-reach, min(reach, math.log2(value))) / reach + 1) / 2
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    parts = []
    step = max(1, reach // 4)
    for power in range(-(reach // step) * step, reach + 1, step):
        at = x(2.0**power)
        parts.append(
            f'<line class="{"grid" if power else "axis"}" x1="{at:.0f}" x2="{at:.0f}" y1="{TOP - 8}" y2="{height}"/>'
        )
        parts.append(f'<text class="soft" x="{at:.0f}" y="{TOP - 14}" text-anchor="middle">{_power(power)}</text>')
    for number, (figure, ratio) in enumerate(shown):
        parts += _bar(figure, ratio, TOP + ROW * number, x)
    return _svg(height, parts, "Each figure against its peer; to the right of 1 Holdfast is better")


def _ceiling(figure: Figure, ratio: float) -> int:
    values = [ratio, *(figure.spread or ()), *([figure.goal.bound] if figure.goal else [])]
    return max(math.ceil(abs(math.log2(value))) for value in values) or 1


def _power(power: int) -> str:
    return f"{2**power}" if power >= 0 else f"1/{2**-power}"


def _bar(figure: Figure, ratio: float, top: int, x: Callable[[float], float]) -> list[str]:
    def at(value: float) -> float:
        return x(1 / value if figure.less_is_better else value)

    one, end = x(1), at(ratio)
    left, width = min(one, end), max(abs(end - one), 1)
    middle = top + ROW / 2
    kind = "good" if end >= one else "bad"
    parts = [
        f'<text x="{LEFT - 10}" y="{middle + 4:.0f}" text-anchor="end">{escape(_label(figure))}</text>',
        f'<rect class="{kind}" x="{left:.1f}" y="{top + 4}" width="{width:.1f}" height="{ROW - 8}"/>',
        f'<text class="soft" x="{WIDTH - RIGHT + 8}" y="{middle + 4:.0f}">{ratio:.2f}x</text>',
    ]
    if figure.spread is not None:
        low, high = sorted(map(at, figure.spread))
        parts.append(f'<line class="spread" x1="{low:.1f}" x2="{high:.1f}" y1="{middle:.0f}" y2="{middle:.0f}"/>')
    if figure.goal is not None:
        goal = at(figure.goal.bound)
        parts.append(f'<line class="goal" x1="{goal:.1f}" x2="{goal:.1f}" y1="{top + 1}" y2="{top + ROW - 1}"/>')
    return parts


def _label(figure: Figure) -> str:
    room = LABEL - len(figure.peer) - 3
    claim = figure.claim if len(figure.claim) <= room else f"{figure.claim[: room - 1]}…"
    return f"{claim} / {figure.peer}"


def lines(series: Mapping[str, Sequence[float | None]], runs: Sequence[str]) -> str:
    """A line for each name, with a value or None for each run, on a scale of powers of two like `bars`."""
    values = [value for each in series.values() for value in each if value is not None]
    if not values:
        return _svg(TOP, [], "No runs yet")
    low, high = math.floor(math.log2(min(values))), math.ceil(math.log2(max(values)))
    high = max(high, low + 1)
    plot, legend = 180, 16 * len(series)
    height = TOP + plot + 24 + legend
    step = (WIDTH - 100) / max(1, len(runs) - 1)

    def y(value: float) -> float:
        return TOP + plot * (high - math.log2(value)) / (high - low)

    parts = []
    for power in range(low, high + 1):
        at = y(2.0**power)
        parts.append(f'<line class="grid" x1="50" x2="{WIDTH - 50}" y1="{at:.0f}" y2="{at:.0f}"/>')
        parts.append(f'<text class="soft" x="42" y="{at + 4:.0f}" text-anchor="end">{_power(power)}</text>')
    for number, text in enumerate(runs):
        if number in (0, len(runs) - 1):
            anchor = "start" if number == 0 else "end"
            x = 50 + number * step
            parts.append(
                f'<text class="soft" x="{x:.0f}" y="{TOP + plot + 16}" text-anchor="{anchor}">{escape(text)}</text>'
            )
    for number, (name, found) in enumerate(series.items()):
        there = [(50 + at * step, y(value)) for at, value in enumerate(found) if value is not None]
        way = " ".join(f"{'ML'[at > 0]}{x:.0f} {down:.1f}" for at, (x, down) in enumerate(there))
        dots = "".join(
            f'<circle class="l{number % COLOURS}" fill="none" cx="{x:.0f}" cy="{down:.1f}" r="3"/>' for x, down in there
        )
        base = TOP + plot + 36 + 16 * number
        parts += [f'<path class="l{number % COLOURS}" d="{way}"/>', dots]
        parts.append(f'<path class="l{number % COLOURS}" d="M50 {base - 4} L70 {base - 4}"/>')
        parts.append(f'<text x="78" y="{base}">{escape(name)}</text>')
    return _svg(height, parts, "Ratios from run to run")


def _svg(height: int, parts: Sequence[str], title: str) -> str:
    inside = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img">\n'
        f"<title>{escape(title)}</title>\n{STYLE}\n{inside}\n</svg>\n"
    )
