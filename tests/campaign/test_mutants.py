"""The campaign can fail: every broken gateway is caught by a small piece of it, and the real one is accused by none."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.campaign import mutants, scenarios, scenarios_postgres
from tests.campaign.arena import Arena
from tests.campaign.size import report, seeded
from tests.support.launcher import Launcher
from tests.support.postgres import PostgresServer

TRIES = 8  # some mistakes show only with luck
AT_ONCE = 3  # most of a play is waiting
PATIENCE = 60.0  # seconds for the last word on everything
HASTE = {"silent": 20.0}  # a mutant may never answer: shorter, except where silence is the evidence

Scenario = Callable[[Arena], Awaitable[None]]

# Each mistake, the scenario that catches it, and the kind of the finding: a finding of another kind does not count.
CAUGHT_BY: dict[Callable[[], None], tuple[Scenario, str]] = {
    mutants.ack_before_commit: (scenarios.kills, "lost"),
    mutants.no_unique_cid: (scenarios.kills, "duplicate"),
    mutants.drop_after_three_retries: (scenarios.locked, "lost"),
    mutants.drop_oldest: (scenarios.locked, "lost"),
    mutants.synchronous_off: (scenarios.power_cut, "lost"),
    mutants.deliver_before_durable: (scenarios.killed_before_commit, "wrong"),
    mutants.newest_first: (scenarios.calm, "reordered"),
    mutants.expire_silently: (scenarios.held, "silent"),
    mutants.swallow_nacks: (scenarios.held, "silent"),
    mutants.one_cid_for_all_sessions: (scenarios.calm, "lost"),
    mutants.spool_rows_removed_first: (scenarios_postgres.short_outage, "lost"),
    mutants.settled_too_early: (scenarios_postgres.short_outage, "early"),
    mutants.replay_skipped: (scenarios_postgres.outage, "lost"),
    mutants.retried_as_new: (scenarios_postgres.lost_replies, "phantom"),
    mutants.dead_without_marker: (scenarios_postgres.poison, "gap"),
    mutants.dead_thrown_away: (scenarios_postgres.poison, "lost"),
    mutants.fence_checked_before: (scenarios_postgres.two_gateways, "wrong"),
}


@pytest.fixture(scope="module")
async def launcher() -> AsyncIterator[Launcher]:
    async with Launcher() as warm:
        yield warm


class Troupe:
    """Plays scenarios, a few at a time."""

    def __init__(self, directory: Path, launcher: Launcher, postgres: PostgresServer) -> None:
        self._directory = directory
        self._launcher = launcher
        self._postgres = postgres
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def play(self, scenario: Scenario, name: str, *patches: str, patience: float = PATIENCE) -> Arena:
        async with self._turns:
            seed, rng = seeded()
            directory = self._directory / name
            directory.mkdir()
            arena = Arena(directory, self._launcher, self._postgres, seed, rng, patches, patience)
            await scenario(arena)
            return arena

    async def hunt(self, mutant: str, scenario: Scenario, kind: str) -> str | None:
        """How the mutant was caught, or None."""
        for attempt in range(TRIES):
            arena = await self.play(scenario, f"{mutant}{attempt}", mutant, patience=HASTE.get(kind, 4.0))
            if times := sum(problem.startswith(f"{kind}:") for problem in arena.problems):
                return f"{mutant} ({kind} {times})"
        return None


async def test_the_real_gateway_is_not_accused(
    tmp_path: Path, launcher: Launcher, postgres_server: PostgresServer
) -> None:
    troupe = Troupe(tmp_path, launcher, postgres_server)
    async with asyncio.TaskGroup() as plays:
        each_once = dict.fromkeys(scenario for scenario, _ in CAUGHT_BY.values())
        tasks = [plays.create_task(troupe.play(scenario, scenario.__name__)) for scenario in each_once]
    for arena in (task.result() for task in tasks):
        report(arena.checked.line if arena.checked else f"{arena.directory.name}: not played")
    problems = [f"{arena.directory.name}: {each}" for arena in (t.result() for t in tasks) for each in arena.problems]
    assert problems == [], "\n".join(problems[:40])


async def test_every_mutant_is_caught(tmp_path: Path, launcher: Launcher, postgres_server: PostgresServer) -> None:
    troupe = Troupe(tmp_path, launcher, postgres_server)
    async with asyncio.TaskGroup() as hunts:
        tasks = {
            mutant.__name__: hunts.create_task(troupe.hunt(mutant.__name__, scenario, kind))
            for mutant, (scenario, kind) in CAUGHT_BY.items()
        }
    caught = [how for task in tasks.values() if (how := task.result()) is not None]
    report(f"mutants: {len(caught)} of {len(tasks)} caught: {', '.join(caught)}")
    assert [name for name, task in tasks.items() if task.result() is None] == []
