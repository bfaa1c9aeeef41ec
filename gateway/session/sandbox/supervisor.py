"""A session's sandbox: woken by intent, kept while it is used, found again after a cut, put to sleep when nobody
needs it (shutdown.py).

One thing at a time happens to a sandbox: everything here that waits does so under one lock. What the link tells goes
through the session's inbox like everything else. Whoever ends five times in five minutes, agent or sandbox, is left
alone until somebody asks for it by name (`wake`, `resume`) or the five minutes are over: the session is `error` and
says why.

A sandbox starts with its agent held. Only when its workspace is proven to be what it should be
(gateway/session/workspace/workspace.py) is the agent let go; if that cannot be proven, the sandbox ends and the
session is `unrestored`.

A provider that does not answer (SandboxUnavailable) says nothing of the sandbox. Nothing is stopped, started or given
up then; the same is asked again, with more and more patience, by a timer: nobody holds the lock meanwhile.
"""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any

import structlog

from gateway.limits.start_turns import Waiting
from gateway.protocol import chat_frames
from gateway.protocol.errors import ApiError
from gateway.session.conversation.conversation import Conversation
from gateway.session.conversation.outbound import AgentOutput
from gateway.session.conversation.replies import sandbox_unavailable
from gateway.session.model.ports import Host
from gateway.session.model.state import SessionStatus, sandbox_spec
from gateway.session.sandbox.link_listener import LinkListener
from gateway.session.sandbox.restart_policy import RestartPolicy
from gateway.session.workspace.errors import NotRestored, NotWritten
from gateway.session.workspace.sync import ENDED
from gateway.session.workspace.workspace import Workspace
from persistence.backoff import delay
from sandbox.ports.fleet import SandboxSpec
from sandbox.ports.link import LinkRefused
from sandbox.ports.sandbox import Sandbox, SandboxFailed, SandboxUnavailable
from sandbox.protocol.values import AgentExit, Hello
from sync.machine.reconcile import Newest

log = structlog.get_logger()

StartSandbox = Callable[[SandboxSpec], Awaitable[None]]

STEADY_SECONDS = 10.0  # a link that was lost sooner is found again with more and more patience

ASLEEP = (SessionStatus.SLEEPING, SessionStatus.PAUSED, SessionStatus.ARCHIVED, SessionStatus.NEEDS_ENV)
UNANSWERED_BASE, UNANSWERED_CAP = 0.5, 30.0  # seconds between two questions to a provider that does not answer
STORE_AWAY = "it was not started, because the store does not answer"
FAILED = (SessionStatus.ERROR, SessionStatus.UNRESTORED)  # what is wanted may be tried again


def queued_frame(waiting: Waiting) -> bytes:
    members = {name: value for name, value in waiting.members().items() if value is not None}
    return chat_frames.dump("session_status", status="queued", **members)


class SandboxSupervisor:
    __slots__ = (
        "_agent",
        "_asked",
        "_closing",
        "_ear",
        "_ended",
        "_entrance",
        "_envs",
        "_flaps",
        "_greeted",
        "_hello",
        "_host",
        "_linked_at",
        "_lost_again",
        "_patience",
        "_restart",
        "_rising",
        "_sandbox",
        "_shown",
        "_start",
        "_told",
        "_unanswered",
        "_wanted",
        "lock",
        "on_status",
        "output",
        "rests",
        "stopping",
        "talk",
        "workspace",
    )

    def __init__(
        self,
        host: Host,
        conversation: Conversation,
        output: AgentOutput,
        workspace: Workspace,
        sandbox: Sandbox,
        start: StartSandbox,
        agent: tuple[str, ...],
        envs: Mapping[str, Mapping[str, str]],
    ) -> None:
        self._host = host
        self.talk = conversation
        self.output = output
        self.workspace = workspace
        self._sandbox = sandbox
        self._start = start
        self._agent = agent
        self._envs = envs  # of all sessions
        self.lock = asyncio.Lock()
        self._ear: LinkListener | None = None
        self._patience = RestartPolicy(host.limits.crashes, host.limits.crash_window)
        self._restart: Any = None
        self._rising = False  # a task brings the sandbox up, or back
        self._greeted = True  # False while a link is there and has not said hello
        self._hello: asyncio.Future[Hello | None] | None = None  # somebody waits for it; None: the link was lost before
        self._wanted = False  # somebody wants an agent; seen to when the link has said hello
        self._linked_at = 0.0
        self._flaps = 0  # links in a row that did not last
        self._lost_again = False  # a link was lost before the task that brought it had ended
        self.stopping = False
        self.rests = False  # it was stopped by request while a task was about to bring it back, and nobody wants it
        self._closing = False
        self._ended: asyncio.Event | None = None  # somebody waits for the agent's end
        self._unanswered = ""  # why the provider does not answer
        self._asked = 0  # how often in a row it did not
        self._told = ""
        self._shown: SessionStatus | None = None
        self._entrance: asyncio.Lock | None = None  # one at a time asks for a turn
        self.on_status: Callable[[], None] = lambda: None  # `status` is another now

    # -- words for the outside ----------------------------------------------------------------------------------------

    @property
    def status(self) -> SessionStatus:
        """The status to show: a sandbox about to be started is starting."""
        status = self.talk.state.status
        rising = (self._rising and not self.rests) or self._queued or self.waits_for_provider
        return SessionStatus.STARTING if rising and status is SessionStatus.SLEEPING else status

    @property
    def _queued(self) -> bool:
        return self._host.turns.waits(self.talk.id)

    @property
    def waits_for_provider(self) -> bool:
        """Whether it is not known if its sandbox runs; it is asked again."""
        return bool(self._unanswered) and self._restart is not None

    @property
    def up(self) -> bool:
        """Whether there is a bridge to talk to: also of a session whose agent is given up."""
        return self.talk.state.status is SessionStatus.RUNNING or self.talk.link is not None

    @property
    def coming_up(self) -> bool:
        """Whether a sandbox is about to run: it starts, or another attempt is due."""
        return self.status is SessionStatus.STARTING or self._restart is not None

    @property
    def rising(self) -> bool:
        """Whether a task brings the sandbox up, or back; `on_status` is called when it ends."""
        return self._rising

    @property
    def starts(self) -> bool:
        """Whether its sandbox is being started, by whoever has the lock."""
        return self.talk.state.status is SessionStatus.STARTING and self.lock.locked()

    @property
    def visit(self) -> str:
        """What waits for a turn to look at what a dead sandbox left, while the session does not start."""
        return f"{self.talk.id} visited"

    @property
    def connection(self) -> str:
        """`connected`, `connecting`, `sleeping` or `disconnected`."""
        if self.output.agent_alive:
            return "connected"
        if self.status in ASLEEP:
            return "sleeping"
        rising = self._rising or self._restart is not None or not self._greeted
        rising = rising or self.status is SessionStatus.STARTING  # asked for by name: `wake`, `resume`
        return "connecting" if rising or self.output.agent_starting else "disconnected"

    @property
    def _placed(self) -> bool:
        """Whether its sandbox is one of those that run, or are about to."""
        return not self._host.ended and (self.up or self.talk.state.status is SessionStatus.STARTING)

    def tell_connection(self) -> None:
        self._host.stirred()
        if not self._host.ended:
            self._host.turns.note(self.talk.id, self._host.user_id, self._placed)
        if (word := self.connection) != self._told:
            self._told = word
            self.talk.audience.tell(chat_frames.dump("connection_status", sandboxStatus=word))
        if (status := self.status) is not self._shown:
            self._shown = status
            self.on_status()

    def become(self, status: SessionStatus, reason: str = "", **changes: Any) -> None:
        if self.talk.state.status is not status or changes:
            self.talk.save(status=status, reason=reason, **changes)
            self.talk.audience.tell(chat_frames.dump("session_status", status=status, reason=reason or None))
        self.tell_connection()

    # -- intent -------------------------------------------------------------------------------------------------------

    def want_agent(self) -> None:
        """Somebody has something for the agent: see to it that one runs. Returns at once."""
        talk = self.talk
        if self.output.agent_alive or self.stopping or self._restart is not None or self._crash_looping():
            return
        if talk.state.status in (SessionStatus.SLEEPING, *FAILED):
            self.rests = False
            self._rise(self.wake)
        elif talk.link is not None:
            self._start_agent()

    def _rise(self, work: Callable[[], Any]) -> None:
        async def bring_up() -> None:
            try:
                await work()
                self._answered()
            except SandboxUnavailable as error:
                self._ask_again_later(error, work)
            finally:
                self._rising = False
                self._host.turns.forget(self.talk.id)
                self.tell_connection()
                self.on_status()  # also if it is what it was: who waits for a start learns that there is none
            if self._lost_again:
                self.rise_again()

        if not self._rising and not self._host.ended:
            self._rising, self._lost_again, self.rests = True, False, False
            if not self._placed:
                self._host.turns.expect(self.talk.id, self._host.user_id)
            self.tell_connection()
            self._host.spawn(bring_up(), f"rise {self.talk.id}")

    async def wake(
        self,
        *,
        empty: bool = False,
        keep: bool = False,
        again: bool = False,
        by_name: bool = False,
        within: float = math.inf,
    ) -> None:
        """Start the sandbox if it is not there; returns when its bridge answers, or the session says why not. `empty`
        begins with an empty workspace, and what was kept stays kept; `keep` with what is on the disk, where the store
        has nothing. `again`: only because it ran before, so not if it was stopped by request since. `by_name`: somebody
        asked for just this, and the log says so already. A start waits for the store, at most `within` seconds: then it
        is given up, and ApiError raised.
        """
        try:
            async with self.lock:
                if (again and self.rests) or await self._needs_no_start():
                    return
            async with self._turn() as over:  # not under the lock: who waits for a turn can be stopped and deleted
                if over is not None:
                    await self._wake(over, empty=empty, keep=keep, by_name=by_name, within=within)
        except SandboxUnavailable as error:
            if not by_name:
                raise
            if self.talk.state.status is SessionStatus.RUNNING or len(self.talk.window):
                self._ask_again_later(error, self._recover)
            raise sandbox_unavailable(error) from error

    async def _needs_no_start(self) -> bool:
        talk = self.talk
        if self._host.ended or talk.state.status in (SessionStatus.PAUSED, SessionStatus.ARCHIVED):
            return True
        # A link that was lost a moment ago is no reason to end what runs.
        if talk.link is not None or (talk.state.status is SessionStatus.RUNNING and await self._reach()):
            self.become(SessionStatus.RUNNING)
            self._start_agent()
            return True
        return False

    @contextlib.asynccontextmanager
    async def _turn(self, *, runs: bool = False) -> AsyncIterator[Callable[[], None] | None]:
        """Its turn to be started, or found again; None if it is not to be any more."""
        self._entrance = self._entrance or asyncio.Lock()
        turns, talk = self._host.turns, self.talk
        async with (
            self._entrance,
            turns.turn(
                talk.id, self._host.user_id, runs=runs, placed=lambda: self._placed, told=self._told_to_wait
            ) as over,
        ):
            yield over

    def _told_to_wait(self, waiting: Waiting) -> None:
        self.tell_connection()
        self.talk.audience.tell(queued_frame(waiting))

    def give_up_turn(self) -> None:
        """Somebody stops it before its turn has come."""
        self._host.turns.give_up(self.talk.id)

    def refuse_if_full(self) -> None:
        """Raises ApiError 429 if it would have to be started, and there is no place for it."""
        if not self._placed:
            try:
                self._host.turns.refuse_if_full(self._host.user_id)
            except ApiError as error:
                self._host.metrics.refused(error.code)
                raise

    async def _wake(
        self, started: Callable[[], None], *, empty: bool, keep: bool, by_name: bool, within: float
    ) -> None:
        talk = self.talk
        async with self.lock:
            if await self._needs_no_start():
                return
            if told := self._host.limits.network.refusal(talk.spec.network, granted=talk.spec.network_granted):
                self._refused("network_not_allowed", told)
                return
            env = self._envs.get(talk.id)
            if talk.spec.has_env and env is None:
                self.become(
                    SessionStatus.NEEDS_ENV, "its envVars are gone with the last gateway: resume with {envVars}"
                )
                return
            began = self._host.now()
            if not by_name:
                self._host.asked("wake", waiting=len(talk.window))
            try:
                await self._sandbox.runs()  # a provider that does not answer counts no start
                self.become(SessionStatus.STARTING, incarnation=talk.state.incarnation + 1)
                self._host.turns.give_up(self.visit)
                newest = None if empty else await self.workspace.look(keep=keep)
                await self.start_held(newest, env or {}, empty=empty, keep=keep, started=started)
                await self.workspace.release(within)
                await self._attach(start_agent=True)
            except NotRestored as error:
                await self._end_failed(str(error), SessionStatus.UNRESTORED)
                return
            except (SandboxFailed, LinkRefused) as error:
                await self._end_failed(str(error))
                return
            except SandboxUnavailable as error:
                self._not_started(error)
                raise
            except NotWritten:
                await self._stop_unstarted()
                self.workspace.lost()
                self.become(SessionStatus.SLEEPING, STORE_AWAY)
                if len(talk.window):
                    self._again_later()
                raise ApiError(503, "storage_unavailable", f"{STORE_AWAY}: try again in a moment") from None
            except Exception:  # `starting` would be for ever
                await self._end_failed("it could not be started")
                raise
            self._host.metrics.woken(self._sandbox.provider, self._host.now() - began)
            self.become(SessionStatus.RUNNING)

    async def start_held(
        self,
        newest: Newest | None,
        env: Mapping[str, str],
        *,
        empty: bool = False,
        keep: bool = False,
        started: Callable[[], None] = lambda: None,
    ) -> None:
        """A sandbox with its agent held, and the workspace in it that it should have. `started` is called in between:
        a long restore is nobody's turn."""
        talk = self.talk
        kept = newest is not None or keep
        spec = sandbox_spec(
            talk.id, talk.state.incarnation, talk.spec, self._agent, env, has_snapshot=kept, empty=empty
        )
        self.workspace.lost()
        if self._host.ended:
            raise NotRestored(ENDED)
        await self._start(spec)
        self._host.metrics.started(self._sandbox.provider)
        started()
        await self.workspace.prepare(newest, empty=empty, keep=keep)

    async def _end_failed(self, reason: str, status: SessionStatus = SessionStatus.ERROR) -> None:
        """What is declared dead must be, unless it is another gateway's by now."""
        if not self._host.ended:
            await self._stop_unstarted()
            self._failed(reason, status)

    async def _stop_unstarted(self) -> None:
        """Stop what did not come up. Raises SandboxUnavailable: then the next start does."""
        try:
            await self._sandbox.stop()
        except SandboxUnavailable as error:
            self._not_started(error)
            raise

    def _not_started(self, error: SandboxUnavailable) -> None:
        """The agent is still held in what may have come up; the next start ends it, and begins anew."""
        self.workspace.lost()
        self.become(SessionStatus.SLEEPING, str(error))

    def _failed(self, reason: str, status: SessionStatus = SessionStatus.ERROR) -> None:
        log.warning("sandbox.failed", session_id=self.talk.id, cause=reason)
        self.workspace.lost()
        self._patience.failed(self._host.now())
        self.output.in_order(lambda: self.forget(reason))
        self.become(status, reason)
        code = "unrestored" if status is SessionStatus.UNRESTORED else "sandbox_failed"
        self.talk.audience.tell(chat_frames.dump("error", code=code, error=reason))
        if len(self.talk.window):
            self._again_later()

    def _refused(self, code: str, reason: str) -> None:
        """It may not be started as things are: said each time it is asked for, and tried again only then."""
        self.become(SessionStatus.ERROR, reason)
        self.talk.audience.tell(chat_frames.dump("error", code=code, error=reason))

    def forget(self, reason: str) -> None:
        """The sandbox is gone for good: whatever it had and did not finish, or may have had, is told. Done in the
        link's order: an answer that waits for the store was given all the same.
        """
        self.output.end_epoch(None, reason)
        self.talk.forget_unsure()
        self.talk.save(taker=None)

    def recover(self, *, since: float | None = None) -> None:
        """Loaded while its sandbox should run: find it again. If it is gone, sleep, but for what still waits. `since`:
        when the gateway began to look for what ran before it."""

        async def reattach() -> None:
            wanted = False
            async with self._turn(runs=True) as over:
                if over is None:  # somebody stops it
                    return
                async with self.lock:
                    if self.talk.link is None:
                        wanted = not await self._find_again(since) and self._wanted  # by somebody who could not know
            if wanted or len(self.talk.window):
                await self.wake()

        self._rise(reattach)

    async def _find_again(self, since: float | None) -> bool:
        if not await self._reach():
            await self._sandbox.stop()  # it may run and not answer: it must be dead
            self._gone("its sandbox ended")
            return False
        if since is not None:
            self._host.metrics.reattached(self._sandbox.provider, self._host.now() - since)
        return True

    async def _reach(self) -> bool:
        """Find what runs. What is found held is ended, and the session sleeps: it waits for a workspace that nobody
        brings any more, or its gateway ended while it stopped it. A link that is lost before that is known is no
        reason to end anything: whoever hears of the loss looks again."""
        for attempt in range(self._host.limits.link_attempts):
            if not await self._sandbox.runs():
                return False
            self._hello = hello = asyncio.get_running_loop().create_future()
            try:
                await self._attach(start_agent=False)
            except LinkRefused as error:
                log.info("link.refused", session_id=self.talk.id, attempt=attempt, cause=str(error))
                await asyncio.sleep(delay(attempt, base=0.1, cap=2.0, rng=self._host.rng))
            else:
                return await self._is_let_go(hello)
            finally:
                self._hello = None
        return False

    async def _is_let_go(self, hello: "asyncio.Future[Hello | None]") -> bool:
        ear = self._ear
        if ear is None or (said := await hello) is None or not said.held:
            return True
        let_go = await self.workspace.find(held=True)  # since it said so
        if self._ear is not ear:
            return True
        if let_go:
            self._host.post(self._deal, ear, self._greet, (said,))
            return True
        self.drop_link()
        await self._sandbox.stop()
        self._gone("its gateway ended while it was started or stopped")
        return False

    def _gone(self, reason: str) -> None:
        talk = self.talk
        self.workspace.lost()
        if not talk.state.ended and not len(talk.window.unsure()):
            self.output.in_order(lambda: self.output.end_epoch(None, reason))
        if talk.state.status not in ASLEEP:
            self.become(SessionStatus.SLEEPING, reason)

    async def _attach(self, *, start_agent: bool) -> None:
        talk = self.talk
        self._ear = ear = LinkListener(self)
        link = await self._sandbox.connect(ear, self.output.received)
        if self._ear is not ear:  # let go meanwhile: nobody would ever hear it, or close it
            link.close()
            return
        self._answered()
        talk.link, self._greeted, self._wanted = link, False, self._wanted or start_agent
        self._linked_at = self._host.now()
        ear.open()

    def _start_agent(self) -> None:
        talk = self.talk
        # It may say that one runs, or what the last one left open; or it is being stopped.
        if not self._greeted or self.output.exit_due or self.stopping:
            self._wanted = True
        elif talk.link is not None and not self.output.agent_alive and not self.output.agent_starting:
            self._wanted = False
            self.output.agent_starting = True
            talk.link.start(talk.spec.start_line())
            self.tell_connection()

    # -- what the link tells ------------------------------------------------------------------------------------------

    def heard(self, ear: LinkListener, handler: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if ear is self._ear:
            self._host.post(self._deal, ear, handler, arguments)

    def _deal(self, ear: LinkListener, handler: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if ear is self._ear:
            handler(*arguments)

    def said_hello(self, hello: Hello) -> None:
        awaited = self._meet(hello)
        if not hello.held:
            self._greet(hello)
        elif not awaited:
            self.lost("the bridge holds an agent that was let go")

    def _meet(self, hello: Hello | None) -> bool:
        """Tell whoever waits for a hello; whether somebody does."""
        awaited, self._hello = self._hello, None
        if awaited is not None and not awaited.done():
            awaited.set_result(hello)
        return awaited is not None

    def _greet(self, hello: Hello) -> None:
        self.become(SessionStatus.RUNNING)
        self.workspace.found()

        def go_on() -> None:
            self._greeted = True
            if hello.alive:
                self._wanted = False
            elif self._wanted or len(self.talk.window):
                self._start_agent()

        self.output.on_hello(hello, go_on)

    def files_changed(self) -> None:
        self.workspace.request()

    def agent_ready(self) -> None:
        """An agent process runs and can be given lines."""
        self.tell_connection()

    def agent_exited(self, exit: AgentExit) -> None:
        self.output.on_exit(exit, lambda current: self._after_exit(exit, current))

    def _after_exit(self, exit: AgentExit, current: bool) -> None:
        talk = self.talk
        if self._ended is not None:
            self._ended.set()
        talk.audience.tell(
            chat_frames.dump(
                "session_status", status="agent_exited", code=exit.code, signal=exit.signal, reason=exit.reason
            )
        )
        self.tell_connection()
        asked_for = self._closing or self.stopping
        self._closing = False
        if self.stopping or not current:  # whoever finds the link again, or stopped the sandbox, sees to the rest
            return
        if not asked_for and exit.code != 0:
            self._patience.failed(self._host.now())
            if self._crash_looping():
                self._give_up(exit.reason)
                return
            self._again_later()
        elif len(talk.window) or self._wanted:
            self._again_later()

    def _give_up(self, reason: str) -> None:
        count, minutes = self._host.limits.crashes, self._host.limits.crash_window / 60
        text = f"ended {count} times in {minutes:g} minutes, last: {reason}; mend it, then wake the session"
        log.warning("session.crash_loop", session_id=self.talk.id, cause=reason)
        self.become(SessionStatus.ERROR, text)
        self.talk.audience.tell(chat_frames.dump("error", code="crash_loop", error=text))

    def had_problem(self, reason: str) -> None:
        self.output.warn("agent.problem", cause=reason)
        self.talk.audience.tell(chat_frames.dump("error", code="agent", error=reason))
        if self.output.agent_starting and not self.stopping:
            self.output.agent_starting = False
            self._patience.failed(self._host.now())
            if self._crash_looping():
                self._give_up(reason)
            else:
                self._again_later()

    def lost(self, reason: str) -> None:
        log.info("link.lost", session_id=self.talk.id, cause=reason)
        lasted = self._host.now() - self._linked_at
        self._flaps = self._flaps + 1 if lasted < STEADY_SECONDS else 0
        self.workspace.cut()
        self.drop_link()
        if self.stopping:  # whoever stops it need not wait for a sandbox that is not there
            self._host.spawn(self._look_after(), f"look after {self.talk.id}")
        else:
            self._lost_again = True
            self.rise_again()

    async def _look_after(self) -> None:
        with contextlib.suppress(SandboxUnavailable):  # then nobody knows
            if not await self._sandbox.runs() and self.stopping:
                self.workspace.lost()

    def rise_again(self) -> None:
        self._rise(self._recover)

    async def _recover(self) -> None:
        """The link is gone. Either only the link, or the whole sandbox: then it is started anew."""
        if self._flaps:  # a bridge that lets us in only to throw us out costs us next to nothing
            await asyncio.sleep(delay(self._flaps, base=0.05, cap=5.0, rng=self._host.rng))
        async with self.lock:
            if self.talk.link is not None or self.talk.state.status in ASLEEP or await self._reach():
                return
            ended = self.talk.state.status not in ASLEEP  # else it was found, and held
            if ended:
                await self._sandbox.stop()
                self.workspace.lost()
                self._patience.failed(self._host.now())
                self.become(SessionStatus.SLEEPING, "its sandbox ended")
        if not ended and not self._wanted and not len(self.talk.window):
            return
        if self._crash_looping():
            self.output.in_order(lambda: self.forget("its sandbox ended"))
            self._give_up("its sandbox ended")
        else:
            await self.wake(again=True)

    def drop_link(self) -> None:
        self._ear, self._greeted = None, True
        self._meet(None)
        if self._ended is not None:  # nobody is left to tell of it
            self._ended.set()
        if self.talk.link is not None:
            self.talk.link.close()
        self.output.on_lost()
        self.tell_connection()

    def _crash_looping(self) -> bool:
        return self._patience.exhausted(self._host.now())

    def _again_later(self) -> None:
        if self._restart is None and not self._crash_looping():
            pause = self._patience.pause(self._host.rng)
            self._restart = self._host.call_at(self._host.now() + pause, self._again)
            self.tell_connection()

    def _again(self) -> None:
        self._restart = None
        self.want_agent()
        self.tell_connection()

    # -- a provider that does not answer -------------------------------------------------------------------------------

    def _ask_again_later(self, error: SandboxUnavailable, work: Callable[[], Any]) -> None:
        """Show why, and do `work` again after a while."""
        if self._host.ended or self.stopping:
            return
        why = str(error)
        if not self._unanswered:
            log.warning("sandbox.unavailable", session_id=self.talk.id, cause=why)
        shown, self._unanswered = self._unanswered, why
        self._cancel_restart()
        pause = delay(self._asked, base=UNANSWERED_BASE, cap=UNANSWERED_CAP, rng=self._host.rng)
        self._asked += 1
        self._restart = self._host.call_at(self._host.now() + pause, lambda: self._ask_again(work))
        if shown != why:
            self._tell_reason(why)
        self.tell_connection()

    def _ask_again(self, work: Callable[[], Any]) -> None:
        self._restart = None
        if self.talk.state.status in (SessionStatus.SLEEPING, *FAILED):
            self.want_agent()
        elif self.talk.link is None and self.talk.state.status not in ASLEEP:
            self._rise(work)
        self.tell_connection()

    def _answered(self) -> None:
        why, self._unanswered, self._asked = self._unanswered, "", 0
        if why:
            log.info("sandbox.available", session_id=self.talk.id)
            if self.talk.state.reason == why:
                self._tell_reason("")

    def _tell_reason(self, reason: str) -> None:
        if self.talk.state.reason != reason:
            self.talk.save(reason=reason)
        self.talk.audience.tell(chat_frames.dump("session_status", status=self.status, reason=reason or None))

    # -- by request ---------------------------------------------------------------------------------------------------

    async def wake_by_name(self) -> None:
        if self.talk.state.status is SessionStatus.PAUSED:
            raise ApiError(409, "paused", "the session is paused: POST .../resume")
        self.refuse_if_full()
        self._patience.renew()
        await self.wake(by_name=True, within=self._host.limits.durable_seconds)

    async def resume(self, *, empty: bool = False, keep: bool = False) -> None:
        """Out of `paused`, `needs_env`, `error` or `unrestored`; the last two also with an `empty` workspace, the last
        with what is on the disk, to `keep` it."""
        if keep and self.talk.state.status is not SessionStatus.UNRESTORED:
            raise ApiError(409, "not_unrestored", "only a session that cannot be restored may keep what is on its disk")
        if empty and self.talk.state.status not in FAILED:
            raise ApiError(409, "not_unrestored", "only a session that cannot be restored or started may begin empty")
        self.refuse_if_full()
        self._patience.renew()
        if self.talk.state.status in (SessionStatus.PAUSED, SessionStatus.NEEDS_ENV):
            self.become(SessionStatus.SLEEPING)
        await self.wake(empty=empty, keep=keep, by_name=True, within=self._host.limits.durable_seconds)

    @contextlib.contextmanager
    def at_rest(self) -> Iterator[None]:
        """While it is being stopped, nothing is started; what could not be stopped is found again."""
        self.stopping = True
        self._unanswered, self._asked = "", 0  # who stops it asks anew
        try:
            yield
        finally:
            self.stopping = False
            self._cancel_restart()
            if self.talk.state.status is SessionStatus.RUNNING:
                if self.talk.link is None:
                    self.rise_again()
                elif self._wanted or len(self.talk.window):
                    self._start_agent()
            self.on_status()  # what ended meanwhile has ended, or sleeps

    def _cancel_restart(self) -> None:
        if self._restart is not None:
            self._restart.cancel()
            self._restart = None

    async def agent_ended(self) -> None:
        """End the agent process and wait for its end, for a while."""
        self._cancel_restart()
        if self.talk.link is None:
            return
        if not self.output.agent_alive:
            if self.output.agent_starting:
                self.talk.link.stop_agent()
            return
        self._ended = asyncio.Event()
        self.talk.link.stop_agent()
        try:
            async with asyncio.timeout(self._host.limits.stop_seconds):
                await self._ended.wait()
        except TimeoutError:
            log.warning("agent.stop_timeout", session_id=self.talk.id)

    def end_agent(self) -> None:
        """`close`: the agent process ends, the sandbox stays."""
        if self.talk.link is not None and self.output.agent_alive:
            self._closing = True
            self.talk.link.stop_agent()

    def kill_agent(self) -> None:
        """SIGKILL, to show what becomes of it. Raises ApiError if none runs."""
        if self.talk.link is None or not self.output.agent_alive:
            raise ApiError(409, "not_running", "the session's agent does not run")
        self.talk.link.kill_agent()

    def env_given(self) -> None:
        """What the session lacked is there: it may be woken again."""
        if self.talk.state.status is SessionStatus.NEEDS_ENV:
            self.become(SessionStatus.SLEEPING)

    def revive(self) -> None:
        self._patience.renew()
        self.become(SessionStatus.SLEEPING)
        self.want_agent()

    def let_go(self) -> None:
        """The gateway leaves; the sandbox stays."""
        self._ear = None
        self._meet(None)
        self._cancel_restart()
        if self.talk.link is not None:
            self.talk.link.close()
            self.talk.link = None
