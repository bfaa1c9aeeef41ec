"""Stores the state of a session's life and reports it to viewers; logs and counts its events."""

from collections.abc import Callable
from typing import Any

import structlog

from gateway.protocol import chat_frames
from gateway.session.conversation.delivery import Delivery
from gateway.session.conversation.log import SessionLog
from gateway.session.conversation.outbound import AgentOutput
from gateway.session.model.ports import Host, Publisher
from gateway.session.sandbox.lifecycle import effects as do
from gateway.session.sandbox.lifecycle import events as on_
from gateway.session.sandbox.lifecycle.life import Life, LifeStage
from gateway.session.workspace.workspace import Workspace

log = structlog.get_logger()

NOTHING_KEPT = {
    "generation": 0, "tree": "", "files": 0, "snapshot_bytes": 0, "synced_at": None, "sync_error": "", "clean": True,
    "degraded": "", "overfull": False, "fresh": False,
}  # fmt: skip
STORED = ("status", "reason", "incarnation", "clean", "overfull", "has_workspace")

JournalEffect = do.Save | do.ForgetUnsure | do.EndEpoch | do.DiscardWindow | do.TellError | do.TellConnection


class LifeJournal:
    __slots__ = (
        "_began",
        "_delivery",
        "_host",
        "_log",
        "_output",
        "_provider",
        "_publisher",
        "_silent",
        "_with",
        "_workspace",
        "since",
    )

    def __init__(
        self,
        host: Host,
        session_log: SessionLog,
        delivery: Delivery,
        output: AgentOutput,
        publisher: Publisher,
        workspace: Workspace,
        provider: str,
    ) -> None:
        self._host = host
        self._log = session_log
        self._delivery = delivery
        self._output = output
        self._publisher = publisher
        self._provider = provider
        self._workspace = workspace
        self._with: Callable[[], dict[str, Any]] | None = None  # members for the next `Save`
        self._began = 0.0  # the start that is under way
        self._silent = False  # the provider does not answer
        self.since: float | None = None  # when the gateway began to look for older sandboxes

    # -- stored and reported ------------------------------------------------------------------------------------------

    def perform(self, effect: JournalEffect) -> None:
        delivery, output = self._delivery, self._output
        match effect:
            case do.Save():
                self._save(effect)
            case do.ForgetUnsure(reason):
                output.in_order(lambda: self._forget(reason))
            case do.EndEpoch(reason) if not self._log.state.ended and not len(delivery.window.unsure()):
                output.in_order(lambda: output.end_epoch(None, reason))
            case do.DiscardWindow():
                output.in_order(delivery.discard_window)
            case do.TellError(code, text):
                self._log_error(code, text)
                self._publisher.tell(chat_frames.dump("error", code=code, error=text))
            case do.TellConnection(word):
                self._publisher.tell(chat_frames.dump("connection_status", sandboxStatus=word))

    def _save(self, save: do.Save) -> None:
        state = self._log.state
        told = (state.status, state.reason) != (save.status, save.reason)
        changes: dict[str, Any] = {
            name: getattr(save, name) for name in STORED if getattr(save, name) != getattr(state, name)
        }
        if self._with is not None:
            changes |= self._with()
            self._with = None
        if changes:
            self._log.save(**changes)
        if told:
            reason = save.reason or None
            self._publisher.tell(chat_frames.dump("session_status", status=save.status, reason=reason))

    def _forget(self, reason: str) -> None:
        """The sandbox is gone for good: report the messages that it had, or may have had, and did not finish. Done in
        the link's order: an answer that waits for the store is an answer all the same.
        """
        self._output.end_epoch(None, reason)
        self._delivery.forget_unsure()
        self._log.save(taker=None)

    def forget_kept(self) -> None:
        """The sandbox goes on, so its last sync is not final."""
        self._with = None

    # -- logged and counted -------------------------------------------------------------------------------------------

    def note(self, event: on_.Event, before: LifeStage, life: Life) -> None:
        """Log and count an event that has been processed."""
        if life.stage in (LifeStage.REST, LifeStage.QUEUED):
            self.since = None
        match event:
            case on_.Unavailable(_, reason) if not self._silent:
                self._silent = True
                log.warning("sandbox.unavailable", session_id=self._log.id, cause=reason)
            case on_.Runs() | on_.DoesNotRun() | on_.SandboxStarted() | on_.Stopped() | on_.Linked() if self._silent:
                self._silent = False
                log.info("sandbox.available", session_id=self._log.id)
        match event:
            case on_.TurnGiven() if life.stage in (LifeStage.LOOKING, LifeStage.STARTING):
                self._began = self._host.now()
                if not life.by_name:
                    self._host.asked("wake", waiting=len(self._delivery.window))
            case on_.Linked() if before is LifeStage.CONNECTING:
                self._host.metrics.woken(self._provider, self._host.now() - self._began)
            case on_.BridgeHello() | on_.LetGo() if self.since is not None and life.stage is LifeStage.UP:
                self._host.metrics.reattached(self._provider, self._host.now() - self.since)
                self.since = None
            case on_.DialRefused(_, reason):
                log.info("link.refused", session_id=self._log.id, cause=reason)
            case on_.LinkLost(_, reason):
                log.info("link.lost", session_id=self._log.id, cause=reason)
            case on_.Due() if before is LifeStage.ENDING:
                log.warning("agent.stop_timeout", session_id=self._log.id)
            case on_.WorkspaceKept():
                self._with = lambda: {"sync_error": "", **self._workspace.kept}
            case on_.Overfull(_, reason) if before is LifeStage.KEEPING:
                self._with = lambda: {"sync_error": reason}
            case on_.Destroyed():
                self._with = lambda: NOTHING_KEPT
            case _:
                self._note_unkept(event, before, life)

    def _note_unkept(self, event: on_.Event, before: LifeStage, life: Life) -> None:
        match event:
            case on_.NotKept(_, reason) if life.by_idle and before in (LifeStage.LULLING, LifeStage.KEEPING):
                log.warning("session.stays_awake", session_id=self._log.id, cause=reason)
            case on_.Failure(_, reason) if before.startswith("visit") and not life.asks:
                log.warning("sync.not_kept", session_id=self._log.id, cause=reason)
            case on_.Idle() if life.stage is LifeStage.LULLING is not before:
                idle = self._host.now() - self._log.active_at
                self._host.asked("sleep", idle_seconds=round(idle))
            case on_.Rescue() if life.stage is LifeStage.VISIT_QUEUED is not before:
                self._host.asked("sync", attempt=life.rescues)

    def refused(self, code: str) -> None:
        if code == "too_many_running":
            self._host.metrics.refused(code)

    def _log_error(self, code: str, text: str) -> None:
        if code == "agent":
            self._output.warn("agent.problem", cause=text)
        elif code != "network_not_allowed":
            name = "session.crash_loop" if code == "crash_loop" else "sandbox.failed"
            log.warning(name, session_id=self._log.id, cause=text)
