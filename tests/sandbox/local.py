"""What several tests of the local fleet need."""

import contextlib
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from sandbox.ports.fleet import Fleet, SandboxSpec
from sandbox.ports.link import Link, LinkEvents
from sandbox.ports.sandbox import Command, CommandResult
from sandbox.protocol.values import Position
from sandbox.providers.local.fleet import LocalFleet
from sandbox.providers.local.layout import SandboxHome
from sandbox.providers.local.sandbox import LocalSandbox
from sandbox.providers.local.teardown import end

LEVELS = ("trusted", "contained")


class _Sandbox(LocalSandbox):
    links: list[Link]

    async def connect(self, events: LinkEvents, after: Position | None) -> Link:
        self.links.append(await super().connect(events, after))
        return self.links[-1]


class _Fleet(LocalFleet):
    """One that closes its links at the end: a loop may not be closed before they are."""

    def __init__(self, data_dir: Path, **settings: Any) -> None:
        super().__init__(data_dir, **settings)
        self.links: list[Link] = []

    def sandbox(self, session_id: str) -> LocalSandbox:
        sandbox = _Sandbox(session_id, self._level, self._host)
        sandbox.links = self.links
        return sandbox


@contextlib.asynccontextmanager
async def opened(data_dir: Path, level: str, **settings: Any) -> AsyncIterator[LocalFleet]:
    """A fleet on `data_dir`; whatever runs there at the end is ended."""
    fleet = _Fleet(data_dir, level=level, **settings)
    await fleet.open()
    try:
        yield fleet
    finally:
        for link in fleet.links:
            link.close()
        await let_go(fleet)


async def let_go(fleet: LocalFleet) -> None:
    """Kill whatever runs and close the fleet."""
    for session_id in await fleet.running():
        await end(SandboxHome(fleet.data_dir, session_id), patience=0)
    await fleet.close()


def spec(session_id: str = "s1", agent: Sequence[str] = ("cat",), **wishes: Any) -> SandboxSpec:
    return SandboxSpec(session_id, 1, tuple(agent), **wishes)


def python(source: str) -> tuple[str, ...]:
    return (sys.executable, "-c", source)


async def command(fleet: Fleet, session_id: str, argv: Sequence[str]) -> CommandResult:
    """Run a command inside, through the bridge."""
    return await fleet.sandbox(session_id).exec(Command(tuple(argv), timeout_seconds=60))
