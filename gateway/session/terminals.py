"""A session's terminals, as far as the gateway has to do with them: who watches, and that each is linked while the
sandbox runs. The terminals themselves are in the bridge, and their bytes never pass the session's task.

Attaching wakes nobody. While the sandbox sleeps a viewer is told so; what it types first is intent, and wakes it. While
a link is found again, or the sandbox starts, what is typed waits in the client's socket.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import structlog

from gateway.close_codes import CloseCode
from gateway.session.life import Life
from gateway.session.ports import Host
from gateway.session.state import SessionStatus
from gateway.sockets.terminal_viewer import TerminalViewer
from persistence.backoff import delay
from sandbox.ports import LinkRefused, SandboxProvider

log = structlog.get_logger()

COMING = (SessionStatus.STARTING, SessionStatus.RUNNING)  # a terminal is there, or will be in a moment
WAKES = (SessionStatus.SLEEPING, SessionStatus.ERROR, SessionStatus.UNRESTORED)
REASONS = {
    SessionStatus.PAUSED: "the session is paused: resume it first",
    SessionStatus.NEEDS_ENV: "the session's envVars are gone: resume it with {envVars}",
    SessionStatus.ARCHIVED: "the session is archived: create it again first",
}
RETRY_BASE, RETRY_CAP = 0.05, 2.0


class SessionTerminals:
    __slots__ = ("_bringing", "_host", "_id", "_life", "_provider", "_viewers", "on_intent", "on_left")

    def __init__(self, host: Host, session_id: str, provider: SandboxProvider, life: Life) -> None:
        self._host = host
        self._id = session_id
        self._provider = provider
        self._life = life
        self._viewers: dict[TerminalViewer, int] = {}  # and how often each had typed when somebody last looked
        self._bringing: frozenset[TerminalViewer] = frozenset()  # few; an empty set takes 216 bytes, this one none
        self.on_intent: Callable[[], None] = lambda: None
        self.on_left: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return len(self._viewers)

    def __iter__(self) -> Iterator[TerminalViewer]:
        return iter(list(self._viewers))

    def join(self, viewer: TerminalViewer) -> None:
        if not viewer.over:
            self._viewers[viewer] = viewer.inputs
            self._see_to(viewer)

    def left(self, viewer: TerminalViewer) -> None:
        if self._viewers.pop(viewer, None) is not None:
            self._host.post(self.on_left)

    def status_changed(self) -> None:
        for viewer in self:
            self._see_to(viewer)

    def close_all(self, code: CloseCode) -> None:
        for viewer in self:
            viewer.close(code)

    def typed(self) -> bool:
        """Whether anybody has typed since this was last asked."""
        seen = {viewer: viewer.inputs for viewer in self._viewers}
        changed = seen != self._viewers
        self._viewers = seen
        return changed

    # Room

    def link_lost(self, viewer: TerminalViewer, reason: str) -> None:
        log.info("terminal.link_lost", session_id=self._id, name=viewer.name, cause=reason)
        self._see_to(viewer)

    def typed_unlinked(self, viewer: TerminalViewer) -> None:
        status = self._life.status
        if status in WAKES:
            self._host.post(self.on_intent)
        elif status in REASONS:
            viewer.tell_trouble(status, REASONS[status])

    # Linking

    def _see_to(self, viewer: TerminalViewer) -> None:
        """Have it linked if that can be; otherwise tell it why not, and listen to it only if typing is intent."""
        status = self._life.status
        if status in COMING:
            viewer.hold(not viewer.linked)
        else:
            viewer.drop_link()
            viewer.hold(False)
        if not viewer.linked and status is SessionStatus.RUNNING and viewer not in self._bringing:
            self._bringing |= {viewer}
            self._host.spawn(self._bring(viewer), f"terminal {self._id}/{viewer.name}")
        elif status is not SessionStatus.RUNNING:
            viewer.tell_status(status)

    async def _bring(self, viewer: TerminalViewer) -> None:
        """Link it, however often that takes, while the sandbox runs and somebody is there."""
        try:
            for attempt in range(1_000_000):
                if viewer.linked or viewer.over or self._life.status is not SessionStatus.RUNNING:
                    return
                try:
                    terminals = self._provider.terminals(self._id)
                    await terminals.open(viewer.name, viewer.opening(), viewer, viewer.pass_on)
                except LinkRefused as error:
                    if attempt == 0:
                        log.info("terminal.refused", session_id=self._id, name=viewer.name, cause=str(error))
                    viewer.tell_status(self._life.status)
                    await asyncio.sleep(delay(attempt, base=RETRY_BASE, cap=RETRY_CAP, rng=self._host.rng))
        finally:
            self._bringing -= {viewer}

    async def has(self, name: str) -> bool:
        return any(terminal["name"] == name for terminal in await self.describe() or [])

    async def describe(self) -> list[dict[str, Any]] | None:
        """What the bridge has; None if it cannot be asked now."""
        if self._life.status is not SessionStatus.RUNNING:
            return None
        try:
            return await self._provider.terminals(self._id).list()
        except LinkRefused:
            return None
