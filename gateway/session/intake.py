"""Input of people and services to a session: chat frames, raw lines, records."""

from functools import partial
from typing import Any
from uuid import uuid4

import orjson
import structlog

from gateway.protocol import chat_frames
from gateway.protocol.close_codes import CloseCode
from gateway.server.viewer import Viewer
from gateway.session.asks import Asks
from gateway.session.conversation.delivery import Delivery
from gateway.session.conversation.inbound import Inbound
from gateway.session.conversation.log import SessionLog
from gateway.session.conversation.outbound import AgentOutput
from gateway.session.conversation.receipts import Accepted, MessageRefused, Stage
from gateway.session.conversation.replies import acknowledge, refusal, session_failed
from gateway.session.inbox import Inbox
from gateway.session.model.ports import Host
from gateway.session.model.state import SessionStatus
from gateway.session.sandbox.driver import LifeDriver
from gateway.session.sandbox.lifecycle.commands import ARCHIVED
from gateway.session.sandbox.lifecycle.events import EndAgent
from gateway.session.sandbox.requests import api_error
from gateway.session.terminals.attachments import SessionTerminals

log = structlog.get_logger()

ABORT_AGAIN_SECONDS = 1.0
DEFAULT_MODE = "ask"


class Intake:
    __slots__ = (
        "_aborted",
        "_asks",
        "_delivery",
        "_host",
        "_inbox",
        "_incoming",
        "_life",
        "_log",
        "_output",
        "_terminals",
    )

    def __init__(
        self,
        host: Host,
        inbox: Inbox,
        session_log: SessionLog,
        delivery: Delivery,
        incoming: Inbound,
        output: AgentOutput,
        life: LifeDriver,
        terminals: SessionTerminals,
        asks: Asks,
    ) -> None:
        self._host = host
        self._inbox = inbox
        self._log = session_log
        self._delivery = delivery
        self._incoming = incoming
        self._output = output
        self._life = life
        self._terminals = terminals
        self._asks = asks
        self._aborted: tuple[str | None, int, float] = (None, 0, 0.0)  # the last aborted turn, and the time

    def receive(self, viewer: Viewer, frame: chat_frames.ChatFrame) -> None:
        """Process one readable frame of a viewer. `auth` and `ping` end at the socket."""
        self._log.touch()
        match frame.type:
            case "message":
                cid = frame.cid or self._host.new_id()
                self._incoming.offer(
                    cid,
                    role="user",
                    type="message",
                    payload=frame.payload(cid),
                    reply=acknowledge(viewer, cid),
                    deliver=True,
                )
                self._life.want_agent()
            case "permission_response" | "ask_user_answer":
                cid = frame.cid or self._host.new_id()
                self._incoming.answer(cid, frame, acknowledge(viewer, cid))
            case "start":
                self._log.save_spec(start=frame.body)
                self._life.want_agent()
            case "abort":
                if self.abort(frame.payload("").strip() if frame.cid else b'{"type":"abort"}'):
                    self._host.asked("abort", "user")
            case "close":
                self._life.on(EndAgent())

    def receive_line(self, viewer: Viewer, line: str) -> None:
        """Process one raw line. That socket has no acks: a refused line closes it, so that no line is lost silently."""

        def reply(outcome: Accepted | MessageRefused) -> None:
            if isinstance(outcome, MessageRefused):
                viewer.close(CloseCode.TOO_MANY, outcome.reason)

        self._log.touch()
        payload = orjson.dumps({"content": line})
        self._incoming.offer(self._host.new_id(), role="user", type="raw", payload=payload, reply=reply, deliver=True)
        self._life.want_agent()

    def typed(self) -> None:
        """A viewer types into a terminal while no sandbox runs."""
        self._log.touch()
        self._life.want_agent()
        self._terminals.intent_told()

    def tell_mode(self) -> None:
        """The session's mode has changed: send it to the agent, if one runs."""
        if (link := self._delivery.link) is not None and self._output.agent_alive:
            link.inject(orjson.dumps({"type": "set_mode", "mode": self._log.spec.mode or DEFAULT_MODE}))

    def abort_asked(self, ask: int) -> None:
        self._log.touch()
        self.abort()
        self._asks.answer(ask)

    def abort(self, line: bytes = b'{"type":"abort"}') -> bool:
        """Ask the agent to abort, if a turn runs; return whether it was asked. A second abort of the same turn is sent
        only after a moment: the first line may be lost with a link, but each abort sets a timer."""
        state, link, now = self._log.state, self._delivery.link, self._host.now()
        epoch, answered = state.epoch, state.answered
        if self._aborted[:2] == (epoch, answered) and now < self._aborted[2] + ABORT_AGAIN_SECONDS:
            return False
        if not self._output.abort() or link is None:
            return False
        self._aborted = (epoch, answered, now)
        link.inject(line)
        self._host.call_at(now + self._host.limits.abort_seconds, self._interrupt, epoch, answered)
        return True

    def _interrupt(self, epoch: str | None, answered: int) -> None:
        state, link, output = self._log.state, self._delivery.link, self._output
        same_turn = (state.epoch, state.answered) == (epoch, answered)
        if same_turn and output.answers.aborting and output.agent_alive and link is not None:
            log.warning("agent.interrupted", session_id=self._log.id)
            link.interrupt()

    async def post_record(
        self, *, role: str, type: str, content: Any, metadata: dict[str, Any] | None, cid: str | None, deliver: bool
    ) -> tuple[str, int, Stage]:
        """Store a record for a service, and deliver it if asked; returns its message id, seq and stage. Raises
        ApiError."""
        if self._host.ended:
            raise session_failed()
        if self._log.state.status is SessionStatus.ARCHIVED:
            raise api_error(*ARCHIVED)
        cid = cid or uuid4().hex
        body: dict[str, Any] = {"type": type, "cid": cid, "content": content}
        if metadata is not None:
            body["metadata"] = metadata
        payload = orjson.dumps(body)
        await self._inbox.wait_for_room()
        hear = partial(self._inbox.hear, len(payload))
        outcome = await self._asks.have(hear, self._offer, cid, role, type, payload, deliver)
        if isinstance(outcome, MessageRefused):
            raise refusal(outcome)
        return f"{self._log.id}.{outcome.seq}", outcome.seq, outcome.stage

    def _offer(self, ask: int, cid: str, role: str, type: str, payload: bytes, deliver: bool) -> None:
        def reply(outcome: Accepted | MessageRefused) -> None:
            self._asks.answer(ask, outcome)

        self._log.touch()
        self._incoming.offer(cid, role=role, type=type, payload=payload, reply=reply, deliver=deliver)
        if deliver:
            self._life.want_agent()
