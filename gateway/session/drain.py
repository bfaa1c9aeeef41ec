"""How the gateway leaves its sessions: it tells viewers to come back, finishes the messages it has read, leaves
sandboxes.
"""

import asyncio
from random import Random

import structlog

from gateway.feed.feed import SessionFeed
from gateway.protocol.close_codes import CloseCode
from gateway.protocol.errors import ApiError
from gateway.session import upkeep
from gateway.session.actor import SessionActor
from gateway.session.loaded import LoadedSessions
from persistence.queue.queue import PersistenceQueue

log = structlog.get_logger()

LARGEST_RETRY_SECONDS = 5.0
FLUSH_SECONDS = 60.0
SYNC_SECONDS = 10.0


class SessionDrain:
    """`draining` is true from the moment the gateway begins to leave: it begins nothing new then."""

    def __init__(self, sessions: LoadedSessions, queue: PersistenceQueue, feed: SessionFeed, rng: Random) -> None:
        self._sessions = sessions
        self._queue = queue
        self._feed = feed
        self._rng = rng
        self.draining = False

    def refuse(self) -> None:
        """Raises ApiError while the gateway leaves."""
        if self.draining:
            raise ApiError(503, "draining", "the gateway is shutting down: try again in a few seconds")

    async def run(self) -> None:
        """Tell viewers to come back, finish the messages that were read, close with 1012. The caller sets the
        deadline."""
        self.draining = True
        self._queue.release()
        self._feed.say_goodbye(self._retry_after())
        actors = list(self._sessions)
        for actor in actors:
            upkeep.say_goodbye(actor, self._retry_after())
        await self._settle(actors)
        for actor in actors:
            actor.post(actor.conversation.save_delivered)
        await self._settle(actors)
        await self._queue.flush(FLUSH_SECONDS)
        await self._settle(actors)
        for actor in actors:
            actor.post(actor.viewers.close, CloseCode.COMING_BACK)
        await self._settle(actors)
        self._feed.close()
        await self._keep_workspaces(actors)
        await self._queue.flush(FLUSH_SECONDS)

    def _retry_after(self) -> float:
        return round(self._rng.uniform(0.5, LARGEST_RETRY_SECONDS), 2)

    async def _keep_workspaces(self, actors: list[SessionActor]) -> None:
        """Sync workspaces for a limited time: the sandboxes stay, so the next gateway can sync them as well. Clean
        workspaces are synced too: the report of a recent write may not have arrived."""
        ready = [actor for actor in actors if actor.workspace.ready]
        if not ready:
            return
        flushing = [asyncio.create_task(actor.workspace.flush(), name=f"drain {actor.id}") for actor in ready]
        await asyncio.wait(flushing, timeout=SYNC_SECONDS)
        left = [actor.id for actor, task in zip(ready, flushing, strict=True) if not task.done() or task.exception()]
        for task in flushing:
            task.cancel()
        if left:
            log.warning("registry.not_synced", sessions=left[:20], count=len(left))
        await self._settle(actors)

    async def _settle(self, actors: list[SessionActor]) -> None:
        # A queue that has died answers no more writes; otherwise every turn of the loop empties inboxes.
        while self._queue.alive and any(not upkeep.quiet(actor) for actor in actors):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
