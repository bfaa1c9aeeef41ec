"""The shell around a session's life: takes its events in the session's task, and has the table's effects performed.

Every event of the life comes through `on`, one after the other. HTTP commands, reports of the link, timers and results
of tasks go through the session's inbox before. The table (lifecycle/table.py) decides, performer.py performs. An event
and the facts known with it (`Facts`) are values: a record of both can replay a life.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from gateway.agents.agents import Agents
from gateway.protocol.errors import ApiError
from gateway.session.asks import Asks
from gateway.session.conversation.delivery import Delivery
from gateway.session.conversation.log import SessionLog
from gateway.session.conversation.outbound import AgentOutput
from gateway.session.model.ports import Host, Publisher, SessionLimits
from gateway.session.model.state import SessionStatus
from gateway.session.sandbox.life_journal import LifeJournal
from gateway.session.sandbox.lifecycle import commands
from gateway.session.sandbox.lifecycle import events as on_
from gateway.session.sandbox.lifecycle.life import OVER, Life, LifeLimits, LifeStage
from gateway.session.sandbox.lifecycle.table import is_late, on
from gateway.session.sandbox.link_owner import LinkOwner
from gateway.session.sandbox.performer import LifePerformer
from gateway.session.sandbox.requests import api_error
from gateway.session.sandbox.sandbox_image import SandboxImage
from gateway.session.sandbox.sandbox_work import SandboxStarter, SandboxWork
from gateway.session.sandbox.start_turn import own_names
from gateway.session.workspace.workspace import Workspace
from sandbox.ports.sandbox import Sandbox


@lru_cache
def life_limits(limits: SessionLimits) -> LifeLimits:
    """The life's limits, from the session's."""
    return LifeLimits(limits.crashes, limits.crash_window, limits.link_attempts, limits.stop_seconds)


class LifeDriver:
    __slots__ = (
        "_asks",
        "_delivery",
        "_due",
        "_host",
        "_journal",
        "_log",
        "_output",
        "_performer",
        "_placed",
        "_shown",
        "_work",
        "_workspace",
        "core",
        "image",
        "is_idle",
        "link",
        "on_archived",
        "on_status",
    )

    def __init__(
        self,
        host: Host,
        log: SessionLog,
        delivery: Delivery,
        output: AgentOutput,
        publisher: Publisher,
        workspace: Workspace,
        sandbox: Sandbox,
        fleet: SandboxStarter,
        agents: Agents,
        envs: Mapping[str, Mapping[str, str]],
        asks: Asks,
    ) -> None:
        state = log.state
        self.core = Life(
            life_limits(host.limits),
            host.rng,
            status=state.status,
            reason=state.reason,
            incarnation=state.incarnation,
            clean=state.clean,
            overfull=state.overfull,
            has_workspace=state.has_workspace,
        )
        self._host = host
        self._log = log
        self._delivery = delivery
        self._output = output
        self._workspace = workspace
        self.is_idle: Callable[[], bool] = lambda: False  # True if the sandbox may be stopped because nobody uses it
        self._asks = asks
        self.link = LinkOwner(sandbox, log, delivery, output, publisher, workspace, host, self)
        self._journal = LifeJournal(host, log, delivery, output, publisher, workspace, sandbox.provider)
        self.image = SandboxImage(host, self.core, log, publisher, self)
        work = SandboxWork(host, log, workspace, sandbox, fleet, self.link, self.image, agents, envs)
        self._work = work = host.outside("work", work)
        self._performer = LifePerformer(
            host, self.core, log.id, publisher, workspace, self.link, work, self._journal, asks, self
        )
        self._due: list[on_.Event] | None = None  # while an event is processed: the events that it causes
        self._placed = False
        self._shown: tuple[Any, ...] = ()
        self.on_archived: Callable[[], None] = lambda: None  # the session has become archived
        self.on_status: Callable[[], None] = lambda: None  # a value that `core` shows to others has changed

    # -- for the other parts ------------------------------------------------------------------------------------------

    @property
    def status(self) -> SessionStatus:
        """The status to show: a sandbox about to be started is starting."""
        return self.core.shown

    @property
    def connection(self) -> str:
        """`connected`, `connecting`, `sleeping` or `disconnected`."""
        return self.core.connection

    # -- commands -----------------------------------------------------------------------------------------------------

    async def ask(self, command: type[on_.LifeCommand], **given: Any) -> None:
        """Post a command and wait for its answer. Raises ApiError if it is refused, and the error with which its effect
        failed. A cancelled wait withdraws the command: an operation that has begun goes on, except a sleep or a
        pause."""
        number, answered = self._asks.open(self._workspace.replaced)
        self._host.post(self.on, command(number, **given))
        try:
            await answered
        except asyncio.CancelledError:
            self._host.post(self.on, on_.Withdraw(number))
            raise
        finally:
            self._asks.close(number)

    def ask_soon(self, command: on_.LifeCommand) -> None:
        """Post a command without waiting. Raises ApiError if it is refused at present."""
        if refusal := commands.check(self.core, command, self._facts(command)):
            self._journal.refused(refusal[0])
            raise api_error(*refusal)
        self._host.post(self.on, command)

    def want_agent(self) -> None:
        """A message or a line waits for the agent. Called in the session's task."""
        if not self._output.agent_alive:
            self.on(on_.AgentWanted())

    def agent_wanted(self, ask: int) -> None:
        """The session's creator wants its agent to run."""
        self.on(on_.AgentWanted())
        self._asks.answer(ask)

    def loaded(self, since: float | None, *, runs: bool = False) -> None:
        """The session was just loaded. `since`: when the gateway began to look for older sandboxes; `runs`: the
        provider reports that its sandbox runs."""
        self.on(on_.SessionLoaded(runs))
        if self.core.loading:
            self._journal.since = since

    def found_running(self, since: float | None) -> None:
        self.loaded(since, runs=True)

    def kill_agent(self) -> None:
        """Send SIGKILL to the agent, to show how the session recovers. Raises ApiError if none runs."""
        self.link.kill_agent()

    def agent_ready(self) -> None:
        """An agent process runs and can be given lines. If the gateway leaves meanwhile, the next gateway serves it."""
        if self.core.link:
            self.on(on_.AgentReady(self.core.link))

    def end(self) -> None:
        """The session ends here: no effect is performed from here on."""
        self.on(on_.End())

    # -- events -------------------------------------------------------------------------------------------------------

    def on(self, event: on_.Event) -> None:
        """Process an event, and then the events that it causes. Called in the session's task."""
        if self._due is not None:
            self._due.append(event)
            return
        self._due = [event]
        try:
            while self._due:
                self._deal(self._due.pop(0))
        finally:
            self._due = None
        self._show()

    def _deal(self, event: on_.Event) -> None:
        core, before, late = self.core, self.core.stage, is_late(self.core, event)
        was_archived = core.status is SessionStatus.ARCHIVED
        cause = self._performer.answered(event)
        effects = on(core, event, self._facts(event))
        if not late:
            if isinstance(event, on_.Linked):
                self.link.put_in_place(event.number)
            self._journal.note(event, before, core)
        if isinstance(event, on_.Sleep | on_.Pause | on_.Delete) or core.stage is LifeStage.LULLING is not before:
            self._host.queue.release(self._log.id)  # an agent has ended once its output is stored
        for effect in effects:
            self._performer.perform(effect, cause)
        if core.status is SessionStatus.ARCHIVED and not was_archived:
            self.on_archived()
        if isinstance(event, on_.AgentWanted) and core.stage is not LifeStage.QUEUED:
            self._host.turns.forget(self._log.id)  # it will not ask for a turn

    def _facts(self, event: on_.Event) -> on_.Facts:
        """Look up only the facts that this event's rules read."""
        lacks_env, forbidden = False, None
        if isinstance(event, on_.TurnGiven):
            spec = self._log.spec
            lacks_env = spec.has_env and not self._work.has_env()
            clones = None if self.core.has_workspace else spec.repo_url  # a workspace that has run has its repository
            forbidden = self._host.limits.network.refusal(spec.network, granted=spec.network_granted, repo_url=clones)
        return on_.Facts(
            now=self._host.now(),
            waiting=len(self._delivery.window) > 0,
            idle=isinstance(event, on_.Idle | on_.Lulled) and self.is_idle(),
            lacks_env=lacks_env,
            forbidden=forbidden or "",
            full=self._full() if isinstance(event, on_.LifeCommand) else "",
            exit_due=self._output.exit_due,
            unread=self._workspace.has_unread,
        )

    def _full(self) -> str:
        try:
            self._host.turns.refuse_if_full(self._host.user_id, own_names(self._log.id))
        except ApiError as error:
            return error.message
        return ""

    def _show(self) -> None:
        """Report the present status to the other parts."""
        core = self.core
        if core.stage in OVER:
            return
        self._host.stirred()
        if core.placed is not self._placed:
            self._placed = core.placed
            self._host.turns.note(self._log.id, self._host.user_id, core.placed)
        shown = (core.shown, core.up, core.rising, core.stopping)
        if shown != self._shown:
            self._shown = shown
            self.on_status()
