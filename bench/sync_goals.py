"""What bench/sync.py found, and how that compares with what it was meant to be."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from bench.figures import Figure
from bench.sync_workspace import Workspace

FIRST = "first sync"
NOTHING = "nothing changed"
TEN = "10 files changed"
BYTE = "1 byte in 20 MB changed"
RESTORE = "restore"
ON_DISK = "restore, on the disk"
LARGER = "ten times larger"
WALK = "bare walk"
OURS = "holdfast"

FIXED_BYTES = 64 << 10
SPARE = 1.2


@dataclass(frozen=True, slots=True)
class Cost:
    """`bytes` of content that were sent to the store, or came from it."""

    seconds: float
    bytes: int = 0
    requests: int = 0


class Costs:
    """Of each tool at each step, by round; and what was changed before it, in bytes."""

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

    def best(self, tool: str, step: str) -> float:
        """The least seconds; infinite if it was not measured."""
        return min(self.seconds(tool, step), default=float("inf"))

    def sent_and_allowed(self, step: str) -> list[tuple[float, float]]:
        """KiB of ours, by round, and how many it may be."""
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
    print(f"  {step:<38}{'seconds':>9}{'MB':>10}{'requests':>10}")
    for tool, rounds in costs.at(step).items():
        best = min(rounds, key=lambda cost: cost.seconds)
        others = f"  ({', '.join(f'{cost.seconds:.3g}' for cost in rounds)})" if len(rounds) > 1 else ""
        print(f"    {tool:<36}{best.seconds:>9.3f}{best.bytes / 1e6:>10.3f}{best.requests:>10,}{others}")


def goals(costs: Costs) -> list[Figure]:
    return [*_seconds(costs), *_bytes(costs), *_restore(costs), *_larger(costs)]


def _seconds(costs: Costs) -> Iterator[Figure]:
    for step, peer, most, reach in (
        (FIRST, "tar + zstd -3", 1.8, 1.2),
        (FIRST, "restic", 0.5, None),
        (NOTHING, WALK, 2.0, 1.3),
        (TEN, "rclone", 0.1, 0.05),
        (TEN, "rclone tuned", 0.5, 0.25),
        (TEN, "restic", 0.3, 0.15),
    ):
        if costs.seconds(peer, step):
            yield _goal(step, peer, "s", costs.best(OURS, step), costs.best(peer, step), most, reach)


def _bytes(costs: Costs) -> Iterator[Figure]:
    for step in (TEN, BYTE):
        ours, allowed = max(costs.sent_and_allowed(step), key=lambda pair: pair[0] / pair[1])
        yield _goal(f"{step}: bytes sent, the worst round", "allowed", "KiB", ours, allowed, 1.0, None)


def _restore(costs: Costs) -> Iterator[Figure]:
    for step, claim in ((RESTORE, RESTORE), (ON_DISK, "restore, if the peer waits for the disk, too")):
        peers = [tool for tool in costs.at(step) if tool != OURS]
        best = min(peers, key=lambda tool: costs.best(tool, step))
        yield _goal(claim, f"{best}, the best", "s", costs.best(OURS, RESTORE), costs.best(best, step), 1.0, None)


def _larger(costs: Costs) -> Iterator[Figure]:
    """The same change in a larger tree costs a longer walk and nothing else."""
    larger = f"{NOTHING}, {LARGER}"
    yield _goal(larger, WALK, "s", costs.best(OURS, larger), costs.best(WALK, larger), 2.0, 1.3)
    added = costs.best(OURS, f"{TEN}, {LARGER}") - costs.best(OURS, TEN)
    walk = costs.best(WALK, larger) - costs.best(WALK, NOTHING)
    yield _goal(f"{TEN}, {LARGER}: added seconds", "longer walk", "s", added, walk, 2.0, 1.3)
    ours, allowed = max(costs.sent_and_allowed(f"{TEN}, {LARGER}"), key=lambda pair: pair[0] / pair[1])
    yield _goal(f"{TEN}, {LARGER}: bytes sent", "allowed", "KiB", ours, allowed, 1.0, None)


def _goal(claim: str, peer: str, unit: str, ours: float, theirs: float, most: float, reach: float | None) -> Figure:
    ratio = ours / theirs
    note = f"goal: at most {most:g}x, {_verdict(ratio, most)}"
    if reach is not None:
        note += f"; reach: {reach:g}x, {_verdict(ratio, reach)}"
    return Figure(claim, peer, unit, ours, theirs, less_is_better=True, note=note)


def _verdict(ratio: float, most: float) -> str:
    return "met" if ratio <= most else "missed"
