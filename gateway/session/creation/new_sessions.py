"""A session that was just stored: counted if it is new, and loaded."""

from collections.abc import Awaitable, Callable

import structlog

from gateway.protocol.errors import ApiError
from gateway.session.actor import SessionActor
from gateway.session.model.state import SessionSpec
from persistence.record import Session

log = structlog.get_logger()

Load = Callable[[str], Awaitable[SessionActor | None]]


def being_purged() -> ApiError:
    return ApiError(409, "purging", "this session is being removed: try again in a moment")


class NewSessions:
    """`created` counts a creation by its provider."""

    def __init__(self, load: Load, created: Callable[[str], None]) -> None:
        self._load = load
        self._created = created

    async def load(self, asked: Session, kept: Session, **fields: str) -> SessionActor:
        """The session of which the store has `kept`, and was asked to keep `asked`: the same unless it had one of that
        id before. Raises ApiError if it is being purged, StoreUnavailable."""
        if kept.created_at == asked.created_at:
            self.count(kept, **fields)
        actor = await self._load(kept.id)
        if actor is None:
            raise being_purged()
        return actor

    def count(self, session: Session, **fields: str) -> None:
        provider = SessionSpec.from_json(session.spec).provider
        self._created(provider)
        log.info("session.created", session_id=session.id, user_id=session.user_id, provider=provider, **fields)
