"""Writes a workspace's news into the session's state, and reports them to viewers.

Work on a workspace runs beside the session's task. Its news go through the session's inbox as plain values, and the
methods here process them in the session's task.
"""

from typing import Any

from gateway.protocol import chat_frames
from gateway.session.asks import Asks
from gateway.session.conversation.log import SessionLog
from gateway.session.model.ports import Publisher, Tasks
from gateway.session.workspace.kept_generation import sync_changes
from sync.format.pointer import Generation
from sync.machine.driver import SyncView


class WorkspaceJournal:
    __slots__ = ("_asks", "_log", "_publisher", "_tasks")

    def __init__(self, log: SessionLog, tasks: Tasks, publisher: Publisher, asks: Asks) -> None:
        self._log = log
        self._tasks = tasks
        self._publisher = publisher
        self._asks = asks

    # -- beside the session's task ------------------------------------------------------------------------------------

    def tell(self, status: str, **members: object) -> None:
        self._tasks.post(self._publisher.tell, chat_frames.dump("session_status", status=status, **members))

    async def save(self, **changes: Any) -> None:
        """Return when the state has changed. Raises ApiError if the session ends before."""
        await self._asks.have(self._tasks.post, self._save, changes)

    async def save_durably(self, **changes: Any) -> None:
        """Return when the change is durable. Raises ApiError if the session ends before."""
        await self._asks.have(self._tasks.post, self._save_durably, changes)

    def synced(self, view: SyncView, newest: Generation | None) -> None:
        """`newest`: the newest generation that this process has seen."""
        self._tasks.post(self._synced, view, newest)

    # -- in the session's task ----------------------------------------------------------------------------------------

    def _save(self, ask: int, changes: dict[str, Any]) -> None:
        self._log.save(**changes)
        self._asks.answer(ask)

    def _save_durably(self, ask: int, changes: dict[str, Any]) -> None:
        self._log.write(self._asks.answer, ask, state=self._log.next_state(**changes))

    def _synced(self, view: SyncView, newest: Generation | None) -> None:
        before = self._log.state.sync_error
        if changes := sync_changes(view, newest, self._log.state):
            self._log.save(**changes)
        error = self._log.state.sync_error
        if error and error != before:
            self._tell("sync_failed", reason=error, generation=view.generation)
        if view.recovered:
            self._tell("sync_recovered", generation=view.generation)

    def _tell(self, status: str, **members: object) -> None:
        self._publisher.tell(chat_frames.dump("session_status", status=status, **members))
