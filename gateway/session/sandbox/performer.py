"""Performs the effects of a session's life: those that take time beside the session's task, the others at once.

At most one awaited effect is under way: a task, a timer or a turn, known by its number and given up by `Cancel`. Its
result is posted to the session's inbox as an event.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import structlog

from gateway.limits.start_turns import Waiting
from gateway.protocol import chat_frames
from gateway.session.asks import Asks
from gateway.session.model.ports import Host, Publisher
from gateway.session.sandbox.life_journal import LifeJournal
from gateway.session.sandbox.lifecycle import effects as do
from gateway.session.sandbox.lifecycle import events as on_
from gateway.session.sandbox.lifecycle.life import OVER, Life, LifeStage
from gateway.session.sandbox.link_owner import LifeEvents, LinkOwner
from gateway.session.sandbox.requests import RAISED, api_error
from gateway.session.sandbox.sandbox_work import SandboxWork
from gateway.session.sandbox.start_turn import StartTurn
from gateway.session.workspace.workspace import Workspace

log = structlog.get_logger()


def queued_frame(waiting: Waiting) -> bytes:
    members = {name: value for name, value in waiting.members().items() if value is not None}
    return chat_frames.dump("session_status", status="queued", **members)


class Cancellable(Protocol):
    def cancel(self) -> object: ...


class Beside:
    """Work beside the session's task that may be given up, also before it has begun."""

    __slots__ = ("_given_up", "_task", "_work")

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._task: asyncio.Task[Any] | None = None
        self._given_up = False

    async def run(self) -> None:
        if not self._given_up:
            self._task = asyncio.current_task()
            await self._work()

    def cancel(self) -> None:
        self._given_up = True
        if self._task is not None:
            self._task.cancel()


class LifePerformer:
    __slots__ = (
        "_asks",
        "_core",
        "_host",
        "_journal",
        "_life",
        "_link",
        "_publisher",
        "_session_id",
        "_trouble",
        "_turn",
        "_under_way",
        "_work",
        "_workspace",
    )

    def __init__(
        self,
        host: Host,
        core: Life,
        session_id: str,
        publisher: Publisher,
        workspace: Workspace,
        link: LinkOwner,
        work: SandboxWork,
        journal: LifeJournal,
        asks: Asks,
        life: LifeEvents,
    ) -> None:
        self._host = host
        self._core = core  # decides; only read here
        self._session_id = session_id
        self._publisher = publisher
        self._workspace = workspace
        self._link = link
        self._work = work
        self._journal = journal
        self._asks = asks
        self._life = life
        # By number: the effect that is awaited, and a restart. Most often there is none: an empty dict takes memory.
        self._under_way: dict[int, Cancellable] | None = None
        self._turn: StartTurn | None = None
        self._trouble: Exception | None = None  # the unexpected error of a failed start

    def answered(self, event: on_.Event) -> Exception | None:
        """The effect is not under way any more. Return the error with which it failed, for the waiting request."""
        if isinstance(event, on_.RestartDue):
            self._end(event.number)
        if not isinstance(event, on_.EffectReply):
            return None
        if not isinstance(event, on_.TurnGiven | on_.Underway):  # the turn's task goes on while it is held
            self._end(event.number)
        cause = self._work.cause_of(event.number)
        if isinstance(event, on_.StartFailed) and event.bug:
            self._trouble = cause
        return cause

    def perform(self, effect: do.Effect, cause: Exception | None) -> None:
        match effect:
            case do.Asked():
                self._begin(effect)
            case do.Cancel(number):
                self._cancel(number)
            case do.EndTurn(number):
                self._end(number)
                if self._turn is not None and self._turn.number == number:
                    self._turn.end()
                    self._turn = None
            case do.ScheduleRestart(number, seconds):
                self._call_later(number, seconds, on_.RestartDue(number))
            case do.DropLink() if self._core.stage in OVER:
                self._link.let_go()
            case do.DropLink() | do.HearHello() | do.StartAgent() | do.TellAgentToStop():
                self._link.perform(effect)
            case do.TellConnection() if self._core.stage in OVER:
                pass  # viewers are told to come back
            case (
                do.Save()
                | do.ForgetUnsure()
                | do.EndEpoch()
                | do.DiscardWindow()
                | do.TellError()
                | do.TellConnection()
            ):
                self._journal.perform(effect)
            case do.Answer(ask):
                self._asks.answer(ask)
            case do.RefuseAsk(ask, code, text):
                self._journal.refused(code)
                raised = self._trouble if code == "start_failed" else cause if code in RAISED else None
                self._asks.refuse(ask, raised or api_error(code, text))
            case _:
                self._sync(effect)

    def _begin(self, effect: do.Asked) -> None:
        match effect:
            case do.AskTurn():
                self._ask_turn(effect)
            case do.Connect():
                self._beside(effect, lambda: self._dial(effect))
            case do.Schedule(number, seconds):
                self._call_later(number, seconds, on_.Due(number))
            case _:
                self._beside(effect, lambda: self._reply(effect))

    def _ask_turn(self, effect: do.AskTurn) -> None:
        host, name = self._host, self._session_id
        self._turn = turn = StartTurn(effect, host.turns, name, host.user_id, lambda: self._core.placed)
        if not effect.visit and not self._core.placed:
            host.turns.expect(name, host.user_id)

        def given() -> None:
            host.post(self._life.on, on_.TurnGiven(effect.number))

        self._beside(effect, lambda: turn.run(given, self._told_to_wait))

    def _beside(self, effect: do.Asked, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._note(effect.number, beside := Beside(work))
        self._host.spawn(beside.run(), f"{type(effect).__name__} {self._session_id}")

    def _call_later(self, number: int, seconds: float, event: on_.Event) -> None:
        self._note(number, self._host.call_at(self._host.now() + seconds, self._life.on, event))

    def _note(self, number: int, under_way: Cancellable) -> None:
        self._under_way = {**(self._under_way or {}), number: under_way}

    def _end(self, number: int) -> Cancellable | None:
        """The effect is not under way any more. Return it."""
        under_way, rest = None, self._under_way
        if rest is not None:
            under_way = rest.pop(number, None)
            self._under_way = rest or None
        return under_way

    async def _dial(self, effect: do.Connect) -> None:
        reply = await self._work.dial(effect)
        if isinstance(reply, on_.EffectReply):
            self._host.post(self._life.on, reply)
        else:
            self._host.post(self._link.dialled, effect.number, *reply)

    async def _reply(self, effect: do.Asked) -> None:
        self._host.post(self._life.on, await self._work.perform(effect))

    def _cancel(self, number: int) -> None:
        if (under_way := self._end(number)) is not None:
            under_way.cancel()
        self._link.give_back(number)
        if self._turn is not None and self._turn.number == number:
            self._turn = None
            self._host.turns.forget(self._session_id)

    def _told_to_wait(self, waiting: Waiting) -> None:
        self._host.post(self._publisher.tell, queued_frame(waiting))

    def _sync(self, effect: do.Effect) -> None:
        workspace = self._workspace
        match effect:
            case do.CutSync():
                workspace.cut()
                if self._core.stage is LifeStage.KEEPING:
                    self._host.spawn(self._look_after(self._core.awaited), f"look after {self._session_id}")
            case do.EndSync():
                workspace.lost()
            case do.PauseSync():
                workspace.rest()
            case do.MarkProven():
                workspace.found()
            case do.Thaw():
                self._journal.forget_kept()
                workspace.thaw()
            case do.Flush(flush):
                self._host.spawn(self._flush(effect, self._core.flushes[flush].ask), f"keep {self._session_id}")

    async def _look_after(self, keep: int) -> None:
        """A sync need not wait for a sandbox that is gone: end it then."""
        if await self._work.look_after() and self._core.awaited == keep:
            self._workspace.lost()

    async def _flush(self, effect: do.Flush, ask: int) -> None:
        replaced = self._asks.note(ask)
        outcome = await self._work.flush(effect, self._workspace.replaced if replaced is None else replaced)
        if isinstance(outcome, on_.NotFlushed) and not ask:
            log.warning("sync.not_kept", session_id=self._session_id, cause=outcome.reason)
        self._host.post(self._life.on, outcome)
