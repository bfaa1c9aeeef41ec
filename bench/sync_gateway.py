"""The gateway's part in bench/sync.py, in its own process: a vault on the object store, and sandboxes with real
bridges.

It reads lines of JSON, [doing, argument, ...], and answers each with the seconds it took, or with a path. A repository
is a user with one session, so it cannot use what was stored for another repository.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

from gateway.config.loading import load_settings
from gateway.wiring.objects import make_objects
from sandbox.ports.fleet import SandboxSpec
from sandbox.protocol.tree import ScanAsk
from sandbox.providers.local.fleet import LocalFleet
from sandbox.providers.local.layout import SandboxHome
from sync.snapshots.service import SnapshotService

SESSION = "bench"
AGENT = ("cat",)


class Gateway:
    def __init__(self, fleet: LocalFleet, vault: SnapshotService, rules: ScanAsk) -> None:
        self._fleet = fleet
        self._vault = vault
        self._rules = rules

    async def start(self, sandbox: str) -> str:
        """Start a sandbox with its agent held, and return the path of its workspace."""
        await self._fleet.start(SandboxSpec(sandbox, 1, AGENT, hold=True))
        await self._fleet.sandbox(sandbox).tree().survey(self._rules.agent_skip)
        return str(SandboxHome(self._fleet.data_dir, sandbox).workspace)

    async def push(self, repository: str, sandbox: str) -> float:
        tree = self._fleet.sandbox(sandbox).tree()
        began = time.perf_counter()
        await self._vault.push(repository, SESSION, tree, self._rules, lambda: None)
        return time.perf_counter() - began

    async def restore(self, repository: str, sandbox: str) -> float:
        tree = self._fleet.sandbox(sandbox).tree()
        began = time.perf_counter()
        restored = await self._vault.restore(repository, SESSION, tree, aside=False, told=lambda _: None)
        seconds = time.perf_counter() - began
        assert restored.degraded is None
        return seconds

    async def serve(self) -> None:
        doing: dict[str, Callable[..., Awaitable[Any]]] = {
            "start": self.start,
            "push": self.push,
            "restore": self.restore,
        }
        while line := await asyncio.to_thread(sys.stdin.readline):
            name, *arguments = json.loads(line)
            print(json.dumps(await doing[name](*arguments)), flush=True)


async def main() -> None:
    settings = load_settings(os.environ)
    rules = ScanAsk(agent_skip=settings.sync_agent_skip)
    fleet = LocalFleet(settings.data_dir, level="trusted")
    await fleet.open()
    try:
        async with make_objects(settings) as objects:
            await Gateway(fleet, SnapshotService(objects), rules).serve()
    finally:
        for sandbox in await fleet.running():
            await fleet.sandbox(sandbox).stop()
        await fleet.close()


if __name__ == "__main__":
    uvloop.run(main())
