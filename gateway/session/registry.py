"""The sessions of this gateway: found, loaded if need be, and supervised until they end.

A session's crash stops here: it is logged, the session's viewers are told to come back, and the next request loads the
session from the store again. Tasks of the whole gateway (`keep`: the reaper, the search for old sandboxes) have no such
edge: if one fails, the gateway ends in order (`on_death`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self

import structlog

from gateway.feed.feed import SessionFeed
from gateway.limits.start_turns import StartTurns
from gateway.session import upkeep
from gateway.session.actor import SessionActor
from gateway.session.loaded import LoadedSessions
from gateway.session.loader import SessionLoader
from persistence.errors import StoreUnavailable
from persistence.ports import MessageStore
from persistence.record import NO_USER, Outcome

log = structlog.get_logger()


class SessionRegistry:
    """`owner` returns a session's user without loading the session. `reattaching_since` is a time while sandboxes that
    ran before this gateway are being found again."""

    def __init__(
        self,
        sessions: LoadedSessions,
        loader: SessionLoader,
        store: MessageStore,
        owner: Callable[[str], Awaitable[str | None]],
        feed: SessionFeed,
        turns: StartTurns,
        *,
        on_death: Callable[[BaseException], None],
    ) -> None:
        self._sessions = sessions
        self._loader = loader
        self._store = store
        self._owner = owner
        self._feed = feed
        self._turns = turns
        self._on_death = on_death
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._loading: dict[str, asyncio.Future[SessionActor | None]] = {}
        self._group = asyncio.TaskGroup()
        self._keepers: list[asyncio.Task[None]] = []
        self._beside: dict[asyncio.Task[None], tuple[SessionActor, Coroutine[Any, Any, None]]] = {}
        self._closed = False
        self.reattaching_since: float | None = None

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        for loading in self._loading.values():
            loading.cancel()
        for task in [*self._keepers, *self._tasks.values(), *self._beside]:
            task.cancel()
        await self._group.__aexit__(None, None, None)

    # -- finding and loading ------------------------------------------------------------------------------------------

    async def find(self, session_id: str, *, user_id: str | None) -> SessionActor | None:
        """The session, loaded if need be; None if there is none, or if it is not `user_id`'s (None: any user's). A
        session without a user belongs to no user. Raises StoreUnavailable.

        The owner is checked before the session is loaded: loading takes it from the gateway that has it now."""
        if user_id is not None and (user_id == NO_USER or await self._owner(session_id) != user_id):
            return None
        actor = await self.load(session_id)
        return actor if actor is not None and user_id in (None, actor.user_id) else None

    async def load(self, session_id: str) -> SessionActor | None:
        """The session of any user; None if there is none, or if it is being purged. Raises StoreUnavailable."""
        actor = self._sessions.get(session_id)
        if actor is not None or session_id in self._sessions.purging:
            return actor
        if self._closed:  # nothing would end a session that is loaded now
            raise StoreUnavailable("the gateway has ended")
        if session_id not in self._loading:
            self._loading[session_id] = loading = asyncio.ensure_future(self._load(session_id))
            loading.add_done_callback(lambda _: self._loading.pop(session_id, None))
        return await asyncio.shield(self._loading[session_id])

    async def _load(self, session_id: str) -> SessionActor | None:
        actor = await self._loader.load(session_id, self)
        if actor is not None:
            self._sessions.add(actor)
            self._tasks[session_id] = self._group.create_task(self._supervise(actor), name=f"session {session_id}")
            upkeep.begin(actor, since=self.reattaching_since)
        return actor

    def settled(self, session_id: str, seq: int, outcome: Outcome) -> None:
        """The store has decided about a record that was durable here first (`StoreListener.settled`)."""
        if (actor := self._sessions.get(session_id)) is not None:
            upkeep.settled(actor, seq, outcome)

    # -- supervising --------------------------------------------------------------------------------------------------

    async def _supervise(self, actor: SessionActor) -> None:
        try:
            await actor.run()
        except Exception:
            log.exception("session.crashed", session_id=actor.id)
        finally:
            self.forget(actor)
            self._turns.forget(actor.id)  # its task may be cancelled before its first step
            for task, (owner, _) in self._beside.items():
                if owner is actor:  # it would go on with a sandbox that belongs to another actor by now
                    task.cancel()

    def forget(self, actor: SessionActor) -> None:
        """Unload the session: its task ends, and the next request loads it again."""
        if self._sessions.remove(actor):
            self._tasks.pop(actor.id).cancel()
            self._turns.give_up(actor.id)
            self._turns.note(actor.id, actor.user_id, placed=False)
            self._feed.stir(actor.user_id, actor.id)

    async def purge(self, actor: SessionActor) -> None:
        purging = self._sessions.purging
        purging.add(actor.id)  # until the purge is done no one may find the session, or it would be loaded once more
        try:
            self.forget(actor)
            await self._loader.barrier(actor.id)
            await self._store.purge(actor.id)
            self._feed.gone(actor.user_id, actor.id)
        finally:
            purging.discard(actor.id)

    def spawn(self, actor: SessionActor, work: Coroutine[Any, Any, None], name: str) -> None:
        if self._closed or actor.ended:
            work.close()
            return
        task = self._group.create_task(self._run_beside(actor, work, name), name=name)
        self._beside[task] = actor, work
        task.add_done_callback(self._over_beside)

    async def _run_beside(self, actor: SessionActor, work: Coroutine[Any, Any, None], name: str) -> None:
        try:
            await work
        except StoreUnavailable as error:
            log.warning("session.store_unavailable", session_id=actor.id, cause=str(error))
        except Exception:
            log.exception("session.crashed", session_id=actor.id, work=name)
            self.forget(actor)

    def _over_beside(self, task: asyncio.Task[None]) -> None:
        _, work = self._beside.pop(task)
        work.close()  # cancelled before its first step, it would never have begun

    def keep(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Run a task that the gateway depends on, until the registry is left."""

        async def run() -> None:
            try:
                await work()
            except Exception as error:
                log.exception("registry.keeper_died", keeper=name)
                self._on_death(error)

        self._keepers.append(self._group.create_task(run(), name=name))
