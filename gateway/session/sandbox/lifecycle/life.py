"""The state of one session's life, and the moves that several steps share. Pure.

The steps in the modules beside this one change a `Life` and add to its `effects`; table.py says which step follows
which event.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from gateway.session.model.state import SessionStatus
from gateway.session.sandbox.lifecycle import effects as do
from gateway.session.sandbox.lifecycle.events import LifeCommand, PutBack, SyncNow
from gateway.session.sandbox.restart_policy import RestartPolicy

ASLEEP = (SessionStatus.SLEEPING, SessionStatus.PAUSED, SessionStatus.ARCHIVED, SessionStatus.NEEDS_ENV)
FAILED = (SessionStatus.ERROR, SessionStatus.UNRESTORED)  # the failed operation may be tried again
STARTABLE = (SessionStatus.SLEEPING, *FAILED)
UNAVAILABLE = "nothing was done: {}. Try again in a moment"
LINE = 100  # commands that may wait; one more is refused


class LifeStage(StrEnum):
    """The operation that is under way."""

    REST = "rest"  # none, and no sandbox runs as far as is known
    UP = "up"  # none, and there is a link
    # start
    QUEUED = "queued"
    LOOKING = "looking"
    STARTING = "starting"
    FETCHING = "fetching"  # the same start, while its image is being fetched
    PREPARING = "preparing"
    RELEASING = "releasing"
    CONNECTING = "connecting"
    # find
    FIND_QUEUED = "find_queued"
    ASKING = "asking"
    LINKING = "linking"
    GREETING = "greeting"
    SURVEYING = "surveying"
    FIND_LATER = "find_later"
    # stop
    LULLING = "lulling"
    ENDING = "ending"
    KEEPING = "keeping"
    STOPPING = "stopping"
    # delete, after the stop
    ARCHIVING = "archiving"
    DESTROYING = "destroying"
    # visit: store the files that a dead sandbox left
    VISIT_QUEUED = "visit_queued"
    VISIT_LOOKING = "visit_looking"
    VISIT_STARTING = "visit_starting"
    VISIT_PREPARING = "visit_preparing"
    VISIT_KEEPING = "visit_keeping"
    VISIT_STOPPING = "visit_stopping"
    CONFIRMING = "confirming"
    PUTTING_BACK = "putting_back"
    # clear: make sure that a sandbox declared dead is dead
    CLEARING = "clearing"
    CLEAR_LATER = "clear_later"
    # no more
    LEFT = "left"
    ENDED = "ended"


_START = ("queued", "looking", "starting", "fetching", "preparing", "releasing", "connecting")
_FIND = ("find_queued", "asking", "linking", "greeting", "surveying", "find_later")
OVER = (LifeStage.LEFT, LifeStage.ENDED)
RISING = tuple(LifeStage(stage) for stage in (*_START, *_FIND, "clearing", "clear_later"))
UNPLACED = tuple(LifeStage(stage) for stage in ("rest", "queued", "confirming", "putting_back", "left", "ended"))


class AgentPhase(StrEnum):
    NONE = "none"
    STARTING = "starting"
    ALIVE = "alive"


class After(StrEnum):
    """Why a sandbox is cleared away. It decides the next step."""

    FAILED = "failed"  # its start failed
    UNWRITTEN = "unwritten"  # the store did not answer: its agent was not released
    UNANSWERED = "unanswered"  # the provider did not confirm its start: it is started again
    DIED = "died"  # it ended, or does not answer any more: it is started again
    GONE = "gone"  # the same, of an earlier gateway: it is started again if it is wanted
    HELD = "held"  # the gateway that was to release its agent is gone
    VISITED = "visited"  # a visit is over
    GIVEN_UP = "given_up"  # stopped before its image was there
    LEFTOVER = "leftover"  # an earlier gateway died while it stopped it


@dataclass(frozen=True, slots=True)
class LifeLimits:
    crashes: int = 5
    crash_window: float = 300.0
    link_attempts: int = 5
    stop_seconds: float = 10.0


@dataclass(slots=True)
class Life:
    """All mutable state. Begins in `rest`."""

    limits: LifeLimits
    rng: Random
    # stored
    status: SessionStatus = SessionStatus.SLEEPING
    reason: str = ""
    incarnation: int = 0
    clean: bool = False
    overfull: bool = False
    has_workspace: bool = False
    # the operation under way
    stage: LifeStage = LifeStage.REST
    awaited: int = 0  # the number of the effect whose answer counts
    number: int = 0  # the last one given
    turn: int = 0  # the turn that is held; 0: none
    asks: tuple[int, ...] = ()  # the requests that wait for this operation
    line: list[LifeCommand] = field(default_factory=list)  # commands that wait behind it; at most LINE
    flushes: dict[int, SyncNow] = field(default_factory=dict)  # syncs beside other operations, by number; at most LINE
    # start and visit
    empty: bool = False
    keep: bool = False
    by_name: bool = False
    put_back: PutBack | None = None  # follows the visit
    trouble: tuple[str, str] | None = None  # code and text with which the waiting requests are refused at the end
    # stop and clear
    to: SessionStatus = SessionStatus.SLEEPING
    why: str = ""
    after: After = After.FAILED
    was_up: bool = False
    by_idle: bool = False
    reviving: bool = False
    # the link
    link: int = 0
    greeted: bool = False
    agent: AgentPhase = AgentPhase.NONE
    closing: bool = False  # the agent was asked to end, and the sandbox stays
    linked_at: float = 0.0
    flaps: int = 0  # links in a row that did not last
    loading: bool = False  # looking for a sandbox older than this gateway
    attempts: int = 0  # in a row without an answer
    # intent
    wanted: bool = False  # start an agent after the link's hello
    again: bool = False  # start the sandbox at the next rest
    restart: int = 0  # the number of the timer; 0: none
    rescues: int = 0
    rescue_at: float = 0.0
    told: str = ""
    effects: list[do.Effect] = field(default_factory=list)
    patience: RestartPolicy = field(init=False)

    def __post_init__(self) -> None:
        self.patience = RestartPolicy(self.limits.crashes, self.limits.crash_window)

    # -- for the other parts ------------------------------------------------------------------------------------------

    @property
    def unkept(self) -> bool:
        """True if the disk may hold changes that are not stored."""
        return self.incarnation > 0 and not self.clean

    @property
    def leaves_something(self) -> bool:
        return self.has_workspace or self.unkept

    @property
    def placed(self) -> bool:
        """True if its sandbox runs or is about to: it takes one of its user's places."""
        return self.stage not in UNPLACED and not self.stage.startswith("visit")

    @property
    def shown(self) -> SessionStatus:
        """The status to show: a sandbox about to be started is starting."""
        rising = self.stage is LifeStage.QUEUED and self.status is SessionStatus.SLEEPING
        return SessionStatus.STARTING if rising else self.status

    @property
    def up(self) -> bool:
        """True if there is a bridge to talk to: also if the session's agent was given up."""
        return self.status is SessionStatus.RUNNING or self.link != 0

    @property
    def coming_up(self) -> bool:
        """True if a sandbox is about to run: it starts, or another attempt is due."""
        queued = self.stage is LifeStage.QUEUED  # also of one that failed, and is shown so until its turn has come
        return self.shown is SessionStatus.STARTING or self.restart != 0 or queued

    @property
    def rising(self) -> bool:
        """True while the sandbox is being started or found again."""
        return self.stage in RISING

    @property
    def stopping(self) -> bool:
        """True while programs end because the sandbox is being stopped, or may not start because it is about to be."""
        if self.stage is LifeStage.LULLING:
            return not self.greeted
        return self.stage in (LifeStage.ENDING, LifeStage.KEEPING, LifeStage.STOPPING)

    @property
    def busy(self) -> bool:
        """True while an operation is under way."""
        return self.stage not in (LifeStage.REST, LifeStage.UP, *OVER)

    @property
    def connection(self) -> str:
        if self.agent is AgentPhase.ALIVE and self.link:
            return "connected"
        if self.stage in OVER:
            return "disconnected"
        if self.shown in ASLEEP:
            return "sleeping"
        rising = self.rising or self.restart or (self.link and not self.greeted)
        return "connecting" if rising or self.agent is AgentPhase.STARTING else "disconnected"

    # -- moves --------------------------------------------------------------------------------------------------------

    def next(self) -> int:
        self.number += 1
        return self.number

    def wait(self, stage: LifeStage, effect: do.Asked) -> None:
        """Begin `effect`, and wait for its answer."""
        self.stage, self.awaited = stage, effect.number
        self.effects.append(effect)

    def settle(self, stage: LifeStage) -> None:
        """End the operation: none is under way from here on."""
        self.stage, self.awaited = stage, 0
        self.end_turn()

    def save(self) -> None:
        self.effects.append(
            do.Save(self.status, self.reason, self.incarnation, self.clean, self.overfull, self.has_workspace)
        )

    def become(self, status: SessionStatus, reason: str = "") -> None:
        self.status, self.reason = status, reason
        self.save()

    def answer(self) -> None:
        """Answer the requests that waited for this operation."""
        self.effects += [do.Answer(ask) for ask in self.asks]
        self.asks = ()

    def refuse(self, code: str, text: str, asks: Iterable[int] | None = None) -> None:
        self.effects += [do.RefuseAsk(ask, code, text) for ask in (self.asks if asks is None else asks)]
        if asks is None:
            self.asks = ()

    def refuse_line(self, code: str, text: str) -> None:
        """Refuse the requests that wait for this operation, and those in the line."""
        self.refuse(code, text)
        self.refuse(code, text, [command.ask for command in self.line if command.ask])
        self.line.clear()

    def refuse_unavailable(self, reason: str) -> None:
        """The provider does not answer: refuse all waiting requests."""
        self.refuse_line("sandbox_unavailable", UNAVAILABLE.format(reason))

    def line_up(self, commands: Sequence[LifeCommand], *, first: bool = False) -> None:
        self.line[:] = [*commands, *self.line] if first else [*self.line, *commands]

    def end_turn(self) -> None:
        if self.turn:
            self.effects.append(do.EndTurn(self.turn))
            self.turn = 0

    def drop_link(self) -> None:
        if self.link:
            self.effects.append(do.DropLink(self.link))
        self.link, self.greeted, self.agent, self.closing = 0, False, AgentPhase.NONE, False
