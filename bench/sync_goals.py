"""The results of bench/sync.py, compared with their goals."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from bench.figures import Figure, Goal, compare, table
from bench.rounds import OURS
from bench.sync_workspace import Workspace

FIRST = "first sync"
NOTHING = "nothing changed"
TEN = "10 files changed"
BYTE = "1 byte in 20 MB changed"
RESTORE = "restore"
ON_DISK = "restore, on the disk"
LARGER = "ten times larger"
WALK = "bare walk"

FIXED_BYTES = 64 << 10
SPARE = 1.2


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one step. `bytes` counts content sent to the store or received from it."""

    seconds: float
    bytes: int = 0
    requests: int = 0


class Costs:
    """The costs of each tool at each step, by round, and the bytes that were changed before the step."""

    def __init__(self) -> None:
        self._costs: defaultdict[str, defaultdict[str, list[Cost]]] = defaultdict(lambda: defaultdict(list))
        self._changed: defaultdict[str, list[int]] = defaultdict(list)

    def add(self, tool: str, step: str, cost: Cost) -> None:
        self._costs[step][tool].append(cost)

    def changed(self, step: str, count: int) -> None:
        self._changed[step].append(count)

    def at(self, step: str) -> dict[str, list[Cost]]:
        return dict(self._costs[step])

    def seconds(self, tool: str, step: str) -> list[float]:
        return [cost.seconds for cost in self._costs[step][tool]]

    def middle(self, tool: str, step: str) -> float:
        """The median of the tool's seconds at this step."""
        return median(self.seconds(tool, step))

    def sent_and_allowed(self, step: str) -> list[tuple[float, float]]:
        """For each round, the KiB that ours sent and the KiB that it may send."""
        sent = [cost.bytes for cost in self._costs[step][OURS]]
        allowed = [SPARE * count + FIXED_BYTES for count in self._changed[step]]
        return [(mine / 1024, most / 1024) for mine, most in zip(sent, allowed, strict=True)]


def show_costs(costs: Costs, usual: Workspace, larger: Workspace) -> None:
    for workspace, steps in (
        (usual, (FIRST, NOTHING, TEN, BYTE, RESTORE, ON_DISK)),
        (larger, [f"{step}, {LARGER}" for step in (FIRST, NOTHING, TEN)]),
    ):
        print(f"{workspace.files:,} files, {workspace.bytes / 1e6:,.0f} MB")
        for step in steps:
            _show_step(costs, step)
        print()


def _show_step(costs: Costs, step: str) -> None:
    rows = []
    for tool, rounds in costs.at(step).items():
        middle = sorted(rounds, key=lambda cost: cost.seconds)[len(rounds) // 2]
        seconds = ", ".join(f"{cost.seconds:.3g}" for cost in rounds)
        rows.append((tool, f"{middle.seconds:.3f}", f"{middle.bytes / 1e6:.3f}", f"{middle.requests:,}", seconds))
    table((step, "seconds", "MB", "requests", "rounds"), rows)


def goals(costs: Costs) -> list[Figure]:
    return [*_seconds(costs), *_bytes(costs), *_restore(costs), *_larger(costs)]


def _seconds(costs: Costs) -> Iterator[Figure]:
    for step, peer, goal in (
        (FIRST, "tar + zstd -3", Goal(1.15)),
        (FIRST, "restic", Goal(0.5)),
        (NOTHING, WALK, Goal(2.0, 1.3)),
        (TEN, "rclone", Goal(0.1, 0.05)),
        (TEN, "rclone tuned", Goal(0.5, 0.25)),
        (TEN, "restic", Goal(0.3, 0.15)),
    ):
        if costs.seconds(peer, step):
            yield _goal(step, peer, costs.seconds(OURS, step), costs.seconds(peer, step), goal)


def _bytes(costs: Costs) -> Iterator[Figure]:
    for step in (TEN, BYTE, f"{TEN}, {LARGER}"):
        ours, allowed = max(costs.sent_and_allowed(step), key=lambda pair: pair[0] / pair[1])
        yield _goal(f"{step}: bytes sent, the worst round", "allowed", [ours], [allowed], Goal(1.0), unit="KiB")


def _restore(costs: Costs) -> Iterator[Figure]:
    for step, claim in ((RESTORE, RESTORE), (ON_DISK, "restore, if the peer waits for the disk, too")):
        peers = [tool for tool in costs.at(step) if tool != OURS]
        best = min(peers, key=lambda tool: median(costs.seconds(tool, step)))
        yield _goal(claim, f"{best}, the best", costs.seconds(OURS, RESTORE), costs.seconds(best, step), Goal(1.0))


def _larger(costs: Costs) -> Iterator[Figure]:
    """The goal that a change in a larger tree costs only a longer walk."""
    larger = f"{NOTHING}, {LARGER}"
    yield _goal(larger, WALK, costs.seconds(OURS, larger), costs.seconds(WALK, larger), Goal(2.0, 1.3))
    added = costs.middle(OURS, f"{TEN}, {LARGER}") - costs.middle(OURS, TEN)
    walk = costs.middle(WALK, larger) - costs.middle(WALK, NOTHING)
    yield _goal(f"{TEN}, {LARGER}: added seconds", "longer walk", [added], [walk], Goal(2.0, 1.3))


def _goal(
    claim: str, peer: str, ours: Sequence[float], theirs: Sequence[float], goal: Goal, *, unit: str = "s"
) -> Figure:
    return compare(claim, peer, unit, ours, theirs, less_is_better=True, goal=goal)
