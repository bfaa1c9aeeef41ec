"""One session: one task, one inbox. Everything that happens to a session happens in this task, one event after the
other.

Handlers never wait. Work that waits (starting a sandbox, asking the store) runs beside the session's task and posts its
result to the inbox (inbox.py). A request over HTTP is a command: it goes through the inbox like every other event, and
the request waits for the answer.

If a handler fails, the session fails: its viewers are closed with 1011 and may come back, its neighbours never notice,
and the next request for it loads it from the store. If another gateway has loaded the session, the store refuses this
one's writes: it ends in the same way, with 4409, and leaves the sandbox to its new owner.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import structlog
from msgspec.structs import replace

from gateway.limits.inbound_bytes import InboundBytes
from gateway.protocol.close_codes import CloseCode
from gateway.protocol.errors import ApiError
from gateway.session.asks import Asks
from gateway.session.conversation.delivery import Delivery
from gateway.session.conversation.inbound import Inbound
from gateway.session.conversation.log import OwnerMoved, SessionLog
from gateway.session.conversation.outbound import AgentOutput
from gateway.session.conversation.replies import not_written, session_failed
from gateway.session.conversation.stream import AgentStream
from gateway.session.guests import Guests
from gateway.session.host import Supervisor, Surroundings
from gateway.session.inbox import Handler
from gateway.session.intake import Intake
from gateway.session.model.description import Live, SandboxPlace, describe
from gateway.session.model.idle_policy import awaited
from gateway.session.model.state import SessionStatus
from gateway.session.pending import PendingMessages
from gateway.session.recording.tape import Tape
from gateway.session.sandbox.driver import LifeDriver
from gateway.session.sandbox.lifecycle import events as on_
from gateway.session.sandbox.lifecycle.commands import ARCHIVED
from gateway.session.sandbox.requests import api_error
from gateway.session.sandbox.sandbox_image import pull_members
from gateway.session.session_viewers import SessionViewers
from gateway.session.sharing import Sharing
from gateway.session.taped_host import host_of, inbox_of
from gateway.session.terminals.attachments import SessionTerminals
from gateway.session.viewers.broadcast import Broadcast
from gateway.session.workspace.journal import WorkspaceJournal
from gateway.session.workspace.workspace import Workspace
from gateway.telemetry.telemetry import REDACTOR
from gateway.vault.env_names import providers_of
from persistence.record import Loaded, Record
from sandbox.ports.sandbox import Sandbox

logger = structlog.get_logger()


def forget_env(envs: dict[str, Mapping[str, str]], session_id: str) -> None:
    """Called when the session is archived. Not before: a delete may be given up, and a start under way needs its
    secrets."""
    REDACTOR.remove(*envs.pop(session_id, {}).values())


class SessionActor:
    __slots__ = (
        "_envs",
        "_purged",
        "_supervisor",
        "asks",
        "conversation",
        "created_at",
        "delivery",
        "ended_with",
        "guests",
        "host",
        "id",
        "inbox",
        "incoming",
        "intake",
        "journal",
        "life",
        "output",
        "pending",
        "post",
        "sandbox",
        "sharing",
        "terminals",
        "user_id",
        "viewers",
        "workspace",
    )

    def __init__(
        self,
        loaded: Loaded,
        unanswered: Sequence[Record],
        around: Surroundings,
        *,
        sandbox: Sandbox,
        pending: InboundBytes,
        supervisor: Supervisor,
        tape: Tape | None = None,
    ) -> None:
        self.id = loaded.session.id
        self.user_id = loaded.session.user_id
        self.created_at = loaded.session.created_at
        self.sandbox = sandbox
        self._envs = around.envs
        self._supervisor = supervisor
        self._purged: asyncio.Future[bool] | None = None  # set while a purge runs, and afterwards: its result
        self.ended_with = CloseCode.FAILED
        self.inbox = inbox_of(around, self.user_id, tape)
        self.host = host = host_of(
            self.id, self.user_id, sandbox.provider, around, self.inbox, pending, supervisor, self, tape
        )
        self.asks = asks = host.outside("asks", Asks())
        self.post = host.post
        host.durable = durable = self.durable
        store, limits, metrics, quota = around.store, around.limits, around.metrics, around.quota
        audience = Broadcast(host)
        self.conversation = log = SessionLog(loaded, host, host, audience, around.queue, quota, metrics)
        self.delivery = delivery = Delivery(
            log, host, audience, limits.window, pending, loaded, unanswered, behind=store.behind(self.id)
        )
        self.guests = guests = host.outside("guests", Guests(log))
        self.sharing = Sharing(log, guests, asks, host, durable)
        self.incoming = Inbound(log, delivery, store, host, host, metrics)
        self.inbox.count(self.incoming)
        self.pending = PendingMessages(log, delivery, audience, host, asks)
        self.journal = WorkspaceJournal(log, host, audience, asks)
        workspace = Workspace(log, host, host, host, metrics, quota, around.rng, sandbox, around.keeping, self.journal)
        sync = host.outside("sync", workspace.sync)
        self.workspace = workspace = host.outside("workspace", workspace)
        stream = AgentStream(log, delivery.turns, audience)
        self.output = output = AgentOutput(
            log,
            delivery,
            audience,
            stream,
            host,
            metrics,
            checkpoint=loaded.checkpoint,
            rate=limits.agent_records,
            finished=sync.request,
        )
        self.life = life = LifeDriver(
            host,
            log,
            delivery,
            output,
            audience,
            workspace,
            sandbox,
            around.fleets,
            around.agents,
            around.envs,
            asks,
        )
        self.terminals = terminals = host.outside("terminals", SessionTerminals(host, sandbox, life.core))
        self.viewers = SessionViewers(host, log, output, stream, audience, life, terminals, workspace)
        self.intake = Intake(host, self.inbox, log, delivery, self.incoming, output, life, terminals, asks)
        output.on_ready = life.agent_ready
        life.is_idle = self.is_idle
        life.on_archived = partial(forget_env, around.envs, self.id)
        life.on_status = terminals.status_changed
        terminals.on_intent = self.intake.typed
        terminals.on_left = self.viewers.somebody_left

    @property
    def ended(self) -> bool:
        """True once this gateway has stopped working on the session."""
        return self.host.ended

    def idle_seconds(self) -> float:
        """Seconds since the last activity; 0 while a message or an answer is awaited."""
        talk = self.conversation
        if self.terminals.typed():
            self.post(talk.touch)
            return 0.0
        silent, patience = self.host.now() - talk.active_at, self.host.limits.quiet_after
        return 0.0 if len(self.delivery.window) or awaited(silent, patience, self.output.answering) else silent

    @property
    def sleep_after(self) -> float:
        """The number of idle seconds after which this session is put to sleep."""
        return self.conversation.spec.sleep_after or self.host.limits.sleep_after

    def is_idle(self) -> bool:
        """True if the sandbox may be stopped because nobody uses it."""
        return self.idle_seconds() > self.sleep_after and not self.workspace.must_stay

    # -- the task -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Handle events until the registry cancels this task, or a handler fails."""
        inbox, entries, feed = self.inbox, self.inbox.entries, self.host.feed
        try:
            while True:
                if not entries:
                    await inbox.filled()
                inbox.take_turn()
                feed.stir(self.user_id, self.id)
                if self.viewers.joining:  # any event may have brought what joining viewers wait for
                    inbox.deal(self.viewers.admit)
                if inbox.crowd is not None:
                    inbox.make_room()
                if entries:
                    await asyncio.sleep(0)  # others want a turn, too
        except OwnerMoved:
            logger.warning("session.moved", session_id=self.id)
            self.ended_with = CloseCode.OWNER_MOVED
            inbox.deal(self.incoming.refuse_all, "owner_moved")
        finally:
            self._end()

    def _end(self) -> None:
        self.inbox.deal(self._let_go, self.ended_with)
        self.inbox.close(self._turn_away)

    def _let_go(self, code: CloseCode) -> None:
        self.host.ended = True
        self.conversation.close()
        self.delivery.close()
        self.output.close()
        self.life.end()
        self.asks.end()
        self.viewers.close(code)

    def _turn_away(self, handler: Handler, arguments: tuple[Any, ...]) -> None:
        """A viewer that came too late to be welcomed must not wait for it, and a late link must not stay open."""
        if handler in (self.viewers.attach, self.viewers.join_terminal):
            arguments[0].close(self.ended_with)
        elif handler == self.life.link.dialled:
            self.life.link.turn_away(*arguments[1:])

    # -- requests over HTTP -------------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        talk = self.conversation
        waiting = self.host.turns.waiting(self.id)
        queue = None if waiting is None else waiting.members()
        sync = self.workspace.describe()
        pull = None if self.life.image.pull is None else pull_members(self.life.image.pull)
        viewers, pending = len(self.viewers), len(self.delivery.window)
        live = Live(self.life.connection, viewers, pending, talk.last_active, sync, pull, queue)
        place = SandboxPlace(self.sandbox.provider, self.sandbox.level)
        state = replace(talk.state, status=self.life.status)
        return describe(self.id, self.user_id, self.created_at, talk.last_durable, talk.spec, state, place, live)

    async def durable(self) -> dict[str, Any]:
        """Wait until every change made so far is durable, and return the description. Events of the link that arrived
        earlier, and may wait for the store, go first. The state is written again: the store thereby confirms that this
        is still the session's writer. Raises ApiError."""
        self.host.queue.release(self.id)
        try:
            async with asyncio.timeout(self.host.limits.durable_seconds):
                described: dict[str, Any] = await self.asks.have(self.post, self._keep_state)
                return described
        except TimeoutError:
            raise not_written() from None

    def _keep_state(self, ask: int) -> None:
        def write() -> None:
            log = self.conversation
            log.write(self.asks.answer, ask, self.describe(), state=log.next_state())
            self.host.queue.release(self.id)

        self.output.in_order(write)

    async def change(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Replace members of the spec, also of an archived session. It is no activity: an idle session stays idle."""
        self.post(self.conversation.change_spec, changes)
        return await self.durable()

    async def _ask(self, command: type[on_.LifeCommand], **given: Any) -> dict[str, Any]:
        """Perform the command, and return the session's description afterwards. Raises ApiError."""
        self.post(self.conversation.touch)
        await self.host.look_for_env(self.conversation.spec)
        await self.life.ask(command, **given)
        return await self.durable()

    async def wake(self) -> dict[str, Any]:
        return await self._ask(on_.Wake)

    async def sleep(self) -> dict[str, Any]:
        return await self._ask(on_.Sleep)

    async def pause(self) -> dict[str, Any]:
        return await self._ask(on_.Pause)

    def give_env(self, env: Mapping[str, str]) -> None:
        """Secrets for the next start of the sandbox. They stay in memory, and out of every log."""
        forget_env(self._envs, self.id)
        REDACTOR.add(*env.values())
        self.host.hide(*env.values())
        self._envs[self.id] = env
        self.post(self.conversation.change_spec, {"has_env": bool(env), "env_providers": providers_of(env)})

    async def resume(self, env: Mapping[str, str] | None, *, empty: bool = False, keep: bool = False) -> dict[str, Any]:
        """Leave `paused`, `needs_env`, `error` or `unrestored`. The last two may also continue with an `empty`
        workspace; the last one may `keep` the files on the disk."""
        self._refuse_archived()
        if env is not None:
            self.give_env(env)
        return await self._ask(on_.Resume, empty=empty, keep=keep)

    async def sync(self, *, wait: bool) -> dict[str, Any]:
        """Store the workspace as it is now. With `wait`, return when that is done."""
        if wait:
            return await self._ask(on_.SyncNow)
        self._refuse_archived()
        self.post(self.conversation.touch)
        self.life.ask_soon(on_.SyncNow(0))
        return self.describe()

    async def put_back(self, number: int) -> dict[str, Any]:
        """Make an earlier generation the workspace that the next resume restores. The current files are stored
        first."""
        return await self._ask(on_.PutBack, generation=number)

    async def abort(self) -> dict[str, Any]:
        self._refuse_archived()
        await self.asks.have(self.post, self.intake.abort_asked)
        return self.describe()

    async def destroy(self, purge: bool) -> dict[str, Any]:
        """End the session: its sandbox, its workspace, its viewers; with `purge` its conversation too. If another
        request purges it meanwhile, the answer is that there is no such session."""
        try:
            return await self._destroy(purge)
        except ApiError:
            if self._purged is None or not await asyncio.shield(self._purged):
                raise
        raise ApiError(404, "unknown_session", "there is no such session")

    async def _destroy(self, purge: bool) -> dict[str, Any]:
        if self.ended:
            raise session_failed()
        self.post(self.conversation.touch)
        if self.conversation.state.status is SessionStatus.ARCHIVED:
            forget_env(self._envs, self.id)
        await self.life.ask(on_.Delete)
        self.post(self.viewers.close, CloseCode.FINISHED)
        await self.sharing.end_all()
        if not purge:
            return await self.durable()
        if self._purged is not None:
            raise session_failed()
        described = self.describe()
        self._purged = purged = asyncio.get_running_loop().create_future()
        try:
            await self._supervisor.purge(self)
            purged.set_result(True)
        finally:
            if not purged.done():
                purged.set_result(False)
        return described

    def _refuse_archived(self) -> None:
        if self.ended:
            raise session_failed()
        if self.conversation.state.status is SessionStatus.ARCHIVED:
            raise api_error(*ARCHIVED)
