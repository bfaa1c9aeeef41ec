"""The providers as the API shows them: whether each answers, and how many sandboxes have a place there.

A provider is asked at most once in FRESH_SECONDS, and waited for at most LOOK_SECONDS. Requests that arrive meanwhile
wait for the same answer.
"""

import asyncio
import contextlib
import math
from collections import Counter
from dataclasses import dataclass

from gateway.limits.network import NETWORKS
from gateway.limits.start_turns import StartTurns
from gateway.session.loaded import LoadedSessions
from gateway.session.sandbox.start_turn import session_named
from gateway.telemetry.telemetry import Repeating
from sandbox.ports.fleet import Fleet, ProviderHealth, SandboxSpec
from sandbox.ports.sandbox import SandboxFailed
from sandbox.providers.several import Fleets

FRESH_SECONDS = 5.0
LOOK_SECONDS = 2.0
SILENT = f"it did not answer within {LOOK_SECONDS:g} s"


@dataclass(frozen=True, slots=True)
class ProviderView:
    name: str
    level: str
    networks: tuple[str, ...]
    health: ProviderHealth


class Providers:
    def __init__(self, fleets: Fleets, loaded: LoadedSessions, turns: StartTurns) -> None:
        self._looks = [_Look(fleet) for fleet in fleets]
        self._loaded = loaded
        self._turns = turns
        self.default = fleets.name

    async def look(self) -> list[ProviderView]:
        """The state of each provider, the one of new sessions first; no answer is older than FRESH_SECONDS."""
        return list(await asyncio.gather(*(look.view() for look in self._looks)))

    async def keep_watch(self) -> None:
        """Ask each provider, so that `up` is fresh."""
        await self.look()

    def up(self, name: str) -> float:
        """1 if the provider's last answer was good, 0 if not, NaN before it was asked."""
        for look in self._looks:
            if look.fleet.name == name and look.health is not None:
                return float(look.health.problem is None)
        return math.nan

    def running(self) -> Counter[str]:
        """How many sandboxes have a place, by provider. A session that is about to be loaded counts for the default."""
        return Counter(self._provider_of(session_named(name)) for name in self._turns.placed())

    def _provider_of(self, session_id: str) -> str:
        actor = self._loaded.get(session_id)
        return self.default if actor is None else actor.sandbox.provider


class _Look:
    """The newest answer of one provider."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.health: ProviderHealth | None = None
        self._networks = _networks_at(fleet)
        self._looked_at = -math.inf
        self._turn = asyncio.Lock()
        self._trouble = Repeating("provider.unavailable")

    async def view(self) -> ProviderView:
        now = asyncio.get_running_loop().time
        async with self._turn:
            if self.health is None or now() - self._looked_at > FRESH_SECONDS:
                self.health = await self._ask()
                self._looked_at = now()
                self._note(now())
            return ProviderView(self.fleet.name, self.fleet.level, self._networks, self.health)

    async def _ask(self) -> ProviderHealth:
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                return await self.fleet.health()
        except TimeoutError:
            return ProviderHealth(SILENT)

    def _note(self, now: float) -> None:
        if self.health is not None and self.health.problem is not None:
            self._trouble.failed(now=now, provider=self.fleet.name, cause=self.health.problem)
        else:
            self._trouble.worked()


def _networks_at(fleet: Fleet) -> tuple[str, ...]:
    """The networks that sandboxes of this provider can have, whatever the user's rights."""
    found = []
    for network in NETWORKS:
        with contextlib.suppress(SandboxFailed):
            fleet.check(SandboxSpec("", 1, (), network=network))
            found.append(network)
    return tuple(found)
