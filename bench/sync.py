"""The claim: a sync costs what changed, and a first sync and a restore cost little more than moving the bytes. The
peers are what people use: `rclone sync` with defaults and tuned, `aws s3 sync`, restic, and a whole tar.

All tools have the same workspace, the same S3 server (SeaweedFS on loopback), the same changes and all cores. They take
turns in random order. Holdfast is a gateway's process and a real bridge. Its restore goes into a new sandbox and ends
when the tree is in place and on the disk; no peer's restore waits for the disk. The server itself counts requests and
the bytes of their bodies. The peers bring their own programs: aws gets an environment below `.venv-peers`, restic is
left out where it is not installed and cannot be.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

from bench.figures import Figure
from bench.processes import CORES
from bench.rounds import shuffled
from bench.sync_goals import BYTE, FIRST, LARGER, NOTHING, ON_DISK, RESTORE, TEN, WALK, Cost, Costs, goals, show_costs
from bench.sync_server import CountingS3Server
from bench.sync_tools import TUNED, Aws, Holdfast, Rclone, Restic, Tar, Tool, find_restic
from bench.sync_workspace import Workspace, fingerprint, walk_seconds
from sandbox.system.kernel import syncfs

LAPS = 3
WALKS = 5  # in each lap: walks, and syncs of an unchanged tree, are so short that several cost nothing
WARM_FILES = 50


async def run(*, quick: bool) -> list[Figure]:
    with whole_machine(), tempfile.TemporaryDirectory(prefix="holdfast-bench-") as scratch, ExitStack() as stack:
        server = stack.enter_context(CountingS3Server())
        holdfast = Holdfast(server.make_bucket(), Path(scratch, "gateway"), Path(scratch, "gateway.log"))
        stack.callback(holdfast.close)
        tools = [holdfast, *peers(server, Path(scratch))]
        race = Race(server, tools, Path(scratch), laps=1 if quick else LAPS, rng=Random())
        files = 1000 if quick else 10_000
        race.warm_up(Workspace(holdfast.start("warm"), WARM_FILES, large=1, scale=5.0))
        usual = Workspace(holdfast.start("usual"), files, large=3, scale=8.42)
        race.run(usual)
        larger = Workspace(holdfast.start("larger"), 10 * files, large=3, scale=5.5)
        race.run_larger(holdfast, larger)
        show_costs(race.costs, usual, larger)
        return goals(race.costs)


def peers(server: CountingS3Server, scratch: Path) -> Iterator[Tool]:
    yield Tar(server.make_bucket())
    yield Rclone(server.make_bucket(), "rclone")
    yield Rclone(server.make_bucket(), "rclone tuned", *TUNED)
    if find_restic():
        yield Restic(server.make_bucket(), scratch / "restic-cache")
    else:
        print("restic: skipped, it is not installed (Debian: apt-get install restic)")
    yield Aws(server.make_bucket())


@contextmanager
def whole_machine() -> Iterator[None]:
    pinned = os.sched_getaffinity(0)
    os.sched_setaffinity(0, CORES)
    try:
        yield
    finally:
        os.sched_setaffinity(0, pinned)


class Race:
    """Run all tools step by step, in laps. The first tool is ours. Slow tools run one lap. Nothing is removed before
    the end, because some file systems create files slowly after many were removed."""

    def __init__(self, server: CountingS3Server, tools: list[Tool], scratch: Path, *, laps: int, rng: Random) -> None:
        self._server = server
        self._tools = tools
        self._scratch = scratch
        self._laps = laps
        self._rng = rng
        self._repositories: dict[Tool, str] = {}
        self.costs = Costs()

    def warm_up(self, workspace: Workspace) -> None:
        """Write once to each bucket and start each program once, because the first time is slow."""
        workspace.make()
        for tool in self._tools:
            self._begin(tool, "warm")
            tool.push("warm", workspace.root)

    def run(self, workspace: Workspace) -> None:
        workspace.make()
        for lap in range(self._laps):
            self._lap(workspace, [tool for tool in self._tools if not (lap and tool.is_slow)], f"lap-{lap}")

    def _lap(self, workspace: Workspace, tools: list[Tool], repository: str) -> None:
        for tool in self._drawn(tools):
            self._begin(tool, repository)
            self._push(tool, FIRST, workspace)
        for _ in range(WALKS):
            self.costs.add(WALK, NOTHING, Cost(walk_seconds(workspace.root)))
            self._push(self._tools[0], NOTHING, workspace)
        for tool in self._drawn(tools[1:]):
            self._push(tool, NOTHING, workspace)
        for step, change in ((TEN, workspace.change_ten), (BYTE, workspace.change_byte)):
            self.costs.changed(step, change())
            for tool in self._drawn(tools):
                self._push(tool, step, workspace)
        whole = fingerprint(workspace.root)
        for tool in self._drawn(tools):
            self._restore(tool, workspace, whole)

    def _drawn(self, tools: list[Tool]) -> list[Tool]:
        return shuffled(tools, self._rng)

    def run_larger(self, holdfast: Holdfast, workspace: Workspace) -> None:
        """Measure how the cost of our sync grows with the unchanged files."""
        workspace.make()
        self._begin(holdfast, "larger")
        self._push(holdfast, f"{FIRST}, {LARGER}", workspace)
        for _ in range(WALKS):
            self.costs.add(WALK, f"{NOTHING}, {LARGER}", Cost(walk_seconds(workspace.root)))
            self._push(holdfast, f"{NOTHING}, {LARGER}", workspace)
        for _ in range(self._laps):
            self.costs.changed(f"{TEN}, {LARGER}", workspace.change_ten())
            self._push(holdfast, f"{TEN}, {LARGER}", workspace)

    def _begin(self, tool: Tool, repository: str) -> None:
        self._repositories[tool] = repository
        tool.begin(repository)

    def _push(self, tool: Tool, step: str, workspace: Workspace) -> None:
        before = self._server.traffic(tool.place.bucket)
        seconds = tool.push(self._repositories[tool], workspace.root)
        seen = self._server.traffic(tool.place.bucket) - before
        self.costs.add(tool.name, step, Cost(seconds, seen.received, seen.requests))

    def _restore(self, tool: Tool, workspace: Workspace, whole: str) -> None:
        target = tool.new_target(self._scratch / "restored", f"{self._tools.index(tool)}-{self._repositories[tool]}")
        os.sync()  # so that the measured wait does not include others' writes
        before = self._server.traffic(tool.place.bucket)
        seconds = tool.restore(self._repositories[tool], workspace.root, target)
        seen = self._server.traffic(tool.place.bucket) - before
        self.costs.add(tool.name, RESTORE, Cost(seconds, seen.sent, seen.requests))
        self.costs.add(tool.name, ON_DISK, Cost(seconds + sync_seconds(target), seen.sent, seen.requests))
        if fingerprint(tool.restored(workspace.root, target)) != whole:
            print(f"{tool.name}: what it restored is not the workspace")


def sync_seconds(target: Path) -> float:
    """The time until everything written to the file system of `target` is on its disk."""
    fd = os.open(target, os.O_RDONLY | os.O_DIRECTORY)
    try:
        began = time.perf_counter()
        syncfs(fd)
        return time.perf_counter() - began
    finally:
        os.close(fd)
