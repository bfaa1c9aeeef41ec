"""What can happen to a session's life. Values alone.

A command carries the number of who asked (`ask`; 0: nobody waits). It is answered once, by `Answer` or `RefuseAsk`. An
answer of an effect carries the number of that effect, an event of a link the number of the `Connect` that brought it.
By these numbers late ones are known.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Facts:
    """What the shell knows when an event comes, and the table only reads."""

    now: float = 0.0
    waiting: bool = False  # messages wait for the agent
    idle: bool = False  # nobody has done anything for long, and the workspace does not forbid a stop
    lacks_env: bool = False  # the session needs an environment that this process does not have
    forbidden: str = ""  # why its network may not be had
    full: str = ""  # why one more sandbox has no place
    exit_due: bool = False  # the agent has ended; its exit waits for the store
    unread: bool = False  # the last sync kept all but what may not be read


# -- commands ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LifeCommand:
    ask: int


class Wake(LifeCommand):
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Resume(LifeCommand):
    empty: bool = False
    keep: bool = False


class Sleep(LifeCommand):
    __slots__ = ()


class Pause(LifeCommand):
    __slots__ = ()


class Delete(LifeCommand):
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class SyncNow(LifeCommand):
    attempt: int = 0  # sandboxes that died while they were looked at


@dataclass(frozen=True, slots=True)
class PutBack(LifeCommand):
    generation: int = 0


class Revive(LifeCommand):
    """An archived session is created again."""

    __slots__ = ()


class Withdraw(LifeCommand):
    """Who asked does not wait any more: no answer is owed."""

    __slots__ = ()


# -- intent, time, the gateway -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Notice:
    pass


class AgentWanted(Notice):
    """Somebody has something for the agent."""

    __slots__ = ()


class EndAgent(Notice):
    """The agent process is to end; the sandbox stays."""

    __slots__ = ()


class EnvGiven(Notice):
    __slots__ = ()


class Idle(Notice):
    __slots__ = ()


class Rescue(Notice):
    """No sandbox runs, and it is time to keep what the last one left."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class SessionLoaded(Notice):
    """The session was just loaded. `runs`: the provider says that its sandbox runs."""

    runs: bool = False


class Leave(Notice):
    """The gateway leaves; the sandbox stays."""

    __slots__ = ()


class End(Notice):
    """The session ends here: it failed, or it is another gateway's."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class RestartDue(Notice):
    number: int


# -- answers of effects ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EffectReply:
    number: int


@dataclass(frozen=True, slots=True)
class Failure(EffectReply):
    reason: str = ""


class TurnGiven(EffectReply):
    __slots__ = ()


class Looked(EffectReply):
    __slots__ = ()


class SandboxStarted(EffectReply):
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class StartFailed(Failure):
    bug: bool = False  # nobody expected it: who asked is refused


class Unavailable(Failure):
    """The provider does not answer. What it was asked for may have happened."""

    __slots__ = ()


class Prepared(EffectReply):
    __slots__ = ()


class Unrestorable(Failure):
    __slots__ = ()


class AgentReleased(EffectReply):
    __slots__ = ()


class StoreSilent(EffectReply):
    """The store did not answer in time."""

    __slots__ = ()


class Linked(EffectReply):
    __slots__ = ()


class DialRefused(Failure):
    __slots__ = ()


class Runs(EffectReply):
    __slots__ = ()


class DoesNotRun(EffectReply):
    __slots__ = ()


class LetGo(EffectReply):
    """A survey: the agent is not held."""

    __slots__ = ()


class StillHeld(EffectReply):
    __slots__ = ()


class Lulled(EffectReply):
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class WorkspaceKept(EffectReply):
    remembered: bool = True  # the disk can be recognised as the newest generation
    replaced: bool = False  # the disk had lost most of its files: the newest generation took their place


class Overfull(Failure):
    """There is more than may be kept."""

    __slots__ = ()


class NotKept(Failure):
    __slots__ = ()


class Stopped(EffectReply):
    __slots__ = ()


class NotStopped(Failure):
    __slots__ = ()


class ArchivedWritten(EffectReply):
    __slots__ = ()


class Destroyed(EffectReply):
    __slots__ = ()


class NotDestroyed(Failure):
    __slots__ = ()


class OwnerConfirmed(EffectReply):
    __slots__ = ()


class PutInPlace(EffectReply):
    __slots__ = ()


class NotPutInPlace(Failure):
    __slots__ = ()


class Due(EffectReply):
    """The time that was asked for has passed."""

    __slots__ = ()


# -- what a link tells -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FromLink:
    link: int


@dataclass(frozen=True, slots=True)
class BridgeHello(FromLink):
    held: bool = False


@dataclass(frozen=True, slots=True)
class LinkLost(FromLink):
    reason: str = ""


@dataclass(frozen=True, slots=True)
class GreetingDone(FromLink):
    """What the links before this one told is dealt with, and so is its hello. `alive`: an agent runs."""

    alive: bool = False


class AgentReady(FromLink):
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class AgentExited(FromLink):
    code: int | None = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class AgentProblem(FromLink):
    reason: str = ""


# -- of a sync that runs beside all else -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Flushed:
    flush: int
    replaced: bool = False


@dataclass(frozen=True, slots=True)
class NotFlushed:
    flush: int
    reason: str = ""
    refused: bool = False  # no sync may be made now
    died: bool = False  # the sandbox did


COMMANDS = (Wake, Resume, Sleep, Pause, Delete, SyncNow, PutBack, Revive, Withdraw)
NOTICES = (AgentWanted, EndAgent, EnvGiven, Idle, Rescue, SessionLoaded, Leave, End, RestartDue)
REPLIES = (
    TurnGiven, Looked, SandboxStarted, StartFailed, Unavailable, Prepared, Unrestorable, AgentReleased, StoreSilent,
    Linked, DialRefused, Runs, DoesNotRun, LetGo, StillHeld, Lulled, WorkspaceKept, Overfull, NotKept, Stopped,
    NotStopped, ArchivedWritten, Destroyed, NotDestroyed, OwnerConfirmed, PutInPlace, NotPutInPlace, Due,
)  # fmt: skip
LINK_EVENTS = (BridgeHello, GreetingDone, LinkLost, AgentReady, AgentExited, AgentProblem)
FLUSHES = (Flushed, NotFlushed)
EVENTS: tuple[type, ...] = (*COMMANDS, *NOTICES, *REPLIES, *LINK_EVENTS, *FLUSHES)
Event = LifeCommand | Notice | EffectReply | FromLink | Flushed | NotFlushed
