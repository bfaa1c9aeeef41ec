"""The effects that a session's life asks for. Values alone.

Effects are performed in the order in which they are returned. An `Asked` one is answered once, by an `EffectReply` with
its number; at most one is awaited. `ScheduleRestart`, `Flush` and `HearHello` are answered by events of their own, and
the life waits for none of those. The others are not answered.
"""

import msgspec

from gateway.session.model.state import SessionStatus


class Effect(msgspec.Struct, frozen=True):
    pass


class Asked(Effect, frozen=True):
    number: int


class AskTurn(Asked, frozen=True):
    """Ask for a turn: TurnGiven. `runs`: the sandbox runs already and only has to be found. `visit`: the session is not
    shown as starting."""

    runs: bool = False
    visit: bool = False


class LookForNewest(Asked, frozen=True):
    """Ask which generation is the newest: Looked, Unrestorable, StartFailed."""

    keep: bool = False


class StartHeld(Asked, frozen=True):
    """Start a sandbox with its agent held, and end one that runs before: SandboxStarted, StartFailed, Unavailable."""

    incarnation: int = 0
    empty: bool = False
    keep: bool = False
    visit: bool = False  # without the session's environment


class Prepare(Asked, frozen=True):
    """Bring the disk to the state that the session is to start with: Prepared, Unrestorable, StartFailed, Unavailable;
    unless it is a `visit` RestoredUnseen."""

    empty: bool = False
    keep: bool = False
    visit: bool = False  # no program runs in it


class Release(Asked, frozen=True):
    """Make it durable that the disk is ahead of the store, then release the agent: AgentReleased, Unrestorable,
    StartFailed, Unavailable; only if `bounded` StoreSilent."""

    bounded: bool = False


class Connect(Asked, frozen=True):
    """Dial the bridge: Linked, DialRefused, Unavailable. The number is the link's from then on."""


class AskRuns(Asked, frozen=True):
    """Ask whether the sandbox runs: Runs, DoesNotRun, Unavailable."""


class AskHeld(Asked, frozen=True):
    """Ask whether the agent is still held: LetGo, StillHeld, Unavailable; DialRefused if its bridge does not answer
    that."""


class Lull(Asked, frozen=True):
    """Wait for the sync that is under way: Lulled, NotKept."""


class Keep(Asked, frozen=True):
    """Freeze the programs unless it is a `visit`, then sync: WorkspaceKept, Overfull, NotKept, Unavailable; DoesNotRun
    if the sandbox has ended by itself."""

    visit: bool = False


class StopSandbox(Asked, frozen=True):
    """Stop the sandbox, if it runs: Stopped, NotStopped, Unavailable."""


class WriteArchived(Asked, frozen=True):
    """ArchivedWritten when it is durable that the session is archived; StoreSilent."""


class Destroy(Asked, frozen=True):
    """Remove the sandbox, its disk and its snapshots: Destroyed, NotDestroyed, Unavailable."""


class ConfirmOwner(Asked, frozen=True):
    """Check that no other gateway has the session: OwnerConfirmed when the store has taken a write of this one;
    StoreSilent."""


class PutBackGeneration(Asked, frozen=True):
    """Make an earlier generation the newest: PutInPlace, NotPutInPlace."""

    generation: int = 0


class Schedule(Asked, frozen=True):
    """Set a timer: Due, after `seconds`."""

    seconds: float = 0.0


# -- effects that are not awaited -------------------------------------------------------------------------------------


class Cancel(Effect, frozen=True):
    """Give up that effect. The turn or link that it got or gets is returned; its answer does not count."""

    number: int


class EndTurn(Effect, frozen=True):
    number: int


class DropLink(Effect, frozen=True):
    link: int


class HearHello(Effect, frozen=True):
    """Process the link's hello after all earlier events of the link, then: GreetingDone."""

    link: int


class StartAgent(Effect, frozen=True):
    link: int


class TellAgentToStop(Effect, frozen=True):
    link: int


class CutSync(Effect, frozen=True):
    """The link is lost: an attempt at a sync ends with it."""


class EndSync(Effect, frozen=True):
    """Sync and thaw no more: the sandbox has ended, or the session is deleted."""


class PauseSync(Effect, frozen=True):
    """Begin no more syncs until the sandbox is found again: it is being stopped with a workspace that cannot be
    stored."""


class MarkProven(Effect, frozen=True):
    """An earlier gateway proved the workspace of the sandbox that was found: it may be synced."""


class Thaw(Effect, frozen=True):
    """Let programs start again. Retries until the bridge confirms."""


class Flush(Effect, frozen=True):
    """Store the files on the disk now, beside other operations: Flushed, NotFlushed."""

    flush: int


class Save(Effect, frozen=True):
    """Store the state of the life, and report the status to viewers if it has changed."""

    status: SessionStatus
    reason: str
    incarnation: int
    clean: bool
    overfull: bool
    has_workspace: bool


class ForgetUnsure(Effect, frozen=True):
    """The sandbox is gone for good: report the messages it did not finish, in the link's order."""

    reason: str


class EndEpoch(Effect, frozen=True):
    """The agent process is gone, in the link's order; unsure messages stay unsure."""

    reason: str


class DiscardWindow(Effect, frozen=True):
    """The waiting messages will not be delivered."""


class TellError(Effect, frozen=True):
    code: str
    text: str


class TellConnection(Effect, frozen=True):
    word: str


class ScheduleRestart(Effect, frozen=True):
    """Set a timer: RestartDue with that number, after `seconds`."""

    number: int
    seconds: float


class Answer(Effect, frozen=True):
    """Answer a command that was performed or overtaken: the description shows which."""

    ask: int


class RefuseAsk(Effect, frozen=True):
    ask: int
    code: str
    text: str
