"""Orphans: leftovers of sandboxes that no session can use. They are found at each provider, listed, and removed.

An orphan is what a provider reports as left over (sandbox/ports/leftovers.py), or a sandbox that runs for a session
that the store does not know. Leftovers are looked for when the gateway opens, when a provider reports that a sandbox
has ended, and each hour; sandboxes without a session each hour only, because `reattach.py` looks for them at the start.
A provider or a store that does not answer is asked again; meanwhile nothing counts as an orphan.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

import structlog

from gateway.session.loaded import LoadedSessions
from gateway.session.model.ports import SessionMetrics
from gateway.session.model.state import SessionState, SessionStatus
from gateway.telemetry.telemetry import Repeating
from persistence.backoff import delay
from persistence.errors import StoreUnavailable
from persistence.ports import MessageStore
from sandbox.ports.fleet import Fleet
from sandbox.ports.leftovers import LeavesThings, Leftover
from sandbox.ports.sandbox import SandboxFailed, SandboxUnavailable

log = structlog.get_logger()

LOOK_SECONDS = 3600.0
SETTLE_SECONDS = 1.0  # many sandboxes may end at once, and a start clears away the rest of its predecessor
AGAIN_SECONDS = 60.0
NO_SESSION = "it runs for a session that does not exist"


@dataclass(frozen=True, slots=True)
class Orphan:
    provider: str
    left: Leftover


class Orphans:
    """`removes` is the operator's policy: without it orphans are listed, and removed only on request."""

    def __init__(
        self,
        fleets: Iterable[Fleet],
        store: MessageStore,
        sessions: LoadedSessions,
        metrics: SessionMetrics,
        rng: Random,
        *,
        removes: bool = True,
    ) -> None:
        self._fleets = {fleet.name: fleet for fleet in fleets}
        self._store = store
        self._sessions = sessions
        self._metrics = metrics
        self._rng = rng
        self._removes = removes
        self._told: set[Orphan] = set()  # no more than there are: those that are gone are forgotten

    async def run(self) -> None:
        """Look for orphans until cancelled."""
        async with asyncio.TaskGroup() as keeping:
            for fleet in self._fleets.values():
                ended = asyncio.Event()
                keeping.create_task(self._keep(fleet, ended), name=f"orphans of {fleet.name}")
                if isinstance(fleet, LeavesThings):
                    keeping.create_task(self._listen(fleet, ended), name=f"endings at {fleet.name}")

    async def look(self) -> list[Orphan]:
        """All orphans that exist now. Raises SandboxUnavailable, StoreUnavailable."""
        return [found for fleet in self._fleets.values() for found in await self._look_at(fleet, also_running=True)]

    async def remove(self) -> list[Orphan]:
        """Remove all orphans, whatever the policy, and return those removed. Raises SandboxUnavailable, SandboxFailed,
        StoreUnavailable."""
        return [found for found in await self.look() if await self._remove(found)]

    async def _keep(self, fleet: Fleet, ended: asyncio.Event) -> None:
        trouble = Repeating("sandbox.orphans_unknown")
        now = asyncio.get_running_loop().time
        failures, look_at_all = 0, now() + LOOK_SECONDS
        while True:
            is_due = now() >= look_at_all
            try:
                await self._look_after(fleet, also_running=is_due)
            except (SandboxUnavailable, SandboxFailed, StoreUnavailable) as error:
                trouble.failed(now=now(), provider=fleet.name, cause=str(error))
                await asyncio.sleep(delay(failures, self._rng, cap=AGAIN_SECONDS))
                failures += 1
                continue
            trouble.worked()
            failures = 0
            if is_due:
                look_at_all = now() + LOOK_SECONDS
            try:
                async with asyncio.timeout_at(look_at_all):
                    await ended.wait()
                    await asyncio.sleep(SETTLE_SECONDS)
            except TimeoutError:
                pass
            ended.clear()

    async def _listen(self, fleet: LeavesThings, ended: asyncio.Event) -> None:
        """Take the provider's reports as fast as they come: only the fact that a sandbox has ended is kept."""
        failures = 0
        while True:
            try:
                async for _ in fleet.endings():
                    failures = 0
                    ended.set()
            except (SandboxUnavailable, SandboxFailed) as error:
                log.debug("sandbox.endings_unheard", cause=str(error))
            await asyncio.sleep(delay(failures, self._rng))
            failures += 1

    async def _look_after(self, fleet: Fleet, *, also_running: bool) -> None:
        found = await self._look_at(fleet, also_running=also_running)
        self._told = {told for told in self._told if told.provider != fleet.name or told in found}
        for orphan in found:
            if self._removes:
                await self._remove(orphan)
            elif orphan not in self._told:
                self._told.add(orphan)
                log.warning("sandbox.orphan", **_fields(orphan))

    async def _look_at(self, fleet: Fleet, *, also_running: bool) -> list[Orphan]:
        left = await fleet.leftovers() if isinstance(fleet, LeavesThings) else []
        running = await fleet.running() if also_running else []
        alone = [Leftover(each, each, NO_SESSION) for each in running if await self._is_nobodys(each)]
        return [Orphan(fleet.name, each) for each in (*left, *alone)]

    async def _is_nobodys(self, session_id: str) -> bool:
        if self._is_in_use(session_id):
            return False
        found = await self._store.find(session_id)
        if found is not None and SessionState.from_json(found.state).status is not SessionStatus.ARCHIVED:
            return False
        return not self._is_in_use(session_id)

    def _is_in_use(self, session_id: str) -> bool:
        return self._sessions.get(session_id) is not None or session_id in self._sessions.purging

    async def _remove(self, orphan: Orphan) -> bool:
        fleet, left = self._fleets[orphan.provider], orphan.left
        if left.why == NO_SESSION:
            if not await self._is_nobodys(left.session_id):
                return False
            await fleet.sandbox(left.session_id).stop()
        elif not isinstance(fleet, LeavesThings) or not await fleet.clear(left):
            return False
        self._told.discard(orphan)
        log.info("sandbox.orphan_removed", **_fields(orphan))
        self._metrics.orphan_removed(orphan.provider)
        return True


def _fields(orphan: Orphan) -> dict[str, str]:
    left = orphan.left
    return {"provider": orphan.provider, "session_id": left.session_id, "name": left.name, "why": left.why}
