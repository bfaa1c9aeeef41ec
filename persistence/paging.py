"""Reads sessions page by page, again and again, while some are purged and created again under their old ids."""

from collections.abc import Awaitable, Callable

from persistence.errors import StoreUnavailable
from persistence.ports import MessageStore
from persistence.record import Session

Look = Callable[[str], Awaitable[Session | None]]


async def seen_again(look: Look, session: Session) -> Session | None:
    """The session as it is now; None if it is gone, even if its id is in use again."""
    now = await look(session.id)
    if now is None or (now.user_id, now.created_at) != (session.user_id, session.created_at):
        return None
    return now


async def sessions_after(
    store: MessageStore, page: list[Session], *, limit: int, user_id: str | None = None
) -> list[Session]:
    """The sessions after `page`, which was read with the same `limit`. A purged session loses its place in the list,
    and one created again gets another place: then the list goes on after the session before it. Raises
    StoreUnavailable also if the whole page is gone."""
    if len(page) < limit:  # new sessions come first in the list, so the last page stays the last
        return []
    for session in reversed(page):
        found = await store.sessions(user_id, after=session.id, limit=limit)
        if await seen_again(store.find, session) is not None:
            return found
    raise StoreUnavailable("all sessions of a page were removed while they were looked at")
