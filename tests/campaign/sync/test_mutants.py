"""The campaign can fail: every broken gateway is caught by a small piece of it, and the real one is accused by none."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.campaign.size import report, seeded
from tests.campaign.sync import mutants, scenarios
from tests.campaign.sync.arena import arena_on
from tests.campaign.sync.cupboards import Directory
from tests.campaign.sync.scenarios import Scenario
from tests.support.launcher import Launcher

TRIES = 5  # some mistakes show only with luck
AT_ONCE = 3  # most of a play is waiting

# Each mistake, the scenario that catches it, and the kind of the finding: a finding of another kind does not count.
CAUGHT_BY: dict[Callable[[], None], tuple[Scenario, str]] = {
    mutants.pointer_before_packs: (scenarios.cut_short, "mix"),
    mutants.answered_by_an_earlier_sync: (scenarios.asked_meanwhile, "early"),
    mutants.sleeps_without_sync: (scenarios.sleeps, "lost"),
    mutants.leaves_without_sync: (scenarios.drains, "lost"),
    mutants.always_clean: (scenarios.crashes, "lost"),
    mutants.disk_is_always_right: (scenarios.crashes, "lost"),
    mutants.starts_anyway: (scenarios.damaged, "pushed"),
    mutants.forgets_what_it_cannot_restore: (scenarios.damaged, "pushed"),
    mutants.hashes_unchecked: (scenarios.damaged, "gone"),
    mutants.falls_back_silently: (scenarios.damaged, "silent"),
    mutants.prefix_without_slash: (scenarios.neighbours, "deleted"),
    mutants.one_shelf_for_all: (scenarios.neighbours, "shared"),
}


@pytest.fixture(scope="module")
async def launcher() -> AsyncIterator[Launcher]:
    async with Launcher() as warm:
        yield warm


class Troupe:
    """Plays scenarios, a few at a time."""

    def __init__(self, directory: Path, launcher: Launcher) -> None:
        self._directory = directory
        self._launcher = launcher
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def play(self, scenario: Scenario, name: str, *patches: str) -> list[str]:
        async with self._turns:
            seed, rng = seeded()
            directory = self._directory / name
            directory.mkdir()
            async with arena_on(
                directory,
                Directory(directory / "objects"),
                seed,
                rng,
                launcher=self._launcher,
                patches=patches,
                SYNC_DEBOUNCE=0.3,
                SYNC_MAX_WAIT=5,
                SNAPSHOT_KEEP=1000,
            ) as arena:
                return [f"{problem} (seed={seed})" for problem in await scenarios.play(arena, scenario)]

    async def hunt(self, mutant: str, scenario: Scenario, kind: str) -> str | None:
        """How the mutant was caught, or None."""
        for attempt in range(TRIES):
            problems = await self.play(scenario, f"{mutant}{attempt}", mutant)
            if any(f"{kind}: " in problem for problem in problems):
                return f"{mutant} ({kind})"
        return None


async def test_the_real_gateway_is_not_accused(tmp_path: Path, launcher: Launcher) -> None:
    troupe = Troupe(tmp_path, launcher)
    each_once = dict.fromkeys(scenario for scenario, _ in CAUGHT_BY.values())
    async with asyncio.TaskGroup() as plays:
        tasks = [plays.create_task(troupe.play(scenario, str(at))) for at, scenario in enumerate(each_once)]
    problems = [problem for task in tasks for problem in task.result()]
    report(f"sync scenarios: {len(tasks)}, problems {len(problems)}")
    assert problems == [], "\n".join(problems[:20])


async def test_every_mutant_is_caught(tmp_path: Path, launcher: Launcher) -> None:
    troupe = Troupe(tmp_path, launcher)
    async with asyncio.TaskGroup() as hunts:
        tasks = {
            mutant.__name__: hunts.create_task(troupe.hunt(mutant.__name__, scenario, kind))
            for mutant, (scenario, kind) in CAUGHT_BY.items()
        }
    caught = [how for task in tasks.values() if (how := task.result()) is not None]
    report(f"sync mutants: {len(caught)} of {len(tasks)} caught: {', '.join(caught)}")
    assert [name for name, task in tasks.items() if task.result() is None] == []
