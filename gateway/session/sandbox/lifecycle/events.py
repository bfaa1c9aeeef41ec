"""The events of a session's life. Values alone.

A command carries the number of its request (`ask`; 0: no request waits). It is answered once, by `Answer` or
`RefuseAsk`. An answer of an effect carries the number of that effect, an event of a link the number of the `Connect`
that brought it. These numbers show which ones are late.
"""

import msgspec


class Facts(msgspec.Struct, frozen=True):
    """Facts that the shell knows when an event comes, and that the table only reads."""

    now: float = 0.0
    waiting: bool = False  # messages wait for the agent
    idle: bool = False  # no activity for long, and the workspace does not forbid a stop
    lacks_env: bool = False  # the session needs an environment that this process does not have
    forbidden: str = ""  # why its network is not allowed
    full: str = ""  # why there is no place for one more sandbox
    exit_due: bool = False  # the agent has ended; its exit waits for the store
    unread: bool = False  # the last sync stored all files but the unreadable ones


# -- commands ----------------------------------------------------------------------------------------------------------


class LifeCommand(msgspec.Struct, frozen=True):
    ask: int


class Wake(LifeCommand, frozen=True):
    pass


class Resume(LifeCommand, frozen=True):
    empty: bool = False
    keep: bool = False


class Sleep(LifeCommand, frozen=True):
    pass


class Pause(LifeCommand, frozen=True):
    pass


class Delete(LifeCommand, frozen=True):
    pass


class SyncNow(LifeCommand, frozen=True):
    attempt: int = 0  # sandboxes that died during this sync


class PutBack(LifeCommand, frozen=True):
    generation: int = 0


class Revive(LifeCommand, frozen=True):
    """An archived session is created again."""


class Withdraw(LifeCommand, frozen=True):
    """The request does not wait any more: it needs no answer."""


# -- intent, time, the gateway -----------------------------------------------------------------------------------------


class Notice(msgspec.Struct, frozen=True):
    pass


class AgentWanted(Notice, frozen=True):
    """A message, a line or a command needs the agent."""


class EndAgent(Notice, frozen=True):
    """The agent process is to end; the sandbox stays."""


class EnvGiven(Notice, frozen=True):
    pass


class Idle(Notice, frozen=True):
    pass


class Rescue(Notice, frozen=True):
    """No sandbox runs, and it is time to store the files that the last one left."""


class SessionLoaded(Notice, frozen=True):
    """The session was just loaded. `runs`: the provider reports that its sandbox runs."""

    runs: bool = False


class Leave(Notice, frozen=True):
    """The gateway leaves; the sandbox stays."""


class End(Notice, frozen=True):
    """The session ends here: it failed, or another gateway has it."""


class RestartDue(Notice, frozen=True):
    number: int


# -- answers of effects ------------------------------------------------------------------------------------------------


class EffectReply(msgspec.Struct, frozen=True):
    number: int


class Failure(EffectReply, frozen=True):
    reason: str = ""


class TurnGiven(EffectReply, frozen=True):
    pass


class Looked(EffectReply, frozen=True):
    pass


class Underway(EffectReply, frozen=True):
    """No final answer yet: the effect goes on."""


class ImageAwaited(Underway, frozen=True):
    """A start waits for its image, which is being fetched."""


class ImageFetched(Underway, frozen=True):
    pass


class SandboxStarted(EffectReply, frozen=True):
    pass


class StartFailed(Failure, frozen=True):
    bug: bool = False  # an unexpected error: waiting requests are refused


class Unavailable(Failure, frozen=True):
    """The provider does not answer. The operation may have happened all the same."""


class Prepared(EffectReply, frozen=True):
    pass


class RestoredUnseen(EffectReply, frozen=True):
    """The disk has the right files, and programs of this sandbox would see the earlier ones."""


class Unrestorable(Failure, frozen=True):
    pass


class AgentReleased(EffectReply, frozen=True):
    pass


class StoreSilent(EffectReply, frozen=True):
    """The store did not answer in time."""


class Linked(EffectReply, frozen=True):
    pass


class DialRefused(Failure, frozen=True):
    pass


class Runs(EffectReply, frozen=True):
    pass


class DoesNotRun(EffectReply, frozen=True):
    pass


class LetGo(EffectReply, frozen=True):
    """A survey has found that the agent is not held."""


class StillHeld(EffectReply, frozen=True):
    pass


class Lulled(EffectReply, frozen=True):
    pass


class WorkspaceKept(EffectReply, frozen=True):
    remembered: bool = True  # the disk can be recognised as the newest generation
    replaced: bool = False  # the disk had lost most of its files: the newest generation took their place


class Overfull(Failure, frozen=True):
    """The workspace is larger than its bound."""


class NotKept(Failure, frozen=True):
    pass


class Stopped(EffectReply, frozen=True):
    pass


class NotStopped(Failure, frozen=True):
    pass


class ArchivedWritten(EffectReply, frozen=True):
    pass


class Destroyed(EffectReply, frozen=True):
    pass


class NotDestroyed(Failure, frozen=True):
    pass


class OwnerConfirmed(EffectReply, frozen=True):
    pass


class PutInPlace(EffectReply, frozen=True):
    pass


class NotPutInPlace(Failure, frozen=True):
    pass


class Due(EffectReply, frozen=True):
    """The timer of `Schedule` has expired."""


# -- events of a link -------------------------------------------------------------------------------------------------


class FromLink(msgspec.Struct, frozen=True):
    link: int


class BridgeHello(FromLink, frozen=True):
    held: bool = False


class LinkLost(FromLink, frozen=True):
    reason: str = ""


class GreetingDone(FromLink, frozen=True):
    """The events of earlier links are processed, and so is this one's hello. `alive`: an agent runs."""

    alive: bool = False


class AgentReady(FromLink, frozen=True):
    pass


class AgentExited(FromLink, frozen=True):
    code: int | None = 0
    reason: str = ""


class AgentProblem(FromLink, frozen=True):
    reason: str = ""


# -- of a sync that runs beside other operations ----------------------------------------------------------------------


class Flushed(msgspec.Struct, frozen=True):
    flush: int
    replaced: bool = False


class NotFlushed(msgspec.Struct, frozen=True):
    flush: int
    reason: str = ""
    refused: bool = False  # no sync may be made now
    died: bool = False  # the sandbox did


COMMANDS = (Wake, Resume, Sleep, Pause, Delete, SyncNow, PutBack, Revive, Withdraw)
NOTICES = (AgentWanted, EndAgent, EnvGiven, Idle, Rescue, SessionLoaded, Leave, End, RestartDue)
REPLIES = (
    TurnGiven, Looked, ImageAwaited, ImageFetched, SandboxStarted, StartFailed, Unavailable, Prepared, RestoredUnseen,
    Unrestorable, AgentReleased, StoreSilent, Linked, DialRefused, Runs, DoesNotRun, LetGo, StillHeld, Lulled,
    WorkspaceKept, Overfull, NotKept, Stopped, NotStopped, ArchivedWritten, Destroyed, NotDestroyed, OwnerConfirmed,
    PutInPlace, NotPutInPlace, Due,
)  # fmt: skip
LINK_EVENTS = (BridgeHello, GreetingDone, LinkLost, AgentReady, AgentExited, AgentProblem)
FLUSHES = (Flushed, NotFlushed)
EVENTS: tuple[type, ...] = (*COMMANDS, *NOTICES, *REPLIES, *LINK_EVENTS, *FLUSHES)
Event = LifeCommand | Notice | EffectReply | FromLink | Flushed | NotFlushed
