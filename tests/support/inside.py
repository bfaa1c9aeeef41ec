"""Programs in the sandbox of a session that some gateway runs, from outside: as its bridge runs commands."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sandbox.ports.link import LinkRefused
from sandbox.ports.sandbox import Command, CommandRefused, CommandResult
from sandbox.providers.local.fleet import LocalFleet
from tests.support.waiting import until


class Inside:
    """The local sandboxes of one data directory."""

    def __init__(self, fleet: LocalFleet) -> None:
        self._fleet = fleet

    async def run(self, session_id: str, *argv: str, seconds: float = 60.0) -> CommandResult:
        """Once the sandbox answers and programs may start."""

        async def ran() -> CommandResult | None:
            try:
                return await self._fleet.sandbox(session_id).exec(Command(argv, timeout_seconds=seconds))
            except (LinkRefused, CommandRefused):
                return None

        return await until(ran, f"a command in {session_id}")

    async def shell(self, session_id: str, script: str) -> str:
        """What it prints, its errors included."""
        done = await self.run(session_id, "sh", "-c", f"({script}) 2>&1")
        return done.stdout


@asynccontextmanager
async def inside(data_dir: Path) -> AsyncIterator[Inside]:
    fleet = LocalFleet(data_dir=data_dir, level="contained", loopback_only=True)
    await fleet.open()
    try:
        yield Inside(fleet)
    finally:
        await fleet.close()
