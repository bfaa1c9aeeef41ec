"""Takes over from the previous gateway: finds running sandboxes, and sessions with unfinished work.

Each provider is asked separately, so a silent one delays only its own sessions. A store or a provider that is away when
the gateway opens is asked again until it answers.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable
from random import Random
from typing import Protocol, TypeVar

import structlog

from gateway.session import upkeep
from gateway.session.actor import SessionActor
from gateway.session.model.ports import WayOut
from gateway.session.model.state import SessionSpec, SessionState, SessionStatus
from persistence.backoff import delay
from persistence.errors import StoreUnavailable
from persistence.paging import sessions_after
from persistence.ports import MessageStore
from persistence.record import Session
from sandbox.ports.fleet import Fleet
from sandbox.ports.sandbox import SandboxUnavailable

log = structlog.get_logger()
T = TypeVar("T")

LOADED_AT_ONCE = 8
READ_AT_ONCE = 100  # sessions, from the store


class Loads(Protocol):
    """Loads sessions; `SessionRegistry` implements it."""

    reattaching_since: float | None

    async def load(self, session_id: str) -> SessionActor | None: ...


class Reattach:
    def __init__(
        self,
        fleets: Iterable[Fleet],
        store: MessageStore,
        registry: Loads,
        rng: Random,
        *,
        removes_orphans: bool = True,
        way_out: WayOut | None = None,
    ) -> None:
        self._fleets = fleets
        self._store = store
        self._registry = registry
        self._rng = rng
        self._removes_orphans = removes_orphans
        self._way_out = way_out
        self._running: set[str] = set()

    async def run(self) -> None:
        """Load every session with unfinished work: a sandbox that runs, an answer under way, a message that waits,
        files that are not stored. Stop sandboxes that belong to no session."""
        async with asyncio.TaskGroup() as looking:
            for fleet in self._fleets:
                looking.create_task(self._find_sandboxes_of(fleet), name=f"reattach {fleet.name}")
        self._registry.reattaching_since = None
        if self._way_out is not None:
            self._way_out.found(self._running)

    async def _find_sandboxes_of(self, fleet: Fleet) -> None:
        running = set(await self._patiently(fleet.running))
        waiting = set(await self._patiently(self._store.waiting))
        count, orphans, busy = await self._patiently(lambda: self._look_through(fleet.name, running, waiting))
        for session_id in orphans:
            log.warning("sandbox.orphan", provider=fleet.name, session_id=session_id)
            if self._removes_orphans:
                await self._patiently(fleet.sandbox(session_id).stop)
        running -= orphans
        self._running |= running
        gate = asyncio.Semaphore(LOADED_AT_ONCE)
        async with asyncio.TaskGroup() as loading:
            for session_id in busy:
                loading.create_task(self._load(session_id, gate, runs=session_id in running))
        log.info("registry.ready", provider=fleet.name, sessions=count, running=len(running), loaded=len(busy))

    async def _load(self, session_id: str, gate: asyncio.Semaphore, *, runs: bool) -> None:
        async with gate:
            try:
                actor = await self._patiently(lambda: self._registry.load(session_id))
            except Exception:  # one that cannot be loaded is no reason to keep all others from being served
                log.exception("session.load_failed", session_id=session_id)
                return
            if actor is not None and runs:  # a dead sandbox's files are rescued later, once the session is idle
                upkeep.found_running(actor, since=self._registry.reattaching_since)

    async def _look_through(
        self, provider: str, running: set[str], waiting: set[str]
    ) -> tuple[int, set[str], list[str]]:
        """Return the number of sessions, the sandboxes of `running` that belong to none, and the provider's sessions
        with unfinished work. It reads page by page and keeps only those. Raises StoreUnavailable."""
        count, orphans, busy = 0, set(running), list[str]()
        page = await self._store.sessions(limit=READ_AT_ONCE)
        while page:
            count += len(page)
            for session in page:
                state = SessionState.from_json(session.state)
                if state.status is not SessionStatus.ARCHIVED:
                    orphans.discard(session.id)
                runs = session.id in running and session.id not in orphans
                is_busy = runs or session.id in waiting or not state.ended or state.wants_rescue
                if is_busy and _is_at(session, provider):
                    busy.append(session.id)
            page = await sessions_after(self._store, page, limit=READ_AT_ONCE)
        return count, orphans, busy

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        for attempt in itertools.count():
            try:
                return await ask()
            except StoreUnavailable as error:
                if attempt == 0:
                    log.warning("registry.store_unavailable", cause=str(error))
            except SandboxUnavailable as error:
                if attempt == 0:
                    log.warning("registry.provider_unavailable", cause=str(error))
            await asyncio.sleep(delay(attempt, base=0.1, cap=5.0, rng=self._rng))
        raise AssertionError("it is asked until it is answered")


def _is_at(session: Session, provider: str) -> bool:
    return SessionSpec.from_json(session.spec).provider == provider
