"""What bench/terminal.py found, and how that compares with what it was meant to be."""

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.figures import Figure

OURS = "holdfast"
NGINX = "nginx"
NGINX_UNIX = "nginx, unix socket"
DIRECT = "no relay"
CEILING = "bare read loop"
TERMINADO = "terminado"

KEYS = "64 B, 1 in flight"
KEY_STREAMS = "64 B, 4 in flight"
BLOCKS = "4 KiB, 1 in flight"
BLOCK_STREAMS = "4 KiB, 4 in flight"
FLOOD = "flood of 4 KiB frames, 1 session"
FLOODS = "flood of 4 KiB frames, 16 sessions"
P50 = "p50, 64 sessions, 1,000 messages/s"
P99 = "p99, 64 sessions, 1,000 messages/s"
ECHO = "p50, 1 session, 1 in flight"
IDLE = "memory per idle terminal"
PTY = "`yes` on a PTY, to one viewer"
PTY_CPU = "the same, by what serves it"

UNITS = {
    KEYS: "messages per CPU-second",
    KEY_STREAMS: "messages per CPU-second",
    BLOCKS: "messages per CPU-second",
    BLOCK_STREAMS: "messages per CPU-second",
    FLOOD: "MB per CPU-second",
    FLOODS: "MB per CPU-second",
    P50: "us",
    P99: "us",
    ECHO: "us",
    IDLE: "KiB",
    PTY: "MB/s",
    PTY_CPU: "MB per CPU-second",
}


@dataclass(frozen=True, slots=True)
class Goal:
    """Ours to be at least `bound` times the peer's, or with `less_is_better` at most; `reach` is what to try for."""

    step: str
    peer: str
    bound: float
    reach: float | None = None
    less_is_better: bool = False


GOALS = (
    Goal(KEYS, NGINX, 0.7),
    Goal(KEY_STREAMS, NGINX, 0.65, 0.85),
    Goal(BLOCKS, NGINX, 0.7),
    Goal(BLOCK_STREAMS, NGINX, 0.65, 0.85),
    Goal(FLOOD, NGINX, 0.95, 1.1),
    Goal(FLOODS, NGINX, 0.95, 1.1),
    Goal(P50, NGINX, 1.2, less_is_better=True),
    Goal(IDLE, NGINX, 0.8, 0.5, less_is_better=True),
    Goal(PTY, CEILING, 0.8, 0.93),
    Goal(PTY, TERMINADO, 1.5, 1.8),
)


class Laps:
    """What each contender did at each step, lap by lap."""

    def __init__(self) -> None:
        self._values: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def add(self, step: str, contender: str, value: float) -> None:
        self._values[step][contender].append(value)

    def of(self, step: str, contender: str) -> list[float]:
        return self._values[step].get(contender, [])

    def contenders(self, step: str) -> list[str]:
        return list(self._values[step])

    def steps(self) -> list[str]:
        return [step for step in UNITS if self._values[step]]


def show_laps(laps: Laps) -> None:
    """Every contender's figures as they are."""
    for step in laps.steps():
        print(f"  {step}, {UNITS[step]}")
        for contender in laps.contenders(step):
            values = laps.of(step, contender)
            every = f"  ({', '.join(_short(value) for value in values)})" if len(values) > 1 else ""
            print(f"    {contender:<24}{_short(statistics.median(values)):>10}{every}")
    print()


def goals(laps: Laps) -> list[Figure]:
    """Ours beside every peer's; where there is a goal, whether it is met."""
    return [
        figure
        for step in laps.steps()
        if laps.of(step, OURS)
        for peer in laps.contenders(step)
        if peer not in (OURS, DIRECT)
        for figure in _compare(laps, step, peer)
    ]


def _compare(laps: Laps, step: str, peer: str) -> Iterator[Figure]:
    ours, theirs = laps.of(step, OURS), laps.of(step, peer)
    goal = next((goal for goal in GOALS if (goal.step, goal.peer) == (step, peer)), None)
    claim, less = step, UNITS[step] in ("us", "KiB")
    if direct := laps.of(step, DIRECT):
        claim = f"added latency {step}"
        ours, theirs = _beyond(ours, direct), _beyond(theirs, direct)
    mine, other = statistics.median(ours), statistics.median(theirs)
    note = _verdict(goal, mine, other) if goal is not None else ""
    pairs = tuple(zip(ours, theirs, strict=False))
    yield Figure(claim, peer, UNITS[step], mine, other, less, pairs if goal is not None else (), note)


def _beyond(values: Sequence[float], direct: Sequence[float]) -> list[float]:
    """What each adds to the way without a relay in the same lap."""
    return [value - floor for value, floor in zip(values, direct, strict=False)]


def _verdict(goal: Goal, ours: float, theirs: float) -> str:
    def met(bound: float) -> str:
        enough = ours <= bound * theirs if goal.less_is_better else ours >= bound * theirs
        return "met" if enough else "missed"

    note = f"goal: at {'most' if goal.less_is_better else 'least'} {goal.bound:g}x, {met(goal.bound)}"
    return note if goal.reach is None else f"{note}; reach: {goal.reach:g}x, {met(goal.reach)}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
