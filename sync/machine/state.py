"""When a workspace is synced, and who gets which answer: the core of the sync driver. Pure.

A *round* turns the tree on the disk into a stored generation. It consists of a few *attempts*; the last one may
succeed. An attempt scans and uploads what is missing, then commits. There is one attempt at a time.

    unrestored  the gate: the disk is not proven to hold what is stored. Nothing is pushed, whatever anybody asks.
    idle        everything that was asked for is kept.
    pending     a request came, and more may come: wait until `debounce` seconds after the last request, but no longer
                than `max_wait` seconds after the first.
    syncing     an attempt scans and uploads.
    resting     an attempt failed, and the next one of its round waits. Shown as `syncing`.
    flushing    an attempt commits.
    failed      a round gave up, after `attempts` attempts, or after one that was sure to fail again. It is tried again
                in the background, one attempt at a time, with backoff up to a cap. A request shortens that pause; a
                force begins a whole new round.

A *request* may wait. A *force* may not: it skips the debounce, the rest between attempts, and the wait in the
background. Both mean "keep what is on the disk now". One that comes during an attempt needs another attempt, because
this one may have read that part of the disk already. It is put again when the attempt is over: a force at once, a
request when its own debounce is over, which has been running meanwhile. If the attempt failed, the next one serves it.

Each ask has a number, the *ticket* of whoever waits for it. `asked` is the last number, `scanned` what it was when the
newest attempt began, `synced` what `scanned` was in the last attempt that succeeded. So

    synced <= scanned <= asked,    a ticket is answered when `synced` has come to it,    dirty means synced < asked,

and no waiter gets a generation whose scan began before they asked. The attempt counts, not its round: each attempt
scans again, so the second one answers a waiter who asked during the first. When a round gives up, it fails the waiters
who asked before its last attempt began, with the reason. It does not fail those who asked during that attempt: nothing
that began after them has failed. Their force is put again and begins a new round at once.

A failure is remembered until a round succeeds, also beyond the end of the sandbox and of the process (the owner stores
it); then one recovery is reported. A sandbox that ends takes its round and its waiters along, but not the dirt: what
was asked for and not kept is asked for again when the workspace is restored.

What never happens: two attempts at once; an attempt in `unrestored`; a commit that answers a later ask; an ask that
is forgotten; an event in a state where it makes no sense (that is a bug, and raises).
"""

from dataclasses import dataclass
from enum import StrEnum
from random import Random

from sync import backoff

LOST_REASON = "the sandbox ended before it was synced"


class State(StrEnum):
    UNRESTORED = "unrestored"
    IDLE = "idle"
    PENDING = "pending"
    SYNCING = "syncing"
    RESTING = "resting"
    FLUSHING = "flushing"
    FAILED = "failed"

    @property
    def shown(self) -> "State":
        """The word for people, who need not know that an attempt waits."""
        return State.SYNCING if self is State.RESTING else self


class Event(StrEnum):
    RESTORED = "restored"  # the disk holds what it should: `generation`, and `reason` if the last known round gave up
    REQUEST = "request"
    FORCE = "force"
    DUE = "due"  # the deadline has passed
    UPLOADED = "uploaded"  # the attempt begins to commit
    COMMITTED = "committed"  # the attempt succeeded: `generation`, the same as before if nothing had changed
    FAILED_ONCE = "failed_once"  # the attempt failed: `reason`. The last of a round counts as FAILED_FOR_GOOD
    FAILED_FOR_GOOD = "failed_for_good"  # the attempt failed, and the next would too: `reason`
    LOST = "lost"  # the sandbox ended


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin an attempt. It may not have looked at the disk before."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Cancel the attempt, whether it runs or is about to begin. Its events no longer count."""


@dataclass(frozen=True, slots=True)
class Resolve:
    """Answer the waiters with tickets up to `upto`: `generation`."""

    upto: int
    generation: int


@dataclass(frozen=True, slots=True)
class Fail:
    """Fail the waiters with tickets up to `upto`."""

    upto: int
    reason: str
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class RememberFailure:
    """Store that syncing fails, for after a restart."""

    reason: str


@dataclass(frozen=True, slots=True)
class TellRecovered:
    """The remembered failure is over."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Refuse the force: the workspace is not restored."""


Effect = Begin | Stop | Resolve | Fail | RememberFailure | TellRecovered | Refuse


@dataclass(frozen=True, slots=True)
class Transition:
    """The result of a move, for people who want to see what a sync does."""

    state: State  # never `resting`
    generation: int
    attempt: int  # of the running round, or of one that gave up; 0: neither
    reason: str | None  # why the last attempt failed, until one succeeds


class Step(StrEnum):
    """What a transition does, and so which effects it has."""

    NOTHING = "nothing"
    REFUSE = "refuse"  # Refuse
    BEGIN = "begin"  # Begin
    SUCCEED = "succeed"  # Resolve; TellRecovered after a failure
    REST = "rest"
    GIVE_UP = "give_up"  # Fail, RememberFailure
    ABANDON = "abandon"  # Stop, Fail
    CLOSE = "close"  # Fail


# One line, one transition. Others are impossible.
TABLE: dict[tuple[State, Event], tuple[State, Step]] = {
    (State.UNRESTORED, Event.RESTORED): (State.IDLE, Step.NOTHING),
    (State.UNRESTORED, Event.REQUEST): (State.UNRESTORED, Step.NOTHING),
    (State.UNRESTORED, Event.FORCE): (State.UNRESTORED, Step.REFUSE),
    (State.UNRESTORED, Event.LOST): (State.UNRESTORED, Step.NOTHING),
    #
    (State.IDLE, Event.REQUEST): (State.PENDING, Step.NOTHING),
    (State.IDLE, Event.FORCE): (State.SYNCING, Step.BEGIN),
    (State.IDLE, Event.LOST): (State.UNRESTORED, Step.NOTHING),
    #
    (State.PENDING, Event.REQUEST): (State.PENDING, Step.NOTHING),
    (State.PENDING, Event.FORCE): (State.SYNCING, Step.BEGIN),
    (State.PENDING, Event.DUE): (State.SYNCING, Step.BEGIN),
    (State.PENDING, Event.LOST): (State.UNRESTORED, Step.CLOSE),
    #
    (State.SYNCING, Event.REQUEST): (State.SYNCING, Step.NOTHING),
    (State.SYNCING, Event.FORCE): (State.SYNCING, Step.NOTHING),
    (State.SYNCING, Event.UPLOADED): (State.FLUSHING, Step.NOTHING),
    (State.SYNCING, Event.COMMITTED): (State.IDLE, Step.SUCCEED),  # nothing had changed: no commit was needed
    (State.SYNCING, Event.FAILED_ONCE): (State.RESTING, Step.REST),
    (State.SYNCING, Event.FAILED_FOR_GOOD): (State.FAILED, Step.GIVE_UP),
    (State.SYNCING, Event.LOST): (State.UNRESTORED, Step.ABANDON),
    #
    (State.RESTING, Event.REQUEST): (State.RESTING, Step.NOTHING),
    (State.RESTING, Event.FORCE): (State.SYNCING, Step.BEGIN),
    (State.RESTING, Event.DUE): (State.SYNCING, Step.BEGIN),
    (State.RESTING, Event.LOST): (State.UNRESTORED, Step.CLOSE),
    #
    (State.FLUSHING, Event.REQUEST): (State.FLUSHING, Step.NOTHING),
    (State.FLUSHING, Event.FORCE): (State.FLUSHING, Step.NOTHING),
    (State.FLUSHING, Event.COMMITTED): (State.IDLE, Step.SUCCEED),
    (State.FLUSHING, Event.FAILED_ONCE): (State.RESTING, Step.REST),
    (State.FLUSHING, Event.FAILED_FOR_GOOD): (State.FAILED, Step.GIVE_UP),
    (State.FLUSHING, Event.LOST): (State.UNRESTORED, Step.ABANDON),
    #
    (State.FAILED, Event.REQUEST): (State.FAILED, Step.NOTHING),  # shown until a round proves otherwise
    (State.FAILED, Event.FORCE): (State.SYNCING, Step.BEGIN),
    (State.FAILED, Event.DUE): (State.SYNCING, Step.BEGIN),
    (State.FAILED, Event.LOST): (State.UNRESTORED, Step.CLOSE),
}


class Impossible(Exception):
    """An event that cannot happen in this state: a bug of the caller."""


@dataclass(frozen=True, slots=True)
class SyncLimits:
    """When to sync, and how often to try. Times in seconds."""

    debounce: float = 2.0
    max_wait: float = 10.0
    attempts: int = 3
    attempt_base: float = 1.0  # between the attempts of a round
    attempt_cap: float = 30.0
    retry_base: float = 5.0  # in the background, after a round that gave up
    retry_cap: float = 300.0
    waiters: int = 1_000  # callers that may wait at once; one more is refused


class SyncState:
    """The state of one session's sync. Begins in `unrestored`."""

    __slots__ = (
        "_again_at",
        "_attempts",
        "_failures",
        "_forced",
        "_limits",
        "_permanent",
        "_rng",
        "_series",
        "asked",
        "attempt",
        "failing",
        "generation",
        "last_error",
        "moves",
        "scanned",
        "state",
        "synced",
    )

    def __init__(self, limits: SyncLimits, rng: Random) -> None:
        self._limits = limits
        self._rng = rng
        self.state = State.UNRESTORED
        self.generation = 0
        self.asked = self.scanned = self.synced = 0
        self.attempt = 0  # of the running round, or of one that gave up
        self.last_error: str | None = None  # of the last failed attempt; None after a success
        self.failing = False  # a round gave up, and none has succeeded since
        self._attempts = 0  # that the running round may make
        self._permanent = False  # the last failure was sure to repeat
        self._failures = 0  # rounds that gave up, in a row
        self._series: tuple[float, float] | None = None  # the first and the last request since an attempt began
        self._forced = False  # a force came since an attempt began
        self._again_at = 0.0  # in `resting` and `failed`: when to try again
        self.moves: tuple[Transition, ...] = ()  # the moves that the last event caused, in order

    @property
    def dirty(self) -> bool:
        """There are requests that are not stored yet."""
        return self.synced < self.asked

    @property
    def deadline(self) -> float | None:
        """When the driver sends DUE; None if nothing waits for time."""
        if self.state is State.RESTING:
            return self._again_at
        debounced = None
        if self._series is not None:
            first, last = self._series
            debounced = min(last + self._limits.debounce, first + self._limits.max_wait)
        if self.state is State.FAILED:
            return self._again_at if debounced is None else min(self._again_at, debounced)
        return debounced if self.state is State.PENDING else None

    def asked_again(self, now: float) -> bool:
        """Like a REQUEST that only moves the deadline to a later time, because another request is waiting already.
        False: this request does more, and nothing was noted."""
        if self.state is not State.PENDING or self._series is None or self.synced >= self.asked:
            return False
        self.asked += 1
        self._series = (self._series[0], now)
        return True

    def on(self, event: Event, *, now: float, generation: int = 0, reason: str = "") -> tuple[Effect, ...]:
        """Apply `event`; return the effects that the caller now owes, in order. After a FORCE that was not refused,
        `asked` is the ticket to wait with. Raises Impossible; then nothing has changed."""
        if (self.state, event) not in TABLE:
            raise Impossible(f"{event} in {self.state}")
        self.moves = ()
        effects = self._move(self._hear(event, now, generation, reason), now, reason)
        # Repeat requests that came during an attempt that is now over.
        if self._forced and self.state in (State.IDLE, State.RESTING, State.FAILED):
            effects += self._move(Event.FORCE, now, reason)
        elif self._series is not None and self.state is State.IDLE:
            effects += self._move(Event.REQUEST, now, reason)
        return tuple(effects)

    def _hear(self, event: Event, now: float, generation: int, reason: str) -> Event:
        """Note the event's facts, whatever it leads to; return the event that it amounts to."""
        if event is Event.REQUEST:
            self.asked += 1
            self._series = (now if self._series is None else self._series[0], now)
        elif event is Event.FORCE and self.state is not State.UNRESTORED:
            self.asked += 1
            self._forced = True
        elif event is Event.RESTORED:
            self.generation = generation
            if reason:
                self.failing, self.last_error = True, reason
                self.asked += not self.dirty
            if self.dirty:  # requests of the sandbox before that were not stored are made again
                self._series = (now, now)
        elif event in (Event.FAILED_ONCE, Event.FAILED_FOR_GOOD):
            self.last_error = reason
            self._permanent = event is Event.FAILED_FOR_GOOD
            if self.attempt >= self._attempts:
                return Event.FAILED_FOR_GOOD
        elif event is Event.COMMITTED:
            self.generation = generation
        return event

    def _move(self, event: Event, now: float, reason: str) -> list[Effect]:
        before = self.state
        self.state, step = TABLE[before, event]
        effects = self._step(step, before, now, reason)
        if self.state is not before:
            self.moves += (Transition(self.state.shown, self.generation, self.attempt, self.last_error),)
        return effects

    def _step(self, step: Step, before: State, now: float, reason: str) -> list[Effect]:
        match step:
            case Step.REFUSE:
                return [Refuse()]
            case Step.BEGIN:
                return self._begin(before)
            case Step.SUCCEED:
                return self._succeed()
            case Step.REST:
                pause = backoff.delay(
                    self.attempt - 1, base=self._limits.attempt_base, cap=self._limits.attempt_cap, rng=self._rng
                )
                self._again_at = now + pause
            case Step.GIVE_UP:
                return self._give_up(now, reason)
            case Step.ABANDON:
                return [Stop(), *self._close()]
            case Step.CLOSE:
                return self._close()
        return []

    def _begin(self, before: State) -> list[Effect]:
        if before is State.RESTING:
            self.attempt += 1
        else:
            self.attempt = 1
            self._attempts = 1 if before is State.FAILED and not self._forced else self._limits.attempts
        self.scanned = self.asked
        self._series, self._forced = None, False
        return [Begin(self.attempt)]

    def _succeed(self) -> list[Effect]:
        recovered: list[Effect] = [TellRecovered()] if self.failing else []
        self.synced = self.scanned
        self.attempt = self._failures = 0
        self.last_error, self.failing = None, False
        return [Resolve(self.synced, self.generation), *recovered]

    def _give_up(self, now: float, reason: str) -> list[Effect]:
        pause = backoff.delay(self._failures, base=self._limits.retry_base, cap=self._limits.retry_cap, rng=self._rng)
        self._again_at = now + pause
        self._failures += 1
        self.failing = True
        return [Fail(self.scanned, reason, self._permanent), RememberFailure(reason)]

    def _close(self) -> list[Effect]:
        self.attempt = 0
        self._series, self._forced = None, False
        return [Fail(self.asked, LOST_REASON)]
