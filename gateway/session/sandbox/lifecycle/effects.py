"""What a session's life asks of the world. Values alone.

Effects are performed in the order in which they are returned. An `Asked` one is answered once, by an `EffectReply` with
its number; at most one is awaited. `ScheduleRestart`, `Flush` and `HearHello` are answered by events of their own, and
nothing waits for those. The others are not answered.
"""

from dataclasses import dataclass

from gateway.session.model.state import SessionStatus


@dataclass(frozen=True, slots=True)
class Effect:
    pass


@dataclass(frozen=True, slots=True)
class Asked(Effect):
    number: int


@dataclass(frozen=True, slots=True)
class AskTurn(Asked):
    """TurnGiven. `runs`: the sandbox runs already and only has to be found. `visit`: it is not shown as one that
    starts."""

    runs: bool = False
    visit: bool = False


@dataclass(frozen=True, slots=True)
class LookForNewest(Asked):
    """Which generation is the newest: Looked, Unrestorable, StartFailed."""

    keep: bool = False


@dataclass(frozen=True, slots=True)
class StartHeld(Asked):
    """A sandbox with its agent held: SandboxStarted, StartFailed, Unavailable."""

    incarnation: int = 0
    empty: bool = False
    keep: bool = False
    visit: bool = False  # without the session's environment


@dataclass(frozen=True, slots=True)
class Prepare(Asked):
    """The disk is to hold what it should: Prepared, Unrestorable, StartFailed, Unavailable."""

    empty: bool = False
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Release(Asked):
    """Make it durable that the disk is ahead of the store, then let the agent go: AgentReleased, Unrestorable,
    StartFailed, Unavailable; only if `bounded` StoreSilent."""

    bounded: bool = False


class Connect(Asked):
    """Linked, DialRefused, Unavailable. The number is the link's from then on."""

    __slots__ = ()


class AskRuns(Asked):
    """Runs, DoesNotRun, Unavailable."""

    __slots__ = ()


class AskHeld(Asked):
    """Whether the agent is held still: LetGo, StillHeld, Unavailable; DialRefused if its bridge does not say."""

    __slots__ = ()


class Lull(Asked):
    """Wait for the sync that is under way: Lulled, NotKept."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Keep(Asked):
    """Freeze the programs unless it is a `visit`, then sync: WorkspaceKept, Overfull, NotKept, Unavailable; DoesNotRun
    if the sandbox has ended by itself."""

    visit: bool = False


class StopSandbox(Asked):
    """Stop the sandbox, if it runs: Stopped, NotStopped, Unavailable."""

    __slots__ = ()


class WriteArchived(Asked):
    """ArchivedWritten when it is durable that the session is archived; StoreSilent."""

    __slots__ = ()


class Destroy(Asked):
    """Remove the sandbox, its disk and its snapshots: Destroyed, NotDestroyed, Unavailable."""

    __slots__ = ()


class ConfirmOwner(Asked):
    """OwnerConfirmed when the store has taken a write of this gateway: no other has the session; StoreSilent."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class PutBackGeneration(Asked):
    """PutInPlace, NotPutInPlace."""

    generation: int = 0


@dataclass(frozen=True, slots=True)
class Schedule(Asked):
    """Due, after `seconds`."""

    seconds: float = 0.0


# -- what is not awaited -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cancel(Effect):
    """That effect is not wanted any more. What it got (a turn, a link) or gets is given back; no answer counts."""

    number: int


@dataclass(frozen=True, slots=True)
class EndTurn(Effect):
    number: int


@dataclass(frozen=True, slots=True)
class DropLink(Effect):
    link: int


@dataclass(frozen=True, slots=True)
class HearHello(Effect):
    """Deal with the link's hello behind all that was told before it, then: GreetingDone."""

    link: int


@dataclass(frozen=True, slots=True)
class StartAgent(Effect):
    link: int


@dataclass(frozen=True, slots=True)
class TellAgentToStop(Effect):
    link: int


class CutSync(Effect):
    """The link is lost: an attempt at a sync ends with it."""

    __slots__ = ()


class EndSync(Effect):
    """Nothing of the workspace is synced or thawed from now on: the sandbox has ended, or the session is deleted."""

    __slots__ = ()


class PauseSync(Effect):
    """No more attempts at a sync until the sandbox is found again: it is being stopped with what cannot be kept."""

    __slots__ = ()


class MarkProven(Effect):
    """An earlier gateway proved the workspace of the sandbox that was found: it may be synced."""

    __slots__ = ()


class Thaw(Effect):
    """Programs may start again. Asked for until the bridge has answered."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Flush(Effect):
    """Keep what is on the disk now, beside all else: Flushed, NotFlushed."""

    flush: int


@dataclass(frozen=True, slots=True)
class Save(Effect):
    """Store where the session stands, and tell its viewers the status if it is another."""

    status: SessionStatus
    reason: str
    incarnation: int
    clean: bool
    overfull: bool
    has_workspace: bool


@dataclass(frozen=True, slots=True)
class ForgetUnsure(Effect):
    """The sandbox is gone for good: say what it had and did not finish, in the link's order."""

    reason: str


@dataclass(frozen=True, slots=True)
class EndEpoch(Effect):
    """The agent process is gone, in the link's order; what is unsure stays so, if something is."""

    reason: str


class DiscardWindow(Effect):
    """What waits will not be delivered."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class TellError(Effect):
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class TellConnection(Effect):
    word: str


@dataclass(frozen=True, slots=True)
class ScheduleRestart(Effect):
    """RestartDue with that number, after `seconds`."""

    number: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Answer(Effect):
    """What was asked for is done, or overtaken: the description says which."""

    ask: int


@dataclass(frozen=True, slots=True)
class RefuseAsk(Effect):
    ask: int
    code: str
    text: str
