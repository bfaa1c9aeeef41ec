"""The terminal viewers of a session, and their links to the bridge while the sandbox runs. The terminals themselves are
in the bridge, and their bytes never pass the session's task.

Attaching wakes no sandbox. While the sandbox sleeps a viewer gets that status; typing is intent, and wakes it. Input
without a link waits with the viewer (gateway/terminal/type_ahead.py): all of it, from the first key on.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import structlog

from gateway.limits.inbound_bytes import InboundBytes
from gateway.protocol.close_codes import CloseCode
from gateway.session.model.ports import Host
from gateway.session.model.state import SessionStatus
from gateway.terminal.type_ahead import is_typing
from gateway.terminal.viewer import TerminalViewer
from persistence.backoff import delay
from sandbox.ports.link import LinkRefused
from sandbox.ports.sandbox import Sandbox
from sandbox.protocol.terminal import TerminalTrouble
from sandbox.protocol.terminal_frames import inputs

log = structlog.get_logger()

REASONS = {
    SessionStatus.PAUSED: "the session is paused: resume it first",
    SessionStatus.NEEDS_ENV: "the session's envVars are gone: resume it with {envVars}",
    SessionStatus.ARCHIVED: "the session is archived: create it again first",
}
RETRY_BASE, RETRY_CAP = 0.05, 2.0
STEADY_SECONDS = 5.0  # after a shorter link the next attempt waits, longer each time


NONE: frozenset[TerminalViewer] = frozenset()  # one for all: an empty one takes 216 bytes


class Running(Protocol):
    """The facts of the session's sandbox that a terminal needs."""

    @property
    def stopping(self) -> bool:
        """True while the sandbox is being stopped."""
        ...

    @property
    def up(self) -> bool:
        """True if there is a bridge to talk to, whatever the agent's state."""
        ...

    @property
    def coming_up(self) -> bool:
        """True if a sandbox is about to run."""
        ...

    @property
    def rising(self) -> bool:
        """True while a start or a search is under way: `status_changed` is called when it ends."""
        ...

    @property
    def shown(self) -> SessionStatus: ...


class SessionTerminals:
    __slots__ = ("_bringing", "_host", "_id", "_life", "_sandbox", "_viewers", "_wanted", "on_intent", "on_left")

    def __init__(self, host: Host, sandbox: Sandbox, life: Running) -> None:
        self._host = host
        self._id = sandbox.session_id
        self._sandbox = sandbox
        self._life = life
        self._viewers: dict[TerminalViewer, int] = {}  # and how often each had typed at the last look
        self._bringing = NONE
        self._wanted = False  # intent was reported and not processed yet
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
        """True if a viewer has typed since the last call."""
        seen = {viewer: viewer.inputs for viewer in self._viewers}
        changed = seen != self._viewers
        self._viewers = seen
        return changed

    # Room

    @property
    def stopping(self) -> bool:
        """True while programs end because the sandbox is being stopped."""
        return self._life.stopping

    @property
    def waiting(self) -> InboundBytes:
        return self._host.pending

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
        """One timer, however often the viewer pauses and goes on."""
        if viewer.parking is None:
            now = self._host.now()
            viewer.parking = self._host.call_at(now + viewer.pauses.left(now), self._park, viewer)

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
        known = viewer in self._viewers  # else it is about to join, and its early input waits for that
        status, typed = self._life.shown, list(inputs(frames))
        if known and not self._life.up and status in REASONS:
            if any(is_typing(payload) for payload in typed):
                viewer.tell_trouble(status, REASONS[status])
            return
        self.input_dropped(viewer, viewer.ahead.keep(typed))
        if known and not self._life.up:
            self._ask(viewer)

    def _ask(self, viewer: TerminalViewer) -> None:
        """Ask for a sandbox for the waiting input; once, however much is typed."""
        if viewer.ahead and not viewer.ahead.asked:
            viewer.ahead.asked = True
            if not self._life.coming_up and not self._wanted:
                self._wanted = True
                self._host.post(self.on_intent)

    def intent_told(self) -> None:
        """The session has processed `on_intent`."""
        self._wanted = False
        if not self._life.rising:
            self.status_changed()  # no start follows: drop the input that waits for one

    def input_dropped(self, viewer: TerminalViewer, trouble: TerminalTrouble | None) -> None:
        if trouble is not None:
            viewer.tell_trouble(trouble.code, trouble.reason)
            if not viewer.noted:  # until it has a program again: who types without end fills no log
                viewer.noted = True
                log.info("terminal.input_dropped", session_id=self._id, name=viewer.name, cause=trouble.reason)

    # Linking

    def _see_to(self, viewer: TerminalViewer) -> None:
        """Link the viewer if the sandbox runs; otherwise send it the status."""
        if not self._life.up:
            viewer.forget_withheld()
            viewer.drop_link()
            viewer.tell_status(self._life.shown, absent=True)
            self._settle(viewer)
            return
        if not self.stopping:
            viewer.tell_withheld()
        if not (viewer.linked or viewer.parked or viewer in self._bringing or viewer.over):
            self._bringing |= {viewer}
            self._host.spawn(self._bring(viewer), f"terminal {self._id}/{viewer.name}")

    def _settle(self, viewer: TerminalViewer) -> None:
        """No sandbox runs: keep the viewer's input for the next one, or drop it."""
        status = self._life.shown
        if self._life.coming_up:
            self.input_dropped(viewer, viewer.ahead.sandbox_lost())
            return
        self.input_dropped(viewer, viewer.ahead.at_rest(wanted=self._wanted))
        if status not in REASONS:
            self._ask(viewer)
        elif viewer.ahead.drop():
            self.input_dropped(viewer, TerminalTrouble(status, REASONS[status]))

    async def _bring(self, viewer: TerminalViewer) -> None:
        """Link the viewer, with as many attempts as it takes, while the sandbox runs and the viewer is there. A sandbox
        that is being stopped admits no viewer; if it stays after all, it admits viewers again. A bridge that drops each
        new link costs next to nothing."""
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
                    terminals = self._sandbox.terminals()
                    await terminals.open(viewer.name, viewer.opening(), viewer, viewer.pass_on)
                except LinkRefused as error:
                    if attempt == viewer.flaps:
                        log.info("terminal.refused", session_id=self._id, name=viewer.name, cause=str(error))
                    viewer.tell_status(self._life.shown)
        finally:
            self._bringing = (self._bringing - {viewer}) or NONE
            if not viewer.linked and not viewer.over and self._life.up:
                self._host.post(self._see_to, viewer)  # the link was lost before this task had ended

    async def has(self, name: str) -> bool:
        return any(terminal["name"] == name for terminal in await self.describe() or [])

    async def describe(self) -> list[dict[str, Any]] | None:
        """The terminals in the bridge; None if it cannot be asked now."""
        if not self._life.up:
            return None
        try:
            return await self._sandbox.terminals().list()
        except LinkRefused:
            return None
