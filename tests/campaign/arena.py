"""Where small scenarios are played, against the real gateway or a mutant, and judged like the large campaigns."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import httpx

from tests.campaign.stage import Checked, Stage, staged
from tests.campaign.verdict import unsettled
from tests.support.gateway import GatewayFailed
from tests.support.launcher import Launcher, Tampering
from tests.support.postgres import PostgresServer

REACHED_WITHIN = 6.0


@dataclass
class Arena:
    """One play: its resources, and the judges' findings at its end."""

    directory: Path
    launcher: Launcher
    postgres: PostgresServer
    seed: int
    rng: Random
    patches: tuple[str, ...]
    patience: float  # seconds for the last word on everything
    problems: list[str] = field(default_factory=list)
    checked: Checked | None = None

    def tampering(self, crash_at: tuple[str, int] | None = None) -> Tampering:
        return Tampering(crash_at, patches=self.patches)

    @asynccontextmanager
    async def stage(self, **settings: Any) -> AsyncIterator[Stage]:
        """A gateway as this play wants it; judged on leaving."""
        tampering = self.tampering()
        async with staged(
            self.directory, self.seed, self.rng, launcher=self.launcher, tampering=tampering, **settings
        ) as stage:
            try:
                yield stage
            except (AssertionError, TimeoutError, ExceptionGroup) as late:  # a state that never came
                self.problems.append(f"stuck: {late!r}")
            await self._judge(stage)

    async def settle(self, stage: Stage, *, sent: int = 0) -> None:
        """Wait until `sent` messages have an answer, then send no more and wait for the final state of all of them.
        If it does not come, the judges report that."""
        with suppress(AssertionError):
            await stage.progress(sent, within=self.patience)
            stage.enough()
            await stage.all_settled(within=self.patience)

    async def _judge(self, stage: Stage) -> None:
        if stage.gateway.running:
            try:
                await self._look(stage)
            except (AssertionError, httpx.HTTPError) as wrong:  # it does not even show history, or not all of it
                self.problems.append(f"lost: {wrong}")
        else:
            self.problems.append(f"ended: {stage.gateway.log[-2000:]}")
        self.checked = await stage.check(self.directory.name)
        self.problems = self.checked.problems + self.problems

    async def _look(self, stage: Stage) -> None:
        verdict = await stage.judge()
        for kind in ("lost", "duplicated", "reordered", "wrong"):
            self.problems += [f"{kind}: {what}" for what in getattr(verdict, kind)]
        for session_id in stage.participants:
            if forgotten := unsettled(await stage.gateway.messages(session_id)):
                self.problems.append(f"silent: {session_id}: no last word on {forgotten}")


async def die(stage: Stage, tampering: Tampering) -> None:
    """Start the gateway and let it die: at its crash point, or at a random moment."""
    gateway = stage.gateway
    gateway.tampering = tampering
    with suppress(GatewayFailed, TimeoutError):  # it died while it started, or never came to that point
        await gateway.start()
        within = stage.rng.uniform(0.05, 0.4) if tampering.crash_at is None else REACHED_WITHIN
        await gateway.wait(within=within)
    await gateway.kill()
    stage.journal.note("fault", kind="kill")
