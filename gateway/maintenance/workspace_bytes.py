"""The bytes of the newest snapshots of all workspaces together, cheap to read at any time.

The sessions in the store are counted page by page, at the start and then every ten minutes. Between two counts the
changes of this gateway are added at once; those of another gateway on the same store wait for the next count. A change
during a count may be in it or not: it is added.
"""

import asyncio
import math
from collections.abc import Callable

from gateway.session.model.state import SessionState
from persistence.paging import sessions_after
from persistence.ports import MessageStore

SESSIONS_AT_ONCE = 100
PAUSE_SECONDS = 0.05  # between two pages: other writes go first


class WorkspaceBytes:
    def __init__(self, store: MessageStore, changes: Callable[[], int]) -> None:
        """`changes` returns the bytes by which snapshots have grown here since the start."""
        self._store = store
        self._changes = changes
        self._counted = math.nan  # less `changes` at that time

    def read(self) -> float:
        """NaN before the first count: 0 would be wrong."""
        return self._counted + self._changes()

    async def count(self) -> None:
        """Count all. Raises StoreUnavailable; then the last count holds."""
        total, before = 0, self._changes()
        page = await self._store.sessions(limit=SESSIONS_AT_ONCE)
        while page:
            total += sum(SessionState.from_json(session.state).snapshot_bytes for session in page)
            await asyncio.sleep(PAUSE_SECONDS)
            page = await sessions_after(self._store, page, limit=SESSIONS_AT_ONCE)
        self._counted = total - before
