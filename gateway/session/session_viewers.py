"""The viewers of a session: its conversation's and its terminals'. They are admitted once the session knows which
frames it can send, and told to come back when the gateway leaves.
"""

from gateway.protocol import chat_frames
from gateway.protocol.close_codes import CloseCode
from gateway.server.viewer import Viewer
from gateway.session.conversation.log import SessionLog
from gateway.session.conversation.outbound import AgentOutput
from gateway.session.conversation.stream import AgentStream
from gateway.session.model.ports import Host
from gateway.session.model.state import SessionStatus
from gateway.session.sandbox.driver import LifeDriver
from gateway.session.sandbox.performer import queued_frame
from gateway.session.terminals.attachments import SessionTerminals
from gateway.session.viewers.broadcast import Broadcast
from gateway.session.workspace.workspace import Workspace
from gateway.terminal.viewer import TerminalViewer
from sandbox.protocol.values import Position

JOIN_GRACE_SECONDS = 10.0
AHEAD_GRACE_SECONDS = 2.0


class SessionViewers:
    __slots__ = (
        "_farewell",
        "_host",
        "_image",
        "_life",
        "_log",
        "_output",
        "_stream",
        "_terminals",
        "_workspace",
        "audience",
        "joining",
    )

    def __init__(
        self,
        host: Host,
        log: SessionLog,
        output: AgentOutput,
        stream: AgentStream,
        audience: Broadcast,
        life: LifeDriver,
        terminals: SessionTerminals,
        workspace: Workspace,
    ) -> None:
        self._host = host
        self._log = log
        self._output = output
        self._stream = stream
        self.audience = audience
        self._life = life.core
        self._image = life.image
        self._terminals = terminals
        self._workspace = workspace
        self.joining: dict[Viewer, tuple[Position | None, float]] = {}  # position asked for, and end of the wait
        self._farewell: bytes | None = None

    def __len__(self) -> int:
        """The number of admitted viewers."""
        return len(self.audience) + len(self._terminals)

    @property
    def watched(self) -> bool:
        """True if a viewer is admitted or joining."""
        return bool(self.joining) or len(self) > 0

    def attach(self, viewer: Viewer, asked: Position | None) -> None:
        """Admit a viewer. It waits while the session does not know yet which frames it can send (a link is being found
        again).
        """
        if self._farewell is not None:  # it joined while the others were told to come back
            self._see_off(viewer, self._farewell)
        now = self._host.now()
        self.joining[viewer] = (asked, now + JOIN_GRACE_SECONDS)
        self.admit()
        if viewer in self.joining:
            for grace in (AHEAD_GRACE_SECONDS, JOIN_GRACE_SECONDS):
                self._host.call_at(now + grace + 0.01, self.admit)

    def detach(self, viewer: Viewer) -> None:
        self.joining.pop(viewer, None)
        self.audience.leave(viewer)
        self.somebody_left()

    def join_terminal(self, viewer: TerminalViewer) -> None:
        if self._farewell is None:
            self._terminals.join(viewer)
        else:
            viewer.close(CloseCode.COMING_BACK)

    def somebody_left(self) -> None:
        if not self.watched:  # the last viewer may be gone for good
            self._workspace.force()

    def admit(self) -> None:
        """Welcome the viewers that need not wait any more."""
        for viewer, (asked, until) in list(self.joining.items()):
            if self._host.now() < until and self._still_coming(asked):
                continue
            del self.joining[viewer]
            self._welcome(viewer, asked)
        if not self.joining:
            self.joining.clear()  # frees the memory that the dict has grown to

    def close(self, code: CloseCode) -> None:
        self.audience.close_all(code)
        self._terminals.close_all(code)
        for viewer in self.joining:
            viewer.close(code)

    def cut(self) -> int:
        """Abort every connection without a close frame; return their number."""
        chats, terminals = [*self.audience, *self.joining], list(self._terminals)
        for viewer in chats:
            viewer.outlet.abort()
        for watching in terminals:
            watching.abort()
        return len(chats) + len(terminals)

    def show_denied_host(self, host: str, port: int, reason: str, allow: str) -> None:
        """A program of the sandbox was refused a host; `allow` is the entry of a list that would allow it, or ""."""
        members = {"host": host, "port": port, "reason": reason, "allow": allow}
        self.audience.tell(chat_frames.dump("session_status", status="host_denied", **members))

    def say_goodbye(self, retry_after: float) -> None:
        """The gateway leaves: stop reading viewers, and send them the time to come back. Frames read before are still
        processed."""
        self._farewell = chat_frames.dump("going_away", retryAfter=retry_after)
        for viewer in [*self.joining, *self.audience]:
            self._see_off(viewer, self._farewell)

    def _see_off(self, viewer: Viewer, farewell: bytes) -> None:
        viewer.leaving = True
        viewer.outlet.pause_reading()
        viewer.send(farewell)

    def _still_coming(self, asked: Position | None) -> bool:
        state, ring = self._log.state, self.audience.ring
        if state.epoch is None or state.ended:
            return False
        if ring.epoch != state.epoch:
            return state.status in (SessionStatus.RUNNING, SessionStatus.STARTING)
        # Frames ahead of the ring can only be those from before a restart. The bridge sends them again at once.
        ahead = asked is not None and asked.epoch == ring.epoch and asked.offset > ring.end
        in_time = self._host.now() < self._output.greeted_at + AHEAD_GRACE_SECONDS
        return self._stream.catching_up or (ahead and in_time)

    def _welcome(self, viewer: Viewer, asked: Position | None) -> None:
        state, ring = self._log.state, self.audience.ring
        meets = asked is not None and asked.epoch == ring.epoch and ring.since(asked.offset) is not None
        if meets and asked is not None:
            after = asked.offset
        elif ring.epoch == state.epoch:
            # Not `answer_from`: it is ahead of the ring while a `done` waits for its record.
            after = ring.base if ring.pinned is None else ring.pinned
        else:
            after = state.answer_from
        viewer.send(self._stream.welcome(after, recovered=None if asked is None else meets))
        self.audience.join(viewer, min(after, ring.end))
        viewer.send(chat_frames.dump("connection_status", sandboxStatus=self._life.connection))
        if (waiting := self._host.turns.waiting(self._log.id)) is not None:
            viewer.send(queued_frame(waiting))
        if (pulling := self._image.frame) is not None:
            viewer.send(pulling)
