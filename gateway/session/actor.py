"""One session: one task, one inbox. Whatever happens to a session happens here, one thing after the other.

Handlers never wait. Whatever waits (starting a sandbox, asking the store) runs beside the actor and posts what came
of it. The inbox is bounded by its posters: a socket whose frames fill it is not read until there is room; the link is
slowed by the gate in gateway/session/conversation/gate.py; stores and timers post at most one event for each thing they
were given.

If a handler fails, the session fails: its viewers are closed with 1011 and may come back, its neighbours never
notice, and the next to ask for it loads it from what is stored. If another gateway has loaded the session, the store
refuses this one's writes: it ends in the same way, with 4409, and leaves the sandbox to its new owner.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, TypeVar
from uuid import uuid4

import orjson
import structlog

from gateway.auth.shares import Share
from gateway.feed.feed import SessionFeed
from gateway.limits.inbound_bytes import InboundBytes
from gateway.limits.quota import Quota
from gateway.limits.start_turns import StartTurns
from gateway.protocol import chat_frames
from gateway.protocol.close_codes import CloseCode
from gateway.protocol.errors import ApiError
from gateway.server.viewer import Viewer
from gateway.session.conversation.conversation import Conversation
from gateway.session.conversation.delivery import Delivery
from gateway.session.conversation.inbound import Inbound
from gateway.session.conversation.log import OwnerMoved, SessionLog
from gateway.session.conversation.outbound import AgentOutput
from gateway.session.conversation.receipts import Accepted, MessageRefused, Stage
from gateway.session.conversation.replies import acknowledge, not_written, refusal, session_failed
from gateway.session.conversation.stream import AgentStream
from gateway.session.guests import Guests
from gateway.session.model.description import Live, SandboxPlace, describe
from gateway.session.model.idle_policy import Idleness, tired
from gateway.session.model.ports import SessionLimits, SessionMetrics
from gateway.session.model.state import SessionSpec, SessionStatus, Wish, spec_members
from gateway.session.sandbox.shutdown import SandboxShutdown
from gateway.session.sandbox.supervisor import ASLEEP, SandboxSupervisor, StartSandbox, queued_frame
from gateway.session.terminals.attachments import SessionTerminals
from gateway.session.viewers.broadcast import Broadcast
from gateway.session.workspace.errors import NotRestored
from gateway.session.workspace.keeping import Keeping
from gateway.session.workspace.workspace import Workspace
from gateway.telemetry.telemetry import REDACTOR, session_asked
from gateway.terminal.viewer import TerminalViewer
from persistence.ports import MessageStore
from persistence.queue.queue import PersistenceQueue
from persistence.record import Loaded, Outcome, Record, Session
from sandbox.ports.sandbox import Sandbox, SandboxFailed
from sandbox.protocol.values import Position
from sync.errors import SyncFailed, SyncRefused
from sync.machine.history import Moved

log = structlog.get_logger()
T = TypeVar("T")

JOIN_GRACE_SECONDS = 10.0
AHEAD_GRACE_SECONDS = 2.0
ABORT_AGAIN_SECONDS = 1.0
EVENTS_A_TURN = 32


class SessionActor:
    __slots__ = (
        "_aborted",
        "_bell",
        "_bulletin",
        "_envs",
        "_farewell",
        "_heard_bytes",
        "_inbox",
        "_joining",
        "_loop",
        "_owed",
        "_purge",
        "_purged",
        "_room",
        "_spawn",
        "audience",
        "conversation",
        "created_at",
        "delivery",
        "ended",
        "ended_with",
        "guests",
        "id",
        "incoming",
        "life",
        "limits",
        "metrics",
        "now",
        "output",
        "pending",
        "queue",
        "quota",
        "rest",
        "rng",
        "room",
        "sandbox",
        "store",
        "stream",
        "terminals",
        "turns",
        "user_id",
        "utcnow",
        "workspace",
    )

    def __init__(
        self,
        loaded: Loaded,
        unanswered: Sequence[Record],
        *,
        store: MessageStore,
        queue: PersistenceQueue,
        sandbox: Sandbox,
        start: StartSandbox,
        agent: tuple[str, ...],
        envs: dict[str, Mapping[str, str]],
        keeping: Keeping,
        limits: SessionLimits,
        turns: StartTurns,
        quota: Quota,
        metrics: SessionMetrics,
        spawn: Callable[["SessionActor", Coroutine[Any, Any, None], str], None],
        purge: Callable[["SessionActor"], Awaitable[None]],
        bulletin: SessionFeed,
        room: InboundBytes,
        pending: InboundBytes,
        rng: Random,
        utcnow: Callable[[], float] = time.time,
    ) -> None:
        self.id = loaded.session.id
        self.user_id = loaded.session.user_id
        self.created_at = loaded.session.created_at
        self.store, self.queue, self.metrics, self.limits, self.rng = store, queue, metrics, limits, rng
        self.turns = turns
        self.quota = quota
        self.utcnow = utcnow
        self.room, self.pending = room, pending  # shared with the user's other sessions
        self.sandbox = sandbox
        self._spawn = spawn
        self._purge = purge
        self._bulletin = bulletin
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        self._inbox: list[tuple[Callable[..., None], tuple[Any, ...]]] = []  # short; an empty deque takes 760 bytes
        self._heard_bytes = 0  # of frames in the inbox
        self._bell: asyncio.Future[None] | None = None
        self._room: asyncio.Event | None = None
        self._joining: dict[Viewer, tuple[Position | None, float]] = {}
        self._owed: dict[asyncio.Future[Any], None] = {}  # who waits for an event; told if there is none to come
        self._aborted: tuple[str | None, int, float] = (None, 0, 0.0)  # the last turn to be aborted, and when
        self._farewell: bytes | None = None
        self._purged: asyncio.Future[bool] | None = None  # while it is, and afterwards: whether it was
        self.ended = False
        self.ended_with = CloseCode.FAILED
        self.audience = Broadcast()
        self.conversation = SessionLog(loaded, self, self, self.audience, queue, quota, metrics)
        behind = store.behind(self.id)
        self.delivery = Delivery(
            self.conversation, self, self.audience, limits.window, pending, loaded, unanswered, behind=behind
        )
        self.guests = Guests(self.conversation, self.durable)
        self.incoming = Inbound(self.conversation, self.delivery, store, self, self, metrics)
        self.stream = AgentStream(self.conversation, self.delivery.turns, self.audience)
        self.output = AgentOutput(
            self.conversation,
            self.delivery,
            self.audience,
            self.stream,
            self,
            metrics,
            checkpoint=loaded.checkpoint,
            rate=limits.agent_records,
            ready=self.agent_ready,
            finished=self.answer_finished,
        )
        self._envs = envs
        self.workspace = Workspace(
            self.conversation, self, self, self.audience, self, metrics, quota, rng, sandbox, keeping
        )
        talk = Conversation(self.conversation, self.delivery, self.audience)
        self.life = SandboxSupervisor(self, talk, self.output, self.workspace, sandbox, start, agent, envs)
        self.rest = SandboxShutdown(self, self.life, self.workspace, sandbox)
        self.terminals = SessionTerminals(self, sandbox, self.life)
        self.terminals.on_intent = self._wanted_by_typing
        self.terminals.on_left = self._somebody_left
        self.life.on_status = self.terminals.status_changed

    # -- the inbox ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Deal with events until the registry cancels this, or one of them fails."""
        try:
            while True:
                if not self._inbox:
                    self._bell = self._loop.create_future()
                    await self._bell
                    self._bell = None
                self._take_turn()
                self._bulletin.stir(self.user_id, self.id)
                if self._joining:
                    self._admit_joining()
                if self._room is not None and not self._crowded:
                    self._room.set()
                    self._room = None
                if self._inbox:
                    await asyncio.sleep(0)  # others want a turn, too
        except OwnerMoved:
            log.warning("session.moved", session_id=self.id)
            self.ended_with = CloseCode.OWNER_MOVED
            self.incoming.refuse_all("owner_moved")
        finally:
            self._end()

    def _take_turn(self) -> None:
        """Deal with the next few events. `run` would keep the last of them, and all it knows, while it waits."""
        for _ in range(min(len(self._inbox), EVENTS_A_TURN)):
            handler, arguments = self._inbox.pop(0)
            handler(*arguments)

    def _end(self) -> None:
        self.ended = True
        self.room.remove(self._heard_bytes)
        self.conversation.close()
        self.delivery.close()
        self.output.close()
        self.life.let_go()
        self.close_viewers(self.ended_with)
        for handler, arguments in self._inbox:
            self._turn_away(handler, arguments)
        for owed in self._owed:
            if not owed.done():
                owed.set_exception(session_failed())
        if self._room is not None:
            self._room.set()

    def post(self, handler: Callable[..., None], *arguments: Any) -> None:
        if self.ended:
            self._turn_away(handler, arguments)
            return
        self._inbox.append((handler, arguments))
        if self._bell is not None and not self._bell.done():
            self._bell.set_result(None)

    def hear(self, size: int, handler: Callable[..., None], *arguments: Any) -> None:
        """Post something of `size` bytes that a peer sent: it counts until it is dealt with."""
        if self.ended:
            return
        self._heard_bytes += size
        self.room.add(size)
        self.post(self._deal_with, size, handler, arguments)

    def _deal_with(self, size: int, handler: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self._heard_bytes -= size
        self.room.remove(size)
        handler(*arguments)

    def _turn_away(self, handler: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        """A viewer that came too late to be welcomed must not wait for it."""
        if handler in (self.attach, self.join_terminal):
            arguments[0].close(self.ended_with)

    @property
    def crowded(self) -> bool:
        """Whether a socket should be read no further for now; then `wait_for_room`."""
        return self._crowded or self.room.full

    @property
    def _crowded(self) -> bool:
        full = len(self._inbox) + self.incoming.asking >= self.limits.inbox
        return full or self._heard_bytes >= self.limits.inbox_bytes

    async def wait_for_room(self) -> None:
        """Wait until neither this session nor all of its user's together have more to do than they should."""
        while not self.ended:
            if self._crowded:
                self._room = self._room or asyncio.Event()
                await self._room.wait()
            elif self.room.full:
                await self.room.space()
            else:
                break

    def call_at(self, when: float, handler: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_at(when, self.post, handler)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._spawn(self, work, name)

    def asked(self, what: str, by: str = "gateway", **fields: Any) -> None:
        provider = self.sandbox.provider
        session_asked(what, by, session_id=self.id, user_id=self.user_id, provider=provider, **fields)

    def agent_ready(self) -> None:
        self.life.agent_ready()

    def answer_finished(self) -> None:
        self.workspace.request()

    async def durable(self) -> dict[str, Any]:
        """Goes through the inbox, and behind what the link told: what waits there is written before. The state is
        written again, so that the store says whether this is still the session's writer."""
        written: asyncio.Future[dict[str, Any]] = self._loop.create_future()

        def write() -> None:
            described = self.describe()
            self.conversation.save_and_then(lambda: None if written.done() else written.set_result(described))
            self.queue.release(self.id)

        if self.ended:
            raise session_failed()
        self.queue.release(self.id)
        self.post(self.output.in_order, write)
        try:
            async with asyncio.timeout(self.limits.durable_seconds):
                return await self._told(written)
        except TimeoutError:
            raise not_written() from None

    async def _told(self, event: "asyncio.Future[T]") -> T:
        """Wait for the event, or for this session's end: then it fails."""
        self._owed[event] = None
        try:
            return await event
        finally:
            del self._owed[event]

    def stirred(self) -> None:
        if not self.ended:
            self._bulletin.stir(self.user_id, self.id)

    def sync_moved(self, moved: Moved) -> None:
        if not self.ended:
            self._bulletin.moved(self.user_id, self.id, moved)
            self._bulletin.stir(self.user_id, self.id)

    # -- viewers ------------------------------------------------------------------------------------------------------

    def attach(self, viewer: Viewer, asked: Position | None) -> None:
        """Welcome a viewer. While it is not known yet which frames can be had (a link is being found again), it
        waits.
        """
        if self._farewell is not None:  # it was on its way in when the others were told
            self._see_off(viewer, self._farewell)
        self._joining[viewer] = (asked, self.now() + JOIN_GRACE_SECONDS)
        self._admit_joining()
        if viewer in self._joining:
            for grace in (AHEAD_GRACE_SECONDS, JOIN_GRACE_SECONDS):
                self.call_at(self.now() + grace + 0.01, lambda: None)

    def detach(self, viewer: Viewer) -> None:
        self._joining.pop(viewer, None)
        self.audience.leave(viewer)
        self._somebody_left()

    def _somebody_left(self) -> None:
        if not self.watched:  # whoever it was may be gone for good
            self.workspace.sync.force()

    def join_terminal(self, viewer: TerminalViewer) -> None:
        if self._farewell is None:
            self.terminals.join(viewer)
        else:
            viewer.close(CloseCode.COMING_BACK)

    def _wanted_by_typing(self) -> None:
        self.conversation.touch()
        self.life.want_agent()

    def close_viewers(self, code: CloseCode) -> None:
        self.audience.close_all(code)
        self.terminals.close_all(code)
        for viewer in self._joining:
            viewer.close(code)

    def cut_viewers(self) -> int:
        """End every connection of this session without a word; returns how many."""
        chats, terminals = [*self.audience, *self._joining], list(self.terminals)
        for viewer in chats:
            viewer.outlet.abort()
        for watching in terminals:
            watching.abort()
        return len(chats) + len(terminals)

    def _admit_joining(self) -> None:
        for viewer, (asked, until) in list(self._joining.items()):
            if self.now() < until and self._still_coming(asked):
                continue
            del self._joining[viewer]
            self._welcome(viewer, asked)

    def _still_coming(self, asked: Position | None) -> bool:
        talk, ring = self.conversation, self.audience.ring
        if talk.state.epoch is None or talk.state.ended:
            return False
        if ring.epoch != talk.state.epoch:
            return talk.state.status in (SessionStatus.RUNNING, SessionStatus.STARTING)
        # What is ahead of the ring can only be on its way back from before a restart, and then it comes at once.
        ahead = asked is not None and asked.epoch == ring.epoch and asked.offset > ring.end
        return self.stream.catching_up or (ahead and self.now() < self.output.greeted_at + AHEAD_GRACE_SECONDS)

    def _welcome(self, viewer: Viewer, asked: Position | None) -> None:
        talk, ring = self.conversation, self.audience.ring
        meets = asked is not None and asked.epoch == ring.epoch and ring.since(asked.offset) is not None
        if meets and asked is not None:
            after = asked.offset
        elif ring.epoch == talk.state.epoch:
            # Not `answer_from`: it is ahead of the ring while a `done` waits for its record.
            after = ring.base if ring.pinned is None else ring.pinned
        else:
            after = talk.state.answer_from
        viewer.send(self.stream.welcome(after, recovered=None if asked is None else meets))
        self.audience.join(viewer, min(after, ring.end))
        viewer.send(chat_frames.dump("connection_status", sandboxStatus=self.life.connection))
        if (waiting := self.turns.waiting(self.id)) is not None:
            viewer.send(queued_frame(waiting))

    def receive(self, viewer: Viewer, frame: chat_frames.ChatFrame) -> None:
        """One readable frame of a viewer, but `auth` and `ping`, which end at the socket."""
        talk = self.conversation
        talk.touch()
        match frame.type:
            case "message":
                cid = frame.cid or uuid4().hex
                self.incoming.offer(
                    cid,
                    role="user",
                    type="message",
                    payload=frame.payload(cid),
                    reply=acknowledge(viewer, cid),
                    deliver=True,
                )
                self.life.want_agent()
            case "permission_response" | "ask_user_answer":
                cid = frame.cid or uuid4().hex
                self.incoming.answer(cid, frame, acknowledge(viewer, cid))
            case "start":
                talk.save_spec(start=frame.body)
                self.life.want_agent()
            case "abort":
                if self._abort(frame.payload("").strip() if frame.cid else b'{"type":"abort"}'):
                    self.asked("abort", "user")
            case "close":
                self.life.end_agent()

    def receive_line(self, viewer: Viewer, line: str) -> None:
        """One raw line. There are no acks on that socket: what is refused closes it, so that nothing is lost
        silently.
        """

        def reply(outcome: Accepted | MessageRefused) -> None:
            if isinstance(outcome, MessageRefused):
                viewer.close(CloseCode.TOO_MANY, outcome.reason)

        self.conversation.touch()
        payload = orjson.dumps({"content": line})
        self.incoming.offer(uuid4().hex, role="user", type="raw", payload=payload, reply=reply, deliver=True)
        self.life.want_agent()

    def _abort(self, line: bytes = b'{"type":"abort"}') -> bool:
        """Tell the agent, if a turn runs; whether it was told. Once more for the same turn only after a moment: its
        line may be lost with a link, but each has a timer."""
        talk = self.conversation
        epoch, answered = talk.state.epoch, talk.state.answered
        if self._aborted[:2] == (epoch, answered) and self.now() < self._aborted[2] + ABORT_AGAIN_SECONDS:
            return False
        if not self.output.abort() or self.delivery.link is None:
            return False
        self._aborted = (epoch, answered, self.now())
        self.delivery.link.inject(line)
        self.call_at(self.now() + self.limits.abort_seconds, lambda: self._interrupt(epoch, answered))
        return True

    def _interrupt(self, epoch: str | None, answered: int) -> None:
        talk = self.conversation
        same_turn = (talk.state.epoch, talk.state.answered) == (epoch, answered)
        if same_turn and self.output.aborting and self.output.agent_alive and self.delivery.link is not None:
            log.warning("agent.interrupted", session_id=self.id)
            self.delivery.link.interrupt()

    def say_goodbye(self, retry_after: float) -> None:
        """The gateway leaves: read no further, and say when to come back. What was read before is still dealt with.
        What the agent says from here on is the next gateway's to relay: stored here, viewers would come back to find it
        in history only."""
        self._farewell = chat_frames.dump("going_away", retryAfter=retry_after)
        for viewer in [*self._joining, *self.audience]:
            self._see_off(viewer, self._farewell)
        self.life.let_go()

    def _see_off(self, viewer: Viewer, farewell: bytes) -> None:
        viewer.leaving = True
        viewer.outlet.pause_reading()
        viewer.send(farewell)

    @property
    def quiet(self) -> bool:
        """Whether everything that was posted, and everything the agent said that was heard, has been dealt with."""
        return self.ended or (not self._inbox and self.output.settled)

    @property
    def watched(self) -> bool:
        return bool(len(self.audience) or self._joining or len(self.terminals))

    # -- what the house asks ------------------------------------------------------------------------------------------

    @property
    def status(self) -> SessionStatus:
        """As it is stored. A session that is about to be started is described as starting before that."""
        return self.conversation.state.status

    @property
    def spec(self) -> SessionSpec:
        return self.conversation.spec

    def seen(self, kept: Session | None) -> Session:
        """The session as readers see it; `kept` is what the store has of it, None while it cannot be asked."""
        if kept is None:
            return self.conversation.seen()
        return replace(kept, last_seq=max(kept.last_seq, self.conversation.last_durable))

    def waiting(self) -> tuple[int, int]:
        """How many messages are not delivered yet, and how many bytes they are."""
        return len(self.delivery.window), self.delivery.window.queued_bytes

    def settled(self, seq: int, outcome: Outcome) -> None:
        """The store says what became of a record that was durable here first."""
        self.post(self.incoming.settled, seq, outcome)

    def begin(self, *, since: float | None) -> None:
        """It was loaded: find the sandbox that should run, or start one for what waits. `since`: when the gateway began
        to look for what ran before it, while it still looks."""
        if self.status in (SessionStatus.RUNNING, SessionStatus.STARTING):
            self.life.recover(since=since)
        elif len(self.delivery.window):
            self.life.want_agent()

    async def found_running(self, *, since: float | None) -> None:
        """Its sandbox runs, from before this gateway. One that should sleep is stopped: its gateway died while it put
        it to sleep. Raises SandboxUnavailable."""
        if self.status is SessionStatus.ERROR:
            self.life.recover(since=since)
        elif self.status in ASLEEP:
            await self.sandbox.stop()

    def idleness(self) -> Idleness:
        state, life, workspace = self.conversation.state, self.life, self.workspace
        return Idleness(
            status=state.status,
            seconds=self.idle_seconds(),
            sleep_after=self.sleep_after,
            linked=self.delivery.link is not None,
            busy=life.lock.locked(),
            bound=life.stopping or life.waits_for_provider or workspace.must_stay,
            in_use=self.watched or workspace.ready or self.turns.waits(self.id),
            wants_rescue=state.wants_rescue,
        )

    async def sleep_if_idle(self) -> None:
        """Put it to sleep if nobody comes before its turn to be stopped has come. A session that failed keeps saying
        why; its sandbox stops like any other's."""
        self.asked("sleep", idle_seconds=round(self.idle_seconds()))
        to, reason = SessionStatus.SLEEPING, "idle"
        if self.status is SessionStatus.ERROR:
            to, reason = SessionStatus.ERROR, self.conversation.state.reason
        try:
            await self.rest.stop(to, reason, if_still=lambda: tired(self.idleness()))
        except ApiError as error:
            log.warning("session.stays_awake", session_id=self.id, cause=error.message)

    def rescue(self) -> None:
        """Keep what its last sandbox left, as soon as that can be done."""
        self.rest.rescue()

    def save_delivered(self) -> None:
        """Write down now what reached the agent."""
        self.conversation.save_delivered()

    async def take_up(self, wish: Wish) -> bool:
        """Its creator asks for it, for the first time or again: see to it that its agent runs. An archived session
        comes back. Whether something was changed that is to be durable."""
        if wish.env:
            self.give_env(wish.env)
            self.life.env_given()
        archived, spec = self.status is SessionStatus.ARCHIVED, self.spec
        granted = wish.by_service and wish.network == spec.network and not spec.network_granted
        if archived:
            await self._revive(wish)
        elif granted:
            self.conversation.save_spec(network_granted=True)
        self.turns.forget(self.id)  # unless it is wanted, it will not ask
        self.life.want_agent()
        self.stirred()
        return bool(wish.env) or archived or granted

    # -- what the HTTP routes ask -------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        talk = self.conversation
        sync = self.workspace.describe()
        viewers = len(self.audience) + len(self.terminals)
        waiting = self.turns.waiting(self.id)
        queue = None if waiting is None else waiting.members()
        live = Live(self.life.connection, viewers, len(self.delivery.window), talk.last_active, sync, queue)
        place = SandboxPlace(self.sandbox.provider, self.sandbox.level)
        state = replace(talk.state, status=self.life.status)
        return describe(self.id, self.user_id, self.created_at, talk.last_durable, talk.spec, state, place, live)

    def idle_seconds(self) -> float:
        """How long nobody did anything; 0 while an answer is owed or something waits."""
        talk = self.conversation
        if self.terminals.typed():
            talk.touch()
        if self.output.answering or len(self.delivery.window):
            return 0.0
        return self.now() - talk.active_at

    @property
    def sleep_after(self) -> float:
        """How many idle seconds it takes to put this session to sleep."""
        return self.conversation.spec.sleep_after or self.limits.sleep_after

    async def change(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Replace members of the spec, also of an archived session. A change is no activity: a session that is idle
        for longer than its new idle time sleeps at the next look."""
        if self.ended:
            raise session_failed()
        if changes:
            self.conversation.save_spec(**changes)
        return await self.durable()

    async def wake(self) -> dict[str, Any]:
        self._refuse_archived()
        self.conversation.touch()
        await self.life.wake_by_name()
        return await self.durable()

    async def sleep(self) -> dict[str, Any]:
        self._refuse_archived()
        self.conversation.touch()
        if self.conversation.state.status is SessionStatus.PAUSED:
            raise ApiError(409, "paused", "the session is paused: its sandbox does not run")
        await self.rest.stop(SessionStatus.SLEEPING)
        return await self.durable()

    async def pause(self) -> dict[str, Any]:
        self._refuse_archived()
        self.conversation.touch()
        await self.rest.stop(SessionStatus.PAUSED)
        return await self.durable()

    def give_env(self, env: Mapping[str, str]) -> None:
        """Secrets for the next start of the sandbox. They stay in memory, and out of every log."""
        REDACTOR.remove(*self._envs.get(self.id, {}).values())
        REDACTOR.add(*env.values())
        self._envs[self.id] = env
        if self.conversation.spec.has_env != bool(env):
            self.conversation.save_spec(has_env=bool(env))

    async def resume(self, env: Mapping[str, str] | None, *, empty: bool = False, keep: bool = False) -> dict[str, Any]:
        self._refuse_archived()
        self.conversation.touch()
        if env is not None:
            self.give_env(env)
        await self.life.resume(empty=empty, keep=keep)
        return await self.durable()

    async def sync(self, *, wait: bool) -> dict[str, Any]:
        """Keep the workspace as it is now. With `wait`, the answer comes when that is done."""
        self._refuse_archived()
        self.conversation.touch()
        if self.conversation.state.status is SessionStatus.UNRESTORED:
            raise ApiError(409, "unrestored", "the workspace is not restored: nothing of it may be synced; wake it")
        await self.rest.refuse_if_full()
        if not wait:
            self.rest.keep_soon()
            return self.describe()
        try:
            await self.rest.keep()
        except SyncRefused as error:
            raise ApiError(409, "not_synced", str(error)) from error
        except (SyncFailed, NotRestored, SandboxFailed) as error:
            raise ApiError(503, "sync_failed", f"the workspace is not kept: {error}") from error
        return await self.durable()

    async def put_back(self, number: int) -> dict[str, Any]:
        """Make an earlier generation the workspace that the next resume finds. What is there now is kept first."""
        self._refuse_archived()
        self.conversation.touch()
        if self.conversation.state.status is not SessionStatus.PAUSED:
            raise ApiError(409, "not_paused", "a workspace is replaced in place only while its session is paused")
        await self.sync(wait=True)
        await self.rest.put_back(number)
        return await self.durable()

    async def abort(self) -> dict[str, Any]:
        self._refuse_archived()
        self.conversation.touch()
        self._abort()
        return self.describe()

    async def destroy(self, purge: bool) -> dict[str, Any]:
        """End the session: its sandbox, its workspace, its viewers; with `purge` its conversation too. If another
        request purges it meanwhile, there is no such session."""
        try:
            return await self._destroy(purge)
        except ApiError:
            if self._purged is None or not await asyncio.shield(self._purged):
                raise
        raise ApiError(404, "unknown_session", "there is no such session")

    async def _destroy(self, purge: bool) -> dict[str, Any]:
        if self.ended:
            raise session_failed()
        self.conversation.touch()
        state = self.conversation.state
        REDACTOR.remove(*self._envs.pop(self.id, {}).values())
        if state.status is not SessionStatus.ARCHIVED or state.leaves_something:  # the last DELETE may have failed
            await self.rest.destroy()
        self.close_viewers(CloseCode.FINISHED)
        await self.guests.end_all()
        if not purge:
            return await self.durable()
        if self._purged is not None:
            raise session_failed()
        described = self.describe()
        self._purged = purged = self._loop.create_future()
        try:
            await self._purge(self)
            purged.set_result(True)
        finally:
            if not purged.done():
                purged.set_result(False)
        return described

    async def _revive(self, wish: Wish) -> None:
        """An archived session is created again: the conversation goes on, the workspace is new. The idle time stays
        unless the wish names one."""
        if self.conversation.state.leaves_something:
            await self.rest.destroy()
        shares = self.conversation.spec.shares.ended()
        wish = replace(wish, sleep_after=wish.sleep_after or self.conversation.spec.sleep_after)
        self.conversation.save_spec(**spec_members(wish, self.limits.network.given), shares=shares)
        self.life.revive()

    async def share(self, label: str, *, now: float, expires_at: float) -> Share:
        """Raises ApiError."""
        self._refuse_archived()
        return await self.guests.add(label, now=now, expires_at=expires_at)

    def _refuse_archived(self) -> None:
        if self.ended:
            raise session_failed()
        if self.conversation.state.status is SessionStatus.ARCHIVED:
            raise ApiError(409, "archived", "the session is archived: create it again to revive its conversation")

    async def post_record(
        self, *, role: str, type: str, content: Any, metadata: dict[str, Any] | None, cid: str | None, deliver: bool
    ) -> tuple[str, int, Stage]:
        """Store a record for a service, and deliver it if asked; returns its message id, seq and stage."""
        self._refuse_archived()
        cid = cid or uuid4().hex
        body: dict[str, Any] = {"type": type, "cid": cid, "content": content}
        if metadata is not None:
            body["metadata"] = metadata
        done: asyncio.Future[Accepted | MessageRefused] = self._loop.create_future()

        def reply(outcome: Accepted | MessageRefused) -> None:
            if not done.done():
                done.set_result(outcome)

        payload = orjson.dumps(body)

        def offer() -> None:
            self.conversation.touch()
            self.incoming.offer(cid, role=role, type=type, payload=payload, reply=reply, deliver=deliver)
            if deliver:
                self.life.want_agent()

        await self.wait_for_room()
        if self.ended:
            raise session_failed()
        self.hear(len(payload), offer)
        outcome = await self._told(done)
        if isinstance(outcome, MessageRefused):
            raise refusal(outcome)
        return f"{self.id}.{outcome.seq}", outcome.seq, outcome.stage
