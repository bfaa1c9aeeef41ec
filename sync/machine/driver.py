"""The shell around sync/machine/state.py: one session's timers, its waiters, and the running attempt, of which there
is at most one."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import structlog

from sync.errors import SyncFailed, SyncRefused
from sync.machine.state import (
    Begin,
    Effect,
    Event,
    Fail,
    Refuse,
    RememberFailure,
    Resolve,
    State,
    Stop,
    SyncLimits,
    SyncState,
    TellRecovered,
    Transition,
)

log = structlog.stdlib.get_logger()

REMIND_SECONDS = 60.0
ENDED = "the session's sync has ended"

Push = Callable[[Callable[[], None]], Awaitable[int]]
Drive = Callable[[Coroutine[Any, Any, None]], object]


@dataclass(frozen=True, slots=True)
class SyncView:
    """The state of a session's sync, for its owner to store and to show."""

    state: State  # never `resting`
    generation: int  # the newest one stored; 0: none
    last_success: float | None  # seconds since 1970 of the last round that succeeded
    last_error: str | None  # of the last failed attempt, until one succeeds
    failing: bool  # a round gave up, and none has succeeded since: the owner remembers it beyond a restart
    dirty: bool  # there are requests whose changes are not stored yet
    attempt: int  # of the running round, or of one that gave up; 0: neither
    recovered: bool = False  # set in one view only, when a success follows a failure


@dataclass(frozen=True, slots=True)
class _Outcome:
    event: Event
    generation: int = 0
    reason: str = ""


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


class SyncDriver:
    """Syncs one session's workspace on request, as sync/machine/state.py decides.

    `drive` gets work that must run in its own task until all requests are stored, or the task is cancelled. It gets
    one piece of work at a time, and none while there is nothing to do: most sessions are idle.

    `push(uploaded)` makes one attempt: it scans and uploads, calls `uploaded` when it begins to commit, and returns
    the generation, the same as before if nothing has changed. It must not look at the disk before it is called. It
    raises SyncFailed; any other exception is a bug: it is logged as one, and counts as a failed attempt. It may be
    cancelled at any await.

    `told` is called with every change of `view`, in the order of the changes. `moved` is called with every
    transition, before `told`, also for transitions in quick succession. Neither may raise; an exception of theirs is
    logged. Requests are numbers, not a queue. Waiters are bounded by `limits.waiters`; one more is refused.
    """

    __slots__ = (
        "_attempt",
        "_bell",
        "_drive",
        "_driven",
        "_ended",
        "_ending",
        "_last_success",
        "_last_view",
        "_limits",
        "_lull",
        "_moved",
        "_now",
        "_owed",
        "_push",
        "_state",
        "_told",
        "_utcnow",
        "_waiters",
        "_warned_at",
    )

    def __init__(
        self,
        push: Push,
        limits: SyncLimits,
        *,
        rng: Random,
        utcnow: Callable[[], float],
        told: Callable[[SyncView], None],
        drive: Drive,
        moved: Callable[[Transition], None] = lambda transition: None,
        now: Callable[[], float] = _loop_time,
    ) -> None:
        self._push = push
        self._limits = limits
        self._utcnow = utcnow
        self._now = now
        self._told = told
        self._drive = drive
        self._moved = moved
        self._state = SyncState(limits, rng)
        self._last_success: float | None = None
        self._waiters: dict[int, asyncio.Future[Resolve | Fail | None]] = {}  # by ticket, in order
        self._owed = False  # an attempt should begin
        self._attempt: asyncio.Task[_Outcome] | None = None  # the running one, unless it was stopped
        self._driven = False  # `_run` has a task
        self._bell: asyncio.Future[None] | None = None  # `_run` waits for its deadline, or for a change
        self._lull: asyncio.Event | None = None  # a caller waits until no attempt runs or is about to begin
        self._ending = self._ended = False
        self._warned_at: float | None = None
        self._last_view = self.view

    @property
    def view(self) -> SyncView:
        state = self._state
        return SyncView(
            state=state.state.shown,
            generation=state.generation,
            last_success=self._last_success,
            last_error=state.last_error,
            failing=state.failing,
            dirty=state.dirty,
            attempt=state.attempt,
        )

    def restored(self, generation: int, *, failed: str | None, last_success: float | None = None) -> None:
        """The disk is proven to hold what it should, and may be synced from now on. `failed` and `last_success` come
        from the last stored view (`last_error` if it was `failing`): such a failure is retried."""
        if last_success is not None:
            self._last_success = last_success
        self._on(Event.RESTORED, generation=generation, reason=failed or "")

    @property
    def proven(self) -> bool:
        """Whether the disk is proven to hold what it should."""
        return self._state.state is not State.UNRESTORED

    def request(self) -> None:
        """Sync soon. In `unrestored`: after the restore."""
        if not self._state.asked_again(self._now()):  # `_run` checks the deadline when the earlier one has passed
            self._on(Event.REQUEST)

    async def flush(self) -> int:
        """Sync now; return the generation that holds everything that was on the disk at the call. A cancelled caller
        only stops waiting; the round goes on. Raises SyncFailed once a round begun since gave up, and SyncRefused if
        the workspace is not restored, too many wait, or it has ended."""
        if self._ended:
            raise SyncRefused(ENDED)
        if len(self._waiters) >= self._limits.waiters:
            raise SyncRefused(f"{self._limits.waiters} others wait for a sync of this session already")
        effects = self._state.on(Event.FORCE, now=self._now())
        if Refuse() in effects:
            raise SyncRefused("the workspace is not restored: nothing of it may be synced")
        ticket = self._state.asked  # it must wait before `told` runs, which might end everything
        waiter = self._waiters[ticket] = asyncio.get_running_loop().create_future()
        self._perform(effects)
        try:
            answer = await waiter
        finally:
            self._waiters.pop(ticket, None)
        match answer:
            case Resolve(generation=generation):
                return generation
            case Fail(reason=reason, permanent=permanent):
                raise SyncFailed(reason, permanent=permanent)
        raise SyncRefused(ENDED)

    async def lull(self) -> None:
        """Wait until no attempt runs. The next may begin at any time."""
        if self._busy:
            self._lull = self._lull or asyncio.Event()
            await self._lull.wait()

    @property
    def _busy(self) -> bool:
        return self._state.state in (State.SYNCING, State.FLUSHING)

    def lost(self) -> None:
        """The sandbox has ended: nothing is pushed until `restored`, and waiters get an error."""
        self._on(Event.LOST)

    def end(self) -> None:
        """Push nothing more; waiters get an error."""
        self._ending = True
        if self._state.state is not State.UNRESTORED:
            self.lost()
        self._ring()
        if not self._driven:
            self._over()

    async def _run(self) -> None:
        """Work until there is nothing to do. If this is cancelled, a running attempt is cancelled with it and ends
        first; the remaining waiters are refused."""
        try:
            while await self._is_owed():
                await self._make_attempt()
        except BaseException:
            self._ending = True
            raise
        finally:
            self._driven = False
            if self._ending:
                self._over()

    def _over(self) -> None:
        self._ended = True
        self._answer(self._state.asked, None)

    async def _is_owed(self) -> bool:
        """Whether an attempt should begin, now or at the deadline; False if there is nothing to wait for."""
        while not self._ending:
            deadline = self._state.deadline
            if self._owed or deadline is None:
                return self._owed
            if deadline <= self._now():
                self._on(Event.DUE)
                continue
            self._bell = asyncio.get_running_loop().create_future()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._bell
            self._bell = None
        return False

    def _ring(self) -> None:
        """Wake `_run`: something has changed."""
        if self._bell is not None and not self._bell.done():
            self._bell.set_result(None)
        elif not self._driven and not self._ending and (self._owed or self._state.deadline is not None):
            self._driven = True
            self._drive(self._run())

    async def _make_attempt(self) -> None:
        self._owed = False
        async with asyncio.TaskGroup() as group:  # also waits for the end of a stopped one
            attempt = self._attempt = group.create_task(self._pushed(), name="sync-attempt")
        if self._attempt is not attempt:
            return
        self._attempt = None
        outcome = _Outcome(Event.FAILED_ONCE, reason="cancelled") if attempt.cancelled() else attempt.result()
        self._on(outcome.event, generation=outcome.generation, reason=outcome.reason)

    async def _pushed(self) -> _Outcome:
        attempt = asyncio.current_task()

        def uploaded() -> None:
            if self._attempt is attempt:
                self._on(Event.UPLOADED)

        try:
            return _Outcome(Event.COMMITTED, generation=await self._push(uploaded))
        except SyncFailed as failure:
            event = Event.FAILED_FOR_GOOD if failure.permanent else Event.FAILED_ONCE
            return _Outcome(event, reason=failure.reason or repr(failure))
        except Exception as error:
            log.exception("sync.push_crashed")
            told = f"unexpected error ({type(error).__name__}): see sync.push_crashed in the gateway's log"
            return _Outcome(Event.FAILED_ONCE, reason=told)

    def _on(self, event: Event, *, generation: int = 0, reason: str = "") -> None:
        self._perform(self._state.on(event, now=self._now(), generation=generation, reason=reason))

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Begin():
                    self._owed = True
                case Stop():
                    self._owed = False
                    if self._attempt is not None:
                        self._attempt.cancel()
                        self._attempt = None
                case Resolve(upto=upto):
                    self._last_success = self._utcnow()
                    self._answer(upto, effect)
                case Fail(upto=upto):
                    self._answer(upto, effect)
                case RememberFailure(reason):
                    self._warn(reason)
                case TellRecovered():
                    self._warned_at = None
                    log.info("sync.recovered", generation=self._state.generation)
        self._ring()  # there may be an attempt to begin, or another deadline
        if self._lull is not None and not self._busy:
            self._lull.set()
            self._lull = None
        self._tell(recovered=TellRecovered() in effects)

    def _answer(self, upto: int, answer: Resolve | Fail | None) -> None:
        for ticket in [ticket for ticket in self._waiters if ticket <= upto]:
            waiter = self._waiters.pop(ticket)
            if not waiter.done():  # cancelled, and not yet removed
                waiter.set_result(answer)

    def _warn(self, reason: str) -> None:
        now = self._now()
        if self._warned_at is None or now - self._warned_at >= REMIND_SECONDS:
            self._warned_at = now
            log.warning("sync.failed", attempt=self._state.attempt, cause=reason)

    def _tell(self, *, recovered: bool) -> None:
        moves, self._state.moves = self._state.moves, ()
        view = self.view
        changed = view != self._last_view or recovered
        self._last_view = view
        try:
            for transition in moves:
                self._moved(transition)
            if changed:
                self._told(replace(view, recovered=recovered))
        except Exception:  # the owner's mistake must not stop the sync
            log.exception("sync.told_failed")
