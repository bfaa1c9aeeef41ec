"""A session's terminals, as far as the gateway has to do with them: who watches, and that each is linked while the
sandbox runs. The terminals themselves are in the bridge, and their bytes never pass the session's task.

Attaching wakes nobody. While the sandbox sleeps a viewer is told so; what it types first is intent, and wakes it. While
a link is found again, or the sandbox starts, what is typed waits with the viewer.
"""

import asyncio
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import structlog

from gateway.close_codes import CloseCode
from gateway.session.ports import Host
from gateway.session.state import SessionStatus
from gateway.sockets.terminal_viewer import TerminalViewer
from persistence.backoff import delay
from sandbox.ports import LinkRefused, SandboxProvider
from sandbox.terminal.replies import is_answer
from sandbox.terminal.scan import inputs

log = structlog.get_logger()

WAKES = (SessionStatus.SLEEPING, SessionStatus.ERROR, SessionStatus.UNRESTORED)
REASONS = {
    SessionStatus.PAUSED: "the session is paused: resume it first",
    SessionStatus.NEEDS_ENV: "the session's envVars are gone: resume it with {envVars}",
    SessionStatus.ARCHIVED: "the session is archived: create it again first",
}
RETRY_BASE, RETRY_CAP = 0.05, 2.0
STEADY_SECONDS = 5.0  # a link that was lost sooner is found again with more and more patience

_MOUSE = re.compile(rb"(?:\x1b\[<[\d;]+[Mm]|\x1b\[M...)+", re.DOTALL)


def _is_typing(payload: bytes) -> bool:
    """Whether somebody is there: not what a terminal says by itself, and no mouse that is moved over it."""
    return bool(payload) and not is_answer(payload) and not _MOUSE.fullmatch(payload)


class Running(Protocol):
    """Of the session's sandbox (`Life` is one)."""

    stopping: bool

    @property
    def up(self) -> bool:
        """Whether there is a bridge to talk to, whatever became of the agent."""
        ...

    @property
    def status(self) -> SessionStatus: ...


class SessionTerminals:
    __slots__ = ("_bringing", "_host", "_id", "_life", "_provider", "_viewers", "_wanted", "on_intent", "on_left")

    def __init__(self, host: Host, session_id: str, provider: SandboxProvider, life: Running) -> None:
        self._host = host
        self._id = session_id
        self._provider = provider
        self._life = life
        self._viewers: dict[TerminalViewer, int] = {}  # and how often each had typed when somebody last looked
        self._bringing: frozenset[TerminalViewer] = frozenset()  # few; an empty set takes 216 bytes, this one none
        self._wanted = False  # typing that was heard and not seen to yet
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
        if viewer.parking is not None:
            viewer.parking.cancel()
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

    @property
    def stopping(self) -> bool:
        """Whether programs end because the sandbox is being stopped."""
        return self._life.stopping

    def link_lost(self, viewer: TerminalViewer, reason: str) -> None:
        log.info("terminal.link_lost", session_id=self._id, name=viewer.name, cause=reason)
        lasted = self._host.now() - viewer.linked_at
        viewer.flaps = viewer.flaps + 1 if lasted < STEADY_SECONDS else 0
        self._see_to(viewer)

    def paused(self, viewer: TerminalViewer, took: int) -> None:
        now = self._host.now()
        viewer.pauses.pause(now, took=took)
        if viewer.linked:
            self._park_later(viewer)
        elif not viewer.pauses.left(now):
            viewer.park()

    def went_on(self, viewer: TerminalViewer) -> None:
        viewer.pauses.go_on(self._host.now())

    def _park_later(self, viewer: TerminalViewer) -> None:
        """One timer, however often it pauses and goes on."""
        if viewer.parking is None:
            now = self._host.now()
            viewer.parking = self._host.call_at(now + viewer.pauses.left(now), lambda: self._park(viewer))

    def _park(self, viewer: TerminalViewer) -> None:
        viewer.parking = None
        if viewer.stopped and viewer.linked:
            if viewer.pauses.left(self._host.now()):  # it went on meanwhile
                self._park_later(viewer)
            else:
                viewer.park()

    def wanted(self, viewer: TerminalViewer) -> None:
        if viewer.stopped:  # it typed
            viewer.pauses.forgive(self._host.now())
        if not viewer.over:
            self._see_to(viewer)

    def typed_unlinked(self, viewer: TerminalViewer, frames: bytes) -> None:
        status = self._life.status
        if not any(_is_typing(payload) for payload in inputs(frames)):
            return
        if status in WAKES:
            if not self._wanted:  # once, however often it is typed
                self._wanted = True
                self._host.post(self._tell_intent)
        elif status in REASONS:
            viewer.tell_trouble(status, REASONS[status])

    def _tell_intent(self) -> None:
        self._wanted = False
        self.on_intent()

    # Linking

    def _see_to(self, viewer: TerminalViewer) -> None:
        """Have it linked if that can be; otherwise tell it why not, and hear its typing as intent."""
        if self._life.up:
            if not self.stopping:
                viewer.tell_withheld()
        else:
            viewer.forget_withheld()
            viewer.drop_link()
        status = self._life.status
        viewer.hold(not viewer.linked and (self._life.up or status is SessionStatus.STARTING))
        if not self._life.up:
            viewer.tell_status(status)
        elif not (viewer.linked or viewer.parked or viewer in self._bringing or viewer.over):
            self._bringing |= {viewer}
            self._host.spawn(self._bring(viewer), f"terminal {self._id}/{viewer.name}")

    async def _bring(self, viewer: TerminalViewer) -> None:
        """Link it, however often that takes, while the sandbox runs and somebody is there. One that is being stopped
        lets nobody in; should it not be stopped after all, it does again. A bridge that lets it in only to throw it
        out costs next to nothing."""
        try:
            for attempt in itertools.count(viewer.flaps):
                if attempt:
                    await asyncio.sleep(delay(attempt, base=RETRY_BASE, cap=RETRY_CAP, rng=self._host.rng))
                if viewer.linked or viewer.parked or viewer.over or not self._life.up:
                    return
                if self.stopping:
                    continue
                try:
                    viewer.linked_at = self._host.now()
                    terminals = self._provider.terminals(self._id)
                    await terminals.open(viewer.name, viewer.opening(), viewer, viewer.pass_on)
                except LinkRefused as error:
                    if attempt == viewer.flaps:
                        log.info("terminal.refused", session_id=self._id, name=viewer.name, cause=str(error))
                    viewer.tell_status(self._life.status)
        finally:
            self._bringing -= {viewer}
            if not viewer.linked and not viewer.over and self._life.up:
                self._host.post(self._see_to, viewer)  # it was lost again before this had ended

    async def has(self, name: str) -> bool:
        return any(terminal["name"] == name for terminal in await self.describe() or [])

    async def describe(self) -> list[dict[str, Any]] | None:
        """What the bridge has; None if it cannot be asked now."""
        if not self._life.up:
            return None
        try:
            return await self._provider.terminals(self._id).list()
        except LinkRefused:
            return None
