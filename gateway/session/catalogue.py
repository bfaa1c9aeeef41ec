"""Reads about sessions that load none of them: their owners, specs and present status.

A session that is loaded here is asked itself; any other is read from the store. No session is loaded, woken, or taken
from the gateway that has it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from gateway.auth.tokens import SHARE_ENDED, Principal
from gateway.protocol.errors import ApiError
from gateway.session import upkeep
from gateway.session.loaded import LoadedSessions
from gateway.session.model.description import SandboxPlace, describe
from gateway.session.model.state import SessionSpec, SessionState
from persistence.errors import StoreUnavailable
from persistence.paging import sessions_after
from persistence.ports import MessageStore
from persistence.record import Session
from sandbox.ports.sandbox import Sandbox
from sandbox.providers.several import Fleets

READ_AT_ONCE = 100  # sessions, from the store
DESCRIBED_A_TURN = 10  # sessions described in one turn of the loop


class Catalogue:
    def __init__(self, sessions: LoadedSessions, store: MessageStore, fleets: Fleets) -> None:
        self._sessions = sessions
        self._store = store
        self._fleets = fleets

    # -- one session --------------------------------------------------------------------------------------------------

    async def look(self, session_id: str) -> Session | None:
        """The session as readers see it; None if there is none. A loaded session can be read while the store is away;
        for any other this raises StoreUnavailable."""
        kept: Session | None
        try:
            kept = await self._store.find(session_id)
        except StoreUnavailable:
            if (actor := self._sessions.get(session_id)) is None:
                raise
            kept = upkeep.seen(actor, None)
        if kept is None or session_id in self._sessions.purging:
            return None
        actor = self._sessions.get(session_id)
        return kept if actor is None else upkeep.seen(actor, kept)

    async def owner(self, session_id: str) -> str | None:
        """The id of the user who owns the session (NO_USER: the services); None if there is no such session. A loaded
        session answers without the store. Raises StoreUnavailable."""
        if (actor := self._sessions.get(session_id)) is not None:
            return actor.user_id
        kept = await self.look(session_id)
        return None if kept is None else kept.user_id

    async def spec(self, session_id: str) -> SessionSpec | None:
        """The session's spec, with changes that its writer has and the store does not have yet; None if there is no
        such session. Raises StoreUnavailable."""
        if (actor := self._sessions.get(session_id)) is not None:
            return actor.conversation.spec
        kept = await self.look(session_id)
        return None if kept is None else SessionSpec.from_json(kept.spec)

    async def let_in(self, who: Principal) -> None:
        """Check that the share in `who` still opens its session. Raises ApiError, StoreUnavailable."""
        spec = await self.spec(who.session_id)
        if spec is None or who.share is None or not spec.shares.opens(who.share):
            raise ApiError(401, "share_ended", SHARE_ENDED)

    def provider_of(self, session_id: str) -> str:
        """The provider of the session's sandbox, if the session is loaded; otherwise the provider of new sessions."""
        actor = self._sessions.get(session_id)
        return self._fleets.name if actor is None else actor.sandbox.provider

    def sandbox(self, kept: Session) -> Sandbox:
        """The handle of a session's sandbox."""
        return self._fleets.sandbox(kept.id, SessionSpec.from_json(kept.spec).provider)

    # -- descriptions -------------------------------------------------------------------------------------------------

    def loaded(self, session_id: str) -> dict[str, Any] | None:
        """The session as it is, if it is loaded here."""
        actor = self._sessions.get(session_id)
        return None if actor is None else actor.describe()

    async def kept(self, session_id: str) -> dict[str, Any] | None:
        """The session as it is, or as the store knows it; None if there is none. Raises StoreUnavailable."""
        session = await self.look(session_id)
        return None if session is None else self.describe(session)

    def describe(self, kept: Session) -> dict[str, Any]:
        """Describe a session that the store has listed. For a loaded one this adds the facts that only memory holds."""
        if (actor := self._sessions.get(kept.id)) is not None:
            return actor.describe()
        spec, state = SessionSpec.from_json(kept.spec), SessionState.from_json(kept.state)
        sandbox = self._fleets.sandbox(kept.id, spec.provider)
        place = SandboxPlace(sandbox.provider, sandbox.level)
        return describe(kept.id, kept.user_id, kept.created_at, kept.last_seq, spec, state, place)

    async def described(self, user_id: str | None) -> AsyncIterator[list[dict[str, Any]]]:
        """Every session of the user, or of all users, a few in each turn of the loop, so that a list of thousands
        delays no other work. Raises StoreUnavailable."""
        page = await self._store.sessions(user_id, limit=READ_AT_ONCE)
        while page:
            for start in range(0, len(page), DESCRIBED_A_TURN):
                yield [self.describe(session) for session in page[start : start + DESCRIBED_A_TURN]]
                await asyncio.sleep(0)
            page = await sessions_after(self._store, page, limit=READ_AT_ONCE, user_id=user_id)


def loaded_stats(sessions: LoadedSessions, utcnow: Callable[[], float]) -> dict[str, float]:
    """Sums over all sessions that are loaded here, by the name of their metric."""
    actors, now = list(sessions), utcnow()
    waiting = [upkeep.waiting(actor) for actor in actors]
    views = [view for actor in actors if (view := actor.workspace.view) is not None]
    dirty = [now - (view.last_success or now) for view in views if view.dirty]
    return {
        "sessions_loaded": len(actors),
        "viewers": sum(len(actor.viewers.audience) for actor in actors),
        "terminal_viewers": sum(len(actor.terminals) for actor in actors),
        "pending_records": sum(records for records, _ in waiting),
        "pending_bytes": sum(size for _, size in waiting),
        "sync_dirty_sessions": len(dirty),
        "sync_failed_sessions": sum(view.failing for view in views),
        "sync_oldest_dirty_seconds": max(dirty, default=0.0),
    }
