"""Write docs/performance.md from the results of a run. The page is not edited by hand: `python -m bench --render` makes
it again from the JSON beside it."""

from collections.abc import Sequence
from pathlib import Path

from bench import history, plots, results
from bench.figures import Figure, number, ratio_text, spread_text
from bench.processes import REPOSITORY
from bench.results import Claim, Results

PAGE = REPOSITORY / "docs/performance.md"
BESIDE = REPOSITORY / "docs/performance"
LATEST, HISTORY, MOVED = "latest.json", "history.jsonl", "history.svg"
RUNS_SHOWN = 30
INTRODUCTION = """# Performance

Written by `make bench`, from [{latest}]({folder}/{latest}). Each figure is a ratio against a named peer of the same
run; an absolute number says something about this machine alone. Contenders run one after the other in short slices, in
an order that is drawn anew for each round. Except for sync, page and containers, what is measured has one core and the
load another. CPU of a process is counted by the kernel's scheduler (`schedstat`; a benchmark's own process by its
clock). A ratio is the median of the rounds' ratios, and its spread is the middle half of them, or all of fewer than
four.
In the plots the peer is the line at 1, to the right of it Holdfast is better; the thin line is
the spread, the upright mark the goal.
"""
QUICK = """
> **A quick look** (`--quick`): few and short rounds. Do not quote these numbers; `make bench` on a quiet machine
> replaces them.
"""
BUSY = """
> **The machine was busy**: its load was {load} before the run began, so others were measured, too. Commits take many
> times as long then, which flatters whoever shares them. No later run is compared with this one.
"""


def page(found: Results, lines: Sequence[history.Line], folder: str = BESIDE.name) -> str:
    parts = [INTRODUCTION.format(latest=LATEST, folder=folder)]
    if found.quick:
        parts.append(QUICK)
    if found.was_busy:
        parts.append(BUSY.format(load=found.load_before))
    parts.append(
        f"\n{found.date}, commit {found.commit or 'unknown'}; {found.machine}; Linux {found.kernel}, "
        f"Python {found.python}; load {found.load_before} before, {found.load_after} after.\n"
    )
    if found.left_out:
        parts.append(f"\nNot part of this run: {', '.join(found.left_out)}.\n")
    judged = not (found.quick or found.was_busy)
    parts += [_section(name, claim, folder, judged=judged) for name, claim in found.claims.items()]
    parts.append(_moved(lines, folder))
    return "".join(parts)


def _section(name: str, claim: Claim, folder: str, *, judged: bool) -> str:
    text = f"\n## {name}\n\n{claim.headline}\n"
    if claim.failed:
        return f"{text}\nNot measured: {claim.failed}\n"
    text += f"\n![{name}]({folder}/{name}.svg)\n\n"
    text += "| what | holdfast | peer | unit | ratio | spread | better | goal |\n|---|---|---|---|---|---|---|---|\n"
    return text + "".join(_row(figure, judged=judged) for figure in claim.figures) + _notes(claim.figures)


def _row(figure: Figure, *, judged: bool) -> str:
    """A row of the table. Only a measurement says whether a goal is met, not a quick look."""
    peer = f"{number(figure.theirs)} ({figure.peer})"
    better = "less" if figure.less_is_better else "more"
    goal = figure.verdict if judged else figure.wanted
    cells = (figure.claim, number(figure.ours), peer, figure.unit, ratio_text(figure.ratio), spread_text(figure.spread))
    return f"| {' | '.join((*cells, better, goal))} |\n"


def _notes(figures: Sequence[Figure]) -> str:
    said = [f"- {figure.claim}: {figure.note}\n" for figure in figures if figure.note]
    return "\n" + "".join(dict.fromkeys(said)) if said else ""


def _moved(lines: Sequence[history.Line], folder: str) -> str:
    text = f"\n## From run to run\n\nEach run adds a line to [{HISTORY}]({folder}/{HISTORY}).\n"
    before = history.earlier(lines)
    if before is None:
        return f"{text}\nThere is no earlier run of this kind on this machine to compare with.\n"
    text += f"\n![history]({folder}/{MOVED})\n\nAgainst {before.commit} of {before.date}: "
    worse = history.got_worse(before, lines[-1])
    if not worse:
        return f"{text}nothing got worse by more than {history.TOLERANCE:.0%} beyond the spread.\n"
    return f"{text}worse by more than {history.TOLERANCE:.0%} beyond the spread:\n\n" + "".join(
        f"- {each}\n" for each in worse
    )


def write(found: Results, target: Path = PAGE) -> None:
    """Write the page, its JSON, its plots and a line of the history."""
    beside = target.with_suffix("")
    results.write(found, beside / LATEST)
    history.add(history.line(found), beside / HISTORY)
    render(target)


def render(target: Path = PAGE) -> None:
    """Write the page and its plots from the existing JSON and history."""
    beside = target.with_suffix("")
    found, lines = results.read(beside / LATEST), history.read(beside / HISTORY)
    for old in beside.glob("*.svg"):
        old.unlink()
    for name, claim in found.claims.items():
        if claim.figures:
            (beside / f"{name}.svg").write_text(plots.bars(claim.figures))
    if history.earlier(lines) is not None:
        (beside / MOVED).write_text(_plot(found, lines))
    target.write_text(page(found, lines, beside.name))


def _plot(found: Results, lines: Sequence[history.Line]) -> str:
    """The plot of how the first ratios with a goal moved."""
    alike = [line for line in lines if line.compares_with(lines[-1])][-RUNS_SHOWN:]
    keys = [
        history.key(name, figure) for name, claim in found.claims.items() for figure in claim.figures if figure.goal
    ]
    series = {
        name: [line.ratios[name].ratio if name in line.ratios else None for line in alike]
        for name in keys[: plots.COLOURS]
    }
    return plots.lines(series, [f"{line.date[:10]} {line.commit}" for line in alike])
