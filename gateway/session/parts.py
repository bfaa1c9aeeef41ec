"""Builds and wires every part that deals with more than one session. Callers use each part by itself; opening, closing
and the counts are common.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from random import Random
from types import TracebackType
from typing import Self

from gateway.agents.agents import Agents
from gateway.feed.feed import SessionFeed
from gateway.limits.inbound_bytes import UsersInboundBytes
from gateway.limits.quota import Quota, UserLimits
from gateway.limits.start_turns import StartTurns
from gateway.session.catalogue import Catalogue, loaded_stats
from gateway.session.creation.branch import SessionBranching
from gateway.session.creation.create import SessionCreation
from gateway.session.creation.new_sessions import NewSessions
from gateway.session.creation.room import CreationRoom
from gateway.session.drain import SessionDrain
from gateway.session.env_cover import EnvCover, HasCredential, no_credentials
from gateway.session.host import Surroundings
from gateway.session.loaded import LoadedSessions
from gateway.session.loader import SessionLoader
from gateway.session.model.ports import NoWayOut, SessionLimits, SessionMetrics, WayOut
from gateway.session.orphans import Orphans
from gateway.session.providers import Providers
from gateway.session.reaper import Reaper
from gateway.session.reattach import Reattach
from gateway.session.recording.files import RecordingFiles
from gateway.session.registry import SessionRegistry
from gateway.session.user_configs import UserConfigs
from gateway.session.workspace.keeping import Keeping
from persistence.ports import MessageStore
from persistence.queue.queue import PersistenceQueue
from sandbox.providers.several import Fleets


class SessionParts:
    """`store_fails`: the store does not answer, and writes wait before it."""

    def __init__(
        self,
        store: MessageStore,
        queue: PersistenceQueue,
        fleets: Fleets,
        keeping: Keeping,
        limits: SessionLimits,
        metrics: SessionMetrics,
        *,
        agents: Agents,
        on_death: Callable[[BaseException], None],
        store_fails: Callable[[], bool] = lambda: False,
        turns: StartTurns | None = None,
        inbound: UsersInboundBytes | None = None,
        user_limits: UserLimits | None = None,
        rng: Random | None = None,
        utcnow: Callable[[], float] = time.time,
        recordings: RecordingFiles | None = None,
        removes_orphans: bool = True,
        has_credential: HasCredential = no_credentials,
        way_out: WayOut | None = None,
    ) -> None:
        rng = rng or Random()
        envs: dict[str, Mapping[str, str]] = {}
        self._fleets = fleets
        self._utcnow = utcnow
        self.turns = turns or StartTurns(rng=rng)
        self.quota = Quota(store.usage, user_limits)
        self.loaded = LoadedSessions()
        self.catalogue = Catalogue(self.loaded, store, fleets)
        self.feed = SessionFeed(self.catalogue)
        self.providers = Providers(fleets, self.loaded, self.turns)
        self.drain = SessionDrain(self.loaded, queue, self.feed, rng)
        self.configs = UserConfigs(store.users, utcnow, agents.default.name)
        around = Surroundings(
            store,
            queue,
            fleets,
            keeping,
            limits,
            metrics,
            self.turns,
            self.quota,
            self.feed,
            agents=agents,
            envs=envs,
            env_cover=EnvCover(envs, has_credential),
            configs=self.configs,
            inbound=inbound or UsersInboundBytes(),
            rng=rng,
            utcnow=utcnow,
            recordings=recordings,
            way_out=way_out or NoWayOut(),
        )
        self.registry = SessionRegistry(
            self.loaded, SessionLoader(around), store, self.catalogue.owner, self.feed, self.turns, on_death=on_death
        )
        new = NewSessions(self.registry.load, metrics.created)
        room = CreationRoom(self.quota, self.turns, metrics.refused)
        self.creation = SessionCreation(
            self.loaded,
            store,
            new,
            room,
            self.drain,
            fleets=fleets,
            network=limits.network,
            resources=limits.resources,
            images=limits.images,
            agents=agents,
            utcnow=utcnow,
        )
        self.branching = SessionBranching(
            store,
            keeping.vault,
            new,
            room,
            self.drain,
            fleets=fleets,
            envs=envs,
            stored=metrics.stored,
            rng=rng,
            utcnow=utcnow,
        )

        def can_load(session_id: str) -> bool:
            return not store_fails() and not store.behind(session_id)

        self._reaper = Reaper(self.loaded, self.registry.forget, can_load, sleep_after=limits.sleep_after)
        self._reattach = Reattach(fleets, store, self.registry, rng, removes_orphans=removes_orphans, way_out=way_out)
        self.orphans = Orphans(fleets, store, self.loaded, metrics, rng, removes=removes_orphans)

    async def __aenter__(self) -> Self:
        self.registry.reattaching_since = asyncio.get_running_loop().time()
        await self._fleets.open()
        await self.registry.__aenter__()
        self.registry.keep(self._reaper.run, "reaper")
        self.registry.keep(self._reattach.run, "reattach")
        self.registry.keep(self.orphans.run, "orphans")
        self.registry.keep(self.feed.look_up, "feed")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.feed.close()
        await self.registry.__aexit__(None, None, None)
        await self._fleets.close()

    def stats(self) -> dict[str, float]:
        events = {"event_viewers": float(len(self.feed))}
        return {**self.turns.stats(), **loaded_stats(self.loaded, self._utcnow), **events}
